"""A model's weights by name: what a config leads one to expect, and skeletons, without building layer after layer."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

from attnjax.models import Config, Decoder, load, load_attention, published
from attnjax.models import weights as weights_module
from attnjax.models.weights import Named, by_layer, check_fit, expected, skeleton
from attnjax.patterns import Causal, PerHead, Window
from tests.models.published import copied, edit_config, edit_weights
from tests.models.saved import CONFIG

CONFIGS = {
    "stacked": CONFIG,
    "unrolled": dataclasses.replace(CONFIG, scan=False, tie_embeddings=True),
    "everything": dataclasses.replace(
        CONFIG, use_bias=True, out_bias=False, mlp_bias=True, post_norms=True, learned_sinks=True, rope_scaling={"L": {"rope_type": "linear", "factor": 2.0}},
        layout="LLG", num_layers=8, legend={"L": PerHead((Window(2), Causal())), "G": "causal()"},
    ),
    "narrow": dataclasses.replace(CONFIG, param_dtype="bfloat16", dtype="bfloat16", num_layers=1, qk_norm=False, theta=None, head_dim=3),
    "wide": dataclasses.replace(CONFIG, param_dtype="float64", dtype="float64", scan=False, num_layers=2),
}  # fmt: skip


def built(config):
    """What `skeleton` stands for."""
    with jax.enable_x64(True):
        return nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))


@pytest.mark.parametrize("name", CONFIGS)
def test_skeletons_and_expectations_are_those_of_a_decoder_that_was_built(name):
    config = CONFIGS[name]
    want, got = built(config), skeleton(config)
    assert nnx.split(got)[0] == nnx.split(want)[0]
    assert jax.tree.leaves(nnx.state(got)) == jax.tree.leaves(nnx.state(want))
    assert dict(expected(config)) == by_layer(want) and len(expected(config)) == len(by_layer(want))


def test_names_are_looked_up_without_a_list():
    named = Named({"norm": 1}, {"a.b": 2, "c": 3}, 10**9)
    assert len(named) == 2 * 10**9 + 1 and named["layers.999999999.c"] == 3 and named["norm"] == 1
    for wrong in ("layers.1000000000.c", "layers.01.c", "layers.-1.c", "layers.1.d", "layers.1.c ", "layers.x.c", "layers.1.", "nor"):
        assert wrong not in named
    assert list(Named({"norm": 1}, {"a.b": 2, "c": 3}, 2)) == ["norm", "layers.0.a.b", "layers.0.c", "layers.1.a.b", "layers.1.c"]


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, np.float32)


def test_what_is_missing_among_thousands_of_millions_is_named():
    wanted = Named({"norm": shape(4)}, {"c": shape(4), "d": shape(4)}, 10**9)
    found = {"norm": shape(4), "layers.0.c": shape(4), "layers.0.d": shape(4), "layers.1.d": shape(4)}
    with pytest.raises(ValueError, match="here: weight 'layers.1.c' is missing .1999999997 of 2000000001 are"):
        check_fit(found, wanted, "here")
    with pytest.raises(ValueError, match="weight 'layers.1.e' is not part of this llama; did you mean 'layers.1.c'"):
        check_fit(found | {"layers.1.e": shape(4)}, wanted, "here", "llama")


@pytest.fixture
def nothing_is_built(monkeypatch):
    for module in (published, weights_module):
        monkeypatch.setattr(module, "skeleton", lambda config: pytest.fail("a model was built before its names were compared"))


@pytest.mark.parametrize("layers", [50, 3000])
def test_layers_without_weights_are_not_built(tmp_path, nothing_is_built, layers):
    """As many empty weights as the config says layers, which is all that the sizes say about them."""
    folder = copied("llama", tmp_path)
    edit_weights(folder, lambda w: w.update({f"model.layers.{i}.empty": np.zeros(0) for i in range(3, layers)}))
    edit_config(folder, num_hidden_layers=layers)
    with pytest.raises(ValueError, match="weight 'model.layers.3.empty' is not part of this llama; did you mean 'model.layers.3"):
        load(folder)


def test_layers_of_empty_weights_are_missing_or_misshapen(tmp_path, nothing_is_built):
    folder = copied("llama", tmp_path)

    def empty(weights):
        names = [name.removeprefix("model.layers.0.") for name in weights if name.startswith("model.layers.0.")]
        weights.update({f"model.layers.{i}.{name}": np.zeros(0) for i in range(3, 60) for name in names})

    edit_weights(folder, empty)
    edit_config(folder, num_hidden_layers=60)
    with pytest.raises(ValueError, match=r"weight 'model.layers.3.* has shape \(0,\), the config asks for"):
        load(folder)
    with pytest.raises(ValueError, match=r"weight 'model.layers.59.self_attn.* has shape \(0,\), the config asks for"):
        load_attention(folder, 59)
    edit_config(folder, num_hidden_layers=200)
    with pytest.raises(ValueError, match=r"weight 'model.layers.60.* is missing"):
        load(folder)


def test_a_config_of_this_library_is_compared_first_too(tmp_path, monkeypatch):
    from attnjax.models import save
    from tests.models.saved import decoder
    from tests.models.saved import edit_config as edit_saved

    save(decoder(dataclasses.replace(CONFIG, scan=False)), tmp_path)
    import importlib

    module = importlib.import_module("attnjax.models.load")
    monkeypatch.setattr(module, "skeleton", lambda config: pytest.fail("a model was built before its names were compared"))
    edit_saved(tmp_path, num_layers=40)
    with pytest.raises(ValueError, match="weight 'layers.5.* is missing"):
        load(tmp_path)


def test_a_config_has_bounded_sizes():
    sizes = dict(vocab_size=8, d_model=8, num_layers=2, num_heads=2, num_kv_heads=2, head_dim=4, d_ff=8)
    for name in sizes:
        for much in (99999999999999999999, 10**400, 2**31):
            with pytest.raises(ValueError, match=f"{name}=|multiple of num_kv_heads"):
                Config(**sizes | {name: much})
    with pytest.raises(ValueError, match="num_layers=65537 is too large: it is at most 65536"):
        Config(**sizes | dict(num_layers=2**16 + 1))
    with pytest.raises(ValueError, match="num_heads=99999999999999999999 is too large: it is at most 2147483647"):
        Config(**sizes | dict(num_heads=99999999999999999999, num_kv_heads=7))
    with pytest.raises(ValueError, match="num_heads=2147483646 is not a multiple of num_kv_heads=2147483645; .* num_kv_heads=1073741823"):
        Config(**sizes | dict(num_heads=2**31 - 2, num_kv_heads=2**31 - 3))
    assert Config(**sizes | dict(num_layers=2**16)).letters == "G" * 2**16


@pytest.mark.slow
def test_a_legend_of_many_letters_is_read_in_one_go():
    letters = [chr(i) for i in range(0x4E00, 0x4E00 + 20_000)]
    config = Config(vocab_size=8, d_model=8, num_layers=3, num_heads=2, layout="".join(letters), legend=dict.fromkeys(letters, Window(3)), theta=1e4)
    assert config.letters == "".join(letters[:3])
