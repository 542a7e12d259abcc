"""The learning check: trains every row, two at a time where two cores are, and judges them."""

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
import queue
import time
from collections.abc import Callable, Iterator

from train import report
from train.breaks import BREAKS
from train.learn import Outcome, learn
from train.names import unknown
from train.rows import FULL, QUICK, Row
from train.table import Table
from train.tasks import Text
from train.tasks.text import bigram

SEEDS = 3  # of the full check; a row must hold with each, none is picked
WORKERS = 4  # at most: rows differ too much in length for more to pay
# A worker is one row on one core. XLA would otherwise start threads for every core in every worker.
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}


def select(full: bool, names: list[str], broken: str | None, seed: int | None) -> list[Row]:
    """The rows to run, in table order.

    Args:
        full: all rows with three seeds each instead of the quick ones with their own.
        names: only these; empty means all, or with `broken` those that the fault must bring down.
        broken: a key of BREAKS, or None.
        seed: of every row, instead of its own.

    Raises:
        ValueError: for an unknown name, with the nearest one.
    """
    table = {row.name: row for row in QUICK + FULL}
    for name in names:
        if name not in table:
            raise ValueError(unknown("row", name, table))
    if broken is not None and broken not in BREAKS:
        raise ValueError(unknown("break", broken, BREAKS))
    if broken is not None and not names:
        names = list(BREAKS[broken].rows)
    rows = [row for row in table.values() if row.name in names or not names and (full or row in QUICK)]
    if seed is not None:
        rows = [dataclasses.replace(row, seed=seed) for row in rows]
    if full:
        rows = [
            dataclasses.replace(row, seed=row.seed + n, keep=row.keep and n == 0) for row in rows for n in range(SEEDS)
        ]
    return rows if broken is None else [BREAKS[broken].apply(row) for row in rows]


def check(rows: list[Row], out: pathlib.Path, broken: str | None = None) -> int:
    """Runs rows, shows them as they go and writes the report.

    Returns:
        0 if every row is inside its bands, else 1.
    """
    began = time.perf_counter()
    with Table(rows) as table:
        outcomes = list(run(rows, table, None if broken else out / "models"))
    outcomes.sort(key=lambda outcome: [(row.name, row.seed) for row in rows].index((outcome.name, outcome.seed)))
    seconds = time.perf_counter() - began
    report.write(out, rows, outcomes, seconds, broken)
    if any(isinstance(row.task, Text) for row in rows):
        print(f"text: 1.00 at bigram is the loss of counted byte pairs, {bigram():.3f} nats per byte")
    wrong = [outcome for outcome in outcomes if not outcome.inside]
    for outcome in wrong:
        print(f"{outcome.name} (seed {outcome.seed}) contradicts its bands: {'; '.join(outcome.reasons)}")
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} rows inside their bands, {seconds:.0f} s; "
          f"report in {out / 'report.md'}")
    return 1 if wrong else 0


def run(rows: list[Row], table: Table, kept: pathlib.Path | None = None) -> Iterator[Outcome]:
    """Outcomes as they come: in worker processes on CPUs, one after the other on an accelerator."""
    import jax

    workers = min(WORKERS, os.cpu_count() or 1, len(rows)) if jax.default_backend() == "cpu" else 1
    alone = (learn(row, table.progress, kept) for row in rows)
    for outcome in _spread(rows, workers, table.progress, kept) if workers > 1 else alone:
        table.done(outcome)
        yield outcome


def _spread(rows: list[Row], workers: int, progress: Callable, kept: pathlib.Path | None) -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")  # a forked JAX hangs
    news = context.Queue()
    with _environment(ONE_THREAD), concurrent.futures.ProcessPoolExecutor(
        workers, context, initializer=_start, initargs=(news,)
    ) as pool:
        # Longest first, so that no long row is left over for one worker at the end.
        waiting = {pool.submit(_work, row, kept) for row in sorted(rows, key=_size, reverse=True)}
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, timeout=0.2)
            with contextlib.suppress(queue.Empty):
                while True:
                    progress(*news.get_nowait())
            yield from (future.result() for future in done)


def _size(row: Row) -> int:
    return row.steps * row.batch * row.task.length * len(row.layers)


def _start(news) -> None:
    global _news
    _news = news


def _work(row: Row, kept: pathlib.Path | None) -> Outcome:
    return learn(row, lambda *what: _news.put(what), kept)


@contextlib.contextmanager
def _environment(settings: dict[str, str]):
    """Environment variables that the workers inherit, put back afterwards."""
    before = {name: os.environ.get(name) for name in settings}
    flags = " ".join(filter(None, [before.get("XLA_FLAGS"), settings["XLA_FLAGS"]]))
    os.environ.update(settings | {"XLA_FLAGS": flags})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
