"""The documents show what happens: code blocks run as written and print the text block that follows."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNABLE = [path for path in DOCUMENTS if "```python" in path.read_text()]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.M | re.S)
MARK = "--- end of block ---"


def blocks(path):
    """(language, text, line) of each fenced block, in order."""
    text = path.read_text()
    return [(m[1], m[2], text[: m.start()].count("\n") + 2) for m in BLOCK.finditer(text)]


@pytest.mark.slow
@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.name)
def test_python_blocks_run_as_pasted_and_print_what_the_page_says(path, tmp_path):
    """Each document in a process of its own, with the settings of a new user, in an empty folder."""
    found = blocks(path)
    script, expected = tmp_path / "page.py", []
    pages = []
    for (language, code, line), following in zip(found, [*found[1:], ("", "", 0)], strict=True):
        if language == "python":
            expected.append((line, following[1] if following[0] == "text" else ""))
            pages.append(f"{code}\nprint({MARK!r})\n")
    script.write_text("".join(pages))
    run = subprocess.run(
        [sys.executable, "-W", "error", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for (line, shown), printed in zip(expected, run.stdout.split(MARK), strict=False):
        assert printed.strip("\n") == shown.strip("\n"), f"{path.name}:{line} prints something else"
    assert run.stdout.count(MARK) == len(expected)


def test_every_document_but_contributing_shows_code_and_its_output():
    assert {path.name for path in DOCUMENTS} - {path.name for path in RUNNABLE} == {"CONTRIBUTING.md"}
    for path in RUNNABLE:
        languages = [language for language, _, _ in blocks(path)]
        assert set(languages) <= {"python", "text", "sh", "toml"}, "name the language of a block"
        assert "text" in languages, f"{path.name} shows no output"
        outputs = [before for before, now in zip(languages, languages[1:], strict=False) if now == "text"]
        assert set(outputs) == {"python"}, f"{path.name}: text shows the output of python above"


def test_commands_in_the_documents_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in DOCUMENTS:
        for command in re.findall(r"\bmake ([a-z]+)`", path.read_text()):
            assert command in targets, f"{path.name}: no `make {command}`"
    for path in DOCUMENTS:
        for config in re.findall(r"configs/(\w+\.toml)", path.read_text()):
            assert (ROOT / "configs" / config).exists() or config == "NAME.toml", f"{path.name}: {config}"


def test_contributing_stays_short():
    assert (ROOT / "CONTRIBUTING.md").read_text().count("\n") <= 80
