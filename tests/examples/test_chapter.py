"""The notebook runs from its first cell to its last, shows its pictures, and is kept without outputs."""

import pathlib

import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "chapter.ipynb"
SECTIONS = (
    "The intuition", "A tiny example with numbers", "All tokens at once", "Why divide by", "Many heads at once",
    "One full pass, start to finish", "The cost of attention", "Summary",
)  # fmt: skip


def test_it_goes_through_the_chapter_in_order_and_is_kept_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    headings = [line[3:] for cell in cells for line in cell.splitlines() if line.startswith("## ")]
    assert len(headings) == len(SECTIONS)
    assert all(heading.startswith(section) for heading, section in zip(headings, SECTIONS, strict=True))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell for cell in code if cell.outputs or cell.execution_count is not None]


@pytest.mark.slow
def test_every_cell_runs_and_the_chapters_numbers_stand_in_the_outputs(monkeypatch):
    import nbclient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert not [output for output in outputs if output.get("name") == "stderr"]
    for number in ("tired: scores [3.0, 0.0, 0.0] -> animal 90.9%, street 4.5%, tired 4.5%", "wide: ", "street 90.9%",
                   "70 of 136 at 16 tokens", "528,611,328 at 128k", "512 KiB of keys and values a token", "11.3"):  # fmt: skip
        assert number in printed, number
    shown = [output.data["text/html"] for output in outputs if output.output_type == "execute_result" and "text/html" in output.data]
    assert len(shown) == 6 and all("<svg" in html for html in shown)
    assert "needed" in shown[-1] and "head 0.0: sat looks at cat 0.70" in shown[2]
