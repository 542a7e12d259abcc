"""The API pages are what the docstrings say, and the docstrings say what they must."""

import ast
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
make_api = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_api)
PUBLIC = {
    f"{package}.{name}": node
    for package, _, _ in make_api.PAGES.values()
    for name, node in make_api.public(package)
    if not isinstance(node, ast.Assign)
}


@pytest.mark.parametrize("title", make_api.PAGES)
def test_the_page_is_what_the_docstrings_give(title):
    written = (ROOT / "docs" / "api" / f"{title}.md").read_text()
    assert written == make_api.page(title), f"docs/api/{title}.md is not up to date: make api"


def test_every_page_is_made_and_holds_every_public_name():
    assert {path.stem for path in (ROOT / "docs" / "api").glob("*.md")} == set(make_api.PAGES)
    for package, prefix, _ in make_api.PAGES.values():
        module = importlib.import_module(package)
        importable = {n for n in getattr(module, "__all__", vars(module)) if not n.startswith("_")}
        names = {name for name, _ in make_api.public(package)}
        modules = {n for n in importable if getattr(getattr(module, n), "__file__", None)}
        assert importable - modules == names, prefix


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example_and_says_what_it_raises(name):
    node = PUBLIC[name]
    text = ast.get_docstring(node) or ""
    assert "Example:" in text
    owned = [n for n in getattr(node, "body", []) if isinstance(n, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []
    for part in (node, *owned):
        hidden = part.name.startswith("_") and part.name not in ("__init__", "__call__")
        if isinstance(part, ast.FunctionDef) and not hidden and any(isinstance(n, ast.Raise) for n in ast.walk(part)):
            said = (ast.get_docstring(part) or "") + text
            assert "Raises:" in said, f"{name}.{part.name} raises and its docstring does not say what"


def test_sections_become_markdown():
    doc = "What it does.\n\nArgs:\n    a, b: two\n        numbers.\n\nExample:\n    >>> 1 + 1\n    2"
    assert list(make_api.markdown(doc)) == [
        "What it does.", "**Arguments**", "- `a`, `b`: two numbers.", "**Example**", "```pycon\n>>> 1 + 1\n2\n```",
    ]  # fmt: skip


def test_a_signature_spells_array_types_and_the_bare_star():
    (node,) = ast.parse("def f(q: Queries, n: int = 2, *, mask=None, **o: Unpack[Options]) -> Output: pass").body
    assert make_api.signature("aj.f", node, False) == (
        'aj.f(q: Float[Array, "*B T N H"], n: int = 2, *, mask=None, **o: Unpack[Options]) -> Float[Array, "*B T N h"]'
    )
