"""The scores of heads, each a pure function on their weights."""

import typing

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from attnjax.heads import rules
from attnjax.heads.door import check_period, enter, mean, score
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
def copying(
    weights: Float[Array, "*B T S"],
    logits: Float[Array, "*B T V"],
    tokens: Int[Array, "*b S"],
    *,
    q_offset: int | None = None,
) -> Float[Array, "*B"]:
    """Whether a head raises the logits of the tokens that it looks at. Olsson et al. 2022, "In-context Learning and
    Induction Heads".

    At each query, the head's own logits less their mean over the vocabulary, where above 0, are what it raises. Of
    what it raises among the tokens of the sequence, the share on the tokens it looks at (by its weights) goes from
    0 to 1 and is scaled to [-1, 1].

    Args:
        weights, tokens, q_offset: as in `duplicate_token`.
        logits: what the head alone adds to the logits at each query, [.., T, V]: its output through its rows of the
            output projection and through the unembedding.

    Returns:
        One number in [-1, 1] for each head, over the queries at which it raises any token of the sequence.

    Raises:
        TypeError: if `weights` or `logits` are not floating or `tokens` not ints.
        ValueError: if shapes do not fit, a token is none of the V, nothing is raised, or as in `previous_token`.

    Example:
        >>> import numpy as np
        >>> from attnjax import heads
        >>> tokens, looks_back = np.array([2, 0, 1]), np.eye(3, k=-1)
        >>> float(heads.copying(looks_back[1:], np.eye(3)[tokens[:2]], tokens, q_offset=1))   # it says what it sees
        1.0
    """
    weights, at = enter(weights, q_offset, tokens)
    check_float(logits=logits)
    if logits.ndim != weights.ndim or logits.shape[:-1] != weights.shape[:-1]:
        got = shown(weights=weights, logits=logits)
        raise ValueError(f"logits must be [.., T, V] beside weights [.., T, S]; got {got}")
    xp = rules.xp_of(weights, logits)
    weights, logits, V = xp.asarray(weights), xp.asarray(logits), logits.shape[-1]
    if not isinstance(tokens, Tracer) and not (0 <= np.min(tokens) and np.max(tokens) < V):
        raise ValueError(f"tokens are {np.min(tokens)} to {np.max(tokens)}, but logits have V={V} tokens, 0 to {V - 1}")
    raised = xp.maximum(logits - xp.mean(logits, axis=-1, keepdims=True), xp.zeros((1,) * logits.ndim, logits.dtype))
    index = xp.broadcast_to(at.tokens[..., None, :], (*logits.shape[:-1], at.tokens.shape[-1]))
    terms = rules.copying(weights, at, xp.take_along_axis(raised, index, axis=-1))
    return mean(terms, "the head raises no token of the sequence at any query")


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
