"""A run that was stopped goes on as if it had not been, or says why it cannot."""

import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import pairs
from train import resume, run
from train.__main__ import main
from train.checkpoints import FORMAT, Checkpoints


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a text, the run `whole`, and the run `stopped`: in step 5, so after the checkpoint of step 3 and
    the line of step 4."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "learner_of", pairs.learner_of)
        patch.chdir(folder)
        plan = run.plan(pairs.settings(), "x", pathlib.Path("whole"))
        pairs.train(plan)
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            pairs.train(plan._replace(out=pathlib.Path("stopped")))
    return folder


@pytest.fixture(autouse=True)
def here(made, tmp_path, monkeypatch):
    """The test works in a copy of that folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "learner_of", pairs.learner_of)


WHOLE, STOPPED = pathlib.Path("whole"), pathlib.Path("stopped")


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


def end(out):
    """The bits of a run's last state."""
    plan = run.checked(pairs.settings(), lambda: out)
    with Checkpoints(out / "checkpoints") as checkpoints:
        return pairs.bits(checkpoints.restore(8, resume.shapes(plan.learner()[1], plan.mesh), None))


def test_it_ends_bit_equal_from_a_step_that_is_no_report(capsys):
    with (STOPPED / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    resumed = resume.plan(STOPPED)
    assert resumed.since.step == 3 and len(resumed.since.losses) == 1
    assert pairs.bits(pairs.train(resumed)) == end(WHOLE) == end(STOPPED)
    assert lines(STOPPED) == lines(WHOLE) and [line["step"] for line in lines(STOPPED)] == [2, 4, 6, 8]
    record = json.loads((STOPPED / "run.json").read_text())
    assert record["resumed"] == [{"step": 3, "differences": []}] and not capsys.readouterr().err
    assert sorted(p.name for p in (STOPPED / "checkpoints").iterdir()) == ["6", "8"]


def test_a_run_stopped_before_its_first_checkpoint_starts_again():
    shutil.rmtree(STOPPED / "checkpoints")
    resumed = resume.plan(STOPPED)
    assert resumed.since.step == 0 and resumed.since.state is None
    assert pairs.bits(pairs.train(resumed)) == end(WHOLE) and lines(STOPPED) == lines(WHOLE)


def test_a_run_stopped_between_its_last_step_and_its_end_is_judged_again():
    resumed = resume.plan(WHOLE)
    assert resumed.since.step == 8
    assert run.train(resumed, None, None)[2] == lines(WHOLE)[-1]["validation"]


def edit(out, **changes):
    path = out / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_another_setup_resumes_with_a_warning(capsys):
    record = json.loads((STOPPED / "run.json").read_text())
    edit(STOPPED, threads=99, versions=record["versions"] | {"jax": "0.9.1"})
    resumed = resume.plan(STOPPED)
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
    (lambda out: edit(out, finished=True), "is finished (8 steps): its model was in stopped/model, which is not there any more;"),
    (lambda out: edit(out, finished=True) or (out / "model").mkdir(), f"its model is in {STOPPED / 'model'};"),
    (lambda out: pathlib.Path("text.txt").unlink(), "text.txt' cannot be read"),
    (lambda out: pathlib.Path("text.txt").write_text("other " * 500), "the text has changed since"),
    (lambda out: change_setting(out, "optim", "steps", 9), "optim.steps was 8 and is 9; change it back"),
    (lambda out: change_setting(out, "optim", "stepz", 9), "unknown setting 'optim.stepz'; did you mean 'optim.steps'"),
    (lambda out: (out / "metrics.jsonl").write_text("x\n{}\n"), "metrics.jsonl, line 1, is not JSON"),
    (lambda out: shutil.rmtree(out / "checkpoints" / "3" / "state"), "checkpoints/3 cannot be read"),
    (lambda out: shutil.rmtree(out / "checkpoints" / "3" / "data"), "checkpoints/3 cannot be read"),
    (lambda out: shutil.rmtree(out / "checkpoints" / "3" / "notes"), "checkpoints/3 cannot be read"),
    (lambda out: (out / "checkpoints" / "3" / "notes" / "metadata").write_text('{"format": 2}'),
     "checkpoints/3 has format 2, this version of train reads format 1"),
])
def test_what_cannot_go_on_says_why_and_changes_nothing(capsys, break_it, message):
    break_it(STOPPED)
    before = files(STOPPED)
    assert main(["resume", "stopped"]) == 2
    assert message in capsys.readouterr().err
    assert files(STOPPED) == before


def change_setting(out, section, name, value):
    settings = json.loads((out / "run.json").read_text())["settings"]
    edit(out, settings=settings | {section: settings[section] | {name: value}})


def files(out):
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("write", [
    lambda: shutil.copytree("stopped/checkpoints/3", "stopped/checkpoints/4"),
    lambda: pathlib.Path("stopped/checkpoints/3").rename("stopped/checkpoints/4"),
])
@pytest.mark.parametrize("digests", [True, False])
def test_a_checkpoint_under_another_step_is_refused_by_every_reader(capsys, write, digests):
    if not digests:
        before_digests(STOPPED)
    write()
    for command in (["resume", "stopped"], ["sample", "stopped", "--prompt", "a"]):
        assert main(command) == 2
        assert "stopped/checkpoints/4 holds step 3: it was copied or renamed; remove that folder" in capsys.readouterr().err


def before_digests(out):
    """Makes the checkpoint of step 3 one as versions before there were digests wrote it."""
    path = out / "checkpoints" / "3" / "notes" / "metadata"
    notes = json.loads(path.read_text())
    path.write_text(json.dumps({key: notes[key] for key in ("format", "state", "settings", "losses", "seconds")}))


@pytest.mark.slow
def test_a_run_from_before_there_were_digests_goes_on_with_a_warning(capsys):
    before_digests(STOPPED)
    resumed = resume.plan(STOPPED)
    said = capsys.readouterr().err
    assert said.startswith("warning: checkpoint stopped/checkpoints/3 has no digest") and said.count("\n") == 1
    assert pairs.bits(pairs.train(resumed)) == end(WHOLE) and lines(STOPPED) == lines(WHOLE)
    assert main(["sample", "stopped", "--prompt", "a", "--length", "1"]) == 0 and not capsys.readouterr().err


def test_a_resumed_run_says_where_it_goes_on(capsys, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "train", stopped)
    assert main(["resume", "stopped"]) == 130
    assert "\ngoes on from step 3 of 8 (checkpoint stopped/checkpoints/3)\n" in capsys.readouterr().out
    shutil.rmtree(STOPPED / "checkpoints")
    assert main(["resume", "stopped"]) == 130
    assert "\nfrom the start: no checkpoint yet\n" in capsys.readouterr().out
    assert main(["run", str(pairs.HYBRID), "--set", *pairs.SETTINGS, "data.path=text.txt", "--out", "new"]) == 130
    said = capsys.readouterr().out
    assert "goes on" not in said and "from the start" not in said


def test_a_missing_run_lists_its_neighbours(capsys):
    assert main(["resume", "stoped"]) == 2
    assert "there is no run stoped; in . there are stopped, whole" in capsys.readouterr().err


def test_two_processes_never_train_in_one_folder():
    resumed = resume.plan(STOPPED)
    with run.alone(STOPPED), pytest.raises(OSError, match="another process is training in"):
        run.run(resumed)
    pairs.train(resumed)
    with pytest.raises(OSError, match="another process went on in .* to step 8; resume it again"):
        run.run(resumed)


def test_a_step_that_is_not_finite_stops_before_its_checkpoint():
    plan = run.plan(pairs.settings(), "x", pathlib.Path("broken"))
    broken = plan._replace(rate=lambda step: jnp.where(step == 4, jnp.nan, 1e-3))
    with pytest.raises(FloatingPointError, match="step 5 made a parameter or moment infinite or NaN, at a loss of"):
        pairs.train(broken)
    assert sorted(p.name for p in (plan.out / "checkpoints").iterdir()) == ["3"]
    assert [line["step"] for line in lines(plan.out)] == [2, 4]


def said(capsys, *arguments):
    assert main(["sample", "stopped", "--prompt", "the ", *arguments]) == 0
    return capsys.readouterr().out


def test_samples_depend_on_the_seed(capsys):
    short = said(capsys, "--length", "12")
    assert short.startswith("the ") and said(capsys, "--tokens", "12", "--seed", "0") == short
    assert said(capsys, "--length", "12", "--seed", "1") != short


def test_a_cold_sample_is_read_off_the_table(capsys):
    table = resume.plan(STOPPED).since.state.params["table"]
    byte, written = ord(" "), b""
    for _ in range(3):
        byte = int(np.argmax(table[byte]))
        written += bytes([byte])
    cold = said(capsys, "--length", "3", "--temperature", "0", "--seed", "1")
    assert cold == "the " + written.decode(errors="replace") + "\n"


@pytest.mark.parametrize(("arguments", "message"), [
    (["--prompt", ""], "the prompt is empty"),
    (["--prompt", "a", "--length", "0"], "--length 0 must be at least 1"),
    (["--prompt", "a", "--temperature", "-1"], "temperature=-1.0 must be a number from 0 up"),
])
def test_samples_that_cannot_be(arguments, message, capsys):
    assert main(["sample", "stopped", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_no_sample_before_the_first_checkpoint(capsys):
    shutil.rmtree(STOPPED / "checkpoints")
    assert main(["sample", "stopped", "--prompt", "a"]) == 2
    assert "has no checkpoint yet: it was stopped before step 3" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch):
    def stopped(plan):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", stopped)
    assert main(["resume", "stopped"]) == 130
    assert "stopped; python -m train resume stopped goes on from the newest checkpoint" in capsys.readouterr().err
    shutil.rmtree(STOPPED / "checkpoints")
    assert main(["resume", "stopped"]) == 130
    assert "goes on from its start, as no checkpoint was written yet" in capsys.readouterr().err


def test_the_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0 and FORMAT == 1
    said = capsys.readouterr().out
    assert all(f"\n    {name} " in said for name in ("check", "run", "resume", "sample"))
