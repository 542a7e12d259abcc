"""How fast `aj.attend` is against what else runs on this machine.

    python benchmarks/attend.py --list
    python benchmarks/attend.py --rows causal-4096-forward window-16384-forward --torch-python other/bin/python

Results are compared before anything is timed; a difference stops the run. Each round times every side once, in
an order that turns from round to round, on new numbers; a ratio is (rival's seconds / attnjax's seconds) of one
round, and the figure is the median over the rounds: above 1 means that attnjax is faster. The last line is one JSON
document.
"""

import argparse
import fnmatch
import json
import os
import platform
import subprocess
import sys

import contest
import jax
import numpy as np
import table
from child import Child
from rows import ROWS

import attnjax as aj


def arguments(words=None):
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="NAME", help="rows by name or pattern (*-4096-*)")
    parser.add_argument("--peers", nargs="+", metavar="PEER", help="only these rivals: jax.nn flax tokamax sdpa flex")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--torch-python", help="an interpreter that has torch; this one by default")
    return parser.parse_args(words)


def chosen(patterns, rows):
    """The rows that the patterns name.

    Raises:
        SystemExit: if one names no row.
    """
    for pattern in patterns:
        if not fnmatch.filter([row.name for row in rows], pattern):
            raise SystemExit(f"--rows {pattern} names no row; --list shows them")
    return [row for row in rows if any(fnmatch.fnmatch(row.name, pattern) for pattern in patterns)]


def torch_child(python, threads):
    """The process that holds torch, or None where torch cannot be imported."""
    python = python or sys.executable
    found = subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0
    return Child(python, threads) if found else None


def about(threads, child):
    """Versions, device and load, before anything ran."""
    return {
        "attnjax": aj.__version__, "attnjax_from": os.path.dirname(aj.__file__), "jax": jax.__version__,
        "numpy": np.__version__, "python": platform.python_version(), "device": jax.devices()[0].device_kind,
        "threads": threads, "load": os.getloadavg()[0], "torch": child.about if child else None,
    }  # fmt: skip


def main(words=None):
    """The table, then the JSON line."""
    args = arguments(words)
    rows = chosen(args.rows, ROWS)
    if args.list:
        for row in rows:
            print(row.name)
        return
    threads = len(os.sched_getaffinity(0))
    child = torch_child(args.torch_python, threads)
    document = {"about": about(threads, child), "rows": []}
    print(" ".join(f"{name}={value}" for name, value in document["about"].items()))
    print(table.HEAD)
    for row in rows:
        measured = contest.measure(row, child, args.rounds)
        document["rows"].append(measured)
        print(table.text(measured), flush=True)
    if child:
        child.close()
    print(json.dumps(document))


if __name__ == "__main__":
    main()
