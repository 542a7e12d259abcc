"""Sizes are static: what a traced one is told, and that the way out does what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax as aj

# leaf of one traced size -> (leaf, argument, the rule that the message names, as it stands there)
LEAVES = {
    "window": (aj.Window, "window", "Causal() & Where(lambda q, k: q - k < w)"),
    "left": (lambda left: aj.Band(left, 3), "left", "Where(lambda q, k: (q - k <= left) & (k - q <= right))"),
    "right": (lambda right: aj.Band(3, right), "right", "Where(lambda q, k: (q - k <= left) & (k - q <= right))"),
    "sink": (aj.Sink, "n", "Causal() & Where(lambda q, k: k < n)"),
    "strided": (aj.Strided, "stride", "Causal() & Where(lambda q, k: (q - k) % stride == 0)"),
    "chunked": (aj.Chunked, "size", "Causal() & Where(lambda q, k: q // size == k // size)"),
    "prefix": (aj.Prefix, "n", "Causal() | Where(lambda q, k: (q < n) & (k < n))"),
}


def said_to(fn, value, transform=jax.jit):
    with pytest.raises(TypeError) as caught:
        transform(fn)(value)
    return str(caught.value)


@pytest.mark.parametrize("name", LEAVES)
def test_a_traced_size_is_told_a_rule_that_is_one_program_for_all(name):
    make, argument, instead = LEAVES[name]
    want = (
        f"{argument} is traced (int32[]), known only when the program runs; a pattern's sizes are static. One program "
        f"for all sizes: hide pairs with mask=, or write {instead}"
    )
    assert said_to(lambda size: make(size).count(4), 3) == want
    traces = []

    @jax.jit
    def way_out(size):
        traces.append(size)
        names = {"w": size, "n": size, "stride": size, "size": size, "left": size, "right": size}
        names |= {"left": 3} if name == "right" else {"right": 3} if name == "left" else {}
        return aj.visible(eval(instead, {"Causal": aj.Causal, "Where": aj.Where, **names}), 12)[0, 0]

    for size in (1, 2, 5):
        np.testing.assert_array_equal(way_out(size), make(size).mask(12))
    assert len(traces) == 1


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad], ids=lambda fn: fn.__name__)
def test_every_transformation_traces(transform):
    value = jnp.arange(3.0) if transform is jax.vmap else 3.0
    assert "window is traced (" in said_to(lambda w: aj.Window(w) and w, value, transform)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda n: aj.Causal().count(n), "T is traced (int32[]), known only when the program runs; it must be an int: take it from the shape"),
        (lambda n: aj.Causal().mask(4, n, 0), "S is traced"),
        (lambda n: aj.Causal().mask(4, 4, n), "q_offset is traced (int32[]), known only when the program runs; it must be an int here; attend"),
        (lambda n: aj.Window(4).slots(n), "max_length is traced"),
        (lambda n: aj.Window(4).tile(n, 9, 0, 4), "q0 is traced"),
        (lambda n: aj.PerHead((aj.Causal(),)).slots(n), "max_length is traced"),
        (lambda n: aj.visible(aj.Causal(), n), "T is traced"),
        (lambda n: aj.cost(aj.Causal(), n, num_heads=1, head_dim=4), "T is traced"),
        (lambda n: aj.cost(aj.Causal(), 4, num_heads=n, head_dim=4), "num_heads is traced"),
    ],
)  # fmt: skip
def test_traced_lengths_are_told_that_shapes_are_static(ask, message):
    assert message in said_to(ask, 3)


def test_an_array_with_a_value_is_an_int():
    assert aj.Window(jnp.int32(4)) == aj.Window(np.int64(4)) == aj.Window(4)
    assert aj.Causal().count(jnp.int32(4)) == 10 and aj.visible(aj.Causal(), 3, q_offset=jnp.int32(0)).shape[-1] == 3
    with pytest.raises(TypeError, match="is a ArrayImpl; it must be an int"):
        aj.Window(jnp.float32(4))
    assert jax.jit(aj.visible, static_argnums=(0, 1))(aj.Window(2), 4).sum() == 7


@pytest.mark.parametrize(
    "ask",
    [
        lambda text: aj.cost(text, 4, num_heads=1, head_dim=4),
        lambda text: aj.visible(text, 4),
        lambda text: aj.PerHead((aj.Causal(), text)),
        lambda text: aj.show.text(text, 4),
    ],
)
def test_text_where_a_pattern_belongs_is_told_who_reads_it(ask):
    with pytest.raises(TypeError, match=r"; write aj.parse\('window\(4\)'\)$"):
        ask("window(4)")


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("ask", [lambda p: p.count(4), lambda p: p.mask(4), lambda p: aj.PerHead((p, p)).count(4), lambda p: p.allows(2, 1)])
def test_a_rule_that_computes_with_traced_arrays_is_told_where_to_ask(ask, transform):
    ids = jnp.zeros((1, 4), jnp.int32)

    def pattern(ids):
        ids = ids.reshape(-1)
        return aj.Causal() & aj.Where(lambda q, k: ids[q] == ids[k])

    assert "gives a traced array even for known positions" in said_to(lambda ids: ask(pattern(ids)), ids, transform)
    assert "mask, count and pictures ask it in NumPy: call them outside" in said_to(lambda ids: ask(pattern(ids)), ids, transform)
    assert ask(pattern(ids)) is not None


def test_explain_counts_inside_of_jit_too():
    ids, x, found = jnp.arange(8) // 4, jnp.ones((1, 8, 1, 4)), []
    pattern = aj.Causal() & aj.Where(lambda q, k: ids[q] == ids[k])
    jax.jit(lambda x: found.append(aj.explain(x, x, x, pattern).scores_needed))(x)
    assert found == [pattern.count(8)] == [20]
