"""Checkpoints by themselves: what goes in comes out, whole or not at all."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train import windows
from train.checkpoints import Checkpoints, leaves


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


def keyed(fill=0.0):
    return state(fill) | {"key": jax.random.key(7), "half": jnp.arange(3, dtype=jnp.bfloat16)}


def test_every_array_and_note_has_a_digest_with_its_step(checkpoints):
    for step in (1, 2):
        checkpoints.save(step, keyed(), rows(), {"at": 5})
    one, two = (checkpoints.notes(step)["sha256"] for step in (1, 2))
    assert set(one["state"]) == {"['table']", "['step']", "['key']", "['half']"}
    assert set(one["notes"]) == {"format", "step", "state", "data", "at"}
    assert all(one[kind][place] != two[kind][place] for kind in one for place in one[kind])


def test_a_flipped_bit_in_the_arrays_is_noticed(checkpoints, tmp_path):
    checkpoints.save(1, keyed(), rows(), {})
    path = max((tmp_path / "checkpoints" / "1" / "state").rglob("*"), key=lambda path: path.stat().st_size)
    content, noticed = path.read_bytes(), []
    for at in range(0, len(content), len(content) // 15):
        flipped = bytearray(content)
        flipped[at] ^= 16
        path.write_bytes(flipped)
        try:
            found = checkpoints.restore(1, like(keyed()), rows())
        except ValueError as error:
            noticed.append(str(error))
        else:  # the storage keeps some things twice
            assert leaves(found) == leaves(keyed())
    assert len(noticed) >= 8 and all("checkpoints/1 " in error for error in noticed)
    assert any("is not what was written: ['table'] changed" in error for error in noticed)


@pytest.mark.parametrize(("place", "change"), [
    ("table", lambda state: state["table"].at[3, 4].add(1e-6)),
    ("table", lambda state: state["table"].at[3, 4].set(-0.0)),
    ("step", lambda state: state["step"] + 1),
    ("key", lambda state: jax.random.key(8)),
    ("half", lambda state: state["half"] * 2),
])
def test_other_values_than_the_digests_are_of_are_noticed(checkpoints, monkeypatch, place, change):
    monkeypatch.setattr("train.checkpoints.leaves", lambda tree, leaves=leaves: leaves(keyed()))
    checkpoints.save(1, keyed() | {place: change(keyed())}, rows(), {})
    monkeypatch.undo()
    with pytest.raises(ValueError, match=rf"checkpoints/1 is not what was written: \['{place}'\] changed; remove that"):
        checkpoints.restore(1, like(keyed()), rows())
    with pytest.raises(ValueError, match="is not what was written"):
        checkpoints.restore(1, like(keyed()), None)


def test_a_checkpoint_under_another_step_is_noticed(checkpoints, tmp_path):
    folder, batches = tmp_path / "checkpoints", rows()
    for step in (2, 4):
        next(batches)
        checkpoints.save(step, state(step), batches, {})
    shutil.rmtree(folder / "4")
    shutil.copytree(folder / "2", folder / "4")
    with pytest.raises(ValueError, match="checkpoints/4 holds step 2: it was copied or renamed; remove that folder to resume from step 2"):
        checkpoints.restore(4, like(state()), rows())
    with pytest.raises(ValueError, match="checkpoints/4 holds step 2"):
        checkpoints.notes(4)
    shutil.rmtree(folder / "4")
    (folder / "2").rename(folder / "9")
    with Checkpoints(folder) as opened, pytest.raises(ValueError, match="checkpoints/9 holds step 2: .* to resume from the start"):
        opened.restore(opened.latest, like(state()), rows())


def test_the_position_in_the_data_is_part_of_it(checkpoints, tmp_path):
    batches = rows()
    for _ in range(3):
        next(batches)
    checkpoints.save(3, state(), batches, {})
    place = next((tmp_path / "checkpoints" / "3" / "data").glob("process*"))
    place.write_text(place.read_text().replace("3", "2"))
    with pytest.raises(ValueError, match="checkpoints/3 is not what was written: data changed"):
        checkpoints.restore(3, like(state()), rows())
    checkpoints.restore(3, like(state()), None)  # which reads no data


def test_a_checkpoint_from_before_there_were_digests_is_restored_with_a_warning(checkpoints, tmp_path, capsys):
    batches = rows()
    next(batches)
    checkpoints.save(1, keyed(), batches, {"at": 1})
    path = tmp_path / "checkpoints" / "1" / "notes" / "metadata"
    notes = json.loads(path.read_text())
    path.write_text(json.dumps({key: notes[key] for key in ("format", "state", "at")}))
    again = rows()
    found = checkpoints.restore(1, like(keyed()), again)
    np.testing.assert_array_equal(found["table"], keyed()["table"])
    assert again.get_state() == batches.get_state() and checkpoints.notes(1)["at"] == 1
    said = capsys.readouterr().err
    assert said.startswith("warning: checkpoint ") and "checkpoints/1 has no digest" in said and said.count("\n") == 1


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
