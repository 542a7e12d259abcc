"""Reads the command line, runs one subcommand, writes what it says."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from attnjax.cli import cost, explain, figures, show
from attnjax.cli.arguments import one_line

# A subcommand is a module: NAME, HELP, EXAMPLES, add(parser), run(args) -> what to write.
COMMANDS = show, cost, explain, figures
# What a terminal without UTF-8 gets instead of the shades.
PLAIN = str.maketrans({"█": "#", "▓": "x", "▒": "o", "░": ":", "·": ".", "…": "~"})


class Parser(argparse.ArgumentParser):
    """One line for an error, not the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = Parser(prog="attnjax", description="Attention patterns: pictures, exact counts, costs, tiles.")
    version = importlib.import_module("attnjax").__version__
    whole.add_argument("--version", action="version", version=f"attnjax {version}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        one = commands.add_parser(
            command.NAME, help=command.HELP, description=command.HELP, epilog=command.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        command.add(one)
        one.set_defaults(run=command.run, name=command.NAME)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command: 0 if it did what was asked, 2 with one line on stderr if it could not."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as done:  # --help, --version, or a wrong command line
        return int(done.code or 0)
    try:
        return _write(args.run(args), sys.stdout)
    except (ValueError, ImportError, OSError) as error:
        sys.stderr.write(f"attnjax {args.name}: error: {one_line(error)}\n")
        return 2


def _write(text: str, out: Any) -> int:
    """Writes text without colours or control codes, so that it pipes; a reader may stop early."""
    if out is None:  # `attnjax show ... >&-`
        raise OSError("standard output is closed, so there is nowhere to write")
    try:
        text.encode(out.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(PLAIN).encode(out.encoding, "replace").decode(out.encoding)
    try:
        out.write(text + "\n")
        out.flush()
    except BrokenPipeError:  # `attnjax show ... | head`: Python would complain once more when it closes the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    return 0
