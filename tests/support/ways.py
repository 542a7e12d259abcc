"""The ways in which a row of the backend table is called: each gives what was found and what is right."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from tests.support.paired import attended, differences, limits, plainly, sample
from tests.support.table import data, on_device, value_and_gradients


def gradients(f):
    """g(inputs, facts, d_o, d_lse) -> {"o", "lse", "d_q", ...}."""
    return lambda inputs, facts, d_o, d_lse: value_and_gradients(lambda x: f(x, facts), inputs, d_o, d_lse)


def arrays(s):
    return on_device((s.inputs, s.facts, s.d_o, s.d_lse))


def every(s):
    return ("o", "lse", *(f"d_{name}" for name in s.inputs))


def value(f, s):
    """Eager and jitted, bit for bit, from one trace for repeated calls."""
    jitted = jax.jit(chex.assert_max_traces(f, n=1))
    eager, first, second = (call(*arrays(s)[:2]) for call in (f, jitted, jitted))
    chex.clear_trace_counter()
    for a, b, c in zip(eager, first, second, strict=True):
        assert np.array_equal(a, b) and np.array_equal(b, c), "jit and eager differ"
    yield dict(zip(("o", "lse"), eager, strict=True)), limits(s, ("o", "lse"))


def gradient(f, s):
    """Of all inputs; the same bits when it is repeated."""
    jitted = jax.jit(gradients(f))
    first, second = jitted(*arrays(s)), jitted(*arrays(s))
    for name, x in first.items():
        assert np.array_equal(x, second[name]), f"{name} differs between two runs"
    yield first, limits(s, every(s))


def lse_gradient(f, s):
    """Of the log-sum-exp alone."""
    s = s._replace(d_o=np.zeros_like(s.d_o))
    yield from gradient(f, s)


def remat(f, s):
    yield from gradient(jax.checkpoint(f), s)


def jvp(f, s):
    inputs, facts, *_ = arrays(s)
    along = on_device(s.along())
    tangents = lambda f: jax.jit(lambda x, t: jax.jvp(lambda x: f(x, facts), (x,), (t,))[1])(inputs, along)
    found, honest = (dict(zip(("o", "lse"), tangents(g), strict=True)) for g in (f, plainly(s)))
    yield found, differences(s, found, honest)


def loss(f, s, curved=False):
    """A number whose gradient is what the cotangents of the sample pull back."""
    _, facts, d_o, d_lse = arrays(s)

    def total(x):
        o, lse = f(x, facts)
        lse = jnp.where(jnp.isneginf(lse), 0, lse)
        o, lse = (jnp.sin(o), jnp.sin(lse)) if curved else (o, lse)
        return jnp.sum((o * d_o).astype(lse.dtype)) + jnp.sum(lse * d_lse)

    return total


def second_order(f, s):
    """The Hessian times a direction, forward over reverse and reverse over forward."""
    inputs, along = on_device((s.inputs, s.along()))
    total, fair = loss(f, s, curved=True), loss(plainly(s), s, curved=True)
    forward = lambda loss: lambda x, t: jax.jvp(jax.grad(loss), (x,), (t,))[1]
    reverse = lambda loss: lambda x, t: jax.grad(lambda x: jax.jvp(loss, (x,), (t,))[1])(x)
    found = jax.jit(lambda x, t: (forward(total)(x, t), reverse(total)(x, t)))(inputs, along)
    honest = jax.jit(forward(fair))(inputs, along)
    right = differences(s, [f"d_{n}" for n in inputs], {f"d_{n}": x for n, x in honest.items()}, curved=True)
    for one in found:
        yield {f"d_{n}": x for n, x in one.items()}, right


def jacrev(f, s):
    """Two rows of a Jacobian: the gradients of two sets of cotangents at once."""
    _, _, d_o, d_lse = data(s.row, s.seed + 1)
    rows = [s, s._replace(d_o=d_o, d_lse=d_lse)]
    both = lambda x: jnp.stack([loss(f, row)(x) for row in rows])
    found = jax.jit(jax.jacrev(both))(on_device(s.inputs))
    for i, row in enumerate(rows):
        yield {f"d_{n}": np.asarray(x)[i] for n, x in found.items()}, limits(row, [f"d_{n}" for n in found])


def vmap(f, s):
    """Two samples, q along the first axis, v shared, all other inputs along the last: gradients inside and outside."""
    other = sample(s.row, s.seed + 1)
    other = other._replace(inputs=other.inputs | {"v": s.inputs["v"]})
    axes = dict.fromkeys(s.inputs, -1) | {"q": 0, "v": None}
    (inputs, *rest), (inputs_2, *rest_2) = arrays(s), arrays(other)
    inputs = {n: x if axes[n] is None else jnp.stack([x, inputs_2[n]], axes[n]) for n, x in inputs.items()}
    facts, d_o, d_lse = jax.tree.map(lambda *x: jnp.stack(x), rest, rest_2)
    inside = jax.vmap(gradients(f), in_axes=(axes, 0, 0, 0))
    outside = gradients(jax.vmap(f, in_axes=(axes, 0)))
    each, total = jax.jit(lambda *x: (inside(*x), outside(*x)))(inputs, facts, d_o, d_lse)
    right = [limits(one, every(s)) for one in (s, other)]
    for i in range(2):
        yield {n: np.asarray(x)[i] for n, x in each.items()}, right[i]
        split = {n: np.moveaxis(np.asarray(x), axes.get(n[2:], 0) or 0, 0) for n, x in total.items() if n != "d_v"}
        yield {n: x[i] for n, x in split.items()}, {n: x for n, x in right[i].items() if n != "d_v"}
    (a, limit_a), (b, limit_b) = (one["d_v"] for one in right)
    yield {"d_v": total["d_v"]}, {"d_v": (a + b, limit_a + limit_b)}


def scan(f, s):
    """Two samples, one after the other inside one program."""
    both = s, sample(s.row, s.seed + 1)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *map(arrays, both))
    found = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c, gradients(f)(*x)), None, xs)[1])(stacked)
    for i, one in enumerate(both):
        yield {n: np.asarray(x)[i] for n, x in found.items()}, limits(one, every(s))


WAYS = {
    "value": value, "gradient": gradient, "lse-gradient": lse_gradient, "jvp": jvp, "second-order": second_order,
    "vmap": vmap, "jacrev": jacrev, "remat": remat, "scan": scan,
}  # fmt: skip


def results(way, row, backend):
    """[(found, right)] of a row called in one way on one backend."""
    return list(WAYS[way](attended(row, backend), sample(row)))
