"""Arrays that a rule or a score_fn closes over: seen, differentiated and mapped as if they were arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj

T = 40
IDS = jnp.asarray(np.arange(T) // 9, jnp.int32)
WIDE = jnp.asarray(np.random.default_rng(3).standard_normal(T), jnp.float32)
BACKENDS = "dense", "tiled"


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


Q, K, V = draw(2, T, 4, 8), draw(2, T, 2, 8, seed=1), draw(2, T, 2, 8, seed=2)


def closing(q, ids, wide, backend):
    """A document mask and a score_fn that close over their arrays."""
    rule = aj.Causal() & aj.Where(lambda i, j: ids[i] == ids[j])
    rescore = lambda s, i, j, head, params: s + wide[j] * (ids[i] == 1).astype(s.dtype)
    return aj.attend(q, K, V, rule, score_fn=rescore, backend=backend)


def given(q, ids, wide):
    """The same with everything passed as arrays."""
    mask = (ids[:, None] == ids[None]) & np.tri(T, dtype=bool)
    bias = wide[None] * (ids[:, None] == 1).astype(wide.dtype)
    return aj.attend(q, K, V, aj.Full(), mask=mask, bias=bias, backend="dense")


def total(f):
    return lambda *args: jnp.sum(jnp.sin(f(*args)))


def close(a, b, limit=2e-5):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=limit, rtol=2e-5)


WAYS = {
    "value": lambda f: f,
    "gradient": lambda f: jax.grad(total(f), (0, 2)),
    "jitted gradient": lambda f: jax.jit(jax.grad(total(f), (0, 2))),
    "jvp": lambda f: lambda q, ids, wide: jax.jvp(lambda q, w: f(q, ids, w), (q, wide), (q, wide))[1],
    "hessian times a vector": lambda f: lambda q, ids, wide: jax.grad(
        lambda w: jnp.sum(jax.grad(total(f), 0)(q, ids, w) * q)
    )(wide),
    "mapped": lambda f: lambda q, ids, wide: jax.vmap(f, (None, 0, 0))(
        q, jnp.stack([ids, ids[::-1]]), jnp.stack([wide, -wide])
    ),
    "mapped gradient": lambda f: lambda q, ids, wide: jax.vmap(jax.grad(total(f), (0, 2)), (None, 0, 0))(
        q, jnp.stack([ids, ids[::-1]]), jnp.stack([wide, -wide])
    ),
    "remat in scan": lambda f: lambda q, ids, wide: jax.grad(
        lambda w: jax.lax.scan(lambda sum, n: (sum + jax.checkpoint(total(f))(q, ids + n, w), None), jnp.float32(0),
                               jnp.arange(2, dtype=jnp.int32))[0]
    )(wide),
}  # fmt: skip


@pytest.mark.cross
@pytest.mark.parametrize(
    ("way", "backend"), [*((way, "tiled") for way in WAYS), ("jitted gradient", "dense"), ("mapped gradient", "dense")]
)
def test_captured_arrays_are_arguments(way, backend):
    run = WAYS[way]
    close(run(lambda *x: closing(*x, backend))(Q, IDS, WIDE), run(given)(Q, IDS, WIDE))


def test_floats_that_only_a_rule_reads_have_gradient_0(backend):
    f = lambda w: jnp.sum(aj.attend(Q, K, V, aj.Causal() & aj.Where(lambda i, j: w[j] > 0), backend=backend) ** 2)
    assert np.array_equal(jax.jit(jax.grad(f))(WIDE), np.zeros(T, np.float32))


def test_what_a_function_closes_over_may_change_between_calls(backend):
    kept = {"ids": IDS}
    rule = aj.Where(lambda i, j: kept["ids"][i] == kept["ids"][j])
    first = aj.attend(Q, K, V, rule, backend=backend)
    kept["ids"] = jnp.zeros_like(IDS)
    close(aj.attend(Q, K, V, rule, backend=backend), aj.attend(Q, K, V, aj.Full(), backend="dense"))
    assert not np.allclose(first, aj.attend(Q, K, V, rule, backend=backend))


def test_equal_functions_share_one_program():
    traces = []
    rule = aj.Causal() & aj.Where(lambda i, j: (traces.append(1), IDS[i] == IDS[j])[1])
    aj.attend(Q, K, V, rule, backend="tiled")
    once = len(traces)
    aj.attend(Q, K, V, rule, backend="tiled")
    assert len(traces) == once + 1  # what it closes over is looked up, and nothing else is traced again


@pytest.mark.cross
@pytest.mark.parametrize("pattern", ["perhead", "parts"])
def test_captured_arrays_in_every_kind_of_plan(pattern, backend):
    rule = aj.Where(lambda i, j: IDS[i] == IDS[j])
    heads = aj.PerHead((rule & aj.Causal(), aj.Window(3), rule, aj.Window(3)))
    chosen = heads if pattern == "perhead" else (rule & aj.Causal()) | aj.Strided(7) | aj.Sink(2)
    mask = chosen.mask(T)
    mask = mask if mask.ndim == 3 else mask[None]
    found = jax.jit(lambda q: aj.attend(q, K, V, chosen, backend=backend))(Q)
    close(found, aj.attend(Q, K, V, aj.Full(), mask=jnp.asarray(mask)))


@pytest.mark.slow
def test_a_cache_hoists_too():
    def stream(ids, wide):
        pattern = aj.Causal() & aj.Where(lambda i, j: ids[i] == ids[j])
        cache = aj.Cache.create(pattern, batch=2, num_kv_heads=2, head_dim=8, max_length=T)
        rescore = lambda s, i, j, head, params: s + wide[j]
        out = []
        for first, last in ((0, 25), (25, 26), (26, T)):
            part = slice(first, last)
            o, cache = cache.step(Q[:, part], K[:, part], V[:, part], score_fn=rescore)
            out.append(o)
        return jnp.concatenate(out, axis=1)

    whole = lambda ids, wide: aj.attend(
        Q, K, V, aj.Causal() & aj.Where(lambda i, j: ids[i] == ids[j]), score_fn=lambda s, i, j, h, p: s + wide[j]
    )
    close(stream(IDS, WIDE), whole(IDS, WIDE))
    found, right = (jax.jit(jax.grad(total(f), 1))(IDS, WIDE) for f in (stream, whole))
    close(found, right)


@pytest.mark.slow
def test_layers_take_rules_that_close_over_tracers():
    from flax import nnx

    from attnjax import nn

    x = draw(1, T, 16)
    layer = lambda ids: nn.Attention(16, 2, pattern=aj.Causal() & aj.Where(lambda i, j: ids[i] == ids[j]), rngs=nnx.Rngs(0))
    found = jax.jit(lambda x, ids: jax.grad(lambda x: jnp.sum(layer(ids)(x, backend="tiled") ** 2))(x))(x, IDS)
    close(found, jax.grad(lambda x: jnp.sum(layer(IDS)(x, backend="dense") ** 2))(x))


def test_scores_needed_are_unknown_where_they_depend_on_traced_arrays():
    needed = []

    def ask(ids):
        needed.append(aj.explain(Q, K, V, aj.Where(lambda i, j: ids[i] == ids[j])).scores_needed)
        return ids

    ask(IDS)
    jax.jit(ask)(IDS)
    ids = np.asarray(IDS)
    assert needed == [2 * 4 * int((ids[:, None] == ids[None]).sum()), None]


def test_numpy_arrays_and_lists_are_refused_with_the_way_out(backend):
    ids = np.asarray(IDS)
    for rule in (lambda i, j: ids[i] == ids[j], lambda i, j: i == ids.tolist()[j]):
        with pytest.raises(TypeError, match=r"<lambda> indexes a NumPy array or a list.*jnp.asarray\(ids\) once"):
            aj.attend(Q, K, V, aj.Where(rule), backend=backend)


def test_a_function_of_whole_arrays_may_not_close_over_one(backend):
    slopes = jnp.arange(4.0)[None, :, None, None]
    with pytest.raises(ValueError, match="closes over arrays, so it is asked about single positions"):
        aj.attend(Q, K, V, aj.Causal(), score_fn=lambda s, i, j, head, p: s * slopes, backend=backend)
    by_head = lambda s, i, j, head, p: s * slopes.reshape(-1)[head]
    right = aj.attend(Q, K, V, aj.Causal(), score_fn=lambda s, i, j, head, p: s * p[head], score_params=slopes.reshape(-1))
    close(aj.attend(Q, K, V, aj.Causal(), score_fn=by_head, backend=backend), right)
