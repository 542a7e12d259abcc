"""Notebooks: patterns, plans and explanations show themselves, and `import attnjax` is all they need."""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import jax
import jax.numpy as jnp
import pytest

import attnjax as aj
from attnjax import notebook
from attnjax.plan import plan
from attnjax.show.html import RULE, fitting_length

ROOT = pathlib.Path(__file__).parents[2]


def _even(q, k):
    return k % 2 == 0


def test_a_pattern_is_a_picture_at_a_length_that_shows_it():
    html = (aj.Window(4) | aj.Sink(1))._repr_html_()
    assert html.startswith("<svg") and "window(4) | sink(1)" in html and "70 scores" in html
    ElementTree.fromstring(html)


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        (aj.Causal(), 16), (aj.Window(4) | aj.Sink(1), 16), (aj.Window(5), 32), (aj.Strided(128), 512),
        (aj.Window(4096) | aj.Sink(4), 16384), (aj.Window(2**31 - 1), 131072), (aj.PerHead((aj.Window(8), aj.Causal())), 32),
        (aj.Where(_even) & aj.Window(4096), RULE),
    ],
    ids=str,
)  # fmt: skip
def test_the_length_fits_the_pattern(pattern, length):
    assert fitting_length(pattern) == length
    assert pattern._repr_html_().startswith("<svg")


def test_an_explanation_is_its_text_and_its_tiles():
    x = jax.ShapeDtypeStruct((1, 4096, 1, 8), jnp.float32)
    html = aj.explain(x, x, x, aj.Window(256) & ~aj.Sink(1))._repr_html_()
    assert html.startswith("<pre>pattern") and "needed" in html and "<svg" in html
    ElementTree.fromstring(f"<div>{html}</div>")
    assert plan(aj.Causal(), 64, 64, 0)._repr_html_().startswith("<svg")


def test_names_of_rules_are_escaped():
    def rule(q, k):
        return k <= q

    rule.__name__ = rule.__qualname__ = "<script>"
    x = jax.ShapeDtypeStruct((1, 16, 1, 8), jnp.float32)
    for html in (aj.Where(rule)._repr_html_(), aj.explain(x, x, x, aj.Where(rule))._repr_html_()):
        assert "<script" not in html


def test_import_attnjax_is_enough_and_does_not_draw_before_it_is_asked():
    lines = (
        "import sys, attnjax as aj",
        "assert not [m for m in sys.modules if m.startswith(('attnjax.show', 'matplotlib'))]",
        "assert aj.Causal()._repr_html_().startswith('<svg')",
        "assert 'matplotlib' not in sys.modules and 'flax' not in sys.modules",
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


def test_without_a_drawer_a_notebook_falls_back_on_the_text(monkeypatch):
    monkeypatch.setattr(notebook, "_drawers", [])
    assert aj.Causal()._repr_html_() is None
