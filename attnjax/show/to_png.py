"""A picture as PNG. matplotlib is imported when the first one is drawn, and only its display-free part."""

import io
from collections import defaultdict

from attnjax.show.labels import drawable
from attnjax.show.sheet import INKS, Box, Line, Picture, Words

DOTS = 150  # per inch; a picture's unit is a point, 72 of them an inch


def png_bytes(picture: Picture) -> bytes:
    """The picture on white."""
    try:
        from matplotlib.collections import LineCollection, PatchCollection
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError as error:
        raise ImportError(
            "PNG needs matplotlib, which is not installed: pip install 'attnjax[show]' "
            "(text and SVG are drawn without it)"
        ) from error
    figure = Figure(figsize=(picture.width / 72, picture.height / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, picture.width), ylim=(picture.height, 0))
    axes.set_axis_off()
    boxes: dict[tuple[str, float], list[Box]] = defaultdict(list)
    for item in picture.items:
        if isinstance(item, Box) and item.opacity > 0:
            boxes[item.ink, item.opacity].append(item)
    for (ink, opacity), some in boxes.items():
        shapes = [Rectangle((box.x, box.y), box.w, box.h) for box in some]
        axes.add_collection(PatchCollection(shapes, facecolor=INKS[ink], alpha=opacity, linewidth=0))
    for item in picture.items:
        if isinstance(item, Line):
            style = (0, (1, 3)) if item.dotted else "solid"
            drawn = LineCollection([item.points], colors=[INKS[item.ink]], linewidths=[item.width], linestyles=[style])
            drawn.set_alpha(item.opacity)
            axes.add_collection(drawn)
        elif isinstance(item, Words):
            axes.text(
                item.x, item.y, drawable(item.text), fontsize=item.size, alpha=item.opacity, color=INKS["text"],
                ha={"start": "left", "middle": "center", "end": "right"}[item.anchor], va="baseline",
                rotation=90 if item.turned else 0, rotation_mode="anchor", parse_math=False,
                fontweight="bold" if item.bold else "normal",
            )  # fmt: skip
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=DOTS)
    return held.getvalue()
