"""The learning check: trains every row, two at a time where two cores are, and judges them."""

import dataclasses
import pathlib
import time

from train import host, places, pool, report, stops
from train.breaks import BREAKS
from train.learn import Outcome
from train.limits import SEEDS, within
from train.names import unknown
from train.rows import FULL, QUICK, Row
from train.table import Table
from train.tasks import Reach, Text
from train.tasks.text import bigram

RUNS = 3  # of a row in the full check, each with a seed; a row must hold with each, none is picked
SPACE = 4 * 2**20  # bytes of a report and its models


def select(full: bool, names: list[str], broken: str | None, seed: int | None) -> list[Row]:
    """The rows to run, in table order.

    Args:
        full: all rows with three seeds each instead of the quick ones with their own.
        names: only these; empty means all, or with `broken` those that the fault must bring down.
        broken: a key of BREAKS, or None.
        seed: of every row, instead of its own.

    Raises:
        ValueError: for an unknown name, with the nearest one, a seed beyond its bounds, and a row that the fault
            leaves as it is.
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
            dataclasses.replace(row, seed=row.seed + n, keep=row.keep and n == 0) for row in rows for n in range(RUNS)
        ]
    for row in rows:
        within("--seed", row.seed, *SEEDS)
    if broken is None:
        return rows
    faulty = [BREAKS[broken].apply(row) for row in rows]
    if same := [row.name for row, other in zip(rows, faulty, strict=True) if row.legend == other.legend]:
        raise ValueError(f"--break {broken} changes no pattern of {', '.join(dict.fromkeys(same))}; choose other rows, "
                         f"or leave --row out for {', '.join(BREAKS[broken].rows)}")
    return faulty


def check(rows: list[Row], out: pathlib.Path, broken: str | None = None) -> int:
    """Runs rows, shows them as they go and writes the report; of those that are done, if it is stopped.

    Returns:
        0 if every row is inside its bands, 130 if it was stopped by Ctrl-C, else 1.

    Raises:
        OSError: if a worker could not go on; the report holds the rows done before.
    """
    with stops.deferred():
        return _check(rows, out, broken)


def _check(rows: list[Row], out: pathlib.Path, broken: str | None) -> int:
    began, outcomes, ended = time.perf_counter(), [], None
    with Table(rows) as table:
        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            table.done(outcome)

        try:
            pool.train(rows, None if broken else out / "models", table.progress, done, table.tick)
        except (KeyboardInterrupt, OSError) as error:
            ended = error
    seconds = time.perf_counter() - began
    outcomes.sort(key=lambda outcome: [(row.name, row.seed) for row in rows].index((outcome.name, outcome.seed)))
    wrong = [outcome for outcome in outcomes if not outcome.inside]
    said = [f"stopped: {len(outcomes)} of {len(rows)} rows done"] if ended else []
    if outcomes:
        report.write(out, rows, outcomes, seconds, broken, interrupted=ended is not None)
        if any(isinstance(row.task, Text) for row in rows):
            print(f"text: 1.00 at bigram is the loss of counted byte pairs, {bigram():.3f} nats per byte")
        for outcome in wrong:
            print(f"{outcome.name} (seed {outcome.seed}) contradicts its bands: {'; '.join(outcome.reasons)}")
        said.append(f"{len(outcomes) - len(wrong)} of {len(outcomes)} rows inside their bands, {seconds:.0f} s; "
                    f"report in {out / 'report.md'}")
    print("; ".join(said), flush=True)
    if isinstance(ended, OSError):
        raise ended
    return stops.STATUS if ended or stops.asked.is_set() else 1 if wrong else 0


def ready(rows: list[Row], out: pathlib.Path, broken: str | None) -> None:
    """Raises ValueError for what would stop the report from being written."""
    models = [f"models/{row.name}" for row in rows if row.keep and not broken]
    packages = {"safetensors": models, "matplotlib": any(isinstance(row.task, Reach) for row in rows)}
    host.have(*(name for name, wanted in packages.items() if wanted))
    places.ready(out, SPACE, report.FILES, ["models", *models] if models else ())
