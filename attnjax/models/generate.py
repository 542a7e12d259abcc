"""generate: a decoder writes on, token by token."""

import functools
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from attnjax.models.decoder import Decoder
from attnjax.models.run import Options
from attnjax.models.sample import Rule, check_rule, pick
from attnjax.patterns.checks import integer
from attnjax.segments import Segments

BLOCK = 64  # prompts and caches are padded to multiples of this many tokens, so that similar calls share programs


class Generated(NamedTuple):
    """What `generate` wrote.

    Example:
        >>> from attnjax import models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=1, num_heads=2)
        >>> found = models.generate(models.Decoder(config, rngs=nnx.Rngs(0)), [[1, 2, 3], [4]], max_new=5)
        >>> found.tokens.shape, found.logprobs.shape, found.lengths.tolist()
        ((2, 5), (2, 5), [5, 5])
    """

    tokens: Int[Array, "B max_new"]  # -1 behind a stop token
    logprobs: Float[Array, "B max_new"]  # the model's own, before temperature and cuts; 0 behind a stop token
    lengths: Int[Array, "B"]  # tokens written in each row, a stop token included


@typing.no_type_check
def generate(
    model: Decoder,
    prompts: Sequence[Any] | Int[Array, "B T"],
    *,
    max_new: int,
    key: Array | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Sequence[int] | None = None,
    on_token: Callable[[np.ndarray], Any] | None = None,
) -> Generated:
    """Writes up to `max_new` tokens behind each prompt, with a cache of its own kind in every layer.

    Args:
        model: the decoder.
        prompts: token ids, one sequence for each row, of any lengths; or an array [B, T].
        max_new: tokens to write.
        key: a JAX key; needed with a temperature. A row's draws do not depend on the other rows.
        temperature: logits are divided by it and tokens drawn; None takes the likeliest token.
        top_k: draw from the k likeliest tokens; None from all.
        top_p: draw from the likeliest tokens that together reach this share of probability; None from all.
        stop: ids that end a row; the row keeps the one that ended it.
        on_token: called after each step with the new tokens, int32 [B]; -1 in rows that have ended.

    Returns:
        `Generated(tokens, logprobs, lengths)`.

    Raises:
        TypeError: if `model` is no Decoder, ids are not integers, or a setting has the wrong type.
        ValueError: if a prompt is empty or shorter than a layer's prefix, an id is not in the vocabulary, a setting
            is out of range, or the key is missing.

    Example:
        >>> import jax
        >>> from attnjax import models
        >>> from flax import nnx
        >>> config = models.Config(vocab_size=32, d_model=16, num_layers=2, num_heads=2, layout="LG",
        ...                        legend={"L": "window(4) | sink(1)", "G": "causal()"})
        >>> model = models.Decoder(config, rngs=nnx.Rngs(0))
        >>> models.generate(model, [[5, 6]], max_new=3, key=jax.random.key(0), temperature=0.8, top_p=0.9).tokens.shape
        (1, 3)
    """
    if not isinstance(model, Decoder):
        raise TypeError(f"model is a {type(model).__name__}; give a Decoder")
    max_new, vocab = integer("max_new", max_new, 1), model.config.vocab_size
    tokens, lengths = read_prompts(prompts, vocab)
    rule, stop = check_rule(temperature, top_k, top_p, key, vocab), read_stop(stop, vocab)
    if on_token is not None and not callable(on_token):
        raise TypeError(f"on_token={on_token!r} cannot be called; it is on_token(tokens)")
    return _write(model, tokens, lengths, max_new, key, rule, stop, on_token)


def _write(
    model: Decoder, tokens: np.ndarray, lengths: np.ndarray, max_new: int, key: Any, rule: Rule,
    stop: tuple[int, ...], on_token: Any,
) -> Generated:  # fmt: skip
    caches = model.init_cache(batch=len(lengths), max_length=_padded(int(lengths.max()) + max_new))
    caches.refusals(model.config, tokens.shape[0], tokens.shape[1], lengths)
    graph, state = nnx.split(model)
    ended, found = jnp.zeros(lengths.shape, bool), []
    chunk, real = jnp.asarray(tokens), jnp.asarray(lengths)
    for step in range(max_new):
        now = None if rule.temperature is None else jax.random.fold_in(key, step)
        token, logprob, ended, caches = _step(graph, state, chunk, real, caches, now, ended, rule, stop)
        found.append((token, logprob))
        if on_token is not None:
            on_token(np.asarray(token))
        if stop and bool(jnp.all(ended)):
            break
        chunk, real = jnp.maximum(token, 0)[:, None], None
    written, logprobs = (jnp.stack(x, axis=1) for x in zip(*found, strict=True))
    missing = [(0, 0), (0, max_new - len(found))]
    counts = jnp.sum(written >= 0, axis=1, dtype=jnp.int32)
    return Generated(jnp.pad(written, missing, constant_values=-1), jnp.pad(logprobs, missing), counts)


@functools.partial(jax.jit, static_argnames=("graph", "rule", "stop"), donate_argnames=("caches",))
def _step(
    graph: Any, state: Any, chunk: Any, lengths: Any, caches: Any, key: Any, ended: Any, rule: Rule,
    stop: tuple[int, ...],
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """(next token, its log-probability, rows that have ended, caches) after a chunk; one program per chunk length."""
    model = nnx.merge(graph, state)
    segments = None if lengths is None else Segments.from_lengths(q=lengths)
    x, _, caches = model.run_layers(
        model.embedding(chunk), (None, segments), None, caches, Options(False, "auto", False)
    )
    last = x[:, -1:] if lengths is None else jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)
    token, logprob = pick(model.logits(last)[:, 0], rule, key)
    token, logprob = jnp.where(ended, jnp.int32(-1), token), jnp.where(ended, jnp.zeros_like(logprob), logprob)
    for one in stop:
        ended = ended | (token == one)
    return token, logprob, ended, caches


def read_prompts(prompts: Any, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens int32 [B, T] padded right with 0, lengths int32 [B]).

    Raises:
        TypeError: if ids are not integers.
        ValueError: if there is no prompt, one is empty or no sequence, or an id is not in the vocabulary.
    """
    if not isinstance(prompts, Iterable):
        raise TypeError(f"prompts={prompts!r} must be one sequence of token ids for each row")
    rows = [_array(f"prompts[{i}]", row) for i, row in enumerate(prompts)]
    if not rows:
        raise ValueError("prompts is empty: give one sequence of token ids for each row")
    for i, row in enumerate(rows):
        if row.ndim != 1:
            way_out = "; a single prompt is [prompt]" if row.ndim == 0 else ""
            raise ValueError(f"prompts[{i}] has shape {row.shape}; each is one sequence of token ids{way_out}")
        if not row.size:
            raise ValueError(f"prompts[{i}] is empty: there must be a token to go on from")
        _check_ids(f"prompts[{i}]", row, vocab_size)
    lengths = np.array([row.size for row in rows], np.int32)
    tokens = np.zeros((len(rows), _padded(int(lengths.max()))), np.int32)
    for row, ids in zip(tokens, rows, strict=True):
        row[: ids.size] = ids
    return tokens, lengths


def read_stop(stop: Any, vocab_size: int) -> tuple[int, ...]:
    """The ids that end a row."""
    ids = np.atleast_1d(_array("stop", [] if stop is None else stop))
    if ids.ndim > 1:
        raise ValueError(f"stop has shape {ids.shape}; it is one token id or a flat list of them, each ending a row")
    if ids.size:
        _check_ids("stop", ids, vocab_size)
    return tuple(sorted({int(one) for one in ids}))


def _array(name: str, ids: Any) -> np.ndarray:
    try:
        return np.asarray(ids)
    except ValueError:
        raise ValueError(f"{name}={ids!r} is nested; it is a flat sequence of token ids") from None


def _check_ids(name: str, ids: np.ndarray, vocab_size: int) -> None:
    if not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"{name} has dtype {ids.dtype}; token ids are integers")
    for one in (ids.min(), ids.max()):
        if not 0 <= one < vocab_size:
            raise ValueError(
                f"{name}: token {one} is not in the vocabulary: ids are 0 to vocab_size - 1 = {vocab_size - 1}"
            )


def _padded(length: int) -> int:
    return -(-length // BLOCK) * BLOCK
