"""One attention head, one line of the formula at a time, and the same numbers from `aj.attend`.

softmax(Q K^T / sqrt(d) + M) V on four tokens with four numbers each: small enough to check any number by hand.
"""

import jax.numpy as jnp
import numpy as np

import attnjax as aj
from attnjax.show import CHAPTER as chapter

PATTERN = aj.Causal()


def table(name, array, tokens):
    """One matrix with its rows named."""
    print(name)
    for token, row in zip(tokens, np.asarray(array), strict=True):
        print(f"  {token.strip():<5}" + " ".join(f"{value:6.2f}" for value in row))


def main():
    x = jnp.asarray(chapter.x, jnp.float32)
    wq, wk, wv = (jnp.asarray(w, jnp.float32) for w in (chapter.wq, chapter.wk, chapter.wv))
    T = len(chapter.tokens)

    # Each token asks (q), answers to a question (k), and has something to hand over (v).
    q, k, v = (jnp.einsum("td,dh->th", x, w)[None, :, None] for w in (wq, wk, wv))  # [B, T, N, H] with B = N = 1
    table("X, the token vectors", x, chapter.tokens)
    table("Q, what each token looks for", q[0, :, 0], chapter.tokens)

    # How well does query i match key j? Divided by sqrt(4), as d = 4.
    scores = aj.scores(q, k)
    table("scores = Q K^T / sqrt(d)", scores[0, 0], chapter.tokens)
    by_hand = float(jnp.dot(q[0, 2, 0], k[0, 1, 0])) / 4**0.5
    print(f"  sat -> cat by hand: {by_hand:.2f}")
    assert abs(by_hand - float(scores[0, 0, 2, 1])) < 1e-6

    # The mask M is 0 where a token may look and -inf in its future; softmax turns each row into shares of 1.
    seen = aj.visible(PATTERN, T)
    table("M, the causal mask", aj.additive_mask(seen)[0, 0], chapter.tokens)
    weights = aj.weights(scores, seen)
    table("weights = softmax(scores + M)", weights[0, 0], chapter.tokens)
    assert np.allclose(weights.sum(-1), 1) and float(weights[0, 0, 0, 1]) == 0

    # Each token's new vector is a blend of the values that it looked at.
    out = aj.blend(weights, v)
    table("output = weights V", out[0, :, 0], chapter.tokens)

    # The same in one call, and every intermediate of it in one record.
    assert np.allclose(out, aj.attend(q, k, v, PATTERN), atol=1e-6)
    steps = aj.trace(x, wq, wk, wv, pattern=PATTERN)
    assert np.allclose(steps.out, out[0, :, 0], atol=1e-6)
    print("aj.attend gives the same output; aj.trace keeps", ", ".join(steps._fields))


if __name__ == "__main__":
    main()
