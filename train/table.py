"""The check while it runs: a live table where rich is installed and a terminal listens, else plain lines."""

import importlib.util
import sys
import time

from train.bands import Band
from train.learn import Outcome
from train.rows import Row

COLUMNS = ("row", "pattern", "steps", "seen", "hidden", "s", "", "done", "left")
SILENT = 15.0  # seconds after which a plain table says that it is alive
COMPILING = 2_000_000  # tokens times layers that train in the time that a row compiles


class Table:
    """Shows rows, how many are done and how long the rest may take; use it as a context manager."""

    def __init__(self, rows: list[Row]):
        self._rows = {(row.name, row.seed): row for row in rows}
        self._lines = {key: (row.name, row.pattern, "", "", "", "", "") for key, row in self._rows.items()}
        self._running: dict[tuple[str, int], int] = {}
        self._ended: list[Row] = []
        self._live = None
        self._began = self._said = time.monotonic()

    def __enter__(self) -> "Table":
        if sys.stdout and sys.stdout.isatty() and importlib.util.find_spec("rich"):
            from rich.live import Live

            self._live = Live(self._drawn(), refresh_per_second=4)
            self._live.start()
        else:
            self._say(_plain(COLUMNS))
        return self

    def __exit__(self, *_) -> None:
        if self._live:
            self._live.stop()

    def progress(self, name: str, seed: int, steps: int, values: dict[str, float]) -> None:
        """A stride of a row is done, or at 0 steps it begins."""
        row = self._rows[name, seed]
        self._running[name, seed] = steps
        self._lines[name, seed] = (name, row.pattern, f"{steps or ''}", shown(row.seen, values), "", "", "")
        self.tick()

    def done(self, outcome: Outcome) -> None:
        """A row is judged."""
        key = (outcome.name, outcome.seed)
        row = self._rows[key]
        self._running.pop(key, None)
        self._ended.append(row)
        line = (row.name, row.pattern, f"{outcome.steps}", shown(row.seen, outcome.values),
                shown(row.hidden, outcome.values), f"{outcome.seconds:.0f}", "ok" if outcome.inside else "NO")
        self._lines[key] = line
        if not self._live:
            self._say(_plain((*line, self._count(), self._left())))
        self.tick()

    def tick(self) -> None:
        """Draws the live table anew; a plain one says what is going on, if it was silent for a while."""
        if self._live:
            self._live.update(self._drawn())
        elif time.monotonic() - self._said > SILENT:
            now = ", ".join(f"{name} {f'at step {steps} of {self._rows[name, seed].steps}' if steps else 'compiles'}"
                            for (name, seed), steps in self._running.items())
            self._say(f"{self._count()} rows done after {clock(self._passed)}; {now or 'the workers start'}")

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._began

    def _count(self) -> str:
        return f"{len(self._ended)} of {len(self._rows)}"

    def _left(self) -> str:
        """How long the rest takes if it goes on as it went."""
        begun = sum(steps * _per_step(self._rows[key]) for key, steps in self._running.items())
        ended = sum(map(_whole, self._ended)) + begun
        rest = sum(map(_whole, self._rows.values())) - ended
        return f"about {clock(self._passed * rest / ended)} left" if self._ended and rest else ""

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        print(line, flush=True)

    def _drawn(self):
        from rich.table import Table as RichTable

        title = ", ".join(filter(None, [f"{self._count()} rows done after {clock(self._passed)}", self._left()]))
        table = RichTable(*COLUMNS[:-2], title=title, title_justify="left")
        for line in self._lines.values():
            table.add_row(*line, style={"ok": "green", "NO": "bold red"}.get(line[-1]))
        return table


def _per_step(row: Row) -> int:
    return row.batch * row.task.length * len(row.layers)


def _whole(row: Row) -> int:
    return COMPILING + row.steps * _per_step(row)


def clock(seconds: float) -> str:
    """Minutes and seconds.

    Example:
        >>> clock(65.4)
        '1:05'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def shown(bands: tuple[Band, ...], values: dict[str, float]) -> str:
    """The value of each band that is nearest to leaving it."""
    near = (band.worst(values) for band in bands if all(name in values for name in band.names()))
    return ", ".join(f"{value:.2f} at {label}" for label, value in near)


def _plain(line: tuple[str, ...]) -> str:
    widths = (16, 28, 5, 30, 20, 3, 2, 8, 16)
    return "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
