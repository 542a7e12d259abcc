"""One call as jobs: heads of one pattern, in the layout of one walk. Every job is a short call of its own."""

from typing import Any, NamedTuple

from attnjax.backends.base import Target
from attnjax.call import Call
from attnjax.patterns import PerHead
from attnjax.plan import Plan, plan
from attnjax.shapes import Dims, is_symbolic
from attnjax.tile_sizes import RUN_TIME, Heads, Sizes, loops_for, rows_at_once, sequences_at_once
from attnjax.walks import Walk

RUN_TIME_FACTS = ("q_offset", "q_ids", "k_ids", "q_pos", "k_pos")  # what decides at run time who sees whom


class Group(NamedTuple):
    """Query heads that share a pattern."""

    heads: tuple[int, ...]
    pattern: Any
    plan: Plan
    sizes: Sizes  # that it was made with


class Job(NamedTuple):
    """One walk of one group, taken a few sequences at a time.

    A walk in residue classes is split along its classes, `size` of them (each of all sequences) at a time; a walk
    in place is split along the batch.
    """

    heads: tuple[int, ...]
    key_heads: tuple[int, ...]
    pattern: Any
    walk: Walk
    classes: int
    groups: int
    size: int
    together: int  # rows of tiles taken at once
    target: Target
    sizes: Sizes
    visit: int  # scores of a visit of one row


def at_run_time(call: Call) -> bool:
    """Whether positions or segments decide at run time which tiles are visited."""
    return call.options.plan_by is not None or call.facts.q_ids is not None


def groups(call: Call, target: Target, backward: bool = False) -> tuple[Group, ...]:
    """The call's heads by pattern, each with its plan there."""
    sizes = loops_for(target.platform, target.device_kind, backward)
    d, o = call.dims, call.options
    patterns: tuple[Any, ...] = (o.pattern,) * d.N
    if isinstance(o.pattern, PerHead) and not at_run_time(call) and o.tile is None:
        patterns = o.pattern.patterns
    found = []
    for pattern in dict.fromkeys(patterns):
        heads = tuple(n for n, other in enumerate(patterns) if other == pattern)
        found.append(Group(heads, pattern, _plan(call, pattern, heads, sizes), sizes))
    return tuple(found)


def _plan(call: Call, pattern: Any, heads: tuple[int, ...], sizes: Sizes) -> Plan:
    d, o = call.dims, call.options
    tile = o.tile
    if tile is None and at_run_time(call):
        tile = min(RUN_TIME, d.T), min(RUN_TIME, d.S)
    batch = 1 if is_symbolic(d.B) else d.B  # a symbolic one says nothing about the best tiles
    many = Heads(batch, len(heads), len(heads) // len(_key_heads(d, heads)))
    masked = call.mask is not None or o.plan_by is not None
    return plan(pattern if o.plan_by is None else o.plan_by, d.T, d.S, o.q_offset, many, masked, tile, sizes)


def jobs(call: Call, group: Group, target: Target) -> list[Job]:
    """The group's walks."""
    d = call.dims
    key_heads, found = _key_heads(d, group.heads), []
    sizes = group.sizes
    for walk in group.plan.walks:
        classes = group.plan.classes(walk)
        whole, other = (d.B, 1) if walk.step == 1 else (classes, d.B)
        most = _at_once(call, group, walk, target)
        parts = 1 if most is None else -(-whole // most)
        size = whole if most is None else 1 if most == 1 else -(-whole // parts)
        batch = 1 if is_symbolic(d.B) else size * other
        visit = batch * len(group.heads) * walk.tile_q * walk.tile_k
        together = call.options.rows_at_once or rows_at_once(sizes, walk.rows, visit, walk.tiles is not None)
        job = Job(group.heads, key_heads, group.pattern, walk, classes, parts, size, together, target, sizes, visit)
        found.append(job)
    return found


def _at_once(call: Call, group: Group, walk: Walk, target: Target) -> int | None:
    """How many sequences (or classes, of a walk that has them) a visit takes together; None: all of them."""
    d = call.dims
    if target.num_devices > 1:  # a loop over parts of an axis that lies on several devices would move all of it
        return None
    known = (getattr(call.facts, name) for name in RUN_TIME_FACTS)
    if at_run_time(call) and any(x is not None and x.shape[0] != 1 for x in known):
        return 1
    if is_symbolic(d.B):
        return None
    classes = group.plan.classes(walk)
    at_once = sequences_at_once(Heads(classes * d.B, len(group.heads), 1), walk.tile_q, walk.tile_k, group.sizes)
    return max(1, at_once if walk.step == 1 else at_once // d.B)


def _key_heads(d: Dims, heads: tuple[int, ...]) -> tuple[int, ...]:
    """Which key heads these query heads read, in an order in which equal numbers of them share one."""
    size = d.N // d.K
    owners = tuple(n // size for n in heads)
    whole = tuple(dict.fromkeys(owners))
    return whole if len(heads) == size * len(whole) else owners
