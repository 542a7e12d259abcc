"""Every file of a run, damaged in every way: one line that names it, exit 2, and nothing changed on disk."""

import json
import os
import pathlib
import shutil

import pytest

from tests.train import pairs
from train import resume, run
from train.__main__ import main

OUT, COMMANDS = pathlib.Path("stopped"), ("resume", "sample")


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a text and the run `stopped`: in step 5, so after the checkpoint of step 3."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "learner_of", pairs.learner_of)
        patch.chdir(folder)
        plan = run.plan(pairs.settings(), "x", OUT)
        compiled = run.compiled

        def stopping(plan, learner):
            one, evaluate = compiled(plan, learner)

            def until(state, rows):
                if int(state.step) == 4:
                    raise Stop
                return one(state, rows)

            return until, evaluate

        patch.setattr(run, "compiled", stopping)
        with pytest.raises(Stop):
            pairs.train(plan)
    return folder


@pytest.fixture(autouse=True)
def here(made, tmp_path, monkeypatch):
    """The test works in a copy of that folder, in which no run is trained."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "learner_of", pairs.learner_of)
    monkeypatch.setattr(run, "run", lambda plan: 0)


def tree():
    """Every path below the working folder, and what is in it."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in pathlib.Path().rglob("*")
    }


def refused(capsys, message, *names, commands=COMMANDS):
    """Each command says so in one line that has all names in it."""
    before = tree()
    for command in commands:
        assert main([command, str(OUT), *(["--prompt", "a"] if command == "sample" else [])]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"python -m train {command}: ") and said.count("\n") == 1 and len(said) < 600, said
        assert message in said and all(name in said for name in names), said
    assert tree() == before


def replaced(path, content):
    """Puts something else in a file's place."""
    path.unlink()
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


DEEP = "[" * 100_000 + "]" * 100_000
OTHER = {
    "missing": lambda path: None,
    "empty": b"",
    "folder": os.mkdir,
    "broken link": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
    "unreadable": lambda path: path.symlink_to("/proc/self/mem"),
    "binary": bytes(range(256)),
    "half": b'{"format": 1, "fin',
    "deep": DEEP,
    "deep inside": '{"step": 1, "format": 1, "a": ' + DEEP + "}",
    "long number": "9" * 5000,
    "long number inside": '{"step": ' + "9" * 5000 + "}",
    **{text: text for text in ("null", "true", "1", "-1.5", "NaN", '"a"', "[]", "{}", "[{}]", '{"a": 1}')},
}


@pytest.mark.parametrize("kind", OTHER)
def test_something_else_in_place_of_run_json(capsys, kind):
    replaced(OUT / "run.json", OTHER[kind])
    refused(capsys, "run.json")


@pytest.mark.parametrize("kind", OTHER)
def test_something_else_in_place_of_metrics(capsys, kind):
    replaced(OUT / "metrics.jsonl", OTHER[kind])
    refused(capsys, "metrics.jsonl", commands=["resume"])


LINES = '{"step": 2, "loss": 1.0}\n'


@pytest.mark.parametrize("text", [
    "1\n" + LINES, LINES + "{}\n", LINES + "null\n", LINES + "\n", LINES * 2, '{"step": 1}\n' + LINES,
    '{"step": 2, "loss": "high"}\n', '{"step": 2, "loss": null}\n', '{"step": 2, "loss": true}\n',
    '{"step": 2, "loss": [1]}\n', '{"step": 2, "loss": {}}\n', '{"step": true}\n', '{"step": "2"}\n',
    '{"step": 1e999}\n', '{"step": -2}\n', '{"step": 2.5}\n', '{"loss": 1.0}\n', f'{{"step": 2, "loss": {"9" * 400}}}\n',
    '{"step": 3}\n' + LINES, '{"step": 4}\n', "",
])  # fmt: skip
def test_lines_that_the_run_did_not_write(capsys, text):
    (OUT / "metrics.jsonl").write_text(text)
    refused(capsys, "metrics.jsonl", commands=["resume"])


JSON_VALUES = [None, True, 1, -1, 1.5, float("nan"), float("inf"), 10**400, "x", "", [], [1], ["x"], {}, {"a": 1}, {"a": "x"}]
# What a key may be without being refused: another set-up is a warning, and what is never read is left alone.
ALLOWED = {
    "finished": [], "seed": [1, -1, 10**400], "device": ["x", ""], "processor": ["x", ""], "XLA_FLAGS": ["x", ""],
    "devices": [1, -1, 10**400], "threads": [1, -1, 10**400], "versions": [{}, {"a": "x"}],
    "baselines": [{}, {"a": 1}], "resumed": [[]], "text": [], "settings": [], "format": [1],
}  # fmt: skip
RECORD = [(key, value) for key, allowed in ALLOWED.items() for value in JSON_VALUES
          if not any(type(value) is type(other) and value == other for other in allowed)]  # fmt: skip


@pytest.mark.slow
def test_values_of_run_json_that_are_none_of_ours(capsys):
    record = json.loads((OUT / "run.json").read_text())
    for key, value in RECORD:
        (OUT / "run.json").write_text(json.dumps(record | {key: value}))
        finished = key == "finished" and value is True  # which can be sampled from
        refused(capsys, "is finished" if finished else "run.json", key, commands=["resume"] if finished else COMMANDS)
    for key in record:
        (OUT / "run.json").write_text(json.dumps({name: record[name] for name in record if name != key}))
        refused(capsys, "run.json", key)


@pytest.mark.slow
def test_settings_in_run_json_that_are_none_of_ours(capsys):
    record = json.loads((OUT / "run.json").read_text())

    def changed(section, settings):
        settings = record["settings"] | {section: settings}
        (OUT / "run.json").write_text(json.dumps(record | {"settings": settings}))

    for section, settings in record["settings"].items():
        for name, own in settings.items():
            for value in JSON_VALUES:
                if value != own or type(value) is bool:
                    changed(section, settings | {name: value})
                    # Another text is said to be one.
                    refused(capsys, "" if section == "data" else "run.json", commands=["resume"])
            if own is not None:
                changed(section, {key: settings[key] for key in settings if key != name})
                refused(capsys, "" if name == "path" else "run.json", commands=["resume"])


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "sample.txt", "loss.png"])
def test_a_folder_where_a_file_will_be_written_is_refused_at_the_start(capsys, name):
    (OUT / name).unlink(missing_ok=True)
    (OUT / name).mkdir()
    refused(capsys, name, commands=["resume"])


@pytest.mark.parametrize("name", ["model", "checkpoints"])
def test_a_file_where_a_folder_will_be_written_is_refused_at_the_start(capsys, name):
    shutil.rmtree(OUT / name, ignore_errors=True)
    (OUT / name).touch()
    refused(capsys, name, commands=["resume"])


NOTES = OUT / "checkpoints" / "3" / "notes" / "metadata"


@pytest.mark.parametrize("kind", OTHER)
def test_something_else_in_place_of_the_notes(capsys, kind):
    replaced(NOTES, OTHER[kind])
    refused(capsys, "checkpoints/3")


@pytest.mark.slow
def test_notes_that_are_not_what_was_written(capsys):
    notes = json.loads(NOTES.read_text())
    for key, own in notes.items():
        for value in JSON_VALUES:
            if type(value) is not type(own) or value != own:
                NOTES.write_text(json.dumps(notes | {key: value}))
                refused(capsys, "checkpoints/3", commands=["resume"])
    for key in notes.keys() - {"sha256"}:
        NOTES.write_text(json.dumps({name: notes[name] for name in notes if name != key}))
        refused(capsys, "checkpoints/3")


@pytest.mark.slow
def test_notes_without_a_digest_that_are_none_of_ours(capsys):
    notes = json.loads(NOTES.read_text())
    del notes["sha256"]
    fits = {"settings": [], "losses": [[], [1]], "seconds": [1, 1.5]}
    for key in fits:
        for value in JSON_VALUES:
            if not any(type(value) is type(other) and value == other for other in fits[key]):
                NOTES.write_text(json.dumps(notes | {key: value}))
                refused(capsys, "checkpoint", commands=["resume"])


@pytest.mark.parametrize("name", ["5", "9.orbax-checkpoint-tmp", "notes", "-1", "3x", "007"])
def test_strange_files_and_folders_among_the_checkpoints(capsys, name):
    for make in (os.mkdir, lambda path: path.touch()):
        path = OUT / "checkpoints" / name
        make(path)
        status = main(["resume", "stopped"])
        said = capsys.readouterr().err
        assert "Traceback" not in said and (status == 0 or status == 2 and f"checkpoints/{name.lstrip('0')}" in said), said
        os.rmdir(path) if path.is_dir() else path.unlink()


def test_paths_that_can_be_none(capsys, monkeypatch):
    for name in ("x" * 5000, "a\0b", "text.txt/x", "x/" * 3000):
        for command in ("resume", "sample"):
            assert main([command, name, *(["--prompt", "a"] if command == "sample" else [])]) == 2
            said = capsys.readouterr().err
            assert "there is no run" in said and said.count("\n") == 1 and len(said) < 400
    for command in ("resume", "sample"):
        with pytest.raises(SystemExit) as stopped:
            main([command, ""])
        assert stopped.value.code == 2


def test_a_whole_run_is_resumed(capsys):
    """So that what is refused above is refused for its damage."""
    assert main(["resume", "stopped"]) == 0 and not capsys.readouterr().err
    assert resume.plan(OUT).since.step == 3
