"""How fast `aj.attend` is against what else runs on this machine, and what its programs need.

    python benchmarks/attend.py --list
    python benchmarks/attend.py --rows causal-4096-forward 'waste-*' --torch-python other/bin/python

Results are compared before anything is timed; a difference stops the run. Each round times every side once, in
an order that turns from round to round, on new numbers; a ratio is (rival's seconds / attnjax's seconds) of one
round, and the figure is the median over the rounds: above 1 means that attnjax is faster. "backward" is a forward
and a backward together. The last line is one JSON document. A missed target is reported, not an error.
"""

import argparse
import fnmatch
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys

import chart
import child
import contest
import jax
import programs
import roofline
import table
from rows import ROWS, Row

import attnjax as aj

QUICK = 4096  # tokens
PACKAGES = "jax", "jaxlib", "numpy", "flax", "tokamax"


def arguments(words):
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="rows by name or shell pattern; all by default")
    parser.add_argument("--peers", nargs="*", metavar="PEER", help="only these rivals: jax.nn flax tokamax sdpa flex")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help=f"rows of up to {QUICK} tokens, at most 3 rounds")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--roofline", action="store_true", help="also what bounds each row: products and exponentials")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="keep attend.json and attend.png here")
    parser.add_argument("--torch-python", help="an interpreter that has torch; this one by default")
    args = parser.parse_args(words)
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least one round is needed")
    unknown = set(args.peers or ()) - set(contest.PEERS)
    if unknown:
        parser.error(f"--peers {', '.join(sorted(unknown))}: known are {', '.join(contest.PEERS)}")
    return args


def chosen(args, rows):
    """The rows that the command line asks for.

    Raises:
        SystemExit: if a name fits no row.
    """
    for name in args.rows or ():
        if not fnmatch.filter([row.name for row in rows], name):
            raise SystemExit(f"--rows {name} fits no row; --list shows them")
    wanted = [row for row in rows if any(fnmatch.fnmatch(row.name, name) for name in args.rows or ["*"])]
    if args.quick:
        wanted = [row for row in wanted if isinstance(row, Row) and row.work.T <= QUICK]
    if args.peers is not None:
        wanted = [row.only(args.peers) if isinstance(row, Row) else row for row in wanted]
    return wanted


def num_threads():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def torch_child(python, threads, program=child.PROGRAM):
    """The process that holds torch, or None where torch cannot be imported.

    Raises:
        SystemExit: if the caller named an interpreter and it has no torch.
    """
    found = subprocess.run([python or sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    if python and not found:
        raise SystemExit(f"--torch-python {python} cannot import torch")
    return child.Child(python or sys.executable, threads, program) if found else None


def about(threads, torch):
    """Versions, device and load, before anything ran."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "attnjax": aj.__version__, **versions, "torch": torch.about["torch"] if torch else None,
        "torch_threads": torch.about["threads"] if torch else None, "python": platform.python_version(),
        "machine": platform.machine(), "device": jax.devices()[0].device_kind, "threads": threads,
        "load": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def measured(rows, torch, args):
    """Each row's dictionary, printed as soon as it is there."""
    print(table.HEAD)
    rounds = min(args.rounds, 3) if args.quick else args.rounds
    for row in rows:
        if isinstance(row, Row):
            entry = contest.measure(row, torch, rounds)
            if args.roofline:
                entry["bound"] = roofline.bound(row.work)
        else:
            entry = programs.measure(row)
        print(table.text(entry), flush=True)
        yield entry


def main(words=None, rows=(*ROWS, *programs.PROGRAMS)):
    """The table, the chart, then the JSON line."""
    args = arguments(words)
    rows = chosen(args, rows)
    if args.list:
        print("\n".join(row.name for row in rows))
        return
    threads = num_threads()
    with child.closing(torch_child(args.torch_python, threads)) as torch:
        document = {"about": about(threads, torch)}
        print(" ".join(f"{name}={value}" for name, value in document["about"].items()))
        if args.roofline:
            kinds = dict.fromkeys((row.work.head_dim, row.work.dtype) for row in rows if isinstance(row, Row))
            document["roofline"] = [roofline.best(*kind) for kind in kinds]
            print("\n".join(map(roofline.text, document["roofline"])))
        document["rows"] = list(measured(rows, torch, args))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        contests = [row for row in document["rows"] if "work" in row]
        print(chart.draw(contests, document["about"], args.out / "attend.png"))
        (args.out / "attend.json").write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
