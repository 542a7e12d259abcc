"""Every row of the benchmark: a name, the work, the rivals, and what each rival's ratio should reach."""

import dataclasses

from work import Work

STRIDE = "window(256) | strided(256)"
SINK = "sink(4) | window(256)"


@dataclasses.dataclass(frozen=True)
class Rival:
    """A side to measure against. The ratio is its seconds / attnjax's: above 1, attnjax is faster."""

    peer: str  # a name of sides.SIDES or torch_child.PEERS
    at_least: float | None = None
    aim: float | None = None
    changes: tuple[tuple[str, object], ...] = ()  # fields of the work that differ: attnjax against itself

    @property
    def name(self):
        return " ".join([self.peer, *(str(value) for _, value in self.changes)])


@dataclasses.dataclass(frozen=True)
class Row:
    """One contest: attnjax at one work against its rivals."""

    name: str
    work: Work
    rivals: tuple[Rival, ...]
    rounds: int | None = None  # fewer than the run's rounds where one call takes many seconds

    def only(self, peers):
        """The row against these peers alone; attnjax against itself stays."""
        kept = [rival for rival in self.rivals if rival.peer in ("attnjax", *peers)]
        return dataclasses.replace(self, rivals=tuple(kept))


def own(at_least, aim, **changes):
    """attnjax itself at changed work."""
    return Rival("attnjax", at_least, aim, tuple(changes.items()))


def label(pattern):
    """A pattern's word in the names of rows."""
    return {SINK: "sink", STRIDE: "strided", "strided(256)": "comb"}.get(pattern, pattern.split("(")[0])


def short_rows():
    """T=512, where `auto` may take the dense backend."""
    for pattern in ("causal()", "window(256)", SINK, STRIDE, "full()"):
        for direction in ("forward", "backward"):
            rivals = Rival("jax.nn", 1 / 1.2, 1.0), Rival("flax"), Rival("sdpa")
            yield Row(f"{label(pattern)}-512-{direction}", Work(pattern, 512, direction), rivals)


def lengths():
    """The lengths between the other rows, for the chart; no targets."""
    for pattern in ("causal()", "window(256)", STRIDE):
        for T in (1024, 2048, 4096, 8192):
            if T != 4096 or pattern == STRIDE:
                rivals = Rival("jax.nn"), Rival("sdpa"), Rival("flex")
                yield Row(f"{label(pattern)}-{T}-forward", Work(pattern, T), rivals, rounds=3)


ROWS = (
    Row(
        "causal-4096-forward",
        Work("causal()", 4096),
        (Rival("jax.nn", 4.5), Rival("flax"), Rival("tokamax"), Rival("sdpa", 1 / 1.15, 1.0), Rival("flex", 1.4)),
    ),
    Row(
        "causal-4096-backward",
        Work("causal()", 4096, "backward"),
        (Rival("jax.nn", 3.5), Rival("flax"), Rival("tokamax"), Rival("sdpa", 1 / 1.15, 1.0)),
    ),
    Row(
        "window-4096-forward",
        Work("window(256)", 4096),
        (Rival("jax.nn", 15, 20), Rival("flax"), Rival("tokamax"), Rival("sdpa"), Rival("flex", 1.0)),
    ),
    Row(
        "window-4096-backward",
        Work("window(256)", 4096, "backward"),
        (Rival("jax.nn"), Rival("tokamax"), Rival("sdpa"), own(1 / 4, None, direction="forward")),
    ),
    Row("window-16384-forward", Work("window(256)", 16384), (Rival("flex", 1.2, 1.5),)),
    Row("window-16384-backward", Work("window(256)", 16384, "backward"), (own(1 / 4, None, direction="forward"),)),
    Row("sink-16384-forward", Work(SINK, 16384), (Rival("flex", 1.2, 1.5),)),
    Row("sink-16384-backward", Work(SINK, 16384, "backward"), (own(1 / 4, None, direction="forward"),)),
    Row("strided-16384-forward", Work(STRIDE, 16384), (Rival("flex", 6, 9),)),
    Row("strided-16384-backward", Work(STRIDE, 16384, "backward"), (own(None, None, direction="forward"),)),
    Row("causal-16384-forward", Work("causal()", 16384), (Rival("sdpa"), Rival("flex")), rounds=3),
    *short_rows(),
    *lengths(),
    Row(
        "bfloat16-causal-4096-forward",
        Work("causal()", 4096, dtype="bfloat16"),
        (own(1.0, 1.5, dtype="float32"), Rival("jax.nn"), Rival("sdpa"), Rival("flex")),
    ),
    Row(
        "bfloat16-causal-4096-backward",
        Work("causal()", 4096, "backward", "bfloat16"),
        (own(1.0, 1.5, dtype="float32"), Rival("jax.nn"), Rival("sdpa")),
    ),
    Row(
        "bfloat16-window-16384-forward",
        Work("window(256)", 16384, dtype="bfloat16"),
        (own(1.0, 1.5, dtype="float32"), Rival("flex")),
    ),
    # window(4096) shows 6.15 % of the causal scores at this length, so a ratio of 16.3 would be no loss at all.
    Row(
        "window-131072-forward",
        Work("window(4096)", 131072, heads=1),
        (own(1 / (1.5 * 0.0615), 1 / (1.2 * 0.0615), pattern="causal()"),),
        rounds=3,
    ),
)
