"""Run with eight devices: calls, layers and models whose arrays lie on axes of a mesh, against one device.

    python tests/support/eight_devices.py KIND NAME...    # KIND of axes: Explicit or Auto; rows by name, none: all

Nothing may move q, k or v between devices, and results lie as queries do.
"""

import dataclasses
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import attnjax as aj
from attnjax import models
from attnjax.backends import BACKENDS, holding_weights
from attnjax.backends.base import Work, needs_one_device

P = PartitionSpec
KIND = getattr(AxisType, sys.argv[1])
EXPLICIT = KIND == AxisType.Explicit
MESH = jax.make_mesh((4, 2), ("b", "h"), axis_types=(KIND, KIND))
B, T, N, H = 4, 300, 4, 8
MOVES = r" (all-gather|all-to-all|collective-permute)(-start)?\("
r = np.random.default_rng(0)


def draw(*shape):
    return jnp.asarray(r.standard_normal(shape), jnp.float32)


def put(x, *spec):
    return jax.device_put(x, NamedSharding(MESH, P(*spec)))


IDS = jnp.asarray(np.sort(r.integers(0, 4, (B, T)), axis=1))
SLOPES, BLOCK = draw(N), jnp.arange(T) // 30
DROP = {"dropout_rate": 0.3, "dropout_key": jax.random.key(3)}
COMB = aj.Window(8) | aj.Strided(16)
CALLS = {
    "causal": (aj.Causal(), 2, {}),
    "comb": (COMB, 2, {}),
    "mqa": (aj.Causal(), 1, {}),
    "bias": (aj.Causal(), 2, {"bias": draw(B, N, T, T)}),
    "bias of all": (aj.Causal(), 2, {"bias": draw(T, T)}),
    "mask": (COMB, 2, {"mask": jnp.asarray(r.random((B, 1, 1, T)) > 0.3)}),
    "sinks": (aj.Window(8), 2, {"sink_logits": draw(N)}),
    "dropout": (COMB, 2, DROP),
    "shared dropout": (aj.Causal(), 2, DROP | {"dropout_shared": True}),
    "segments": (aj.Causal(), 2, {"segments": aj.Segments(IDS)}),
    "restart": (COMB, 2, {"segments": aj.Segments(IDS, positions="segment")}),
    "lengths": (aj.Causal(), 2, {"segments": aj.Segments.from_lengths(q=jnp.array([3, T, 50, 0]))}),
    "offsets": (aj.Causal(), 2, {"q_offset": jnp.array([0, 3, -5, 9])}),
    "params": (aj.Causal(), 2, {"score_fn": lambda s, i, j, h, p: s + p[h] * (j - i), "score_params": SLOPES}),
    "closed": (aj.Causal(), 2, {"score_fn": lambda s, i, j, h, p: s + SLOPES[h] * (j - i)}),
    "where": (aj.Causal() & aj.Where(lambda i, j: BLOCK[i] == BLOCK[j]), 2, {}),
    "perhead": (aj.PerHead((aj.Causal(), aj.Window(4)) * 2), 2, {}),
}


def both(f):
    """(values, gradients) in one program."""
    return lambda *x: (f(*x), jax.grad(lambda *x: jnp.sum(jnp.sin(f(*x))), tuple(range(len(x))))(*x))


def call(name, backend):
    pattern, K, options = CALLS[name]
    q, k, v = draw(B, T, N, H), draw(B, T, K, H), draw(B, T, K, H)
    f = both(lambda q, k, v: aj.attend(q, k, v, pattern, backend=backend, **options))
    right = jax.jit(f)(q, k, v)
    keys = ("b", None, "h" if K > 1 else None)
    split = put(q, "b", None, "h"), put(k, *keys), put(v, *keys)
    with jax.set_mesh(MESH):
        program = jax.jit(f).lower(*split).compile()
        found = program(*split)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-5, rtol=5e-5), found, right)
    if EXPLICIT or name != "perhead":  # where nobody knows how heads are split, those of one pattern are collected
        assert not re.search(MOVES, program.as_text()), re.search(MOVES, program.as_text())
        o, (dq, _, _) = found
        assert all(x.sharding.is_equivalent_to(split[0].sharding, 4) for x in (o, dq)), (o.sharding, dq.sharding)


def layers():
    """A decoder whose heads and features are split, and a step of training where only sequences are."""
    config = models.Config(vocab_size=50, d_model=32, num_layers=2, num_heads=4, num_kv_heads=2, layout="LG", scan=False,
                           legend={"L": "window(8) | sink(2)", "G": "causal()"}, learned_sinks=True)  # fmt: skip
    tokens = jnp.asarray(r.integers(0, 50, (8, 40)))

    def loss(model, tokens):
        logits = model(tokens[:, :-1])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]))

    @nnx.jit
    def step(model, optimizer, tokens):
        value, gradients = nnx.value_and_grad(loss)(model, tokens)
        optimizer.update(model, gradients)
        return value

    def losses(tokens, shard):
        model = models.Decoder(config, rngs=nnx.Rngs(0))
        if shard:
            split_features(model)
        optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
        return [float(step(model, optimizer, tokens)) for _ in range(3)]

    right = losses(tokens, False)
    with jax.set_mesh(MESH):
        for shard in (False, True):
            np.testing.assert_allclose(losses(put(tokens, "b"), shard), right, rtol=1e-4)
        config = dataclasses.replace(config, layout="G", scan=True)
        scanned = losses(put(tokens, "b"), False)
    np.testing.assert_allclose(scanned, losses(tokens, False), rtol=1e-4)


def split_features(model):
    """Heads and features over the axis h, as tensor parallelism splits them."""
    for i in range(model.config.num_layers):
        block = model.block(i)
        a, m = block.attention, block.mlp
        for linear in (a.query, a.key, a.value, m.gate, m.up):
            linear.kernel = nnx.Param(put(linear.kernel[...], None, "h"))
        for linear in (a.out, m.down):
            linear.kernel = nnx.Param(put(linear.kernel[...], "h", None))


def refused():
    """What would have to move is an error that says so."""

    def says(text, *arrays, pattern=CALLS["causal"][0], **options):
        try:
            with jax.set_mesh(MESH):
                jax.jit(lambda *x: aj.attend(*x, pattern, **options))(*arrays)
        except ValueError as error:
            assert re.search(text, str(error)), error
        else:
            raise AssertionError(f"no error that says {text}")

    q, k = draw(B, T, N, H), draw(B, T, 2, H)
    split = put(q, "b", None, "h"), put(k, "b", None, "h")
    says(r"q\[B, T, N, H\] is split as .* whole sequences; jax.sharding.reshard\(q, P.*", put(q, None, "b"), k, k)
    says(r"k is split as .*'b'.* needs it whole or as", split[0], put(k, None, "b"), k)
    other = aj.PerHead((aj.Causal(), aj.Causal(), aj.Window(4), aj.Window(4)))
    says("other patterns for other heads, which are split 2 ways", *split, split[1], pattern=other)
    six, three = put(draw(B, T, 6, H), "b", None, "h"), put(draw(B, T, 3, H), "b")
    says("6 heads are split 2 ways, and 3 key heads are neither a multiple nor a divisor", six, three, three)
    says("mask is split as .* needs it whole or as", *split, split[1], mask=put(jnp.ones((T, T), bool), "b"))


class Kernel:
    """Stands in for a kernel, of which XLA knows nothing: it must see one device."""

    plain, gives_lse = False, True

    def why_not(self, call, target):
        return needs_one_device(target)

    def prefers(self, call, target):
        return False, "never"

    def work(self, call, target):
        return Work(0, 0)

    def forward(self, call, target):
        assert target.num_devices == 1
        return holding_weights()[1].forward(call, target)


def kernel():
    BACKENDS["kernel"] = Kernel()
    if EXPLICIT:
        return call("causal", "kernel")
    whole = lambda q, k: aj.attend(q, k, k, aj.Causal(), backend="kernel")
    q, k = put(draw(B, T, N, H), "b", None, "h"), put(draw(B, T, 2, H), "b", None, "h")
    try:
        jax.jit(whole)(q, k)
    except ValueError as error:
        assert "8 devices share the call, and no mesh says how: wrap it in jax.shard_map" in str(error), error
    else:
        raise AssertionError("a kernel was split by the partitioner")
    spec = P("b", None, "h")
    found = jax.jit(jax.shard_map(whole, mesh=MESH, in_specs=(spec, spec), out_specs=spec))(q, k)
    np.testing.assert_allclose(found, aj.attend(q, k, k, aj.Causal(), backend="dense"), atol=1e-5)


OTHERS = {"layers": layers, "kernel": kernel} | ({"refused": refused} if EXPLICIT else {})
for name in sys.argv[2:] or (*CALLS, *OTHERS):
    if name in OTHERS:
        OTHERS[name]()
    else:
        for backend in ("tiled", "dense"):
            call(name, backend)
    print(name, "agrees", flush=True)
