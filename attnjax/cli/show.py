"""attnjax show: a pattern, or what is computed for it, as text, SVG or PNG."""

import argparse
import pathlib

from attnjax import show
from attnjax.cli.arguments import PATTERN_HELP, add_lengths, pattern
from attnjax.cli.explain import add_call, explained

NAME = "show"
HELP = "draw who sees whom under a pattern, or (--plan) which scores are computed for it"
EXAMPLES = """examples:
  attnjax show "window(4) | sink(1)" --length 16
  attnjax show "strided(128) | window(128)" --length 131072 --svg strided.svg
  attnjax show "causal()" --length 4096 --plan
"""
OF_A_CALL = "heads", "kv_heads", "head_dim", "batch", "dtype", "backend"


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("pattern", type=pattern, help=PATTERN_HELP)
    add_lengths(parser, default=16)
    parser.add_argument("--svg", metavar="FILE", help="write an SVG instead of text")
    parser.add_argument("--png", metavar="FILE", help="write a PNG instead of text (needs matplotlib)")
    plan = parser.add_argument_group("what is computed (the other options below need --plan)")
    plan.add_argument("--plan", action="store_true", help="draw FULL, PARTIAL and EMPTY tiles instead of the pattern")
    add_call(plan)


def run(args: argparse.Namespace) -> str:
    """The text, or which files were written."""
    what, lengths = args.pattern, (args.length, args.keys, args.q_offset)
    given = [f"--{name.replace('_', '-')}" for name in OF_A_CALL if getattr(args, name) is not None]
    if args.plan:
        what, lengths = explained(args), (None, None, None)
    elif given:
        raise ValueError(f"{', '.join(given)} changes what is computed, not who sees whom: add --plan, or leave it out")
    if args.svg is None and args.png is None:
        return show.text(what, *lengths)
    drawn = show.picture(what, *lengths)
    for path, ending in ((args.svg, ".svg"), (args.png, ".png")):
        if path is not None and pathlib.Path(path).suffix.lower() != ending:
            raise ValueError(f"--{ending[1:]} {path}: the file must end in {ending}")
    written = [str(drawn.save(path)) for path in (args.svg, args.png) if path is not None]
    return f"{drawn.title}: {drawn.description}\nwritten: {', '.join(written)}"
