"""The pattern language: `window(4096) | sink(4)`, as `str` prints it."""

import difflib
import operator
import re
import typing
from collections.abc import Callable
from typing import Any

from attnjax.patterns import shipped
from attnjax.patterns.base import Pattern
from attnjax.patterns.heads import PerHead

NAMES: dict[str, Callable[..., Pattern]] = {
    "full": shipped.Full,
    "causal": shipped.Causal,
    "window": shipped.Window,
    "band": shipped.Band,
    "sink": shipped.Sink,
    "strided": shipped.Strided,
    "chunked": shipped.Chunked,
    "prefix": shipped.Prefix,
}
ARGUMENTS = {"full": 0, "causal": 0, "band": 2}  # every other name takes one
MOST_DIGITS = 40  # of an int; Python itself reads no more than some thousands
DEEPEST = 100  # parentheses and ~ inside each other
TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<int>[+-]?[0-9]\w*(?:\.\w*)?)|(?P<sign>[()|&~,]))")


@typing.no_type_check
def parse(text: str) -> Pattern | PerHead:
    """Reads a pattern from text: names as in Python, in any case, joined by `&`, `|`, `~` and parentheses.

    `&` binds before `|`, `~` before both. `perhead(p0, p1, ...)` gives each query head its own pattern.

    Args:
        text: e.g. `"window(4096) | sink(4)"`; `none` is an unbounded side of a band.

    Returns:
        The pattern; `parse(str(p)) == p` for every pattern without a `Where`.

    Raises:
        TypeError: if `text` is not a str.
        ValueError: if it does not parse, or its pattern is too large (see `Pattern`): the message shows the place
            and the nearest name.

    Example:
        >>> import attnjax as aj
        >>> aj.parse("Window(8) & ~chunked(4)") == aj.Window(8) & ~aj.Chunked(4)
        True
    """
    if not isinstance(text, str):
        raise TypeError(f"parse takes a str such as 'window(4) | sink(1)', got {type(text).__name__} {text!r}")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        place, end = 0, len(text.rstrip())
        while place < end:
            match = TOKEN.match(text, place)
            if not match:
                start = end - len(text[place:end].lstrip())
                raise self.error(f"{text[start]!r} is not part of the pattern language", start)
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind], match.start(kind)))
            place = match.end()
        self.tokens.append(("end", "", len(text)))
        self.next = self.depth = 0

    def error(self, what: str, place: int) -> ValueError:
        first, most = max(0, place - 60), 120  # of a long text, what stands around the place
        text = self.text if len(self.text) <= most else self.text[first : first + most]
        place = place if text == self.text else place - first
        return ValueError(f"cannot read pattern: {what}\n  {text}\n  {' ' * place}^")

    def take(self, *wanted: str) -> tuple[str, str, int] | None:
        """The next token if it is one of the wanted signs or kinds."""
        token = self.tokens[self.next]
        if token[0] in wanted or (token[0] == "sign" and token[1] in wanted):
            self.next += 1
            return token
        return None

    def need(self, sign: str, after: str) -> None:
        if not self.take(sign):
            _, got, place = self.tokens[self.next]
            raise self.error(f"expected {sign!r} {after}, found {repr(got) if got else 'the end'}", place)

    def whole(self) -> Pattern | PerHead:
        name, word, place = self.tokens[0]
        result = self.heads() if name == "name" and word.lower() == "perhead" else self.union()
        kind, got, place = self.tokens[self.next]
        if kind != "end":
            raise self.error(f"expected '|', '&' or the end, found {got!r}", place)
        return result

    def heads(self) -> PerHead:
        self.next += 1
        self.need("(", "after perhead")
        patterns = [self.union()]
        while self.take(","):
            patterns.append(self.union())
        self.need(")", "after the heads' patterns")
        return PerHead(patterns)

    def union(self) -> Pattern:
        result = self.intersection()
        while self.take("|"):
            result = self.joined(operator.or_, self.tokens[self.next][2], result, self.intersection())
        return result

    def intersection(self) -> Pattern:
        result = self.single()
        while self.take("&"):
            result = self.joined(operator.and_, self.tokens[self.next][2], result, self.single())
        return result

    def joined(self, join: Callable[[Pattern, Pattern], Pattern], place: int, a: Pattern, b: Pattern) -> Pattern:
        try:
            return join(a, b)
        except ValueError as fault:  # too large
            raise self.error(str(fault), place) from None

    def single(self) -> Pattern:
        place = self.tokens[self.next][2]
        opened = self.take("~", "(")
        if opened:
            self.depth += 1
            if self.depth > DEEPEST:
                raise self.error(f"parentheses and ~ stand more than {DEEPEST} deep in each other", place)
            result = ~self.single() if opened[1] == "~" else self.union()
            if opened[1] == "(":
                self.need(")", "to close the parenthesis")
            self.depth -= 1
            return result
        token = self.take("name")
        if token is None:
            _, got, place = self.tokens[self.next]
            raise self.error(f"expected a pattern such as window(4), found {repr(got) if got else 'the end'}", place)
        return self.call(token[1], token[2])

    def call(self, word: str, place: int) -> Pattern:
        name = word.lower()
        if name == "where":
            raise self.error("where(fn) holds a Python function, so it has no text; build it with Where(fn)", place)
        if name == "perhead":
            raise self.error("perhead(...) does not nest: it must be the outermost word", place)
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(NAMES)}"
            raise self.error(f"there is no pattern {word!r}; {hint}", place)
        self.need("(", f"after {word}")
        values = self.arguments(name)
        wanted = ARGUMENTS.get(name, 1)
        if len(values) != wanted:
            raise self.error(f"{name} takes {wanted} argument{'s' * (wanted != 1)}, got {len(values)}", place)
        try:
            return NAMES[name](*values)
        except (TypeError, ValueError) as fault:
            raise self.error(str(fault), place) from None

    def arguments(self, name: str) -> list[Any]:
        values: list[Any] = []
        while not self.take(")"):
            if values:
                self.need(",", f"between the arguments of {name}")
            token = self.take("int", "name")
            if token is None or (token[0] == "name" and token[1].lower() != "none"):
                _, got, place = token or self.tokens[self.next]
                raise self.error(f"expected an int or none, found {repr(got) if got else 'the end'}", place)
            if token[0] == "name":
                values.append(None)
            elif not re.fullmatch(r"[+-]?[0-9]+", token[1]):
                raise self.error(f"{token[1]!r} is not an int", token[2])
            elif len(token[1]) > MOST_DIGITS:
                raise self.error(f"an int of {len(token[1])} digits fits into no 64-bit integer", token[2])
            else:
                values.append(int(token[1]))
        return values
