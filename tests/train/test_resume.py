"""A run that was stopped goes on as if it had not been, or says why it cannot."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import pairs
from train import resume, run
from train.__main__ import main
from train.checkpoints import FORMAT, Checkpoints


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(run, "learner_of", pairs.learner_of)


@pytest.fixture
def plan(tmp_path):
    return run.plan(pairs.settings(tmp_path / "text.txt"), "x", tmp_path / "whole")


@pytest.fixture
def stopped(plan, tmp_path, monkeypatch):
    """The folder of a run that was stopped in step 5, after the checkpoint of step 3 and the line of step 4."""
    out = tmp_path / "stopped"
    stop_at(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt):
        pairs.train(plan._replace(out=out))
    monkeypatch.undo()
    monkeypatch.setattr(run, "learner_of", pairs.learner_of)
    return out


def stop_at(monkeypatch, step):
    compiled = run.compiled

    def stopping(plan, learner):
        one, evaluate = compiled(plan, learner)

        def until(state, rows):
            if int(state.step) + 1 == step:
                raise KeyboardInterrupt
            return one(state, rows)

        return until, evaluate

    monkeypatch.setattr(run, "compiled", stopping)


def lines(out):
    found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in found]


@pytest.mark.parametrize("half", ["", '{"step": 6, "lo'])
def test_it_ends_bit_equal_from_a_step_that_is_no_report(plan, stopped, half, capsys):
    with (stopped / "metrics.jsonl").open("a") as file:
        file.write(half)
    assert [line["step"] for line in lines_of_text(stopped)] == [2, 4]
    whole = pairs.train(plan)
    resumed = resume.plan(stopped)
    assert resumed.since.step == 3 and len(resumed.since.losses) == 1
    assert pairs.bits(pairs.train(resumed)) == pairs.bits(whole)
    assert lines(stopped) == lines(plan.out) and [line["step"] for line in lines(stopped)] == [2, 4, 6, 8]
    record = json.loads((stopped / "run.json").read_text())
    assert record["resumed"] == [{"step": 3, "differences": []}] and not capsys.readouterr().err
    assert sorted(p.name for p in (stopped / "checkpoints").iterdir()) == ["6", "8"]


def lines_of_text(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]


def test_a_run_stopped_before_its_first_checkpoint_starts_again(plan, tmp_path, monkeypatch):
    out = tmp_path / "early"
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            pairs.train(plan._replace(out=out))
    resumed = resume.plan(out)
    assert resumed.since.step == 0 and resumed.since.state is None
    assert pairs.bits(pairs.train(resumed)) == pairs.bits(pairs.train(plan)) and lines(out) == lines(plan.out)


def test_a_run_stopped_between_its_last_step_and_its_end_is_judged_again(plan):
    pairs.train(plan)
    resumed = resume.plan(plan.out)
    assert resumed.since.step == 8
    validation = run.train(resumed, None, None)[2]
    assert validation == lines(plan.out)[-1]["validation"]


def edit(out, **changes):
    path = out / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_another_setup_resumes_with_a_warning(stopped, capsys):
    record = json.loads((stopped / "run.json").read_text())
    edit(stopped, threads=99, versions=record["versions"] | {"jax": "0.9.1"})
    resumed = resume.plan(stopped)
    warned = capsys.readouterr().err
    assert "warning: threads was 99 and is" in warned
    assert f"warning: versions.jax was 0.9.1 and is {jax.__version__}: the run goes on" in warned
    assert len(resumed.since.record["resumed"][0]["differences"]) == 2


@pytest.mark.parametrize(("break_it", "message"), [
    (lambda out: shutil.rmtree(out), "there is no run"),
    (lambda out: (out / "run.json").unlink(), "run.json is missing"),
    (lambda out: (out / "run.json").write_text('{"format": 1'), "run.json is damaged"),
    (lambda out: (out / "run.json").write_text("[]"), "run.json has format None, this version of train reads format 1"),
    (lambda out: edit(out, format=7), "run.json has format 7, this version of train reads format 1"),
    (lambda out: edit(out, finished=True), "is finished (8 steps): its model is in"),
    (lambda out: (out.parent / "text.txt").unlink(), "text.txt' cannot be read"),
    (lambda out: (out.parent / "text.txt").write_text("other " * 500), "the text has changed since"),
    (lambda out: change_setting(out, "optim", "steps", 9), "optim.steps was 8 and is 9; change it back"),
    (lambda out: change_setting(out, "optim", "stepz", 9), "unknown setting 'optim.stepz'; did you mean 'optim.steps'"),
    (lambda out: (out / "metrics.jsonl").write_text("x\n{}\n"), "metrics.jsonl, line 1, is not JSON"),
    (lambda out: shutil.rmtree(out / "checkpoints" / "3" / "state"), "checkpoints/3 cannot be read"),
    (lambda out: shutil.rmtree(out / "checkpoints" / "3" / "data"), "checkpoints/3 cannot be read"),
    (lambda out: shutil.rmtree(out / "checkpoints" / "3" / "notes"), "checkpoints/3 cannot be read"),
    (lambda out: (out / "checkpoints" / "3" / "notes" / "metadata").write_text('{"format": 2}'),
     "checkpoints/3 has format 2, this version of train reads format 1"),
])
def test_what_cannot_go_on_says_why_and_changes_nothing(stopped, capsys, break_it, message):
    break_it(stopped)
    before = files(stopped)
    assert main(["resume", str(stopped)]) == 2
    assert message in capsys.readouterr().err
    assert files(stopped) == before


def change_setting(out, section, name, value):
    settings = json.loads((out / "run.json").read_text())["settings"]
    edit(out, settings=settings | {section: settings[section] | {name: value}})


def files(out):
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_missing_run_lists_its_neighbours(stopped, capsys):
    assert main(["resume", str(stopped.parent / "stoped")]) == 2
    assert f"in {stopped.parent} there are stopped" in capsys.readouterr().err


@pytest.mark.slow
def test_no_missing_or_shortened_file_of_a_checkpoint_goes_unnoticed(plan, stopped):
    whole = pairs.bits(pairs.train(plan))
    for path in sorted(path for path in (stopped / "checkpoints").rglob("*") if path.is_file()):
        kept = path.read_bytes()
        for damage in (path.unlink, lambda path=path, kept=kept: path.write_bytes(kept[: len(kept) // 2])):
            damage()
            try:
                found = resume.plan(stopped).since
                state = found.state
            except ValueError as error:
                assert "cannot be read" in str(error) or "has format" in str(error), error
            else:  # a file that nothing depends on
                assert found.step == 3 and bytes(whole[-1]) == pairs.bits(state)[-1]
                assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params)), path
            path.write_bytes(kept)


def test_two_processes_never_train_in_one_folder(stopped):
    resumed = resume.plan(stopped)
    with run.alone(stopped), pytest.raises(OSError, match="another process is training in"):
        run.run(resumed)
    pairs.train(resumed)
    with pytest.raises(OSError, match="another process went on in .* to step 8; resume it again"):
        run.run(resumed)


def test_a_step_that_is_not_finite_stops_before_its_checkpoint(plan, capsys):
    broken = plan._replace(rate=lambda step: jnp.where(step == 4, jnp.nan, 1e-3))
    with pytest.raises(FloatingPointError, match="step 5 made a parameter or moment infinite or NaN, at a loss of"):
        pairs.train(broken)
    assert sorted(p.name for p in (plan.out / "checkpoints").iterdir()) == ["3"]
    assert [line["step"] for line in lines(plan.out)] == [2, 4]


def test_sampling(plan, stopped, capsys):
    def said(*arguments):
        assert main(["sample", str(stopped), "--prompt", "the ", *arguments]) == 0
        return capsys.readouterr().out

    assert said("--length", "12").startswith("the ") and said("--length", "12") == said("--tokens", "12", "--seed", "0")
    assert said("--length", "12", "--seed", "1") != said("--length", "12")
    cold = said("--length", "3", "--temperature", "0", "--seed", "1")
    with Checkpoints(stopped / "checkpoints") as checkpoints:
        like = resume.shapes(pairs.learner_of(None, None, plan.rate)[1], plan.mesh)
        table = checkpoints.restore(3, like, None).params["table"]
    byte, written = ord(" "), b""
    for _ in range(3):
        byte = int(np.argmax(table[byte]))
        written += bytes([byte])
    assert cold == "the " + written.decode(errors="replace") + "\n"


@pytest.mark.parametrize(("arguments", "message"), [
    (["--prompt", ""], "the prompt is empty"),
    (["--prompt", "a", "--length", "0"], "--length 0 must be at least 1"),
    (["--prompt", "a", "--temperature", "-1"], "temperature=-1.0 must be a number from 0 up"),
])
def test_samples_that_cannot_be(stopped, arguments, message, capsys):
    assert main(["sample", str(stopped), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_no_sample_before_the_first_checkpoint(stopped, capsys):
    shutil.rmtree(stopped / "checkpoints")
    assert main(["sample", str(stopped), "--prompt", "a"]) == 2
    assert "has no checkpoint yet: it was stopped before step 3" in capsys.readouterr().err


def test_the_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0 and FORMAT == 1
    said = capsys.readouterr().out
    assert all(f"\n    {name} " in said for name in ("check", "run", "resume", "sample"))
