"""A picture as SVG text: no library needed, everything that came from outside escaped."""

import html
import zlib
from collections import defaultdict

from attnjax.show.labels import drawable
from attnjax.show.sheet import INKS, Box, Line, Number, Picture, Words

# A file of its own has no page to take colours from, so it brings both themes.
THEMES = (
    "<style>svg{color:#1b1b1b;background:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#ececec;background:#161616}}</style>"
)
FONT = "ui-sans-serif,system-ui,'DejaVu Sans',sans-serif"


def svg_text(picture: Picture, alone: bool) -> str:
    """One <svg> element."""
    body = "".join([*_plain_boxes(picture), *(_element(item) for item in picture.items if not _is_plain(item))])
    title, desc = _escaped(picture.title), _escaped(picture.description)
    mark = f"aj{zlib.crc32(f'{title}{desc}{body}'.encode()):08x}"  # several pictures may stand on one page
    w, h = _number(picture.width), _number(picture.height)
    style = "" if alone else ' style="max-width:100%;height:auto"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
        f'aria-labelledby="{mark}t {mark}d" font-family="{FONT}" fill="currentColor"{style}>'
        f'<title id="{mark}t">{title}</title><desc id="{mark}d">{desc}</desc>{THEMES if alone else ""}{body}</svg>'
    )


def _is_plain(item: object) -> bool:
    return isinstance(item, Box) and not item.tip


def _plain_boxes(picture: Picture) -> list[str]:
    """Boxes of one ink and opacity as one path: a heat map has thousands."""
    paths: dict[tuple[str, float], list[str]] = defaultdict(list)
    for item in picture.items:
        if isinstance(item, Box) and not item.tip and item.opacity > 0:
            x, y, w, h = (_number(n) for n in item[:4])
            paths[item.ink, round(item.opacity, 2)].append(f"M{x} {y}h{w}v{h}h-{w}z")
    return [f'<path {_ink("fill", ink, opacity)} d="{"".join(parts)}"/>' for (ink, opacity), parts in paths.items()]


def _element(item: Box | Line | Words) -> str:
    if isinstance(item, Words):
        turn = f' transform="rotate(-90 {_number(item.x)} {_number(item.y)})"' if item.turned else ""
        weight = ' font-weight="600"' if item.bold else ""
        faint = f' opacity="{_number(item.opacity)}"' if item.opacity < 1 else ""
        return (
            f'<text x="{_number(item.x)}" y="{_number(item.y)}" font-size="{_number(item.size)}" '
            f'text-anchor="{item.anchor}" xml:space="preserve"{weight}{faint}{turn}>{_escaped(item.text)}</text>'
        )
    tip = f"<title>{_escaped(item.tip)}</title>" if item.tip else ""
    if isinstance(item, Box):
        x, y, w, h = (_number(n) for n in item[:4])
        return f'<rect x="{x}" y="{y}" width="{w}" height="{h}" {_ink("fill", item.ink, item.opacity)}>{tip}</rect>'
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in item.points)
    dots = ' stroke-dasharray="1 3"' if item.dotted else ""
    stroke = f'{_ink("stroke", item.ink, item.opacity)} stroke-width="{_number(item.width)}"{dots}'
    return f'<polyline points="{points}" fill="none" stroke-linejoin="round" {stroke}>{tip}</polyline>'


def _ink(what: str, ink: str, opacity: Number) -> str:
    colour = "currentColor" if ink == "text" else INKS[ink]
    return f'{what}="{colour}"' + (f' {what}-opacity="{_number(opacity)}"' if opacity < 1 else "")


def _number(value: Number) -> str:
    """Two decimals at most: 1.5 and 2, not 1.50 and 2.0."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _escaped(text: str) -> str:
    return html.escape(drawable(text), quote=True)
