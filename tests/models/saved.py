"""Saved models for the tests of saving and loading, and ways to tamper with them."""

import functools
import hashlib
import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attnjax.models import Config, Decoder
from attnjax.models.weights import skeleton

CONFIG = Config(
    vocab_size=11, d_model=8, num_layers=5, num_heads=2, num_kv_heads=1, layout="LG", qk_norm=True,
    legend={"L": "window(3) | sink(1)", "G": "causal()"}, theta={"L": 100.0, "G": None}, d_ff=8,
)  # fmt: skip


# Tracing a model takes most of the time of these tests, so each config is traced once.
SHAPES = functools.cache(skeleton)


@functools.cache
def blueprint(config):
    return nnx.split(nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), allow_future=True)))


def decoder(config=CONFIG):
    """A model whose every weight, norms included, has numbers of its own."""
    rng = np.random.default_rng(1)
    graph, shapes = blueprint(config)
    return nnx.merge(graph, jax.tree.map(lambda p: jnp.asarray(rng.standard_normal(p.shape), p.dtype), shapes))


def logits(model, tokens):
    graph, state = nnx.split(model)
    return jax.jit(lambda state, tokens: nnx.merge(graph, state)(tokens))(state, tokens)


def bits(model):
    """{name: (dtype, shape, bytes)} of every parameter of every layer, and of the rest."""
    graph, state = nnx.split(model)
    model = nnx.merge(graph, jax.tree.map(np.asarray, state))  # in NumPy, where taking a layer compiles nothing
    parts = {f"layers.{i}": model.block(i) for i in range(model.config.num_layers)}
    parts |= {"embedding": model.embedding, "norm": model.norm}
    parts |= {} if model.head is None else {"head": model.head}
    found = {}
    for part, module in parts.items():
        for path, variable in nnx.to_flat_state(nnx.state(module)):
            array = np.asarray(variable[...])
            found[".".join((part, *map(str, path)))] = array.dtype.name, array.shape, array.tobytes()
    return found


def edit_config(folder, **changes):
    """Changes fields of the saved config; a key with two underscores in front is one of the file itself."""
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    for key, value in changes.items():
        place = saved if key.startswith("__") else saved["config"]
        place[key.removeprefix("__")] = value
    path.write_text(json.dumps(saved))


def reseal(folder):
    """Gives config.json the checksum of the weights as they are now, as a hostile author would."""
    edit_config(folder, __weights_sha256=hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest())


def unpack(data):
    """(header, payload) of a safetensors file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def pack(header, payload):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + payload
