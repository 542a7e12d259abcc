"""Patterns: who may look at whom. Integers and NumPy only; no lengths, tile sizes or backends."""

from attnjax.patterns.base import Pattern as Pattern
from attnjax.patterns.heads import PerHead as PerHead
from attnjax.patterns.parse import parse as parse
from attnjax.patterns.shipped import Band as Band
from attnjax.patterns.shipped import Causal as Causal
from attnjax.patterns.shipped import Chunked as Chunked
from attnjax.patterns.shipped import Full as Full
from attnjax.patterns.shipped import Prefix as Prefix
from attnjax.patterns.shipped import Sink as Sink
from attnjax.patterns.shipped import Strided as Strided
from attnjax.patterns.shipped import Where as Where
from attnjax.patterns.shipped import Window as Window
from attnjax.patterns.slots import Slots as Slots
from attnjax.patterns.tile import Tile as Tile
