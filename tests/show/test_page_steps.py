"""Figure 5.2 in the browser: the twelve steps are those of aj.trace, for any X that is typed in."""

import numpy as np
import pytest

import attnjax as aj
from attnjax.show import CHAPTER

pytestmark = pytest.mark.page
FIELDS = "x wq wk wv q k v scores scaled masked weights out".split()


def result(page):
    """(name, numbers) of the step's own table."""
    table = page.locator("#steps table.result")
    rows = table.locator("tbody tr").all()
    grid = [[cell.get_attribute("data-value") for cell in row.locator("td").all()] for row in rows]
    return table.get_attribute("data-table"), np.array([[float(value) for value in row] for row in grid])


def walk(page):
    """Every step's numbers, stepped through with the keyboard."""
    page.focus("#steps .stage")
    page.keyboard.press("Home")
    for number, name in enumerate(FIELDS, 1):
        assert page.inner_text("#steps .count") == f"Step {number} of 12"
        found, grid = result(page)
        assert found == name
        yield name, grid
        page.keyboard.press("ArrowRight")


def test_the_first_numbers_are_the_librarys_own(open_page):
    c = CHAPTER
    steps = aj.trace(c.x, c.wq, c.wk, c.wv, pattern=aj.Causal())
    for name, grid in walk(open_page()):
        np.testing.assert_array_equal(grid, getattr(steps, name), err_msg=name)


def test_random_numbers_typed_into_x_are_followed_to_the_output(open_page, rng):
    page, c = open_page(), CHAPTER
    inputs = page.locator("#steps .told input").all()
    assert len(inputs) == 16
    for scale in (1, 30):  # the second saturates the softmax
        x = np.array([rng.uniform(-scale, scale) for _ in inputs])
        for field, value in zip(inputs, x, strict=True):
            field.fill(repr(float(value)))
        steps = aj.trace(x.reshape(4, 4), c.wq, c.wk, c.wv, pattern=aj.Causal())
        for name, grid in walk(page):
            np.testing.assert_allclose(grid, getattr(steps, name), rtol=1e-6, atol=1e-6, err_msg=name)


def test_the_chosen_cell_shows_its_sum(open_page):
    page = open_page()
    page.focus("#steps .stage")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    page.hover("#steps table.result tbody tr:nth-child(3) td >> nth=1")
    assert page.inner_text("#steps .sum") == (
        "QKᵀ[·sat, ·cat] = 0.75 × 0.00 + (−0.48) × (−1.05) + 0.84 × 1.87 + 0.82 × 0.52 = 2.501"
    )
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#steps .sum").startswith("QKᵀ[·sat, ·sat] =")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    assert page.inner_text("#steps .sum").startswith("output[·sat, d₁] = 0.15 × ")


def test_what_is_no_number_is_said_so_and_changes_nothing(open_page):
    page = open_page()
    field, fault = page.locator("#steps .told input").nth(5), page.locator("#steps .fault")
    before = page.inner_text("#steps .matrices")
    for text, words in (
        ("abc", "“abc” is not a number"), ("", "An empty field is not a number"), ("1e999", "too large"),
        ("0x10", "is not a number"), ("1,5", "is not a number"), ("<b>", "“<b>” is not a number"),
    ):  # fmt: skip
        field.fill(text)
        assert words in fault.inner_text() and "X[·cat, d₁] stays 0.30" in fault.inner_text()
        assert page.inner_text("#steps .matrices") == before
        assert field.get_attribute("aria-invalid") == "true"
        page.get_by_text("Reset X").click()
        assert fault.inner_text() == "" and field.input_value() == "0.3"


def test_play_goes_to_the_end_and_pause_stops_it(open_page):
    page = open_page()
    page.clock.install()
    page.get_by_text("Play", exact=True).click()
    assert page.inner_text("#steps .count") == "Step 2 of 12"
    page.clock.run_for(2700)
    assert page.inner_text("#steps .count") == "Step 3 of 12"
    page.get_by_text("Pause", exact=True).click()
    page.clock.run_for(10_000)
    assert page.inner_text("#steps .count") == "Step 3 of 12"
    page.focus("#steps .stage")
    page.keyboard.press(" ")
    page.clock.run_for(60_000)
    assert page.inner_text("#steps .count") == "Step 12 of 12"
    assert page.get_by_text("Play", exact=True).is_visible()
