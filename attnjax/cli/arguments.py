"""What the subcommands share: how numbers and patterns are read, and errors as one line."""

import argparse
from collections.abc import Callable

from attnjax.patterns import Pattern, PerHead, parse
from attnjax.patterns.checks import LARGEST

PATTERN_HELP = 'in the pattern language, e.g. "window(4) | sink(1)" (in quotes, or the shell reads | itself)'


def whole(low: int) -> Callable[[str], int]:
    """A whole number from `low` to the largest position, as an argparse type."""

    def read(text: str) -> int:
        try:
            number = int(text.replace("_", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= number <= LARGEST:
            raise argparse.ArgumentTypeError(f"{number} must be from {low} to {LARGEST}")
        return number

    return read


def pattern(text: str) -> Pattern | PerHead:
    """A pattern, as an argparse type."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(one_line(error)) from None


def add_lengths(parser: argparse.ArgumentParser, default: int | None = None) -> None:
    """--length, --keys and --q-offset."""
    said = "" if default is None else f" (default: {default})"
    about = f"number of queries{said}"
    parser.add_argument("--length", type=whole(1), default=default, required=default is None, metavar="T", help=about)
    parser.add_argument("--keys", type=whole(1), metavar="S", help="number of keys (default: as many as queries)")
    parser.add_argument(
        "--q-offset", type=whole(-LARGEST), metavar="P", help="position of the first query; needed if S is not T"
    )


def add_heads(parser: argparse._ActionsContainer) -> None:
    """--heads, --kv-heads and --head-dim; None where the caller said nothing."""
    parser.add_argument("--heads", type=whole(1), metavar="N", help="query heads")
    parser.add_argument("--kv-heads", type=whole(1), metavar="K", help="key and value heads (default: as many)")
    parser.add_argument("--head-dim", type=whole(1), metavar="H", help="size of a head")


def one_line(error: Exception) -> str:
    """An error's text as one line; of one that points at a place with a caret, the place in words."""
    lines = str(error).splitlines() or [type(error).__name__]
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if len(lines) >= 3 and lines[-1].strip() == "^":
        place = lines[-1].index("^") - 2
        return f"{lines[0]} (at character {place + 1} of {lines[-2].strip()!r})"
    return " ".join(line.strip() for line in lines)
