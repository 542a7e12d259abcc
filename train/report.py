"""What the check leaves behind: a table to read, the numbers, and a picture of accuracy by distance."""

import dataclasses
import importlib.util
import io
import json
import pathlib

from attnjax.show.whole import write_whole
from train import host
from train.bands import Band
from train.learn import Outcome
from train.rows import Row
from train.table import shown
from train.tasks import Reach, Text
from train.tasks.text import bigram

FILES = "report.json", "report.md", "accuracy.png"


def write(
    out: pathlib.Path, rows: list[Row], outcomes: list[Outcome], seconds: float, broken: str | None,
    interrupted: bool = False,
) -> None:
    """Writes report.md, report.json and accuracy.png, over those of an earlier check in the same folder."""
    out.mkdir(parents=True, exist_ok=True)
    by_name = {row.name: row for row in rows}
    facts = {"seconds": round(seconds, 1), "device": host.device(), "versions": host.versions(), "broken": broken,
             "interrupted": interrupted, "asked": len(rows)}
    record = facts | {"rows": [
        {"pattern": by_name[o.name].pattern, "shows": by_name[o.name].shows, "task": repr(by_name[o.name].task),
         "seen": [dataclasses.asdict(band) for band in by_name[o.name].seen],
         "hidden": [dataclasses.asdict(band) for band in by_name[o.name].hidden]} | dataclasses.asdict(o)
        for o in outcomes
    ]}
    write_whole(out / "report.json", json.dumps(record, indent=1) + "\n")
    write_whole(out / "report.md", markdown(by_name, outcomes, facts))
    picture(out / "accuracy.png", by_name, outcomes)


def markdown(rows: dict[str, Row], outcomes: list[Outcome], facts: dict) -> str:
    """The report for people: one line per row, and under it why the bands are what they are."""
    inside = sum(outcome.inside for outcome in outcomes)
    lines = [
        "# Learning check", "",
        f"{inside} of {len(outcomes)} rows inside their bands, {facts['seconds']} s on {facts['device']}; "
        + ", ".join(f"{name} {version}" for name, version in facts["versions"].items()) + ".", "",
    ]
    if facts["interrupted"]:
        lines += [f"**Interrupted**: {len(outcomes)} of {facts['asked']} rows were done.", ""]
    if facts["broken"]:
        lines += [f"The patterns were broken on purpose (`{facts['broken']}`): every row should contradict.", ""]
    lines += ["| row | pattern | task | seed | steps | s | seen | hidden | verdict | shows |",
              "|---|---|---|---|---|---|---|---|---|---|"]
    for outcome in outcomes:
        row = rows[outcome.name]
        cells = [row.name, f"`{row.pattern}`".replace("|", "\\|"), type(row.task).__name__, outcome.seed,
                 outcome.steps, f"{outcome.seconds:.1f}", judged(row.seen, outcome.values),
                 judged(row.hidden, outcome.values), "inside" if outcome.inside else "**contradicts**", row.shows]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += [
        "",
        "Seen: what the pattern makes visible must be learned. Hidden: what it does not must stay at chance; the "
        "band ends five standard errors above chance on 1,024 sequences. Each cell names the value nearest to "
        "leaving its band. A row stops early once its seen part is inside; a hidden part then gets half as many "
        "steps again. Numbers such as 1..6 are distances in tokens; negative ones lie ahead.", "",
    ]
    if any(isinstance(rows[o.name].task, Text) for o in outcomes):
        lines += [f"Text rows give nats per byte as a share of the byte bigram's {bigram():.3f} on the same bytes.", ""]
    lines += [f"- {o.name} (seed {o.seed}): {reason}" for o in outcomes for reason in o.reasons]
    return "\n".join(lines).rstrip() + "\n"


def judged(bands: tuple[Band, ...], values: dict[str, float]) -> str:
    """Per band: the value nearest to leaving it, and the band."""
    return "<br>".join(f"{shown((band,), values)} in [{band.low:.2f}, {band.high:.3f}]" for band in bands)


def picture(path: pathlib.Path, rows: dict[str, Row], outcomes: list[Outcome]) -> None:
    """Accuracy by distance, one strip per reach row; what the row says is visible is shaded."""
    reach = [o for o in outcomes if isinstance(rows[o.name].task, Reach)]
    if not reach:
        path.unlink(missing_ok=True)  # the one of an earlier check would be taken for this one's
        return
    if not importlib.util.find_spec("matplotlib"):
        print(f"{path} was not written: it needs matplotlib (pip install matplotlib)")
        return
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator

    figure = Figure(figsize=(10, 0.65 * len(reach) + 0.8), layout="constrained")
    axes = figure.subplots(len(reach), 1, squeeze=False, sharex=True)[:, 0]
    for axis, outcome in zip(axes, reach, strict=True):
        row = rows[outcome.name]
        visible = {int(name) for band in row.seen for name in band.names()}
        distances = sorted(int(name) for name in outcome.values)
        for d in visible:
            axis.axvspan(d - 0.5, d + 0.5, color="#dbe9f6", lw=0)
        colours = ["#1f5fa8" if d in visible else "#b03a2e" for d in distances]
        axis.bar(distances, [outcome.values[str(d)] for d in distances], width=0.8, color=colours)
        axis.axhline(row.task.chance, color="black", lw=0.6, ls=":")
        axis.set(ylim=(0, 1.05), yticks=(0, 1))
        axis.xaxis.set_major_locator(MultipleLocator(8))
        axis.set_ylabel(f"{row.name}\n{row.pattern}", rotation=0, ha="right", va="center", fontsize=8)
    axes[0].set_title("accuracy by distance from the payload (shaded: visible; dotted: chance)", fontsize=10)
    axes[-1].set_xlabel("distance in tokens")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120, format="png")
    write_whole(path, drawn.getvalue())
