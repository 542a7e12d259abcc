"""Pictures of patterns, plans, heads and runs, and the worked example that the formula can be followed on."""

from attnjax.show.chapter import CHAPTER, Chapter
from attnjax.show.doors import picture, png, svg
from attnjax.show.draw_axes import draw
from attnjax.show.draw_text import text
from attnjax.show.of_curve import curve
from attnjax.show.of_heads import heads
from attnjax.show.sheet import Picture

__all__ = ["CHAPTER", "Chapter", "Picture", "curve", "draw", "heads", "picture", "png", "svg", "text"]
