"""Imports point one way: a file imports from its own stage or an earlier one, never from a later one."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
STAGES = (
    "notebook shapes", "patterns", "segments", "visible", "scores blend rope_scaling turns rope dropout", "tile_sizes walks plan", "cost", "reference", "varying captures", "score_rule options", "call",
    "backends", "door", "seam", "attend", "explain", "cache", "nn", "models", "heads show cli",
)  # fmt: skip
STAGE = {name: number for number, names in enumerate(STAGES) for name in names.split()}
FILES = sorted(path for path in (ROOT / "attnjax").rglob("*.py") if path != ROOT / "attnjax" / "__init__.py")


def imports(path: pathlib.Path) -> set[str]:
    """Every module that a file names in an import, absolute, wherever in the file it stands."""
    package = path.relative_to(ROOT).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_from_its_own_stage_or_an_earlier_one(path):
    own, *inner = path.relative_to(ROOT / "attnjax").with_suffix("").parts
    assert own in STAGE, f"give {own} a stage in {__name__}"
    for name in imports(path):
        top, *rest = name.split(".")
        assert top not in ("train", "tests", "configs", "benchmarks"), f"{path} imports {name}"
        assert top != "flax" or own in ("nn", "models"), f"{path}: only nn/ and models/ import flax"
        assert top not in ("jax", "jaxlib") or own != "patterns", f"{path}: patterns/ knows no jax"
        if top == "attnjax":
            assert rest and rest[0] in STAGE, f"{path}: import {name} from the file that defines it"
            assert STAGE[rest[0]] <= STAGE[own], f"{path}: {rest[0]} comes after {own}"
            if own == rest[0] == "backends" and inner != ["__init__"] and len(rest) > 1:
                assert rest[1] in (inner[0], "base"), f"{path}: a backend imports no sibling ({name})"


def test_the_import_reader_sees_every_form(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file = tmp_path / "attnjax" / "nn" / "x.py"
    file.parent.mkdir(parents=True)
    lines = "import flax.nnx", "from . import y", "from ..plan import p", "if y:", " from attnjax import show"
    file.write_text("\n".join(lines))
    assert imports(file) == {"flax.nnx", "attnjax.nn.y", "attnjax.plan.p", "attnjax.show"}
