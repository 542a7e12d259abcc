"""What a run says while it goes and leaves behind: lines, metrics.jsonl, run.json, sample.txt, loss.png."""

import importlib.util
import json
import os
import pathlib
import time

from attnjax import show
from attnjax.show.runs import METRICS, RECORD, read_lines
from attnjax.show.whole import write_whole
from train.table import clock


class Journal:
    """Writes into the folder of one run; a context, which closes its file.

    Args:
        out: the folder, made here if it is new.
        record: what run.json says from the start; the results are added at the end.
        steps: of the whole run.
        tokens: per step.
        since: the step that the run goes on from; lines of later steps leave metrics.jsonl, as does the half of a
            line that a kill has left.
        seconds: that the steps before it took.
    """

    def __init__(self, out: pathlib.Path, record: dict, steps: int, tokens: int, since: int = 0, seconds: float = 0.0):
        out.mkdir(parents=True, exist_ok=True)
        self._out, self._record, self._steps, self._tokens = out, record, steps, tokens
        self._began = time.perf_counter() - seconds
        self._last, self._compiling = (since, time.perf_counter()), True
        self._lines = [line for line in read_lines(out / METRICS) if line["step"] <= since] if since else []
        self._written = len(self._lines)
        write_whole(out / METRICS, "".join(map(_text, self._lines)))
        write_whole(out / RECORD, json.dumps(record, indent=1) + "\n")
        self._metrics = (out / METRICS).open("a")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._metrics.close()

    @property
    def seconds(self) -> float:
        """Since the run began, without what a kill has undone."""
        return time.perf_counter() - self._began

    def say(self, line: str) -> None:
        """A line for people."""
        print(line, flush=True)

    def train(self, step: int, loss: float, rate: float) -> None:
        """The mean loss since the last call; the first stretch includes compiling, and foretells nothing."""
        now = time.perf_counter()
        steps, seconds = step - self._last[0], now - self._last[1]
        self._last = (step, now)
        left = "compiled" if self._compiling else f"{clock((self._steps - step) * seconds / steps)} left"
        self._compiling = False
        speed = steps * self._tokens / seconds
        self._note(step, loss=loss, learning_rate=rate, tokens_per_second=round(speed))
        self.say(f"step {step:5}/{self._steps}  loss {loss:.3f}  {speed:8,.0f} tokens/s  {left}")

    def validation(self, step: int, loss: float) -> None:
        """The loss on the validation part."""
        self._note(step, validation=loss)
        self.say(f"step {step:5}/{self._steps}  validation {loss:.3f} nats per byte")

    def flush(self) -> None:
        """Puts what was noted into metrics.jsonl: one line per step, so after the step's last note."""
        if self._written == len(self._lines):
            return
        self._metrics.write("".join(map(_text, self._lines[self._written :])))
        self._metrics.flush()
        os.fsync(self._metrics.fileno())  # no checkpoint must reach the disk before the lines up to it
        self._written = len(self._lines)

    def rest(self) -> None:
        """What happened since the last step, an evaluation or a save, was no training."""
        self._last = (self._last[0], time.perf_counter())

    def finish(self, validation: float, text: bytes) -> None:
        """Ends the run: sample, curve and, when all of it is there, the results."""
        seconds = self.seconds
        (self._out / "sample.txt").write_bytes(text)
        self.say(f"\n{text.decode(errors='replace')}\n")
        self._curve()
        self._record |= {"finished": True, "validation": validation, "seconds": round(seconds, 1)}
        write_whole(self._out / RECORD, json.dumps(self._record, indent=1) + "\n")
        below = [name for name, loss in self._record["baselines"].items() if validation < loss]
        self.say(f"validation {validation:.3f} nats per byte, below the byte counts of "
                 f"{', '.join(below) or 'no order'}; {seconds:.0f} s; {self._out}")

    def _note(self, step: int, **values: float) -> None:
        if self._lines and self._lines[-1]["step"] == step:
            self._lines[-1] |= values
        else:
            self._lines.append({"step": step} | values)

    def _curve(self) -> None:
        path = self._out / "loss.png"
        if importlib.util.find_spec("matplotlib"):
            self.flush()
            show.curve(self._out).save(path)
        else:
            self.say(f"{path} was not written: it needs matplotlib (pip install matplotlib)")


def _text(line: dict) -> str:
    return json.dumps(line) + "\n"
