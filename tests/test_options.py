"""The options of a call: one record for every door, and wrong names refused with all that there are."""

import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import attnjax as aj
from attnjax import nn
from attnjax.options import names

X = jnp.ones((8, 2, 4))
CHUNK = jnp.ones((1, 3, 2, 4))
RULE = "scale, soft_cap, score_fn, precision"
ARRAYS = "score_params, sink_logits"
SCORE = f"{RULE}, {ARRAYS}"
ALL = f"{SCORE}, q_offset, bias, mask, segments, dropout_rate, dropout_key, dropout_shared"


def made(**options):
    return nn.Attention(8, 2, pattern=aj.Causal(), rngs=nnx.Rngs(0), **options)


def cache():
    return aj.Cache.create(aj.Causal(), batch=1, num_kv_heads=2, head_dim=4, max_length=9)


DOORS = {
    "attend": (lambda **o: aj.attend(X, X, X, aj.Causal(), **o), f"q, k, v, pattern, backend, return_lse, {ALL}"),
    "explain": (lambda **o: aj.explain(X, X, X, aj.Causal(), **o), f"q, k, v, pattern, backend, platform, {ALL}"),
    "Cache.step": (lambda **o: cache().step(CHUNK, CHUNK, CHUNK, **o), f"q, k, v, lengths, backend, return_weights, {SCORE}"),
    "nn.Attention": (
        made,
        "d_model, num_heads, num_kv_heads, head_dim, pattern, rope, qk_norm, qk_norm_eps, use_bias, out_bias, "
        f"learned_sinks, dropout_rate, dtype, param_dtype, rngs, {RULE}",
    ),
    "a call of nn.Attention": (
        lambda **o: made()(jnp.ones((1, 3, 8)), **o),
        "x, kv, positions, segments, mask, bias, cache, deterministic, dropout_key, return_weights, backend, "
        + ARRAYS,
    ),
}  # fmt: skip


def said(call):
    with pytest.raises(TypeError) as found:
        call()
    return str(found.value)


@pytest.mark.parametrize("where", DOORS)
def test_a_name_that_no_option_has_is_refused_with_all_that_there_are(where):
    door, known = DOORS[where]
    assert said(lambda: door(quux=1)) == f"{where} got an unexpected keyword argument 'quux'; it takes {known}"


@pytest.mark.parametrize("where", [where for where, (_, known) in DOORS.items() if "backend" in known])
def test_a_name_nearly_right_is_named(where):
    """Of an option and of a parameter of the door's own."""
    door, known = DOORS[where]
    for wrong, right in (("sink_logit", "sink_logits"), ("backends", "backend")):
        assert said(lambda wrong=wrong: door(**{wrong: None})) == (
            f"{where} got an unexpected keyword argument {wrong!r}; did you mean {right!r}? It takes {known}"
        )


@pytest.mark.parametrize("name", RULE.split(", "))
def test_what_is_said_when_a_layer_is_made_is_refused_with_a_call(name):
    assert said(lambda: made()(jnp.ones((1, 3, 8)), **{name: None})) == (
        f"{name}= was fixed when the layer was made: nn.Attention(..., {name}=)"
    )


def test_a_block_takes_what_its_attention_takes():
    block = nn.Block(made(), nn.SwiGLU(8, 16, rngs=nnx.Rngs(0)))
    own = set(inspect.signature(nn.Attention.__call__).parameters) - {"kv"}
    assert set(inspect.signature(nn.Block.__call__).parameters) == own
    assert said(lambda: block(jnp.ones((1, 3, 8)), soft_cap=2.0)).startswith("soft_cap= was fixed when")


def test_records_are_made_of_each_other():
    records = aj.RuleOptions, aj.ArrayOptions, aj.ScoreOptions, aj.AttendOptions
    assert [", ".join(names(record)) for record in records] == [RULE, ARRAYS, SCORE, ALL]


@pytest.mark.parametrize("name", ALL.split(", "))
def test_every_option_is_explained_in_its_record(name):
    records = [record for record in (aj.RuleOptions, aj.ArrayOptions, aj.AttendOptions) if name in vars(record)["__annotations__"]]
    text = inspect.getdoc(records[0])
    assert any(line.split(":")[0].endswith(name) or f"{name}, " in line.split(":")[0] for line in text.splitlines() if ":" in line)


def test_every_door_declares_the_record_that_it_takes():
    doors = {
        aj.attend: aj.AttendOptions, aj.explain: aj.AttendOptions, aj.Cache.step: aj.ScoreOptions,
        nn.Attention.__init__: aj.RuleOptions, nn.Attention.__call__: aj.ArrayOptions, nn.Block.__call__: aj.ArrayOptions,
    }  # fmt: skip
    for door, record in doors.items():
        assert inspect.signature(door).parameters["options"].annotation == typing.Unpack[record], door


def test_every_option_of_attend_is_taken_and_does_something():
    x = jax.random.normal(jax.random.key(0), (8, 2, 4))
    given = {
        "scale": 3.0, "soft_cap": 0.1, "score_fn": lambda s, i, j, h, p: -s, "sink_logits": jnp.ones(2), "q_offset": 2,
        "bias": jnp.arange(8.0), "mask": jnp.arange(8) > 1, "segments": aj.Segments(jnp.arange(8) // 3),
    }  # fmt: skip
    plain = np.asarray(aj.attend(x, x, x, aj.Causal()))
    for name, value in given.items():
        assert not np.allclose(plain, aj.attend(x, x, x, aj.Causal(), **{name: value})), name
    drop = dict(dropout_rate=0.5, dropout_key=jax.random.key(0))
    some, shared = (aj.attend(x, x, x, aj.Causal(), **drop, dropout_shared=shared) for shared in (False, True))
    assert not np.allclose(plain, some) and not np.allclose(some, shared)
    params = aj.attend(x, x, x, aj.Causal(), score_fn=lambda s, i, j, h, p: p * s, score_params=jnp.float32(2))
    assert not np.allclose(plain, params)
    program = str(jax.make_jaxpr(lambda x: aj.attend(x, x, x, aj.Causal(), precision="default"))(x))
    assert "precision=(Precision.DEFAULT" in program or "precision=Precision.DEFAULT" in program
    left = set(names(aj.AttendOptions)) - set(given) - set(drop) - {"dropout_shared", "score_params", "precision"}
    assert not left, f"not tried: {left}"
