"""attnjax: attention for JAX in which a pattern is a value and cost follows the scores that it needs."""

import attnjax.notebook as _notebook
from attnjax.attend import attend as attend
from attnjax.blend import blend as blend
from attnjax.blend import weights as weights
from attnjax.cache import Cache as Cache
from attnjax.cost import cost as cost
from attnjax.explain import explain as explain
from attnjax.options import AttendOptions as AttendOptions
from attnjax.options import RuleOptions as RuleOptions
from attnjax.options import ScoreOptions as ScoreOptions
from attnjax.patterns import Band as Band
from attnjax.patterns import Causal as Causal
from attnjax.patterns import Chunked as Chunked
from attnjax.patterns import Full as Full
from attnjax.patterns import Pattern as Pattern
from attnjax.patterns import PerHead as PerHead
from attnjax.patterns import Prefix as Prefix
from attnjax.patterns import Sink as Sink
from attnjax.patterns import Slots as Slots
from attnjax.patterns import Strided as Strided
from attnjax.patterns import Tile as Tile
from attnjax.patterns import Where as Where
from attnjax.patterns import Window as Window
from attnjax.patterns import parse as parse
from attnjax.reference import trace as trace
from attnjax.rope import rope as rope
from attnjax.scores import scores as scores
from attnjax.segments import Segments as Segments
from attnjax.visible import additive_mask as additive_mask
from attnjax.visible import visible as visible

__version__ = "0.1.0"


def __getattr__(name: str):
    """nn, models, heads and show on first use: `import attnjax` alone needs no flax and no matplotlib."""
    if name in ("nn", "models", "heads", "show"):
        import importlib

        return importlib.import_module(f"attnjax.{name}")
    raise AttributeError(f"module 'attnjax' has no attribute {name!r}")


def _drawn(thing: object) -> str:
    """What a notebook shows of a pattern, a plan or an explanation."""
    from attnjax.show.html import html

    return html(thing)


_notebook.draw_with(_drawn)
