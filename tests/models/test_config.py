"""Config and layouts: what they hold, what they refuse, and that they are values."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from attnjax import nn
from attnjax.models import Config, Decoder
from attnjax.models.layout import layer_letters
from attnjax.patterns import Causal, PerHead, Sink, Window

SMALL = dict(vocab_size=32, d_model=16, num_layers=4, num_heads=2)
HYBRID = dict(layout="LLG", legend={"L": "window(4) | sink(1)", "G": Causal()})


@pytest.mark.parametrize(
    "layout, num_layers, letters",
    [("G", 3, "GGG"), ("LLLLLG", 6, "LLLLLG"), ("LLG", 7, "LLGLLGL"), ("LLLLLG", 2, "LL")],
)
def test_layer_i_has_letter_i_modulo_the_layout(layout, num_layers, letters):
    assert layer_letters(layout, num_layers) == letters


def test_legend_holds_patterns_and_defaults_are_causal():
    config = Config(**SMALL, **HYBRID)
    assert config.legend == {"L": Window(4) | Sink(1), "G": Causal()}
    assert config.letters == "LLGL"
    assert Config(**SMALL).legend["G"] == Causal()


def test_equal_configs_are_one_value_and_cannot_change():
    text = Config(**SMALL, **HYBRID)
    values = Config(**SMALL, layout="LLG", legend={"G": Causal(), "L": Window(4) | Sink(1)})
    assert text == values and hash(text) == hash(values)
    assert text != dataclasses.replace(text, theta=5e5) and text != Config(**SMALL)
    assert pickle.loads(pickle.dumps(text)) == text
    with pytest.raises(dataclasses.FrozenInstanceError):
        text.d_model = 32
    with pytest.raises(TypeError):
        text.legend["L"] = Causal()


def test_replace_recomputes_what_none_stands_for():
    config = Config(**SMALL)
    assert config.ff_dim == 48  # 8/3 * 16 = 42.7, rounded up to a multiple of 8
    assert dataclasses.replace(config, d_model=64).ff_dim == 176
    assert dataclasses.replace(config, d_ff=20).ff_dim == 20


@pytest.mark.parametrize(
    "layout, num_layers, scan, periods",
    [("G", 4, True, 4), ("LLG", 7, True, 2), ("LLG", 5, True, 0), ("G", 1, True, 0), ("G", 4, False, 0)],
)
def test_whole_periods_are_stacked_from_two_on(layout, num_layers, scan, periods):
    config = Config(**SMALL | dict(num_layers=num_layers, layout=layout, legend=HYBRID["legend"], scan=scan))
    assert config.num_periods == periods


def test_theta_per_letter_and_none_for_no_rotation():
    config = Config(**SMALL, **HYBRID, theta={"L": 1e4, "G": None})
    assert config.rope("L").theta == 1e4 and config.rope("G") is None
    assert Config(**SMALL, theta=None).rope("G") is None
    assert hash(config) == hash(dataclasses.replace(config))


def test_precision_reaches_every_layer_and_is_one_value_however_it_is_spelled():
    config = Config(**SMALL, **HYBRID, precision="float32")
    assert config.precision == "highest" and config == Config(**SMALL, **HYBRID, precision=jax.lax.Precision.HIGHEST)
    model = Decoder(config, rngs=nnx.Rngs(0))
    assert {model.block(i).attention.precision for i in range(4)} == {jax.lax.Precision.HIGHEST}
    assert Config(**SMALL).precision is None
    with pytest.raises(ValueError, match="precision='fast' is unknown; use None, 'default', 'high', 'highest'"):
        Config(**SMALL, precision="fast")


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def test_rope_scaling_for_all_layers_or_per_letter():
    record = nn.YarnScaling(4.0, original_max_position_embeddings=64)
    both = Config(**SMALL, **HYBRID, rope_scaling=YARN)
    assert both == Config(**SMALL, **HYBRID, rope_scaling=record)
    assert both.rope("L") == both.rope("G") == nn.Rope(1e4, scaling=record)
    one = Config(**SMALL, **HYBRID, rope_scaling={"G": YARN}, theta={"L": 100.0, "G": 1e4})
    assert one.rope("G") == nn.Rope(1e4, scaling=record) and one.rope("L") == nn.Rope(100.0)
    assert len({both, one, dataclasses.replace(one), Config(**SMALL, **HYBRID)}) == 3
    assert pickle.loads(pickle.dumps(one)) == one
    # One scaling for all layers passes over those that do not rotate.
    mixed = Config(**SMALL, **HYBRID, rope_scaling=YARN, theta={"L": None, "G": 1e4})
    assert mixed.rope("L") is None and mixed.rope("G").scaling == record


def test_bases_like_patterns_may_be_of_letters_that_no_layer_has():
    assert Config(**SMALL, layout="G", legend=HYBRID["legend"], theta={"L": 1e4, "G": 1e6}).rope("G") == nn.Rope(1e6)
    assert Config(**SMALL, layout="G", legend=HYBRID["legend"], rope_scaling={"L": None, "G": YARN}).rope("G").scaling is not None


def test_dropout_and_sinks_are_fields():
    config = Config(**SMALL, dropout_rate=0, learned_sinks=True)
    assert config.dropout_rate == 0.0 and config.learned_sinks and not Config(**SMALL).learned_sinks


def test_dtypes_may_be_text():
    config = Config(**SMALL, dtype="bfloat16")
    assert config.dtype == jnp.bfloat16 and config.param_dtype == jnp.float32
    assert config == Config(**SMALL, dtype=jnp.bfloat16)


@pytest.mark.parametrize(
    "error, match, change",
    [
        (ValueError, "layout letter 'X' is not in the legend 'G', 'L'; did you mean", dict(HYBRID, layout="LX")),
        (ValueError, "layout letter 'l' .* did you mean 'L'", dict(HYBRID, layout="lG")),
        (ValueError, "layout letter 'H' .* did you mean 'G'", dict(HYBRID, layout="LH")),
        (ValueError, "layout='' must be a string of letters", dict(layout="")),
        (ValueError, "layout=3 must be a string", dict(layout=3)),
        (ValueError, r"legend\['G'\]: .*window", dict(legend={"G": "windw(4)"})),
        (TypeError, r"legend\['G'\]=4 is not a pattern", dict(legend={"G": 4})),
        (ValueError, "'LL' is not a letter", dict(legend={"LL": "causal()"})),
        (TypeError, "legend='causal' must map letters", dict(legend="causal")),
        (ValueError, "theta letter 'g' .* did you mean 'G'", dict(HYBRID, theta={"L": 1e4, "g": 1e6})),
        (ValueError, r"theta has no entry for \['L'\]", dict(HYBRID, theta={"G": 1e6})),
        (ValueError, "theta=-1", dict(theta=-1.0)),
        (TypeError, "theta='1e4'", dict(theta="1e4")),
        (ValueError, "H=3 is odd", dict(head_dim=3)),
        (ValueError, "rope_scaling letter 'g' .* did you mean 'G'", dict(HYBRID, rope_scaling={"g": YARN})),
        (ValueError, "the key 'facto'.* did you mean 'factor'", dict(rope_scaling=dict(YARN, facto=1))),
        (TypeError, "scaling='yarn' is a str", dict(rope_scaling={"G": "yarn"})),
        (ValueError, "'L', but their theta is None", dict(HYBRID, rope_scaling={"L": YARN}, theta={"L": None, "G": 1e4})),
        (ValueError, "layers 'G', but their theta is None", dict(rope_scaling=YARN, theta=None)),
        (ValueError, "rope_scaling stretches layers 'L', but no layer is one: num_layers=4 of layout='G' are 'G'", dict(HYBRID, layout="G", rope_scaling={"L": YARN})),
        (ValueError, "rope_scaling stretches layers 'G', but no layer is one: num_layers=2 of layout='LLG' are 'L'", dict(HYBRID, num_layers=2, rope_scaling={"G": YARN})),
        (ValueError, "layers 'G', but no layer is one", dict(HYBRID, num_layers=2, rope_scaling={"L": YARN, "G": YARN})),
        (ValueError, "layers 'L', but their theta is None", dict(HYBRID, num_layers=2, rope_scaling=YARN, theta={"L": None, "G": 1e4})),
        (ValueError, "dropout_rate=1.0 must be at least 0 and below 1", dict(dropout_rate=1.0)),
        (TypeError, "dropout_rate='0.1' is a str", dict(dropout_rate="0.1")),
        (ValueError, "num_heads=2 is not a multiple of num_kv_heads=3", dict(num_kv_heads=3)),
        (ValueError, "d_model=15 is not a multiple of num_heads=2", dict(d_model=15)),
        (TypeError, "num_heads='four' is a str", dict(num_heads="four")),
        (ValueError, "num_layers=0", dict(num_layers=0)),
        (ValueError, "d_ff=0", dict(d_ff=0)),
        (ValueError, "soft_cap=0", dict(soft_cap=0)),
        (ValueError, "norm_eps=0", dict(norm_eps=0)),
        (ValueError, "qk_norm_eps=nan must be finite", dict(qk_norm_eps=float("nan"))),
        (ValueError, "logits_soft_cap=-1.0 must be above 0", dict(logits_soft_cap=-1)),
        (ValueError, "scale=inf must be finite", dict(scale=float("inf"))),
        (TypeError, "embedding_scale='4' is a str", dict(embedding_scale="4")),
        (ValueError, "activation='relu' is not one of silu, gelu, gelu_tanh", dict(activation="relu")),
        (TypeError, "dtype=int32 is not a floating dtype", dict(dtype="int32")),
        (TypeError, "param_dtype='flot32' is not a dtype", dict(param_dtype="flot32")),
        (ValueError, "has 3 heads, but num_heads=2", dict(legend={"G": PerHead((Causal(),) * 3)})),
        (TypeError, "n_head", dict(n_head=4)),
    ],
)
def test_wrong_settings_are_named(error, match, change):
    with pytest.raises(error, match=match):
        Config(**SMALL | change)


def test_head_dim_three_is_fine_without_rotation():
    assert Config(**SMALL | dict(head_dim=3, theta=None)).head_dim == 3
