import pathlib

import pytest

import attnjax as aj
from train import config
from train.__main__ import main

CONFIGS = sorted((pathlib.Path(__file__).parents[2] / "configs").glob("*.toml"))
HYBRID = next(path for path in CONFIGS if path.stem == "hybrid")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_builds_its_model(path):
    settings = config.read(path)
    built = settings.model.build(256)
    assert {str(pattern) for pattern in built.legend.values()} == {
        str(aj.parse(text)) for text in settings.model.legend.values()}


def test_there_is_one_config_per_pattern():
    assert [path.stem for path in CONFIGS] == [
        "causal", "chunked", "hybrid", "prefix", "sink", "strided", "window"]


def test_the_hybrid_config_names_every_setting():
    text = HYBRID.read_text()
    missing = [name for name in config.known() if f"{name.rpartition('.')[2]}" not in text]
    assert not missing


def test_changes_reach_the_settings():
    changes = ["optim.steps=7", "data.path=my text.txt", "model.legend.G=window(4) | sink(1)", "model.theta=5"]
    settings = config.read(HYBRID, changes)
    assert settings.optim.steps == 7 and settings.data.path == "my text.txt"
    assert settings.model.legend["G"] == "window(4) | sink(1)"
    assert settings.model.theta == 5.0 and isinstance(settings.model.theta, float)


@pytest.mark.parametrize(("change", "message"), [
    ("optim.learning_rte=0.1", "unknown setting 'optim.learning_rte'; did you mean 'optim.learning_rate'"),
    ("learning_rte=0.1", "unknown setting 'learning_rte'; did you mean 'optim.learning_rate'"),
    ("steps=3", "unknown setting 'steps'; did you mean 'optim.steps'"),
    ("modl.layout=L", "unknown setting 'modl'; did you mean 'model'"),
    ("model.num_heads=four", "'model.num_heads' must be int, not str 'four'"),
    ("model.n_head=four", "unknown setting 'model.n_head'; did you mean 'model.num_heads'"),
    ("model.remat=1", "'model.remat' must be bool, not int 1"),
    ("optim.steps=true", "'optim.steps' must be int, not bool True"),
    ("optim.clip=0", r"optim.clip=0.0 must be above 0"),
    ("model.legend.L=3", "'model.legend.L' must be str, not int 3"),
    ("optim=3", "'optim' is a section, not a value; got 3"),
    ("optim.steps", "has no '='; write it as key=value"),
])
def test_t10_wrong_keys_and_types_name_the_key(change, message):
    with pytest.raises(ValueError, match=message):
        config.read(HYBRID, [change])


def test_t10_the_command_line_exits_with_2_and_trains_nothing(capsys, tmp_path):
    for arguments, message in [
        (["--set", "optim.learning_rte=0.1"], "did you mean 'optim.learning_rate'"),
        (["--set", "model.dtype=float33"], "model.dtype='float33' is none of"),
        (["--set", "optim.steps=10"], "warmup=50 and last=9"),
        (["--set", "data.length=100000000"], "data.length=100000000 does not fit"),
        (["--set", "model.legend.G=causl()"], "did you mean 'causal'"),
    ]:
        out = tmp_path / "run"
        assert main(["run", str(HYBRID), *arguments, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err and not out.exists()
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(HYBRID), "--num-epoch", "3"])
    assert stopped.value.code == 2 and "--num-epoch" in capsys.readouterr().err


def test_a_missing_file_lists_its_neighbours(capsys):
    assert main(["run", str(HYBRID.with_name("hybrd.toml"))]) == 2
    assert "hybrid.toml" in capsys.readouterr().err


def test_files_that_are_not_toml_or_lack_a_key(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("model = [")
    with pytest.raises(ValueError, match="is not TOML"):
        config.read(path)
    path.write_text("[model]\nlayout = 'L'")
    with pytest.raises(ValueError, match="'model.legend' is missing"):
        config.read(path)
