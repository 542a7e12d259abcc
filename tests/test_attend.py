"""The door: what it refuses and says, what it chooses, what explain reports."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj
from attnjax import tables
from attnjax.backends import tiled
from attnjax.backends.base import Target
from attnjax.backends.tiled import jobs, slices
from attnjax.backends.tiled.layout import cut
from attnjax.backends.tiled.loops import Pass, by_rows
from attnjax.door import bind
from tests.support.table import ROWS, Row, data, on_device

SDS, CPU = jax.ShapeDtypeStruct, Target("cpu")


def ones(*shape, dtype=jnp.float32):
    return jnp.ones(shape, dtype)


Q, K, V = ones(2, 8, 4, 6), ones(2, 8, 2, 6), ones(2, 8, 2, 3)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"k": ones(2, 8, 3, 6), "v": ones(2, 8, 3, 3)}, ValueError, "4 query heads cannot share 3 key/value heads"),
        ({"q": ones(2, 8, 2, 6), "k": ones(2, 8, 4, 6), "v": ones(2, 8, 4, 3)}, ValueError, "2 query heads cannot share 4"),
        ({"k": ones(2, 8, 2, 5)}, ValueError, "q has head size 6 but k has 5"),
        ({"v": ones(2, 7, 2, 3)}, ValueError, "k has 8 keys but v has 7 values"),
        ({"v": ones(2, 8, 1, 3)}, ValueError, "k has 2 heads but v has 1"),
        ({"k": ones(1, 8, 2, 6)}, ValueError, "different batch sizes; got q(2, 8, 4, 6) k(1, 8, 2, 6)"),
        ({"q": ones(8, 4, 6)}, ValueError, "must all be [T, N, H] or all [B, T, N, H]"),
        ({"q": ones(2, 8, 4, 6, dtype=jnp.int32)}, TypeError, "q has dtype int32; attention needs a floating dtype"),
        ({"q": [[1.0]]}, TypeError, "q is a list, not an array"),
        ({"pattern": "window(4)"}, TypeError, "is not a pattern such as Causal() or Window(4096) | Sink(4); write aj.parse('window(4)')"),
        ({"pattern": aj.Causal}, TypeError, "pattern=Causal is not a pattern such as Causal() or Window(4096) | Sink(4); call it: Causal(...)"),
        ({"pattern": aj.PerHead((aj.Causal(),) * 3)}, ValueError, "PerHead has 3 patterns but q has 4 heads"),
        ({"q": ones(2, 5, 4, 6)}, ValueError, "T=5 queries and S=8 keys: this pattern depends on positions"),
        ({"q_offset": 1.0}, TypeError, "q_offset=1.0 is a float"),
        ({"scale": "big"}, TypeError, "scale='big' is a str"),
        ({"scale": float("nan")}, ValueError, "scale=nan must be finite"),
        ({"scale": 1e39}, ValueError, "scale=1e+39 does not fit into float32, in which it is used: 0 and sizes from 1.2e-38 to 3.4e+38 do"),
        ({"scale": -1e-39}, ValueError, "scale=-1e-39 does not fit into float32"),
        ({"scale": 10**400}, ValueError, "scale is larger than any float; it must be finite"),
        ({"soft_cap": 1e39}, ValueError, "soft_cap=1e+39 does not fit into float32"),
        ({"soft_cap": 1e-40}, ValueError, "soft_cap=1e-40 does not fit into float32"),
        ({"dropout_rate": 10**400}, ValueError, "dropout_rate is larger than any float"),
        ({"q_offset": -(10**5000)}, ValueError, "q_offset=-2**16609 or less is too small: it is at least -9223372036854775807"),
        ({"q_offset": jnp.int32(2**31 - 2)}, ValueError, "q_offset=2147483646 with T=8 and S=8 leaves the range of int32 positions"),
        ({"q_offset": jnp.array([0, -(2**31) + 5])}, ValueError, "q_offset=-2147483643 with T=8 and S=8 leaves the range"),
        ({"q": ones(2, 4, 90, 6), "k": ones(2, 2, 90, 6), "v": ones(2, 2, 90, 3)}, ValueError,
         "T=4 queries and S=2 keys: got q(2, 4, 90, 6) k(2, 2, 90, 6) v(2, 2, 90, 3); they look like [B, heads, length, size]"),
        ({"q": ones(2, 4, 1, 6), "k": ones(2, 4, 90, 6), "v": ones(2, 4, 90, 6), "q_offset": 89}, ValueError,
         "and here length comes before heads: x.swapaxes(1, 2)"),
        ({"scale": jnp.float32(2)}, TypeError, "multiply q by a traced scale instead"),
        ({"mask": jnp.ones((8, 8))}, TypeError, "mask has dtype float32; a mask is a bool array, True means may look. Numbers to add: pass it as bias="),
        ({"mask": jnp.ones((8, 8), jnp.int32)}, TypeError, "pass it as bias="),
        ({"mask": True}, TypeError, "mask is a bool; a mask is a bool array"),
        ({"mask": jnp.ones((2, 3, 8, 8), bool)}, ValueError, "mask(2, 3, 8, 8) does not broadcast to the scores [B, N, T, S] = (2, 4, 8, 8)"),
        ({"bias": jnp.ones((8, 7))}, ValueError, "bias(8, 7) does not broadcast"),
        ({"bias": jnp.ones((8, 8), jnp.int32)}, TypeError, "bias has dtype int32"),
        ({"score_params": jnp.ones(4)}, ValueError, "score_params are given but score_fn is None"),
        ({"score_fn": 3}, TypeError, "score_fn=3 cannot be called"),
        ({"sink_logits": jnp.ones(3)}, ValueError, "sink_logits(3,) must hold one logit per query head: [4]"),
        ({"precision": "exact"}, ValueError, "precision='exact' is unknown; use None, 'default', 'high', 'highest'"),
        ({"backend": "tyled"}, ValueError, "backend='tyled' is unknown; usable here: 'auto', 'tiled', 'dense'. Did you mean 'tiled'?"),
        ({"backend": "cudnn"}, ValueError, "backend='cudnn' is unknown; usable here: 'auto', 'tiled', 'dense'"),
        ({"q": ones(0, 8, 4, 6), "k": ones(0, 8, 2, 6), "v": ones(0, 8, 2, 3), "backend": "tiled"}, ValueError,
         "backend='tiled' cannot run this call: an axis has size 0 (B=0 T=8 S=8 N=4 h=3), so there is no tile; usable here: 'auto', 'dense'"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("ask", [aj.attend, aj.explain])
def test_refusals(ask, change, kind, message):
    arguments = {"q": Q, "k": K, "v": V, "pattern": aj.Causal()} | change
    with pytest.raises(kind) as caught:
        ask(**arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("cap", [0.0, -5.0, float("inf"), float("nan")])
def test_soft_cap_is_above_zero_or_none(cap):
    """Case N08: 0, negative and infinite caps are refused, not read in three ways."""
    with pytest.raises(ValueError, match="soft_cap="):
        aj.attend(Q, K, V, aj.Causal(), soft_cap=cap)
    with pytest.raises(ValueError, match="soft_cap="):
        aj.scores(Q, K, soft_cap=cap)


def test_shared_dropout_is_a_yes_or_no():
    with pytest.raises(TypeError, match="dropout_shared='no' must be True or False"):
        aj.attend(Q, K, V, aj.Causal(), dropout_rate=0.1, dropout_key=jax.random.key(0), dropout_shared="no")


def test_without_a_batch_axis():
    o, lse = aj.attend(Q, K, V, aj.Causal(), return_lse=True, bias=ones(2, 4, 1, 8))
    o1, lse1 = aj.attend(Q[1], K[1], V[1], aj.Causal(), return_lse=True, bias=ones(4, 1, 8))
    assert o1.shape == (8, 4, 3) and lse1.shape == (8, 4)
    assert np.array_equal(o[1], o1) and np.array_equal(lse[1], lse1)
    with pytest.raises(ValueError, match=r"scores \[N, T, S\] = \(4, 8, 8\)"):
        aj.attend(Q[0], K[0], V[0], aj.Causal(), mask=jnp.ones((2, 4, 8, 8), bool))


def test_numpy_arrays_are_taken():
    q, k, v = (np.asarray(x) for x in (Q, K, V))
    assert np.array_equal(aj.attend(q, k, v, aj.Causal(), mask=np.ones((8, 8), bool)), aj.attend(Q, K, V, aj.Causal()))


def test_sizes_of_zero_give_empty_results():
    assert aj.attend(Q[:0], K[:0], V[:0], aj.Causal()).shape == (0, 8, 4, 3)
    assert aj.attend(Q[:, :0], K, V, aj.Causal(), q_offset=0).shape == (2, 0, 4, 3)
    o, lse = aj.attend(Q, K[:, :0], V[:, :0], aj.Causal(), q_offset=0, return_lse=True)
    assert not o.any() and np.isneginf(lse).all()


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Full(), aj.Window(3) | aj.Sink(1)], ids=str)
def test_an_empty_batch_takes_whatever_narrows_the_pattern(pattern):
    q, k = jnp.ones((0, 8, 4, 2)), jnp.ones((0, 8, 2, 2))
    none, rows = jnp.zeros((0,), jnp.int32), jnp.zeros((0, 8), jnp.int32)
    narrowed = [dict(segments=one) for one in (
        aj.Segments(rows), aj.Segments(rows, rows), aj.Segments(rows, positions="segment"),
        aj.Segments(jnp.zeros((8,), jnp.int32)), aj.Segments.from_lengths(q=none), aj.Segments.from_lengths(k=none))]  # fmt: skip
    narrowed += [dict(mask=jnp.ones((0, 1, 8, 8), bool)), dict(bias=jnp.zeros((0, 4, 8, 8))), dict(q_offset=none)]
    for options in narrowed:
        grads = jax.grad(lambda q, k, options=options: aj.attend(q, k, k, pattern, **options).sum(), argnums=(0, 1))(q, k)
        assert [x.shape for x in grads] == [q.shape, k.shape], options


def test_patterns_are_static_arguments_of_jit():
    traces = []

    @jax.jit
    def run(q, k, v, pattern):
        traces.append(pattern)
        return aj.attend(q, k, v, pattern)

    for pattern in (aj.Window(3), aj.Band(2, 0), aj.Window(2) | aj.Window(3), aj.parse("window(3)")):
        run(Q, K, V, pattern)
    assert len(traces) == 1
    run(Q, K, V, aj.Window(4))
    run(Q, K, V, aj.PerHead((aj.Window(4),) * 4))
    assert len(traces) == 3
    mapped = jax.vmap(lambda q: aj.attend(q, K[0], V[0], aj.Window(3)))(Q)
    assert np.array_equal(mapped, run(Q, jnp.broadcast_to(K[:1], K.shape), jnp.broadcast_to(V[:1], V.shape), aj.Window(3)))


@pytest.mark.slow
def test_without_jit_auto_takes_dense_as_long_as_it_fits():
    """Loops over tiles would run in Python there: minutes where the formula takes milliseconds."""
    with jax.disable_jit():
        fits, long = (SDS((2, T, 4, 16), jnp.float32) for T in (2896, 2900))
        why = aj.explain(fits, fits, fits, aj.Causal())
        assert why.reasons["dense"] == "chosen: jit is switched off and 67,094,528 in all are at most 67108864 scores"
        assert aj.explain(long, long, long, aj.Causal()).backend == "tiled"
        x = jnp.ones((2, 256, 4, 16))
        assert np.isfinite(jax.grad(lambda x: jnp.sum(aj.attend(x, x, x, aj.Causal())))(x)).all()


NAMES = jax.checkpoint_policies.save_only_these_names("attnjax_output", "attnjax_lse")


@pytest.mark.cross
@pytest.mark.parametrize("sinks", [None, jnp.zeros(2)], ids=["", "sinks"])
@pytest.mark.parametrize("pattern", [aj.Causal(), aj.Window(8) | aj.Strided(16)], ids=str)
def test_a_policy_that_saves_our_names_runs_no_forward_twice(pattern, sinks):
    x = ones(1, 64, 2, 8)

    def forwards(policy):
        layer = lambda x: jnp.sin(aj.attend(jnp.sin(x), x, x, pattern, sink_logits=sinks, backend="tiled"))
        layer = layer if policy == "none" else jax.checkpoint(layer, policy=policy)
        program = str(jax.make_jaxpr(jax.grad(lambda x: jnp.sum(layer(x))))(x))
        return program.count("attnjax_forward[")

    assert forwards(NAMES) == forwards("none") == 1 < forwards(None)


def test_a_policy_that_saves_our_names_saves_the_output_of_dense():
    """Its weights are computed again, but nothing that follows from them: the blend runs once."""
    x = ones(1, 16, 2, 8)

    def products(policy):
        layer = jax.checkpoint(lambda x: jnp.sin(aj.attend(x, x, x, aj.Causal(), backend="dense")), policy=policy)
        return str(jax.make_jaxpr(jax.grad(lambda x: jnp.sum(layer(x))))(x)).count("dot_general[")

    assert products(NAMES) == products(None) - 1


def test_auto_takes_dense_when_small_and_tiles_when_long():
    small, long = SDS((1, 128, 2, 8), jnp.float32), SDS((1, 1024, 2, 8), jnp.float32)
    assert aj.explain(small, small, small, aj.Causal()).backend == "dense"
    why = aj.explain(long, long, long, aj.Causal())
    assert why.backend == "tiled"
    assert why.reasons["tiled"] == "chosen: T x S = 1024 x 1024 is over 16384 scores"
    assert why.reasons["dense"] == "can run; T x S = 1024 x 1024 is over 16384 scores, where auto takes tiled"
    named = aj.explain(long, long, long, aj.Causal(), backend="dense")
    assert named.backend == "dense" and named.reasons["dense"] == "chosen: named by the caller"


def test_explain_prints_what_it_knows():
    x = SDS((2, 4096, 8, 64), jnp.bfloat16)
    why = aj.explain(x, x, x, aj.Window(256) | aj.Sink(4))
    text = str(why)
    assert why.scores_needed == 2 * 8 * (aj.Window(256) | aj.Sink(4)).count(4096)
    assert why.tiles == {"full": 0, "partial": 2 * 64}  # 64 rows, each with a stretch of sinks and one of its window
    assert why.scores_computed == 2 * 8 * 4096 * (4 + 320)
    for piece in ("window(256) | sink(4)", "tiled", "64 rows of 64 queries, one pass over 4 keys and one pass over 320", f"{why.scores_needed:,} needed", "DEFAULT matrix products"):
        assert piece in text, piece
    assert aj.explain(Q, K, V, ~aj.Full()).waste == float("inf")
    mask = SDS((2, 1, 1, 4096), jnp.bool_)
    assert aj.explain(x, x, x, aj.Causal(), mask=mask).tiles["full"] == 0


@pytest.mark.cross
@pytest.mark.parametrize(("tile", "together"), [(None, 1), ((8, 4), 1), ((8, 4), 2)], ids=["planned", "small", "batches"])
@pytest.mark.parametrize("row", [r for r in ROWS if r.T > 1 and not r.rate], ids=lambda row: row.name)
def test_explain_counts_what_a_run_visits(row, tile, together):
    """The rows and tables that the passes walk, walked by the same loops: visits and scores equal explain's."""
    inputs, options, *_ = data(row)
    with jax.enable_x64(row.dtype == "float64"):
        call, _ = bind(pattern=row.pattern, **on_device(inputs), **options)
        call = dataclasses.replace(call, options=dataclasses.replace(call.options, tile=tile))
        total = np.zeros(3, int)
        for job in (job for group in jobs.groups(call, CPU) for job in jobs.jobs(call, group, CPU)):
            walk = job.walk
            some = slices.call_of(call, job, *slices.cut(job, (slices.tree(call, job, call.diff), slices.facts(call, job)), 0))
            laid_out = cut(some, job)

            def take(_, n, at, size=walk.tile_q):
                return n + jnp.array([not at.masked, at.masked, at.size * size], jnp.int32), None

            def end(_, n, size=walk.tile_q):
                return [jnp.broadcast_to(n, (1, size, 3))]

            steps = Pass(lambda i: (None, jnp.zeros(3, jnp.int32)), take, lambda sums, at, parcel: sums, end)
            whole = walk._replace(T=walk.rows * walk.tile_q)  # so that the last row of tiles is not cut short
            counts = by_rows(laid_out._replace(walk=whole), steps, None, together)[1][0]
            found = np.asarray(counts)[0, :: walk.tile_q].sum(axis=0)
            total += found * job.classes * np.array([1, 1, row.B * len(job.heads)])
    work = tiled.work(call, CPU)
    planned = [work.tiles["full"], work.tiles["partial"], work.scores]
    if jobs.at_run_time(call):  # the plan is what may be visited at most
        assert total[2] <= planned[2] and sum(total[:2]) <= sum(planned[:2])
    else:
        assert total.tolist() == planned


@pytest.mark.cross
@pytest.mark.parametrize("pattern", [aj.Window(6) | aj.Sink(2), aj.Causal()], ids=str)
@pytest.mark.parametrize("segments", [None, "packed"])
def test_run_time_tiles_are_the_least(segments, pattern):
    """Tiles that a traced offset or segments leave without a visible pair are not visited."""
    T, tile, offset = 40, (8, 4), 24
    ids = jnp.asarray(np.repeat([0, 1, 2], [11, 20, 9]), jnp.int32)
    x = ones(1, T, 1, 4)
    more = {"segments": aj.Segments(ids)} if segments else {"q_offset": jnp.int32(offset)}
    call, _ = bind(x, x, x, pattern, **more)
    call = dataclasses.replace(call, options=dataclasses.replace(call.options, tile=tile))
    (group,) = jobs.groups(call, CPU)
    walk = group.plan.walks[0]
    table = tables.found(tables.common(tables.states(call, walk, walk.tiles)))
    seen = np.asarray(aj.visible(pattern, T, **more))[0, 0]
    for i in range(T // tile[0]):
        visited = set(np.asarray(table.columns[table.first[i] : table.last[i]]).tolist())
        needed = {j for j in range(T // tile[1]) if seen[i * 8 : i * 8 + 8, j * 4 : j * 4 + 4].any()}
        assert visited == needed
        for j in np.asarray(table.columns[table.first[i] : table.middle[i]]):
            assert seen[i * 8 : i * 8 + 8, j * 4 : j * 4 + 4].all(), "no mask, but a pair is hidden"


def test_tiled_memory_is_linear():
    """Compiled temporaries of a long call stay far below its T x S scores, backward included."""
    T = 8192
    x = SDS((1, T, 1, 16), jnp.float32)

    def loss(q, k, v):
        return jnp.sum(aj.attend(q, k, v, aj.Causal(), backend="tiled") ** 2)

    for f in (loss, jax.grad(loss, (0, 1, 2))):
        memory = jax.jit(f).lower(x, x, x).compile().memory_analysis()
        assert memory.temp_size_in_bytes < T * T * 4 / 16


def test_the_program_does_not_grow_with_length():
    """Case B06: masks come from positions; no T x S constant, and a program of one size."""
    sizes = {}
    for T in (1024, 8192):
        x = SDS((1, T, 1, 16), jnp.float32)
        f = lambda q, k, v: aj.attend(q, k, v, aj.Window(256), backend="tiled")
        sizes[T] = len(jax.jit(f).lower(x, x, x).as_text())
    assert sizes[8192] < 1.1 * sizes[1024] + 10 * 8192 / 128 and sizes[8192] < 200_000


def test_grouped_heads_copy_no_keys():
    """Case B05: one query against a long cache with grouped heads repeats neither K nor V."""
    q, k = SDS((1, 1, 32, 64), jnp.float32), SDS((1, 8192, 4, 64), jnp.float32)
    for backend in ("dense", "tiled"):
        f = lambda q, k, v, b=backend: aj.attend(q, k, v, aj.Causal(), q_offset=8191, backend=b)
        assert jax.jit(f).lower(q, k, k).compile().memory_analysis().temp_size_in_bytes < 32 << 20


@pytest.mark.slow
def test_second_derivatives_are_symmetric():
    """Case G07: hessians of every backend, in float64."""
    with jax.enable_x64(True):
        inputs = on_device(data(Row(aj.Causal(), B=1, T=3, N=1, K=1, H=2, h=2, dtype="float64")).inputs)
        for backend in ("dense", "tiled"):
            f = lambda q, b=backend: jnp.sum(aj.attend(**(inputs | {"q": q}), pattern=aj.Causal(), backend=b) ** 2)
            h = jax.hessian(f)(inputs["q"]).reshape(6, 6)
            assert np.abs(h).max() > 1e-3 and np.abs(h - h.T).max() < 1e-8
