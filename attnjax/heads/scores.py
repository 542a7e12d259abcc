"""The scores of heads, each a pure function on their weights."""

import typing

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from attnjax.heads import rules
from attnjax.heads.door import beside, check_ids, check_period, enter, mean, score
from attnjax.heads.rules import At
from attnjax.scores import number
from attnjax.shapes import check_float, shown


@typing.no_type_check
def previous_token(weights: Float[Array, "*B T S"], *, q_offset: int | None = None) -> Float[Array, "*B"]:
    """Mean weight that a query gives the token right before it. Clark et al. 2019, "What Does BERT Look At?".

    Args:
        weights: [.., T, S], row i of a head is what its query i gives each key. Rows sum to at most 1: the missing
            share is a learned sink's. NumPy arrays in give NumPy arrays out.
        q_offset: where query row 0 stands among the keys, for a block of rows; None means 0 and needs T == S.

    Returns:
        One number in [0, 1] for each head, over all queries but that of the first token.

    Raises:
        TypeError: if `weights` are not floating.
        ValueError: if they are not [.., T, S], rows are no weights, or no query counts.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> float(heads.previous_token(np.eye(5, k=-1)))
        1.0
    """
    return score("previous_token", *enter(weights, q_offset))


@typing.no_type_check
def induction(weights: Float[Array, "*B T S"], period: int, *, q_offset: int | None = None) -> Float[Array, "*B"]:
    """Mean weight on the token that followed the same token one round ago, where the last `period` keys repeat the
    `period` before. Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

    Args:
        weights: as in `previous_token`, on a sequence whose end is two copies of one round.
        period: length of the round. A beginning-of-text token before both copies changes nothing.
        q_offset: as in `previous_token`.

    Returns:
        One number in [0, 1] for each head, over the queries of the last copy.

    Raises:
        TypeError: if `weights` are not floating or `period` no int.
        ValueError: if there are fewer than 2 * period keys, or as in `previous_token`.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> float(heads.induction(np.eye(8, k=-3), 4))       # a b c d a b c d
        1.0
    """
    weights, at = enter(weights, q_offset)
    return score("induction", weights, at._replace(period=check_period(period, weights.shape[-1])))


@typing.no_type_check
def duplicate_token(
    weights: Float[Array, "*B T S"], tokens: Int[Array, "*b S"], *, q_offset: int | None = None
) -> Float[Array, "*B"]:
    """Mean weight on earlier places of the query's own token. Wang et al. 2022, "Interpretability in the Wild".

    Args:
        weights: as in `previous_token`.
        tokens: [S], or [b, S] for weights [b, .., T, S].
        q_offset: as in `previous_token`.

    Returns:
        One number in [0, 1] for each head, over the queries whose token stood before.

    Raises:
        TypeError: if `weights` are not floating or `tokens` not ints.
        ValueError: if shapes do not fit, no token of a sequence repeats, or as in `previous_token`.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> float(heads.duplicate_token(np.eye(6, k=-3), np.array([7, 8, 9, 7, 8, 9])))
        1.0
    """
    return score("duplicate_token", *enter(weights, q_offset, tokens))


@typing.no_type_check
def prefix_matching(
    weights: Float[Array, "*B T S"], tokens: Int[Array, "*b S"], *, q_offset: int | None = None
) -> Float[Array, "*B"]:
    """Mean weight on all tokens that followed earlier places of the query's own token. Olsson et al. 2022,
    "In-context Learning and Induction Heads", whose sequences are 25 random tokens said four times.

    Args:
        weights, tokens, q_offset: as in `duplicate_token`.

    Returns:
        One number in [0, 1] for each head, over the queries whose token stood before.

    Raises:
        TypeError, ValueError: as `duplicate_token`.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> float(heads.prefix_matching(np.eye(6, k=-2), np.array([7, 8, 9, 7, 8, 9])))
        1.0
    """
    return score("prefix_matching", *enter(weights, q_offset, tokens))


@typing.no_type_check
def copying(logits: Float[Array, "*B S V"], tokens: Int[Array, "*b S"]) -> Float[Array, "*B"]:
    """Whether a head raises the logit of a token that it looks at. Olsson et al. 2022, "In-context Learning and
    Induction Heads", taken with all of the weight on one token at a time: a head that rests on random tokens still
    shows what it would write.

    The logits less their mean over the vocabulary, where above 0, are what is raised. The share of the token that is
    looked at among the different tokens of the sequence goes from 0 to 1 and is scaled to [-1, 1].

    Args:
        logits: [.., S, V], row j is what the head adds to the logits where it looks at token j alone: the value of j
            through the head's rows of the output projection and through the unembedding.
        tokens: [S], or [b, S] for logits [b, .., S, V].

    Returns:
        One number in [-1, 1] for each head, over all S tokens. Even logits give 2 / (different tokens) - 1.

    Raises:
        TypeError: if `logits` are not floating or `tokens` not ints.
        ValueError: if shapes do not fit, or a token is none of the V.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> tokens = np.array([2, 0, 1])
        >>> float(heads.copying(np.eye(4)[tokens], tokens)), float(heads.copying(-np.eye(4)[tokens], tokens))
        (1.0, -1.0)
    """
    check_float(logits=logits)
    if logits.ndim < 2 or min(logits.shape) == 0:
        raise ValueError(f"{shown(logits=logits)} must be [.., S, V]: a row of logits for each token, none empty")
    S, V = logits.shape[-2:]
    xp, got = rules.xp_of(logits), shown(tokens=check_ids(tokens), logits=logits)
    ids = beside(tokens, logits.shape[:-2], S, "logits [b, .., S, V]", got)
    if not isinstance(tokens, Tracer) and not (0 <= np.min(tokens) and np.max(tokens) < V):
        raise ValueError(f"tokens are {np.min(tokens)} to {np.max(tokens)}, but logits have V={V} tokens, 0 to {V - 1}")
    logits = xp.asarray(logits)
    above = xp.maximum(logits - xp.mean(logits, axis=-1, keepdims=True), xp.zeros_like(logits))
    index = xp.broadcast_to(ids[..., None, :], (*logits.shape[:-1], S))
    row = xp.arange(S, dtype=np.int32)
    terms = rules.copying(xp.take_along_axis(above, index, axis=-1), At(row, row, ids))
    return mean(terms, "")


@typing.no_type_check
def first_token(weights: Float[Array, "*B T S"], *, q_offset: int | None = None) -> Float[Array, "*B"]:
    """Mean weight that a query gives the first token: the head rests there. Xiao et al. 2023, "Efficient Streaming
    Language Models with Attention Sinks".

    Args:
        weights, q_offset: as in `previous_token`.

    Returns:
        One number in [0, 1] for each head, over all queries but that of the first token.

    Raises:
        TypeError, ValueError: as `previous_token`.

    Example:
        >>> import attnjax as aj, numpy as np
        >>> from attnjax import heads
        >>> even = aj.Causal().mask(4) / np.arange(1, 5)[:, None]
        >>> round(float(heads.first_token(even)), 3)          # (1/2 + 1/3 + 1/4) / 3
        0.361
    """
    return score("first_token", *enter(weights, q_offset))


@typing.no_type_check
def sink_rate(
    weights: Float[Array, "*B T S"], threshold: float = 0.3, *, q_offset: int | None = None
) -> Float[Array, ""]:
    """Share of heads, over sequences and layers, that give the first token more than `threshold` of their weight.

    Gu et al. 2024, "When Attention Sink Emerges in Language Models"; the mean weight of a head counts every query,
    also the first token's own.

    Args:
        weights, q_offset: as in `previous_token`.
        threshold: a number in [0, 1).

    Returns:
        One number in [0, 1] for all leading axes together.

    Raises:
        TypeError: if `weights` are not floating or `threshold` no number.
        ValueError: if `threshold` is outside [0, 1), or as in `previous_token`.

    Example:
        >>> import attnjax as aj, numpy as np
        >>> from attnjax import heads
        >>> resting, even = np.eye(4)[[0] * 4], aj.Causal().mask(16) / np.arange(1, 17)[:, None]
        >>> float(heads.sink_rate(resting)), float(heads.sink_rate(even))
        (1.0, 0.0)
    """
    threshold = number("threshold", threshold, "a share of the weight")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold={threshold} must be in [0, 1): it is a share of a head's weight")
    weights, at = enter(weights, q_offset)
    share = score("sink", weights, at)
    return rules.xp_of(weights).mean((share > threshold).astype(share.dtype))


@typing.no_type_check
def entropy(
    weights: Float[Array, "*B T S"], *, normalized: bool = False, q_offset: int | None = None
) -> Float[Array, "*B"]:
    """Mean entropy of a query's weights, -sum w log w in nats: 0 looks at one key, log n at n keys evenly. Clark et
    al. 2019, "What Does BERT Look At?".

    Args:
        weights, q_offset: as in `previous_token`. The share of a learned sink adds nothing: it is no key.
        normalized: divide each query's by log(i + 1), the most that query i could have, and leave query 0 out. Rows
            of different length then compare.

    Returns:
        One number for each head.

    Raises:
        TypeError, ValueError: as `previous_token`.

    Example:
        >>> import attnjax as aj, numpy as np
        >>> from attnjax import heads
        >>> even = aj.Causal().mask(4) / np.arange(1, 5)[:, None]
        >>> round(float(heads.entropy(even)), 3), round(float(heads.entropy(even, normalized=True)), 3)
        (0.795, 1.0)
    """
    return score("normalized_entropy" if normalized else "entropy", *enter(weights, q_offset))


@typing.no_type_check
def mean_distance(weights: Float[Array, "*B T S"], *, q_offset: int | None = None) -> Float[Array, "*B"]:
    """How far away the keys are that a head looks at, in tokens, weighted by its weights. Vig and Belinkov 2019,
    "Analyzing the Structure of Attention in a Transformer Language Model".

    Args:
        weights, q_offset: as in `previous_token`. The share of a learned sink has no distance and is left out.

    Returns:
        One number for each head.

    Raises:
        TypeError, ValueError: as `previous_token`.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> float(heads.mean_distance(np.eye(6, k=-2)))
        2.0
    """
    return score("mean_distance", *enter(weights, q_offset))


@typing.no_type_check
def learned_sink(weights: Float[Array, "*B T S"], *, q_offset: int | None = None) -> Float[Array, "*B"]:
    """Mean share of a query's weight that goes to no key but to a learned sink, as in gpt-oss (OpenAI 2025).

    Args:
        weights, q_offset: as in `previous_token`.

    Returns:
        One number in [0, 1] for each head; 0 where nothing is learned as a sink.

    Raises:
        TypeError, ValueError: as `previous_token`.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> float(heads.learned_sink(0.25 * np.eye(3)))
        0.75
    """
    return score("learned_sink", *enter(weights, q_offset))
