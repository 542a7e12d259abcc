"""Worker processes that train rows: one where an accelerator is, one for each core where not."""

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import pathlib
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from train import host, stops
from train.learn import Outcome, learn
from train.rows import Row

WORKERS = 4  # at most: rows differ too much in length for more to pay
# A worker is one row on one core. XLA would otherwise start threads for every core in every worker.
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
TICK = 0.25  # seconds between two looks at what was asked


def train(
    rows: list[Row],
    kept: pathlib.Path | None,
    progress: Callable[[str, int, int, dict[str, float]], None],
    done: Callable[[Outcome], None],
    tick: Callable[[], None],
) -> None:
    """Trains rows in processes of their own, which this one outlives whatever happens.

    Args:
        kept: folder for the models of rows with `keep`; None keeps none.
        progress: called as `learn` calls it, and with 0 steps when a row begins.
        done: called with each outcome.
        tick: called several times a second.

    Raises:
        KeyboardInterrupt: if a signal has asked for the end.
        OSError: if a worker cannot write, or ends by itself.
    """
    # Longest first, so that no long row is left over for one worker at the end.
    waiting = sorted(rows, key=cost, reverse=True)
    team: dict[Any, tuple[Any, Row | None]] = {}
    with tempfile.TemporaryDirectory(prefix="attnjax-") as compiled, _environment(compiled):
        try:
            team |= _hire(kept, compiled)
            while team:
                heard: list[Any] = multiprocessing.connection.wait(list(team), TICK)
                for pipe in heard:
                    process, row = team[pipe]
                    kind, *what = _heard(pipe, process, row)
                    if kind == "progress":
                        progress(*what)
                        continue
                    if kind == "failed":
                        raise OSError(*what)
                    if kind == "done":
                        done(*what)
                    elif what == ["cpu"] and len(team) == 1:  # the first one is there, and says on what it computes
                        for _ in range(min(WORKERS, host.threads(), len(waiting)) - 1):
                            team |= _hire(kept, compiled)
                    row = waiting.pop(0) if waiting else None
                    pipe.send(row)
                    team[pipe] = process, row
                    if row is None:
                        del team[pipe]
                    else:
                        progress(row.name, row.seed, 0, {})
                if stops.asked.is_set():
                    raise KeyboardInterrupt
                tick()
        finally:
            for process, _ in team.values():
                process.kill()
                process.join()
            for left in kept.glob("**/.*saving-*") if kept else ():  # half a model, if one was being written
                shutil.rmtree(left, ignore_errors=True)


def cost(row: Row) -> int:
    """How long a row takes at most, but for compiling, up to a factor."""
    return row.steps * row.batch * row.task.length * len(row.layers)


def _hire(kept: pathlib.Path | None, compiled: str) -> dict[Any, tuple[Any, Row | None]]:
    context = multiprocessing.get_context("spawn")  # a forked JAX hangs
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, kept, compiled), daemon=True)
    # Blocked signals are inherited: Ctrl-C goes to the whole group, and the workers are ended from here. Starting the
    # tracker of resources unblocks them, so it comes first.
    multiprocessing.resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return {mine: (process, None)}


def _heard(pipe, process, row: Row | None) -> tuple:
    try:
        return pipe.recv()
    except (EOFError, ConnectionError):
        process.join()
        at = f"that trained {row.name}" if row else "that was to train rows"
        raise ChildProcessError(f"the process {at} ended by itself (status {process.exitcode})") from None


def _work(pipe, kept: pathlib.Path | None, compiled: str) -> None:
    threading.Thread(target=_leave_with_parent, args=(compiled,), daemon=True).start()
    import jax

    pipe.send(("ready", jax.default_backend()))
    while (row := pipe.recv()) is not None:
        try:
            pipe.send(("done", learn(row, lambda *what: pipe.send(("progress", *what)), kept)))
        except OSError as error:
            pipe.send(("failed", str(error)))


def _leave_with_parent(compiled: str) -> None:
    if parent := multiprocessing.parent_process():
        multiprocessing.connection.wait([parent.sentinel])
    shutil.rmtree(compiled, ignore_errors=True)
    os._exit(1)


@contextlib.contextmanager
def _environment(compiled: str):
    """What the workers inherit, put back afterwards: a thread each, and one cache of what XLA compiles."""
    flags = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), ONE_THREAD["XLA_FLAGS"]]))
    cache = {"JAX_COMPILATION_CACHE_DIR": compiled, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    settings = ONE_THREAD | {"XLA_FLAGS": flags} | (cache if "JAX_COMPILATION_CACHE_DIR" not in os.environ else {})
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
