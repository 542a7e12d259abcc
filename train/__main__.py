"""The command line: `python -m train check`, `run configs/NAME.toml`, `resume RUN` and `sample RUN --prompt TEXT`."""

import argparse
import io
import os
import pathlib
import sys
from collections.abc import Callable

from train import stops

# Nothing that imports jax up here: worker processes load this file before their settings are in place.


def folder(text: str) -> pathlib.Path:
    """A path, as an argparse type: an empty one would mean the working folder."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a folder")
    return pathlib.Path(text)


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="python -m train", description="Trains small models with attnjax.",
        epilog="Rows of the check: train/rows.py. Settings of a run: configs/hybrid.toml names them all.")
    commands = top.add_subparsers(dest="command", required=True, metavar="{check,run,resume,sample}")
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
    check.add_argument("--out", type=folder, default=pathlib.Path("runs/check"), metavar="DIR",
                       help="folder of the report; an earlier report there is replaced (default: %(default)s)")
    run = commands.add_parser(
        "run", help="train on real text",
        description="Next-byte training of one model on text. Writes run.json, metrics.jsonl, checkpoints/, "
                    "sample.txt, loss.png and model/ into a folder of its own. Exits with 1 if a loss is not finite or "
                    "the disk is full; the checkpoints stay.")
    run.add_argument("config", type=pathlib.Path, help="a TOML file, for example configs/hybrid.toml")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", nargs="+",
                     help="change settings, for example --set optim.steps=100 data.path='\"my.txt\"'")
    run.add_argument("--out", type=folder, metavar="DIR",
                     help="a new folder (default: the next free runs/NAME-1, runs/NAME-2, ...)")
    resume = commands.add_parser(
        "resume", help="go on with a run that was stopped",
        description="Goes on from the newest checkpoint, or from the start if there is none, with the settings of "
                    "the run. On the machine and the versions that it began with, the run ends as if it had never "
                    "been stopped.")
    resume.add_argument("run", type=folder, metavar="RUN", help="its folder, for example runs/hybrid-1")
    sample = commands.add_parser(
        "sample", help="let the model of a run write",
        description="Continues a prompt with the newest checkpoint of a run, finished or not. The model reads the last "
                    "data.length bytes.")
    sample.add_argument("run", type=folder, metavar="RUN", help="its folder, for example runs/hybrid-1")
    sample.add_argument("--prompt", required=True, metavar="TEXT", help="the text to continue")
    sample.add_argument("--length", "--tokens", type=int, metavar="N", help="bytes to write (default: run.sample)")
    sample.add_argument("--temperature", type=float, metavar="T",
                        help="0 takes the likeliest byte each time, 1 draws as the model says (default: "
                             "run.temperature)")
    sample.add_argument("--seed", type=int, help="of the draws (default: run.seed)")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs a command.

    Returns:
        0 is success; 1 a row outside its bands or a run that could not go on; 2 a wrong argument or setting, or a run
        that cannot be read; 130 a check or a run stopped by Ctrl-C or SIGTERM.
    """
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without UTF-8 must not end a run when it shows its sample
        sys.stdout.reconfigure(errors="replace")
    starts = {"check": _check, "run": _run, "resume": _resume, "sample": _sample}
    stopped = Stopped()
    with stops.listening(stopped.words):
        try:
            return _started(options, lambda: starts[options.command](options, stopped))
        except KeyboardInterrupt:
            print(stopped.words(), file=sys.stderr)
            return stops.STATUS


def _started(options: argparse.Namespace, start: Callable[[], Callable[[], int]]) -> int:
    try:
        work = start()
    except (ValueError, ImportError, OSError) as error:
        return _say(options, error, 2)
    try:
        return work()
    except (FloatingPointError, OSError) as error:
        return _say(options, error, 1)


def _say(options: argparse.Namespace, error: Exception, status: int) -> int:
    from attnjax.cli.arguments import one_line

    print(f"python -m train {options.command}: {one_line(error)}", file=sys.stderr)
    return status


class Stopped:
    """What is said of a command that Ctrl-C has stopped."""

    def __init__(self):
        self.run: pathlib.Path | None = None  # the folder of the run that it trains

    def words(self) -> str:
        """One line, for where it stands now."""
        if self.run is None:
            return "stopped"
        if not (self.run / "run.json").exists():
            return "stopped before the run began; nothing was written"
        saved = any(path.name.isdigit() for path in (self.run / "checkpoints").glob("*"))
        where = "from the newest checkpoint" if saved else "from its start, as no checkpoint was written yet"
        return f"stopped; python -m train resume {self.run} goes on {where}"


def _check(options: argparse.Namespace, stopped: Stopped) -> Callable[[], int]:
    from train import check, rows

    names = [name for group in options.row for name in group]
    if names == ["list"]:
        print("\n".join(f"{row.name:18} {row.shows}" for row in rows.QUICK + rows.FULL))
        return lambda: 0
    chosen = check.select(options.full, names, options.broken, options.seed)
    check.ready(chosen, options.out, options.broken)
    return lambda: check.check(chosen, options.out, options.broken)


def _run(options: argparse.Namespace, stopped: Stopped) -> Callable[[], int]:
    from train import config, run

    settings = config.read(options.config, [item for group in options.set for item in group])
    plan = run.plan(settings, options.config.stem, options.out)
    stopped.run = plan.out
    return lambda: run.run(plan)


def _resume(options: argparse.Namespace, stopped: Stopped) -> Callable[[], int]:
    from train import resume, run

    plan = resume.plan(options.run)
    stopped.run = plan.out
    return lambda: run.run(plan)


def _sample(options: argparse.Namespace, stopped: Stopped) -> Callable[[], int]:
    from train import resume

    prompt = os.fsencode(options.prompt)  # as the shell gave it, UTF-8 or not
    text = resume.speak(options.run, prompt, options.length, options.temperature, options.seed)
    print((prompt + text).decode(errors="replace"))
    return lambda: 0


if __name__ == "__main__":
    ended = main()
    if ended == stops.STATUS:
        os._exit(ended)  # at once: closing down takes a second, in which another Ctrl-C would show a traceback
    sys.exit(ended)
