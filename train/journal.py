"""What a run says while it goes and leaves behind: lines, metrics.jsonl, run.json, sample.txt, loss.png."""

import importlib.util
import json
import pathlib
import time


class Journal:
    """Writes into one new folder.

    Args:
        out: the folder; made here.
        record: what run.json says from the start; the results are added at the end.
        steps: of the whole run.
        tokens: per step.
    """

    def __init__(self, out: pathlib.Path, record: dict, steps: int, tokens: int):
        out.mkdir(parents=True, exist_ok=True)
        self._out, self._record, self._steps, self._tokens = out, record, steps, tokens
        self._lines: list[dict] = []
        self._began = time.perf_counter()
        self._last = (0, self._began)
        self._metrics = (out / "metrics.jsonl").open("w")
        self._save()

    def say(self, line: str) -> None:
        """A line for people."""
        print(line, flush=True)

    def train(self, step: int, loss: float, rate: float) -> None:
        """The mean loss since the last call; the first stretch includes compiling."""
        now = time.perf_counter()
        steps, seconds = step - self._last[0], now - self._last[1]
        self._last = (step, now)
        left = (self._steps - step) * seconds / steps
        speed = steps * self._tokens / seconds
        self._write({"step": step, "loss": loss, "learning_rate": rate, "tokens_per_second": round(speed)})
        self.say(f"step {step:5}/{self._steps}  loss {loss:.3f}  {speed:8,.0f} tokens/s  {_clock(left)} left")

    def validation(self, step: int, loss: float) -> None:
        """The loss on the validation part."""
        self._write({"step": step, "validation": loss})
        self.say(f"step {step:5}/{self._steps}  validation {loss:.3f} nats per byte")
        self._last = (self._last[0], time.perf_counter())

    def finish(self, validation: float, text: bytes) -> None:
        """Closes the run: results, sample and curve."""
        seconds = time.perf_counter() - self._began
        self._metrics.close()
        self._record |= {"finished": True, "validation": validation, "seconds": round(seconds, 1)}
        self._save()
        (self._out / "sample.txt").write_bytes(text)
        self.say(f"\n{text.decode(errors='replace')}\n")
        self._curve()
        below = [name for name, loss in self._record["baselines"].items() if validation < loss]
        self.say(f"validation {validation:.3f} nats per byte, below the byte counts of "
                 f"{', '.join(below) or 'no order'}; {seconds:.0f} s; {self._out}")

    def _write(self, line: dict) -> None:
        self._lines.append(line)
        print(json.dumps(line), file=self._metrics, flush=True)

    def _save(self) -> None:
        (self._out / "run.json").write_text(json.dumps(self._record, indent=1) + "\n")

    def _curve(self) -> None:
        path = self._out / "loss.png"
        if not importlib.util.find_spec("matplotlib"):
            self.say(f"{path} was not written: it needs matplotlib (pip install matplotlib)")
            return
        from matplotlib.figure import Figure

        axis = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
        for key, style in (("loss", "-"), ("validation", "o-")):
            points = [(line["step"], line[key]) for line in self._lines if key in line]
            axis.plot(*zip(*points, strict=True), style, label=key)
        for name, loss in self._record["baselines"].items():
            axis.axhline(loss, color="grey", lw=0.7, ls=":")
            axis.annotate(f"byte counts, {name}", (1, loss), xycoords=("axes fraction", "data"), ha="right",
                          va="bottom", fontsize=8, color="grey")
        axis.set(xlabel="step", ylabel="nats per byte", title=self._out.name)
        axis.legend()
        figure.savefig(path, dpi=120)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
