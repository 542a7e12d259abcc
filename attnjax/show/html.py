"""What notebooks show of a pattern, a plan and an explanation. attnjax itself registers `html`, see notebook.py."""

import html as escapes
import re
from typing import Any

from attnjax.explain import Explanation
from attnjax.patterns import Pattern, PerHead
from attnjax.plan import Plan
from attnjax.show.doors import picture

SHORTEST, LONGEST = 16, 131072
RULE = 64  # tokens at which a Where is drawn: it is evaluated pair by pair


def html(what: Any) -> str:
    """A pattern, a plan or an explanation as SVG in the page's own colours; of an explanation also its text."""
    if isinstance(what, Explanation):
        return f"<pre>{escapes.escape(str(what))}</pre>{picture(what)._repr_html_()}"
    if isinstance(what, Plan):
        return picture(what)._repr_html_()
    return picture(what, fitting_length(what))._repr_html_()


def fitting_length(pattern: Pattern | PerHead) -> int:
    """A pattern has no length: the power of two at which the largest number in its text is a quarter or less."""
    if pattern.has_rule:
        return RULE
    largest = max(map(int, re.findall(r"\d+", str(pattern))), default=0)
    return min(max(SHORTEST, 1 << (4 * largest - 1).bit_length() if largest else 0), LONGEST)
