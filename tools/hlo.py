"""What a compiled program runs, read from its optimized HLO: every operation times how often it runs."""

import re
from collections.abc import Callable
from typing import NamedTuple

# what XLA for GPUs does without a launch
FREE = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"))
MOVES = frozenset(("copy", "bitcast", "copy-start", "copy-done"))  # what hands a number on as it is

_COMPUTATION = re.compile(r"(ENTRY )?%([\w.\-]+) .*\{$")
_OPERATION = re.compile(r"\s+(ROOT )?%([\w.\-]+) = ")
_KIND = re.compile(r" ([a-z][a-z0-9\-]*)\(")  # no type holds a word right before a parenthesis
_NAME = re.compile(r"%([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_BRANCHES = re.compile(r"(?:branch_computations=\{([^}]*)\}|true_computation=(\S+), false_computation=([^\s,]+))")


class Operation(NamedTuple):
    """One line of a computation."""

    name: str
    kind: str
    operands: tuple[str, ...]
    line: str

    def named(self, attribute: str) -> str:
        """The computation that an attribute names."""
        found = re.search(rf"\b{attribute}=%([\w.\-]+)", self.line)
        if found is None:
            raise ValueError(f"{self.name} is a {self.kind} without {attribute}=: this is no HLO that XLA prints")
        return found[1]


class Computation(NamedTuple):
    """Operations by name, in the order in which they are printed."""

    operations: dict[str, Operation]
    root: str


class Program:
    """An optimized HLO module, as `Compiled.as_text()` prints it."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, Computation] = {}
        entry, name, root, found = None, None, "", {}
        for line in text.splitlines():
            head = _COMPUTATION.match(line)
            operation = _OPERATION.match(line)
            if head:
                name, found = head[2], {}
                entry = name if head[1] else entry
            elif line.startswith("}") and name is not None:
                self.computations[name], name = Computation(found, root), None
            elif operation and name is not None:
                found[operation[2]] = _operation(operation[2], line, operation.end() - 1)
                root = operation[2] if operation[1] else root
        if entry is None:
            raise ValueError("the text has no ENTRY computation; give what Compiled.as_text() prints")
        self.entry = entry

    def total(self, price: Callable[[Operation], int], visits: tuple[int, ...] = ()) -> int:
        """The sum of an operation's price over all operations that one call runs.

        Args:
            price: of one run of an operation.
            visits: how often, over the whole call, the loops run whose trips the text does not state, in its order.

        Raises:
            ValueError: if `visits` is not as long as there are such loops.
        """
        unstated: list[str] = []

        def of(name: str, times: int) -> int:
            here, found = self.computations[name], 0
            for x in here.operations.values():
                if x.kind == "while":
                    trips, stated = self._trips(here, x), _TRIPS.search(x.line)
                    if trips is None:
                        runs = visits[len(unstated)] if len(unstated) < len(visits) else 0
                        unstated.append(x.name)
                    else:
                        runs = times * trips
                    # only loops of stated length run without asking their condition
                    found += of(x.named("body"), runs) + (0 if stated else of(x.named("condition"), runs + times))
                elif x.kind == "conditional":
                    found += max(of(branch, times) for branch in _branches(x))
                elif x.kind in ("call", "async-start"):
                    found += of(x.named("to_apply" if x.kind == "call" else "calls"), times)
                else:
                    found += times * price(x)
            return found

        sum_of_all = of(self.entry, 1)
        if len(unstated) != len(visits):
            raise ValueError(
                f"{len(unstated)} loops of the compiled program do not say how often they run "
                f"({', '.join(unstated) or 'none'}), and the row names {len(visits)}; name in `loops` of the row, loop "
                f"by loop, which visits each one makes"
            )
        return sum_of_all

    def _trips(self, here: Computation, loop: Operation) -> int | None:
        """How often a loop's body runs each time; None where numbers decide that the text does not hold.

        XLA for GPUs states it. XLA for TPUs does not, but leaves a counter, its start, its step and its end.
        """
        stated = _TRIPS.search(loop.line)
        if stated:
            return int(stated[1])
        condition, body = (self.computations[loop.named(x)] for x in ("condition", "body"))
        test = condition.operations[condition.root]
        if test.kind != "compare" or "direction=LT" not in test.line:
            return None
        counter, end = condition.operations[test.operands[0]], _constant(condition, test.operands[1])
        starts, ends = here.operations[loop.operands[0]], body.operations[body.root]
        if counter.kind != "get-tuple-element" or starts.kind != "tuple" or ends.kind != "tuple":
            return None
        index = _index(counter)
        start, step = _constant(here, starts.operands[index]), _step(body, ends.operands[index], index)
        if start is None or end is None or step is None:
            return None
        return max(0, -(-(end - start) // step))


def launches(operation: Operation) -> int:
    """What one run of an operation launches on a GPU: a kernel or a copy, or nothing."""
    return 0 if operation.kind in FREE or operation.kind.endswith("-done") else 1


def cycles(operation: Operation) -> int:
    """What XLA for TPUs estimates for one run; 0 where it says nothing (scalars, copies that run alongside)."""
    found = _CYCLES.search(operation.line)
    return int(found[1]) if found else 0


def kernels(operation: Operation) -> int:
    """1 for a Pallas kernel on a TPU, of which XLA estimates nothing."""
    return int('custom_call_target="tpu_custom_call"' in operation.line)


def _operation(name: str, line: str, after: int) -> Operation:
    kind = _KIND.search(line, after)
    if kind is None:
        raise ValueError(f"no operation is named on the line of {name}: {line.strip()[:120]}")
    operands = line[kind.end() : line.index(")", kind.end())]
    # a constant has its value for an operand
    found = (operands,) if kind[1] == "constant" else tuple(_NAME.findall(operands))
    return Operation(name, kind[1], found, line)


def _branches(operation: Operation) -> list[str]:
    found = _BRANCHES.search(operation.line)
    if found is None:
        raise ValueError(f"the conditional {operation.name} names no branches: this is no HLO that XLA prints")
    return _NAME.findall(" ".join(part for part in found.groups() if part))


def _index(element: Operation) -> int:
    found = re.search(r"\), index=(\d+)", element.line)
    if found is None:
        raise ValueError(f"{element.name} takes an element and says not which: this is no HLO that XLA prints")
    return int(found[1])


def _constant(here: Computation, name: str) -> int | None:
    """The whole number that an operation hands on; None if it is none, or computed."""
    x = here.operations[name]
    while x.kind in MOVES:
        x = here.operations[x.operands[0]]
    return int(x.operands[0]) if x.kind == "constant" and re.fullmatch(r"-?\d+", x.operands[0]) else None


def _step(body: Computation, name: str, index: int) -> int | None:
    """By how much a loop's body raises the element of its carry; None if that is not what it does."""
    x = body.operations[name]
    while x.kind in MOVES:
        x = body.operations[x.operands[0]]
    if x.kind != "add":
        return None
    steps = [_constant(body, operand) for operand in x.operands]
    carried = [body.operations[operand] for operand, step in zip(x.operands, steps, strict=True) if step is None]
    while carried and carried[0].kind in MOVES:
        carried = [body.operations[carried[0].operands[0]]]
    if len(carried) != 1 or carried[0].kind != "get-tuple-element" or _index(carried[0]) != index:
        return None
    (step,) = (step for step in steps if step is not None)
    return step if step > 0 else None
