"""Draws docs/images/patterns.png from live patterns: `make pictures`."""

import pathlib

from matplotlib.figure import Figure

import attnjax as aj
from attnjax import show

PATTERNS = (
    "full()", "causal()", "window(4)", "window(4) | sink(1)",
    "window(2) | strided(4)", "chunked(4)", "prefix(5)", "band(2, 2)",
)  # fmt: skip
TOKENS = 16


def main(path: pathlib.Path) -> None:
    """Two rows of four patterns over the same sixteen tokens."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    for axes, text in zip(figure.subplots(2, 4).flat, PATTERNS, strict=True):
        pattern = aj.parse(text)
        show.draw(axes, pattern, TOKENS)
        axes.set_title(f"{text}: {pattern.count(TOKENS)} scores", fontsize=10)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
    figure.suptitle(f"Who may look at whom: rows are queries, columns are keys, {TOKENS} tokens")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(pathlib.Path(__file__).parent / "images" / "patterns.png")
