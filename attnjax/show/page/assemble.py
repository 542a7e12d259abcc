"""One HTML file out of the templates beside this file and the numbers of today's library."""

import importlib
import importlib.resources
import json
import os
import pathlib
import re
import typing
from typing import Any

from attnjax.show.page import numbers
from attnjax.show.page.scene import Scene
from attnjax.show.page.sources import find
from attnjax.show.whole import write_whole

# In the order in which they use each other.
SCRIPTS = (
    "dom.js", "patterns.js", "language.js", "trace.js", "looks.js", "step_list.js", "steps.js", "saturation.js",
    "four.js", "computed.js", "start.js",
)  # fmt: skip
# In a script element `<` could end it, and the two line separators are no part of JavaScript's older strings.
ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


@typing.no_type_check
def write(out: str | os.PathLike, *, model: str | os.PathLike | None = None) -> pathlib.Path:
    """Writes the chapter's five figures as one self-contained HTML file: `index.html` in the folder `out`.

    The file fetches nothing. Heads (figures 5.1 and 5.4) are those of `model`; without one, of the small model that
    `python -m train check` leaves in runs/check, or set by hand where that has not run. The page says which.

    Args:
        out: a folder; made if there is none. An earlier page in it is replaced.
        model: a published model that reads English text (a GGUF file or a Hugging Face folder), or a folder that
            `train check` left.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: if `model` does not exist.
        ValueError: if `model` is none that the figures can use.

    Example:
        >>> import tempfile
        >>> from attnjax.show import page
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page.write(folder).name
        'index.html'
    """
    return write_scene(out, find(model))


def write_scene(out: str | os.PathLike, scene: Scene) -> pathlib.Path:
    """The page with these heads."""
    text = html(data(scene))
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return write_whole(folder / "index.html", text)


def data(scene: Scene) -> dict[str, Any]:
    """Everything that the page draws, as plain lists and numbers."""
    return {
        "steps": numbers.steps(),
        "saturation": numbers.saturation(),
        "computed": numbers.computed(),
        "heads": scene.plain(),
    }


def html(data: dict[str, Any]) -> str:
    """The page around the numbers."""
    files = importlib.resources.files("attnjax.show.page")
    scripts = "\n".join(f"<script>\n{(files / name).read_text('utf-8')}</script>" for name in SCRIPTS)
    parts = {
        "style": (files / "style.css").read_text("utf-8"),
        "scripts": scripts,
        "version": importlib.import_module("attnjax").__version__,
        "data": embedded(data),
    }
    page = (files / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page)  # once, so no part is searched for places


def embedded(data: Any) -> str:
    """JSON that nothing in it can break out of: safe inside a script element, whatever text it holds."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(ESCAPES)
