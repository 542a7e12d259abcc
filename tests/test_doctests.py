"""Every example in a docstring of attnjax runs as pasted: alone, from its own import on."""

import ast
import doctest
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def examples():
    """(name, example) of each docstring with `>>>`, read from the source: decorators cannot hide any."""
    parser = doctest.DocTestParser()
    for path in sorted((ROOT / "attnjax").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if ">>>" in text:
                    line = node.body[0].lineno - 1
                    name = f"{path.relative_to(ROOT)}:{getattr(node, 'name', 'module')}"
                    yield name, parser.get_doctest(text, {}, name, str(path), line)


@pytest.mark.parametrize("example", [pytest.param(example, id=name) for name, example in examples()])
def test_example(example):
    report: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=report.append)
    assert result.attempted and not result.failed, "".join(report)
