"""The command line: `python -m train check` and `python -m train run configs/NAME.toml`."""

import argparse
import pathlib
import sys
from collections.abc import Callable

# Nothing that imports jax up here: worker processes load this file before their settings are in place.


def parser() -> argparse.ArgumentParser:
    """The two commands and their options."""
    top = argparse.ArgumentParser(
        prog="python -m train", description="Trains small models with attnjax.",
        epilog="Rows of the check: train/rows.py. Settings of a run: configs/hybrid.toml names them all.")
    commands = top.add_subparsers(dest="command", required=True, metavar="{check,run}")
    check = commands.add_parser(
        "check", help="show pattern by pattern that a model learns what it can and fails where it must",
        description="Trains one small model per row of train/rows.py and compares it with the row's bands. Exits "
                    "with 1 if a row contradicts them. Writes report.md, report.json and accuracy.png.")
    check.add_argument("--full", action="store_true", help="all rows with three seeds each (half an hour on two cores)")
    check.add_argument("--row", action="append", default=[], metavar="NAME", nargs="+",
                       help="only these rows; --row list prints all names")
    check.add_argument("--break", dest="broken", metavar="KIND",
                       help="train with a fault that the check must notice: window+1, drop-sink, leak-future, stride+1")
    check.add_argument("--seed", type=int, help="of every row, instead of the row's own")
    check.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/check"), metavar="DIR",
                       help="folder of the report; an earlier report there is replaced (default: %(default)s)")
    run = commands.add_parser(
        "run", help="train on real text",
        description="Next-byte training of one model on text. Writes run.json, metrics.jsonl, sample.txt and "
                    "loss.png into a folder of its own.")
    run.add_argument("config", type=pathlib.Path, help="a TOML file, for example configs/hybrid.toml")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", nargs="+",
                     help="change settings, for example --set optim.steps=100 data.path='\"my.txt\"'")
    run.add_argument("--out", type=pathlib.Path, metavar="DIR",
                     help="a new folder (default: the next free runs/NAME-1, runs/NAME-2, ...)")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; 0 is success, 1 a row outside its bands, 2 a wrong argument or setting."""
    options = parser().parse_args(arguments)
    try:
        start = _check(options) if options.command == "check" else _run(options)
    except ValueError as error:
        print(f"python -m train {options.command}: {error}", file=sys.stderr)
        return 2
    return start()


def _check(options: argparse.Namespace) -> Callable[[], int]:
    from train import check, rows

    names = [name for group in options.row for name in group]
    if names == ["list"]:
        print("\n".join(f"{row.name:18} {row.shows}" for row in rows.QUICK + rows.FULL))
        return lambda: 0
    chosen = check.select(options.full, names, options.broken, options.seed)
    return lambda: check.check(chosen, options.out, options.broken)


def _run(options: argparse.Namespace) -> Callable[[], int]:
    from train import config, run

    settings = config.read(options.config, [item for group in options.set for item in group])
    plan = run.plan(settings, options.config.stem, options.out)
    return lambda: run.run(plan)


if __name__ == "__main__":
    sys.exit(main())
