"""Seconds over T, both axes logarithmic: one panel for each pattern, one line for each side."""

from rows import label
from work import Work

COLOURS = {
    "attnjax": "#0072b2", "jax.nn": "#d55e00", "flax": "#e69f00",
    "tokamax": "#666666", "sdpa": "#cc79a7", "flex": "#009e73",
}  # fmt: skip
NAMES = {"flex": "PyTorch FlexAttention", "sdpa": "PyTorch SDPA"}
USUAL = Work("", 0)  # heads, head size and type of the rows in the chart


def lines(rows):
    """{pattern: {side: {T: seconds}}} of the float32 forwards that were measured at two lengths or more."""
    found = {}
    for row in rows:
        work = Work(**row["work"])
        if work != Work(work.pattern, work.T, heads=USUAL.heads, head_dim=USUAL.head_dim):
            continue
        sides = found.setdefault(work.pattern, {})
        sides.setdefault("attnjax", {})[work.T] = row["seconds"]["median"]
        for rival in row["rivals"]:
            if "seconds" in rival:
                sides.setdefault(rival["name"], {})[work.T] = rival["seconds"]["median"]
    return {pattern: sides for pattern, sides in found.items() if len(sides["attnjax"]) > 1}


def draw(rows, about, path):
    """Writes the chart; says why if it cannot.

    Returns:
        A sentence for the reader.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no chart: matplotlib is not installed (pip install 'attnjax[show]')"
    panels = lines(rows)
    if not panels:
        return "no chart: it needs rows of one pattern at two lengths or more"
    figure = Figure(figsize=(4 * len(panels) + 1.5, 4.2), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (pattern, sides) in zip(grid, sorted(panels.items()), strict=True):
        for side, points in sides.items():
            at = sorted(points)
            style = {"color": COLOURS[side], "lw": 2.5 if side == "attnjax" else 1.5, "label": NAMES.get(side, side)}
            axes.loglog(at, [points[T] for T in at], "o-", ms=4, **style)
        ticks = sorted(sides["attnjax"])
        axes.set_xticks(ticks, [f"{T:,}" for T in ticks], fontsize=8)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.set(title=pattern, xlabel="tokens")
    grid[0].set_ylabel("seconds of one forward")
    grid[0].legend(fontsize=8)
    settings = f"float32, batch 1, {USUAL.heads} heads of {USUAL.head_dim}, {about['threads']} CPU threads"
    figure.suptitle(f"{settings}; JAX {about['jax']}, PyTorch {about['torch']}", fontsize=10)
    figure.savefig(path, dpi=110)
    return f"chart of {', '.join(label(pattern) for pattern in sorted(panels))} in {path}"
