"""The check while it runs: a live table where rich is installed and a terminal listens, else plain lines."""

import importlib.util
import sys

from train.bands import Band
from train.learn import Outcome
from train.rows import Row

COLUMNS = ("row", "pattern", "steps", "seen", "hidden", "s", "")


class Table:
    """Shows rows; use it as a context manager."""

    def __init__(self, rows: list[Row]):
        self._rows = {row.name: row for row in rows}
        self._lines = {(row.name, row.seed): (row.name, row.pattern, "", "", "", "", "") for row in rows}
        self._live = None

    def __enter__(self) -> "Table":
        if sys.stdout.isatty() and importlib.util.find_spec("rich"):
            from rich.live import Live

            self._live = Live(self._drawn(), refresh_per_second=4)
            self._live.start()
        else:
            print(_plain(COLUMNS), flush=True)
        return self

    def __exit__(self, *_) -> None:
        if self._live:
            self._live.stop()

    def progress(self, name: str, seed: int, steps: int, values: dict[str, float]) -> None:
        """A stride of a row is done."""
        row = self._rows[name]
        self._lines[name, seed] = (name, row.pattern, f"{steps}", shown(row.seen, values), "", "", "")
        if self._live:
            self._live.update(self._drawn())

    def done(self, outcome: Outcome) -> None:
        """A row is judged."""
        row = self._rows[outcome.name]
        line = (row.name, row.pattern, f"{outcome.steps}", shown(row.seen, outcome.values),
                shown(row.hidden, outcome.values), f"{outcome.seconds:.0f}", "ok" if outcome.inside else "NO")
        self._lines[outcome.name, outcome.seed] = line
        if self._live:
            self._live.update(self._drawn())
        else:
            print(_plain(line), flush=True)

    def _drawn(self):
        from rich.table import Table as RichTable

        table = RichTable(*COLUMNS)
        for line in self._lines.values():
            table.add_row(*line, style={"ok": "green", "NO": "bold red"}.get(line[-1]))
        return table


def shown(bands: tuple[Band, ...], values: dict[str, float]) -> str:
    """The value of each band that is nearest to leaving it."""
    near = (band.worst(values) for band in bands if all(name in values for name in band.names()))
    return ", ".join(f"{value:.2f} at {label}" for label, value in near)


def _plain(line: tuple[str, ...]) -> str:
    widths = (16, 28, 5, 30, 20, 3, 2)
    return "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
