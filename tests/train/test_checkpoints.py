"""Checkpoints by themselves: what goes in comes out, whole or not at all."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train import windows
from train.checkpoints import Checkpoints


def state(fill=0.0):
    return {"table": jnp.full((200, 100), fill) + jax.random.normal(jax.random.key(1), (200, 100)), "step": jnp.int32(3)}


def like(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def rows():
    return windows.drawn(np.arange(200, dtype=np.uint8), 4, 2, seed=0)


@pytest.fixture
def checkpoints(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", keep=2) as opened:
        yield opened


def test_the_newest_stay(checkpoints, tmp_path):
    assert checkpoints.latest is None
    batches = rows()
    for step in (1, 3, 4):
        next(batches)
        checkpoints.save(step, state(step), batches, {"at": step})
    assert checkpoints.latest == 4 and sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["3", "4"]
    again = rows()
    found = checkpoints.restore(4, like(state()), again)
    np.testing.assert_array_equal(found["table"], state(4)["table"])
    assert again.get_state() == batches.get_state() and next(again).tobytes() == next(batches).tobytes()
    notes = checkpoints.notes(4)
    assert notes["at"] == 4 and notes["format"] == 1 and notes["state"]["['table']"] == "float32[200, 100]"


def test_reading_leaves_no_trace(tmp_path):
    with Checkpoints(tmp_path / "none") as opened:
        assert opened.latest is None
    assert not (tmp_path / "none").exists()
    (tmp_path / "half" / "7.orbax-checkpoint-tmp").mkdir(parents=True)
    with Checkpoints(tmp_path / "half") as opened:
        assert opened.latest is None
    assert (tmp_path / "half" / "7.orbax-checkpoint-tmp").exists()
    with Checkpoints(tmp_path / "half", keep=2) as opened:
        opened.save(1, state(), rows(), {})
    assert [path.name for path in (tmp_path / "half").iterdir()] == ["1"]


def test_what_cannot_be_written_is_an_error_of_its_step(checkpoints, monkeypatch):
    checkpoints.save(1, state(1), rows(), {})
    monkeypatch.setattr(checkpoints._manager, "save", lambda *_, **__: 1 / 0)
    with pytest.raises(OSError, match="the checkpoint of step 2 could not be written into .*checkpoints: division by"):
        checkpoints.save(2, state(2), rows(), {})
    assert checkpoints.latest == 1


def test_an_older_one_half_removed_is_no_obstacle(checkpoints, tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        checkpoints.save(step, state(step), rows(), {})
    for path in (folder / "1").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with Checkpoints(folder, keep=2) as opened:
        assert opened.latest == 2
        opened.save(3, state(3), rows(), {})
        opened.save(4, state(4), rows(), {})
    assert sorted(path.name for path in folder.iterdir()) == ["3", "4"]


TABLE = jnp.zeros((200, 100))


@pytest.mark.parametrize(("wanted", "message"), [
    ({"table": TABLE[:, 1:], "step": jnp.int32(0)}, r"\['table'\] was float32\[200, 100\] and is float32\[200, 99\]"),
    ({"table": TABLE.astype(jnp.bfloat16), "step": jnp.int32(0)}, r"\['table'\] was float32.* and is bfloat16"),
    ({"table": TABLE}, r"\['step'\] was int32\[\] and is not set"),
    ({"table": TABLE, "step": jnp.int32(0), "key": jax.random.key(0)}, r"\['key'\] was not set and is key<fry>\[\]"),
])
def test_another_state_is_an_error(checkpoints, wanted, message):
    checkpoints.save(1, state(), rows(), {})
    with pytest.raises(ValueError, match="checkpoints/1 holds another state: " + message):
        checkpoints.restore(1, like(wanted), rows())
