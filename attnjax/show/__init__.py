"""Pictures of patterns, and the worked example that the steps of the formula can be followed on."""

from attnjax.show.chapter import CHAPTER, Chapter
from attnjax.show.draw_png import draw, png
from attnjax.show.draw_text import text

__all__ = ["CHAPTER", "Chapter", "draw", "png", "text"]
