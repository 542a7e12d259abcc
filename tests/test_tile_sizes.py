"""One record for each kind of device: what a plan tries there, and what the rest of the package reads from it."""

import numpy as np
import pytest

import attnjax as aj
from attnjax import tile_sizes
from attnjax.plan import plan
from attnjax.tile_sizes import (
    CPU,
    GPU,
    TPU,
    TPU_V6,
    Heads,
    loops_for,
    rows_at_once,
    sequences_at_once,
    sizes_for,
    small_scores,
)  # fmt: skip
from tests.test_plan import computed

ONE = Heads(1, 1, 1)


@pytest.mark.parametrize(
    ("platform", "kind", "record"),
    [
        ("cpu", None, CPU),
        ("cpu", "TPU v6 lite", CPU),  # a CPU traces for it: what it is lowered for decides
        ("tpu", None, TPU),
        ("tpu", "TPU v5 lite", TPU),
        ("tpu", "TPU v6 lite", TPU_V6),
        ("gpu", None, GPU),
        ("cuda", "NVIDIA H200", GPU),
        ("rocm", None, GPU),
    ],
)
def test_a_record_for_each_device(platform, kind, record):
    assert sizes_for(platform, kind) is record


@pytest.mark.parametrize("sizes", [CPU, TPU, TPU_V6, GPU], ids=["cpu", "tpu", "tpu v6", "gpu"])
@pytest.mark.parametrize("text", ["causal()", "window(40) | sink(3) | strided(64)", "chunked(200) | sink(150)"])
def test_every_record_plans_every_pair_once(sizes, text):
    pattern = aj.parse(text)
    p = plan(pattern, 300, 330, 30, Heads(1, 4, 2), False, None, sizes)
    assert np.array_equal(computed(pattern, p)[0], pattern.mask(300, 330, 30).astype(int))


def test_plans_of_one_record_are_one_value():
    assert plan(aj.Window(4), 20, 20, 0, sizes=TPU) is plan(aj.Window(4), 20, 20, 0, sizes=TPU._replace())
    assert plan(aj.Window(4), 20, 20, 0, sizes=TPU) is not plan(aj.Window(4), 20, 20, 0, sizes=GPU)


@pytest.mark.parametrize("text", ["causal()", "window(256)", "window(100) | sink(4) | strided(64)"])
def test_without_a_record_a_plan_is_that_of_a_cpu(text):
    p, same = (plan(aj.parse(text), 4096, 4096, 0, Heads(2, 8, 2), sizes=sizes) for sizes in (None, CPU))
    assert repr(p) == repr(same) and p.scores == same.scores


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_loops_of_operations_have_sizes_of_their_own(platform):
    forward, backward = loops_for(platform), loops_for(platform, backward=True)
    assert forward.visit == backward.visit > sizes_for(platform).visit
    assert bool(backward.stretches) == (platform == "tpu") and forward.stretches
    assert loops_for("cpu") is loops_for("cpu", backward=True) is CPU
    assert loops_for("tpu", "TPU v6 lite").loops == TPU_V6.loops


def test_tiles_grow_with_the_device():
    def tile(sizes):
        walk = plan(aj.Causal(), 8192, 8192, 0, sizes=sizes).walks[0]
        return walk.tile_q, walk.tiles.size

    assert [tile(sizes) for sizes in (CPU, TPU, TPU_V6)] == [(512, 256), (1024, 1024), (2048, 2048)]


def test_a_record_without_stretches_gives_tiles_alone():
    pattern = aj.Window(100) | aj.Sink(4) | aj.Strided(64)
    walks = plan(pattern, 4096, 4096, 0, sizes=TPU._replace(loops=((512, 512),), stretches=(), few=0)).walks
    assert [(walk.step, walk.stretches, walk.tile_q, walk.tiles.size) for walk in walks] == [(1, (), 512, 512), (64, (), 64, 64)]


def test_few_keys_get_a_stretch_up_to_the_records_number():
    def sinks(few):
        sizes = CPU._replace(few=few, stretches=())
        return [s.size for walk in plan(aj.Causal() & (aj.Window(64) | aj.Sink(9)), 4096, 4096, 0, sizes=sizes).walks for s in walk.stretches]

    assert (sinks(8), sinks(9)) == ([], [9])


def test_what_a_device_takes_at_once():
    assert [rows_at_once(sizes, 100, 1 << 20) for sizes in (CPU, TPU, GPU)] == [1, 25, 25]  # four batches, none padded
    loops = [loops_for(name) for name in ("cpu", "tpu", "cuda")]
    assert [rows_at_once(sizes, 100, 1 << 20, in_tiles=True) for sizes in loops] == [1, 1, 20]
    assert [rows_at_once(sizes, 100, 1 << 20, in_tiles=False) for sizes in loops] == [1, 10, 20]
    assert [small_scores(name) for name in ("cpu", "tpu", "gpu")] == [1 << 14, 1 << 20, 1 << 20]
    assert [sequences_at_once(Heads(64, 8, 1), 128, 128, sizes) for sizes in (None, CPU, GPU)] == [8, 8, 64]


def test_sizes_are_asked_for_when_they_are_used(monkeypatch):
    """So that a test can give the platform other ones."""
    monkeypatch.setattr(tile_sizes, "CPU", CPU._replace(block=1 << 17, small=7))
    assert (small_scores("cpu"), sequences_at_once(Heads(64, 8, 1), 128, 128)) == (7, 1)
