"""The steps of the chapter's full pass are the layer, on small sizes and on those of Llama 2 7B."""

import dataclasses
import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attnjax import models, nn

PATH = pathlib.Path(__file__).parents[2] / "examples" / "llama_layer.py"
SPEC = importlib.util.spec_from_file_location("llama_layer", PATH)
llama_layer = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(llama_layer)

CONFIG = models.config("llama2_7b")


@pytest.mark.slow
def test_the_steps_are_the_layer():
    config = dataclasses.replace(CONFIG, d_model=32, num_heads=4, num_kv_heads=2)
    layer = llama_layer.make_layer(config)
    x = jax.random.normal(jax.random.key(1), (9, 32))
    steps = llama_layer.full_pass(layer, x)
    np.testing.assert_allclose(steps["7. out"], layer(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(steps["4. weights"].sum(-1), 1, rtol=1e-6)
    assert not np.triu(np.asarray(steps["4. weights"]), 1).any()


def test_the_example_is_short():
    assert PATH.read_text().count("\n") < 100


@pytest.mark.slow
def test_a_llama_2_7b_layer_on_32_tokens(capsys):
    llama_layer.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[:1]] == ["4096"] and lines[4].split() == "3. scores 32 x 32 x 32".split()
    difference = float(lines[-1].split("largest difference ")[1].split()[0])
    assert difference < 1e-4, lines[-1]


@pytest.mark.slow
def test_a_whole_llama_2_7b_block_is_its_steps_added_to_the_stream():
    """x + attention(norm(x)), then x + mlp(norm(x)): 202 million numbers."""
    layer = llama_layer.make_layer(CONFIG)
    block = nn.Block(layer, nn.SwiGLU(CONFIG.d_model, CONFIG.ff_dim, rngs=nnx.Rngs(1)), norm_eps=CONFIG.norm_eps)
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(block)))
    assert count == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096  # one of the 32 layers
    x = jax.random.normal(jax.random.key(1), (32, CONFIG.d_model))
    y = x + llama_layer.full_pass(layer, block.attention_norm(x))["7. out"]
    h = block.mlp_norm(y)
    y = y + (jax.nn.silu(h @ block.mlp.gate.kernel[...]) * (h @ block.mlp.up.kernel[...])) @ block.mlp.down.kernel[...]
    np.testing.assert_allclose(block(x[None])[0], y, rtol=1e-4, atol=1e-4 * float(jnp.abs(y).max()))
