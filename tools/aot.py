"""What attnjax's programs need on chips that this machine does not have, without running them.

    make aot                                   # every row (ARGS=--quick: those of .ci/run)
    make aot ARGS="--rows 'v5e-*' '*-both'"

Every row is compiled by the chip's own compiler, in a process of its own (a compiler that crashes takes one row with
it). On an NVIDIA GPU the figure is the number of launches: the operations of the optimized program times how often
they run, those of a loop's body times the loop's trips. On a TPU it is XLA's own estimate in millions of cycles, summed
the same way; a Pallas kernel is not in it, and the row then says how many run. Neither is a time: compare programs for
one chip with it, nothing else. Temporaries are what the program needs beside its arguments and results.

The limits are in tools/aot_rows.py. A row over one of them, or one that does not compile, makes the exit status 1. The
last line is one JSON document.
"""

import argparse
import fnmatch
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time

from tools import aot_rows, targets

COMPILERS = "jax", "libtpu", "jax-cuda13-pjrt"
PATIENCE = 600  # seconds for a row


def arguments(words):
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tools.aot", description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="GLOB", help="rows by name")
    parser.add_argument("--quick", action="store_true", help="without the rows that .ci/run leaves out")
    parser.add_argument("--child", metavar="ROW", help="compile one row in this process, print it as JSON, no table")
    args = parser.parse_args(words)
    args.chosen = [row for row in aot_rows.ROWS if any(fnmatch.fnmatchcase(row.name, glob) for glob in args.rows)]
    args.chosen = [row for row in args.chosen if row.quick or not args.quick]
    if not args.chosen:
        parser.error(f"no row matches {args.rows}; there are: {', '.join(row.name for row in aot_rows.ROWS)}")
    return args


def in_a_process(row):
    """What the row needs, or {"row", "error"} if it does not compile."""
    command = [sys.executable, "-m", "tools.aot", "--child", row.name]
    environment = os.environ | targets.ENVIRONMENT
    start = time.perf_counter()
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        status, said = f"ended with status {run.returncode}", run.stderr
    except subprocess.TimeoutExpired:
        run, status, said = None, f"took over {PATIENCE} s", ""
    seconds = round(time.perf_counter() - start, 1)
    if run is None or run.returncode:
        last = "\n".join(said.strip().splitlines()[-5:])
        return {"row": row.name, "error": f"the compiler {status}: {last}", "seconds": seconds}
    return json.loads(run.stdout.splitlines()[-1]) | {"seconds": seconds}


def line(row, found):
    """The row for people."""
    if "error" in found:
        return f"{row.name:<30}{found['error']}"
    launches = "launches" in found
    value = f"{found['launches']:,} launches" if launches else f"{found['mega_cycles']:.2f} M cycles"
    value += f" + {found['kernels']} kernels" if found.get("kernels") else ""
    temporaries = f"{found['temporaries_mib']:.1f} MiB"
    return (
        f"{row.name:<30}{value:>20}{f'(at most {row.most:,})':>20}{temporaries:>12}"
        f"{f'(at most {row.mib})':>16}{found['seconds']:>8.1f} s"
    )


def main(words=None):
    """Compiles the rows and prints them; 1 if one is over a limit or fails."""
    args = arguments(words)
    if args.child is not None:
        (row,) = (row for row in aot_rows.ROWS if row.name == args.child)
        print(json.dumps(aot_rows.measure(row)))
        return 0
    missing = [name for name in ("libtpu", "jax_cuda13_plugin") if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"{sys.executable} has no {' and no '.join(missing)}; `make aot` sets up .venv-aot, which has")
    results, wrong = [], []
    for row in args.chosen:
        results.append(in_a_process(row))
        print(line(row, results[-1]), flush=True)
        error = results[-1].get("error")
        wrong += [f"{row.name}: {error}"] if error else aot_rows.over(row, results[-1])
    for sentence in wrong:
        print(f"TOO MUCH OR BROKEN  {sentence}")
    versions = {name: importlib.metadata.version(name) for name in COMPILERS}
    print(json.dumps({"compilers": versions, "rows": results, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
