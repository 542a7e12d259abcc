"""attnjax figures: the chapter's five figures as one offline HTML file."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

NAME = "figures"
HELP = "write the chapter's five figures as one HTML file that works offline"
EXAMPLES = """examples:
  attnjax figures --out site

--model SmolLM2-135M-Instruct.Q4_1.gguf draws the heads of that model; any GGUF file or Hugging Face folder will do
whose tokenizer keeps the words of the sentence whole. Without it the heads are those of the small model that
`python -m train check` leaves in runs/check; where that has not run, they are set by hand. The page says which.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("--out", metavar="DIR", default="site", help="folder of the page (default: %(default)s)")
    parser.add_argument(
        "--model", metavar="PATH", help="whose heads to draw: a GGUF file, a Hugging Face folder, or one of train check"
    )


def run(args: argparse.Namespace) -> str:
    """Where the page is, and whose heads it draws."""
    for name in ("out", "model"):
        if getattr(args, name) == "":
            raise ValueError(f"--{name} is empty; leave it out, or name a path")
    # Here, because the heads of models take flax, which the other commands start without.
    from attnjax.show.page import assemble, sources

    with _progress(sys.stderr):
        scene = sources.find(args.model)
    path = assemble.write_scene(args.out, scene)
    return f"written: {path}\nheads of figures 5.1 and 5.4: {scene.note}"


@contextlib.contextmanager
def _progress(out: Any) -> Iterator[None]:
    """Shows what the library logs meanwhile, which takes a minute for a real model: in a terminal as one line."""
    log = logging.getLogger("attnjax")
    handler, level = logging.StreamHandler(out), log.level
    terminal = hasattr(out, "isatty") and out.isatty()
    if terminal:
        handler.terminator = ""
        handler.setFormatter(logging.Formatter("\r\x1b[K%(message)s"))
    log.addHandler(handler)
    log.setLevel(min(log.level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        if terminal:
            out.write("\r\x1b[K")
