"""The chapter's five figures in one offline HTML file, drawn from what the library computes when it is written."""

from attnjax.show.page.assemble import write

__all__ = ["write"]
