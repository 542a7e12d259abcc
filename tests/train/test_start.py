"""What can be known at the start is refused at the start: exit 2, and nothing written."""

import os
import pathlib
import shutil
import sys

import jax
import jax.numpy as jnp
import pytest

from attnjax import models
from tests.train import pairs
from train import check, config, host, limits, pool, resume, rows, run, windows
from train.__main__ import main

HYBRID = pathlib.Path(__file__).parents[2] / "configs" / "hybrid.toml"
FLOATS = [name for name, kind in {
    f"{section}.{field}": kind for section, fields in config.typing.get_type_hints(config.Settings).items()
    for field, kind in config.typing.get_type_hints(fields).items()}.items() if "float" in str(kind)]  # fmt: skip
INTS = ["model.d_model", "model.num_layers", "model.num_heads", "model.num_kv_heads", "model.head_dim", "model.d_ff",
        "data.length", "data.batch", "optim.steps", "run.log_every", "run.eval_every", "run.save_every", "run.keep",
        "run.devices"]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working folder, and no run that trains."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run", lambda plan: pytest.fail("it was trained"))
    monkeypatch.setattr(pool, "train", lambda *_: pytest.fail("it was trained"))


def refused(capsys, message, *arguments, there=()):
    assert main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and len(said) < 600, said
    assert sorted(os.listdir()) == sorted(there)


def test_every_kind_of_setting_is_here():
    assert len(FLOATS) == 10 and "model.theta" in FLOATS and "run.temperature" in FLOATS


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e39", "-1e39", "1e-40", "1e400", "1" * 400])
def test_a_float_that_is_none_to_the_model_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"^{name}=.* must be a finite number that float32 holds: 0, or from 1.2e-38 to"):
        config.read(HYBRID, [f"{name}={value}"])


@pytest.mark.parametrize("name", INTS)
def test_sizes_are_above_0_and_int32(name):
    for value in ("0", "-1", "2147483648", "99999999999999999999", "9" * 400):
        with pytest.raises(ValueError, match=rf"^{name}=.* must be (above 0|from 1 to 2147483647)$"):
            config.read(HYBRID, [f"{name}={value}"])
    for value in ("1.5", "true", "'x'", "[1]", "{}", "1979-05-27"):
        with pytest.raises(ValueError, match=f"setting '{name}' must be int, not"):
            config.read(HYBRID, [f"{name}={value}"])


REFUSED = [
    ("run.temperature=inf", "run.temperature=inf must be a finite number"),
    ("run.temperature=nan", "run.temperature=nan must be a finite number"),
    ("run.temperature=-1", "run.temperature=-1.0 must be above 0"),
    ("run.sample=-1", "run.sample=-1 must be from 0 to 1000000"),
    ("run.sample=1000001", "run.sample=1000001 must be from 0 to 1000000"),
    ("run.seed=99999999999999999999", "run.seed=99999999999999999999 must be from -2147483648 to 4294967295"),
    ("run.seed=4294967296", "run.seed=4294967296 must be from"),
    ("run.seed=-2147483649", "run.seed=-2147483649 must be from"),
    ("optim.learning_rate=0", "optim.learning_rate=0.0 must be above 0"),
    ("optim.lowest_rate=-1e-9", "optim.lowest_rate=-1e-09 must not be below 0"),
    ("optim.lowest_rate=0.1", "optim.lowest_rate=0.1 must not be above optim.learning_rate=0.003"),
    ("optim.weight_decay=-0.1", "optim.weight_decay=-0.1 must not be below 0"),
    ("optim.b2=1", "optim.b2=1.0 must be from 0 up and, as a float32, below 1"),
    ("optim.b2=0.99999999999", "optim.b2=0.99999999999 must be from 0 up"),
    ("optim.b2=-0.1", "optim.b2=-0.1 must be from 0 up"),
    ("optim.warmup=-1", "optim.warmup=-1 must be from 0"),
    ("optim.warmup=750", "warmup=750 and last=749: the warm-up needs 0 <= warmup < last"),
    ("model.legend={}", "model: legend={} must map letters to patterns"),
    ("model.legend.G=full()", "future"),
    ("model.legend.G=perhead(causal(), causal(), causal())", "has 3 heads, but num_heads=4"),
    ("model.dropout_rate=1", "dropout_rate=1.0"),
    ("model.head_dim=7", "7"),
    ("model.num_layers=2147483647", "of memory, and there are"),
    ("model.num_heads=2147483647", "of memory, and there are"),
    ("model.d_ff=2147483647", "of memory, and there are"),
    ("data.batch=2147483647", "of memory, and there are"),
    ("data.length=2147483647", "does not fit into the shorter part of the text"),
    ("data.path=", "data.path='' cannot be read (No such file or directory)"),
    ("data.path=.", "data.path='.' cannot be read (Is a directory)"),
    ("data.path=/dev/zero", "data.path='/dev/zero' is not a file"),
    ('data.path="a\\u0000b"', "data.path='a\\x00b' cannot be the path of a file: it holds the byte 0"),
    (f"data.path={'x' * 5000}", "cannot be read (File name too long)"),
    ("data.path=" + "[" * 5000 + "]" * 5000, "cannot be read: it is nested too deeply"),
    ("optim.steps=" + "9" * 5000, "cannot be read: Exceeds the limit"),
    ("x" * 5000 + "=1", "unknown setting"),
    ("=1", "unknown setting ''"),
    ("optim..steps=1", "unknown setting 'optim.'"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[change[:40] for change, _ in REFUSED])
def test_settings_of_a_run(capsys, change, message):
    refused(capsys, message, "run", HYBRID, "--set", change, "--out", "run")


def test_a_prefix_over_the_whole_sequence_leaves_nothing_to_learn(capsys):
    changes = ["model.legend.G=prefix(200)", "model.layout=G", "data.length=128"]
    refused(capsys, "every byte of a sequence sees its own target", "run", HYBRID, "--set", *changes, "--out", "run")


def test_a_model_that_would_fail_in_its_first_step_is_traced_at_the_start(capsys, monkeypatch):
    def failing(self, params):
        raise ValueError("the model cannot do this")

    monkeypatch.setattr(run.loop.Learner, "model", failing)
    refused(capsys, "the model cannot do this", "run", HYBRID, "--out", "run")


@pytest.mark.parametrize(("text", "message"), [
    ("x = " + "[" * 5000 + "]" * 5000, "is not TOML: it is nested too deeply"),
    ("x = " + "9" * 5000, "is not TOML: Exceeds the limit"),
    ("[model]\nlegend = " + "{a=" * 2000 + "1" + "}" * 2000, "is not TOML: it is nested too deeply"),
    (b"\xff\xfe", "is not TOML"),
])
def test_configs_that_cannot_be_read(capsys, text, message):
    pathlib.Path("x.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(capsys, message, "run", "x.toml", "--out", "run", there=["x.toml"])


def test_configs_that_cannot_be(capsys):
    for name in ("x" * 5000, "x/" * 3000 + "y"):
        refused(capsys, "cannot be read (File name too long)", "run", name)
    refused(capsys, "config 'a\\x00b' cannot be the path of a file: it holds the byte 0", "run", "a\0b")
    refused(capsys, "it is a device", "run", "/dev/zero")
    refused(capsys, "cannot be read (Is a directory)", "run", ".")


def places():
    """(folder, message) of every place that cannot be written into."""
    pathlib.Path("file").touch()
    pathlib.Path("link").symlink_to("nowhere")
    pathlib.Path("loop").symlink_to("loop")
    return [("x" * 5000, "cannot be a folder (File name too long)"), ("x" * 256, "cannot be a folder (File name too long)"),
            ("x/" * 2000, "cannot be a folder (File name too long)"), ("a\0b", "cannot be a folder: it holds the byte 0"),
            ("file/run", "file is a file"), ("/proc/run", "nothing can be written into /proc"),
            ("loop/run", "cannot be a folder")]  # fmt: skip


@pytest.mark.cross
@pytest.mark.parametrize("command", [["run", HYBRID], ["check", "--row", "prefix"]], ids=["run", "check"])
def test_folders_that_cannot_be_written_into(capsys, command):
    for folder, message in places():
        refused(capsys, message, *command, "--out", folder, there=["file", "link", "loop"])
    for folder in ("file", "link", "loop"):
        wanted = "already holds something" if command[0] == "run" else "cannot be a folder"
        refused(capsys, wanted, *command, "--out", folder, there=["file", "link", "loop"])
    with pytest.raises(SystemExit) as stopped:
        main([*map(str, command), "--out", ""])
    assert stopped.value.code == 2 and "it is empty; name a folder" in capsys.readouterr().err


def test_the_folder_of_runs_may_be_a_file(capsys):
    pathlib.Path("runs").touch()
    refused(capsys, "runs is a file", "run", HYBRID, there=["runs"])


@pytest.mark.parametrize("command", [["run", HYBRID], ["check", "--row", "prefix"]], ids=["run", "check"])
def test_a_full_disk(capsys, command, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40 - 1000, 1000))
    refused(capsys, "and the disk has 0.0 MiB left; make room", *command, "--out", "run")


@pytest.mark.parametrize(("command", "package"), [
    (["run", HYBRID], "safetensors"), (["run", HYBRID], "matplotlib"), (["check", "--row", "mqar-mha"], "safetensors"),
    (["check", "--row", "prefix"], "matplotlib"),
], ids=str)  # fmt: skip
def test_packages_that_only_the_end_needs(capsys, command, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    refused(capsys, f"written with {package}, not installed here: pip install {package}", *command, "--out", "run")


def test_a_missing_package_is_no_traceback(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "train.run", None)
    monkeypatch.delattr("train.run")
    refused(capsys, "train.run", "run", HYBRID)


def test_without_a_device(capsys, monkeypatch):
    def none():
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(jax, "local_devices", none)
    refused(capsys, "JAX finds no device: Unable to initialize backend 'cuda'", "run", HYBRID, "--out", "run")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--seed", "4294967296"], "--seed=4294967296 must be from -2147483648 to 4294967295"),
    (["--seed", "99999999999999999999"], "--seed=99999999999999999999 must be from"),
    (["--seed", "-2147483649"], "--seed=-2147483649 must be from"),
    (["--full", "--seed", "4294967294"], "--seed=4294967296 must be from"),
    (["--row", ""], "unknown row ''"),
    (["--row", "list", "prefix"], "unknown row 'list'"),
    (["--break", ""], "unknown break ''"),
    (["--break", "drop-sink", "--row", "hybrid"], "--break drop-sink changes no pattern of hybrid; choose other rows"),
])
def test_options_of_the_check(capsys, arguments, message):
    refused(capsys, message, "check", *arguments, "--out", "out")


@pytest.mark.parametrize(("name", "make"), [
    ("report.md", os.mkdir), ("report.json", os.mkdir), ("accuracy.png", os.mkdir),
    ("models", lambda path: path.touch()), ("models/mqar-mha", lambda path: path.touch()),
])  # fmt: skip
def test_what_stands_in_the_way_of_a_report(capsys, name, make):
    path = pathlib.Path("out", name)
    path.parent.mkdir(parents=True)
    make(path)
    refused(capsys, f"out/{name} is", "check", "--row", "mqar-mha", "prefix", "--out", "out", there=["out"])
    assert [str(p) for p in pathlib.Path("out").rglob("*") if p.is_file() or not os.listdir(p)] == [str(path)]


def test_an_old_report_is_in_nobodys_way():
    out = pathlib.Path("out")
    (out / "models" / "mqar-mha").mkdir(parents=True)
    for name in ("report.md", "report.json", "accuracy.png"):
        (out / name).write_bytes(b"\xff")
    (out / "accuracy.png").unlink()
    (out / "accuracy.png").symlink_to("nowhere")
    check.ready([row for row in rows.QUICK if row.name in ("mqar-mha", "prefix")], out, None)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--seed", "99999999999999999999"], "--seed=99999999999999999999 must be from"),
    (["--length", "-1"], "--length -1 must be at least 1"),
    (["--length", "1000001"], "--length=1000001 must be from 1 to 1000000"),
    (["--temperature", "nan"], "temperature=nan must be a number from 0 up"),
    (["--temperature", "inf"], "temperature=inf must be a number from 0 up"),
    (["--temperature", "1e-40"], "temperature=1e-40 must be a finite number that float32 holds"),
])
def test_options_of_a_sample(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(resume, "read", lambda out: ({}, config.read(HYBRID)))
    refused(capsys, message, "sample", "run", "--prompt", "a", *arguments)


def test_what_fits_is_planned():
    for change in ("run.sample=0", "run.seed=4294967295", "run.seed=-2147483648", "data.length=1", "data.batch=1",
                   "optim.weight_decay=0", "optim.b2=0", "optim.warmup=0", "run.keep=2147483647", "optim.lowest_rate=0"):
        settings = config.read(HYBRID, [change])
        assert settings == config.read(HYBRID, [change]) and limits.number("x", -1.5) == -1.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "learner_of", pairs.learner_of)
        plan = run.plan(pairs.settings("data.length=1", "data.batch=1"), "x", pathlib.Path("run"))
        assert next(plan.batches()).shape == (1, 2) and not plan.out.exists()


def test_long_sequences_cost_no_square_where_nothing_shows_the_future():
    one = models.Config(vocab_size=8, d_model=8, num_layers=1, num_heads=1)
    assert windows.honest(one, 10**6).all()


def test_memory_is_that_of_the_device_or_of_the_host(monkeypatch):
    assert 2**28 < host.memory() < 2**50
    with_its_own = type("Device", (), {"memory_stats": lambda self: {"bytes_limit": 5}})
    monkeypatch.setattr(jax, "local_devices", lambda: [with_its_own()])
    assert host.memory() == 5 and jnp.float32
