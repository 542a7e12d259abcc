"""Every head of a model on given tokens: one layer at a time, a block of queries at a time."""

import functools
import logging
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int

from attnjax.heads import rules
from attnjax.heads.door import check_ids, check_period
from attnjax.heads.rules import RULES, At, Terms
from attnjax.models.decoder import Decoder
from attnjax.nn.block import Block
from attnjax.nn.norm import RMSNorm
from attnjax.nn.weights import attention_weights
from attnjax.scores import matmul_precision
from attnjax.visible import positions

log = logging.getLogger("attnjax")
BLOCK = 32 * 2**20  # bytes of weights that are looked at together
THRESHOLD = 0.3  # of the sink rate (Gu et al. 2024)
ALWAYS = ("previous_token", "first_token", "sink", "entropy", "mean_distance")


@typing.no_type_check
def measure(model: Decoder, tokens: Int[Array, "B T"], *, period: int | None = None) -> dict[str, np.ndarray]:
    """The scores of every head on these tokens, without ever keeping the weights.

    Layers run one after the other; in each one, the weights of a block of queries exist at a time, at most 32 MiB
    of them, whatever T is.

    Args:
        model: a decoder, of whatever heads, patterns and learned sinks.
        tokens: [B, T] ids, T at least 2. No padding: every token counts.
        period: the last `period` tokens of every row repeat the `period` before; adds what needs two copies.

    Returns:
        Score -> [layers, heads], over all rows of tokens: `previous_token`, `first_token`, `sink_rate` (share of
        rows with more than 0.3 on the first token), `entropy`, `mean_distance`; `duplicate_token` and
        `prefix_matching` where a token stands twice; `induction` and `copying` (over the last copy) with
        `period`; `learned_sink` where the model has them. The functions of these names say what they mean.

    Raises:
        TypeError: if `model` is no Decoder or `tokens` no ints.
        ValueError: if `tokens` are not [B, T] with T >= 2, an id is outside the vocabulary, or `period` does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> from attnjax import heads, models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=3, num_heads=2)
        >>> found = heads.measure(models.Decoder(config, rngs=nnx.Rngs(0)), jnp.arange(8)[None])
        >>> found["previous_token"].shape, sorted(found)[:3]
        ((3, 2), ['entropy', 'first_token', 'mean_distance'])
    """
    tokens = check_tokens(model, tokens)
    names = names_of(model)
    rows = np.sort(np.asarray(tokens), axis=1)
    if (rows[:, 1:] == rows[:, :-1]).any():
        names += ("duplicate_token", "prefix_matching")
    if period is not None:
        period = check_period(period, tokens.shape[1])
        copies = np.asarray(tokens)[:, -2 * period :].reshape(len(tokens), 2, period)
        if (copies[:, 0] != copies[:, 1]).any():
            raise ValueError(f"period={period}: the last {period} tokens of a row do not repeat those before them")
        names += ("induction", "copying")
    return measured(model, tokens, names, period)


def names_of(model: Decoder) -> tuple[str, ...]:
    """The scores that any tokens give."""
    return ALWAYS + (("learned_sink",) if model.config.learned_sinks else ())


def measured(model: Decoder, tokens: Any, names: tuple[str, ...], period: int | None = None) -> dict[str, np.ndarray]:
    """These scores, [layers, heads] each, with everything checked."""
    raises = raised_logits(model, tokens) if "copying" in names else None
    B, T, N = *tokens.shape, model.config.num_heads
    rows = max(1, min(T, BLOCK // (4 * B * N * T)))
    x, layers = model.embedding(tokens), []
    for i in range(model.config.num_layers):
        log.info("measuring heads: layer %d of %d, %d tokens", i + 1, model.config.num_layers, B * T)
        sums, x = _layer(model.block(i), x, tokens, raises, rows, names, period)
        layers.append(dict(_finished(name, terms) for name, terms in sums.items()))
    return {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}


def check_model(model: Any) -> Decoder:
    if not isinstance(model, Decoder):
        raise TypeError(
            f"model is a {type(model).__name__}, not a Decoder; for weights of other models there are "
            "heads.previous_token(weights), heads.induction(weights, period), ..."
        )
    return model


def check_tokens(model: Any, tokens: Any) -> Any:
    """Tokens as int32 that the model can read, [B, T] with T >= 2."""
    check_model(model)
    if check_ids(tokens).ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] < 2:
        raise ValueError(f"tokens{tuple(tokens.shape)} must be [B, T] with B >= 1 and T >= 2; one row is tokens[None]")
    if isinstance(tokens, Tracer):
        raise TypeError("tokens are traced; heads are measured outside jax.jit")
    return jnp.asarray(tokens)


def raised_logits(model: Decoder, tokens: Any) -> Any:
    """The direct path to the logit of each token of a row, less that to the mean logit: [B, S, D].

    The final norm's gain is on that path; its division by the norm scales all logits of a query alike.
    """
    if model.head is None:
        table = model.embedding.table[...]
    else:
        table = model.head.kernel[...].T
    path = (table[tokens] - jnp.mean(table, axis=0)[None, None]).astype(jnp.float32)
    return path * gain(model.norm)


def gain(norm: RMSNorm) -> Any:
    """A norm's factors, [1, 1, D]."""
    return norm.scale[...].astype(jnp.float32)[None, None]


@functools.partial(jax.jit, static_argnames=("rows", "names", "period"))
def _layer(
    block: Block, x: Any, tokens: Any, raises: Any, rows: int, names: tuple[str, ...], period: int | None
) -> tuple[dict[str, Terms], Any]:
    """(sums of each score over the queries of this layer's heads, what the layer gives), compiled once per kind of
    layer."""
    attention = block.attention
    q, k, v = attention.project(block.attention_norm(x))
    if raises is not None:
        path = raises if block.attention_post_norm is None else raises * gain(block.attention_post_norm)
        out = attention.out.kernel[...].astype(jnp.float32).reshape(attention.num_heads, -1, attention.d_model)
        raises = jnp.einsum("NhD,BSD->BNhS", out, path, precision=matmul_precision(None, out))
    how = rows, names, period, attention.pattern, attention.scored()
    return _sums(q, k, v, tokens, raises, *how), block(x)


def _finished(name: str, terms: Terms) -> tuple[str, np.ndarray]:
    """(name, [N]) of the score whose sums over queries are [B, N]."""
    value, count = (np.asarray(x, np.float64) for x in terms)
    if name == "sink":
        return "sink_rate", (value / count > THRESHOLD).mean(axis=0)
    total = count.sum(axis=0)
    return name, value.sum(axis=0) / np.where(total > 0, total, np.nan)


def _sums(
    q: Any, k: Any, v: Any, tokens: Any, raises: Any, rows: int, names: tuple[str, ...], period: int | None,
    pattern: Any, scored: Any,
) -> dict[str, Terms]:  # fmt: skip
    """Both sums over queries, [B, N], of every score, `rows` queries at a time."""
    B, T, N, _ = q.shape
    blocks = -(-T // rows)
    rest = [(0, 0), (0, blocks * rows - T), (0, 0), (0, 0)]
    q_padded, v_of_head = jnp.pad(q, rest), jnp.pad(jnp.repeat(v, N // v.shape[2], axis=2), rest)

    def add(sums: Any, i: Any) -> Any:
        first = i * rows
        w = attention_weights(
            jax.lax.dynamic_slice_in_dim(q_padded, first, rows, 1), k, v, pattern, q_offset=first, **scored
        )  # fmt: skip
        at = At(first + positions(rows), positions(T), tokens[:, None], period)
        found = {name: RULES[name](w, at) for name in names if name in RULES}
        if "copying" in names:
            own = jax.lax.dynamic_slice_in_dim(v_of_head, first, rows, 1).astype(raises.dtype)
            logits = jnp.einsum("BTNh,BNhS->BNTS", own, raises, precision=matmul_precision(None, own))
            terms = rules.copying(jnp.maximum(logits, jnp.zeros_like(logits)), at)
            found["copying"] = _only(terms, rules.in_last_copy(at))
        found = {name: _only(terms, at.row < T) for name, terms in found.items()}
        return jax.tree.map(lambda old, new: old + jnp.sum(new, axis=-1), sums, found), None

    start = {name: Terms(*(jnp.zeros((B, N), _dtype(q)) for _ in range(2))) for name in names}
    return jax.lax.scan(add, start, positions(blocks))[0]


def _only(terms: Terms, counted: Any) -> Terms:
    """The terms of the queries that count, bool [t]; the others have 0 in both."""
    return Terms(*(jnp.where(counted[None, None], x, jnp.zeros_like(x)) for x in terms))


def _dtype(q: Any) -> Any:
    return jnp.float64 if q.dtype == jnp.float64 else jnp.float32
