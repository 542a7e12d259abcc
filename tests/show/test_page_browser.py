"""The page as people meet it: mouse, touch, keyboard, light and dark, a narrow phone. Nothing is fetched."""

import json
import re

import pytest

pytestmark = pytest.mark.page
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "device_scale_factor": 2}


def embedded(page):
    return json.loads(page.evaluate("document.getElementById('data').textContent"))


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(page, selector):
    """Of a text against the ground it stands on (WCAG 2)."""
    colours = page.evaluate(
        """selector => {
          const element = document.querySelector(selector);
          let ground = element;
          while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
          const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          return [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor].map((colour) => {
            pen.fillStyle = colour; // whatever way it is written, the pixel is red, green and blue
            pen.fillRect(0, 0, 1, 1);
            return `rgb(${pen.getImageData(0, 0, 1, 1).data.join(" ")})`;
          });
        }""",
        selector,
    )
    light, dark = sorted(map(luminance, colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


TEXTS = ("h2", ".lead", ".number", ".note", "#theme", ".big strong", ".choices input:checked + span", ".choices span",
         ".words li[aria-selected=true]", ".matrix td", ".matrix th", ".heat span", "button.main")  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_can_be_read_and_the_button_switches(open_page, scheme):
    page = open_page(color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(ground)
    assert (luminance(first) > 0.5) == (scheme == "light")
    for _ in range(2):
        for selector in TEXTS:
            assert contrast(page, selector) >= 4.5, selector
        page.click("#theme")
    assert page.evaluate(ground) == first
    page.click("#theme")
    assert (luminance(page.evaluate(ground)) > 0.5) == (scheme == "dark")
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")  # the reader's choice outlasts the system's
    assert (luminance(page.evaluate(ground)) > 0.5) == (scheme == "dark")


def test_nothing_reaches_over_a_narrow_screen(open_page):
    page = open_page(**PHONE)
    page.get_by_role("radio", name="Tiles").tap()
    page.focus("#steps .stage")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        wide = page.evaluate(
            """[...document.querySelectorAll("body *")].filter((e) => {
              const box = e.getBoundingClientRect();
              return box.width && !e.closest(".hidden, .words svg") && (box.right > innerWidth + 0.5 || box.left < -0.5);
            }).map((e) => e.outerHTML.slice(0, 90))"""
        )
        assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_letters_are_not_smaller_than_eleven_pixels(open_page):
    page = open_page(**PHONE)
    small = page.evaluate(
        """[...document.querySelectorAll("body *")].filter((e) => e.children.length === 0 && e.textContent.trim()
          && !e.closest("script, sub") && parseFloat(getComputedStyle(e).fontSize) < 11).map((e) => e.outerHTML.slice(0, 90))"""
    )
    assert small == []


def test_a_word_is_chosen_by_mouse_keyboard_and_touch(open_page):
    page = open_page()
    words = page.locator("#looks .panel").first.locator(".from li")
    says = page.locator("#looks .says").first
    assert says.inner_text() == "“tired” looks at “animal” 90%."
    words.nth(7).hover()
    assert says.inner_text().startswith("“it” looks at “animal” ")
    page.locator("#looks .from").first.focus()
    page.keyboard.press("ArrowUp")
    assert words.nth(6).get_attribute("aria-selected") == "true"
    page.keyboard.press("Home")
    assert says.inner_text() == "“The” looks at “The” 100%."
    to = page.locator("#looks .panel").first.locator(".to li")
    assert [item.get_attribute("class") for item in to.all()] == ["strong"] + ["future"] * 10
    page.get_by_role("radio", name="Previous word").check()
    page.locator("#looks .from").first.press("End")
    assert says.inner_text().startswith("“tired” looks at “too” ")

    phone = open_page(**PHONE)
    phone.locator("#looks .panel").nth(1).locator(".from li").nth(3).tap()
    assert phone.locator("#looks .says").nth(1).inner_text().startswith("“cross” looks at ")


def test_lines_are_as_thick_as_the_weights(open_page):
    page = open_page()
    head = embedded(page)["heads"]
    weights = head["weights"][0][0][-1]
    drawn = page.locator("#looks .panel").first.locator("path")
    widths = [float(path.get_attribute("stroke-width")) for path in drawn.all()]
    assert widths == pytest.approx([0.75 + 7 * weight for weight in weights if weight > 0.005])


def test_four_heads_answer_for_the_pair_under_the_mouse(open_page):
    page = open_page()
    heads = embedded(page)["heads"]
    cells = page.evaluate(
        "[...document.querySelectorAll('#four .heat')].map((map) => [...map.querySelectorAll('i')].map((i) => Number(i.dataset.weight)))"
    )
    assert cells == [[w for row in head for w in row] for head in heads["weights"][0]]
    page.hover("#four .heat >> nth=1 >> i[data-q='5'][data-k='4']")
    answers = [answer.inner_text() for answer in page.locator("#four .answer").all()]
    assert answers == [f"query “street” → key “the”: {head[5][4]:.3f}" for head in heads["weights"][0]]
    page.focus("#four .heat >> nth=0")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert page.locator("#four .answer").first.inner_text() == "query “the” → key “street”: hidden, it comes later"
    page.locator("#four").get_by_role("radio", name="… wide").check()
    page.focus("#four .heat >> nth=0")
    for _ in range(20):
        page.keyboard.press("ArrowDown")
    assert page.locator("#four .answer").first.inner_text().startswith("query “wide” → key “street”: 0.9")


def test_the_slider_of_saturation_shows_the_librarys_numbers(open_page):
    page = open_page()
    data = embedded(page)["saturation"]
    for i in (0, 4, len(data["sizes"]) - 1):
        page.locator("#saturation input[type=range]").fill(str(i))
        for side in ("raw", "scaled"):
            bars = page.locator(f"#saturation [data-side={side}] .bar output").all_inner_texts()
            assert bars == [f"{100 * weight:.1f}%" for weight in data["draws"][i][side]["weights"]]
            facts = page.locator(f"#saturation [data-side={side}] dd").all_inner_texts()
            assert facts[3] == f"{data['averages'][i][side]['gradient']:.4f}"
    page.focus("#saturation input[type=range]")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#saturation .slider output").inner_text() == "512"


def test_rows_of_the_pattern_are_chosen_with_the_keyboard(open_page):
    page = open_page()
    page.focus("#computed canvas")
    page.keyboard.press("End")
    assert page.inner_text("#computed .says") == "Token 15 sees 5 of 16: 0, 12–15."
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#computed .says") == "Token 14 sees 5 of 16: 0, 11–14."
    phone = open_page(**PHONE)
    box = phone.locator("#computed canvas").bounding_box()
    phone.locator("#computed canvas").tap(position={"x": 20, "y": box["height"] * 2.5 / 16})
    assert phone.inner_text("#computed .says") == "Token 2 sees 3 of 16: 0–2."


def test_every_control_can_be_reached_with_the_tab_key(open_page):
    page = open_page()
    reached = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("(e => e.closest('.figure')?.id + ' ' + e.tagName + ' ' + (e.type || e.getAttribute('role')))(document.activeElement)"))
    assert {
        "looks INPUT radio", "looks UL listbox", "steps DIV null", "steps INPUT text", "steps BUTTON button",
        "saturation INPUT range", "four DIV img", "computed INPUT radio", "computed INPUT text", "computed CANVAS img",
        "computed INPUT range",
    } <= reached  # fmt: skip


def test_large_numbers_in_x_scroll_inside_their_box_on_a_phone(open_page):
    page = open_page(**PHONE)
    for field in page.locator(".matrix input").all():
        field.fill("1000")
    for step in page.locator(".dots button").all():
        step.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
