"""Attention in float64 NumPy, row by row, with its gradients: what every backend is measured against.

Hidden pairs are left out of the softmax (not shifted by a large number). Imports nothing of the package.
"""

from typing import NamedTuple

import numpy as np


class Truth(NamedTuple):
    """Results of one call and, for cotangents (d_o, d_lse), the gradients."""

    o: np.ndarray
    lse: np.ndarray
    d_q: np.ndarray
    d_k: np.ndarray
    d_v: np.ndarray
    d_bias: np.ndarray | None
    d_sink: np.ndarray | None
    d_slope: np.ndarray | None


def attention(
    q, k, v, seen, *, scale, soft_cap=None, bias=None, sink_logits=None, slopes=None, distance=None, dropout=None,
    d_o=None, d_lse=None, dtype=np.float64, store=None,
):  # fmt: skip
    """q [B, T, N, H], k [B, S, K, H], v [B, S, K, h], seen broadcastable to [B, N, T, S] -> Truth.

    `slopes` [N] times `distance` [B, T, S] is added to the scores (ALiBi); `dropout` [B, N, T, S] are factors
    on the weights. With `dtype` float32 this is an honest low-precision computation of the same thing; `store` is the dtype
    in which results are kept (the backward then reads the output that was kept).
    """
    store = dtype if store is None else store
    scale = dtype(scale)
    q, k, v = (np.asarray(x, dtype) for x in (q, k, v))
    (B, T, N), (S, K, h) = q.shape[:3], (k.shape[1], k.shape[2], v.shape[3])
    seen = np.broadcast_to(np.asarray(seen), (B, N, T, S))
    full_bias = None if bias is None else np.broadcast_to(np.asarray(bias, dtype), (B, N, T, S))
    d_o = np.zeros((B, T, N, h), dtype) if d_o is None else np.asarray(d_o, dtype)
    d_lse = np.zeros((B, T, N), dtype) if d_lse is None else np.asarray(d_lse, dtype)
    o, lse = np.zeros((B, T, N, h), dtype), np.full((B, T, N), -np.inf, dtype)
    d_q, d_k, d_v, d_s = (np.zeros(shape, dtype) for shape in (q.shape, k.shape, v.shape, (B, N, T, S)))
    d_sink = None if sink_logits is None else np.zeros(N, dtype)
    d_slope = None if slopes is None else np.zeros(N, dtype)
    for b in range(B):
        for n in range(N):
            m = n // (N // K)
            for t in range(T):
                cols = np.flatnonzero(seen[b, n, t])
                if full_bias is not None:
                    cols = cols[~np.isneginf(full_bias[b, n, t, cols])]
                sink = [] if sink_logits is None else [dtype(sink_logits[n])]
                if not len(cols) and not sink:
                    continue
                keys, values = k[b, cols, m], v[b, cols, m]
                x = keys @ q[b, t, n] * scale
                capped = x if soft_cap is None else soft_cap * np.tanh(x / soft_cap)
                s = capped if full_bias is None else capped + full_bias[b, n, t, cols]
                if slopes is not None:
                    s = s + dtype(slopes[n]) * distance[b, t, cols].astype(dtype)
                every = np.concatenate([s, np.asarray(sink, dtype)])
                top = every.max()
                total = np.exp(every - top).sum()
                p = np.exp(s - top) / total
                kept = np.ones(len(cols), dtype) if dropout is None else dropout[b, n, t, cols].astype(dtype)
                o[b, t, n], lse[b, t, n] = (p * kept @ values).astype(store), top + np.log(total)
                ds = p * (kept * (values @ d_o[b, t, n]) - o[b, t, n] @ d_o[b, t, n] + d_lse[b, t, n])
                if slopes is not None:
                    d_slope[n] += ds @ distance[b, t, cols].astype(dtype)
                if sink:
                    share = np.exp(sink[0] - lse[b, t, n])
                    d_sink[n] += share * (d_lse[b, t, n] - o[b, t, n] @ d_o[b, t, n])
                d_s[b, n, t, cols] = ds
                dx = ds * scale * (1 if soft_cap is None else 1 - np.tanh(x / soft_cap) ** 2)
                d_q[b, t, n] += dx @ keys
                d_k[b, cols, m] += np.outer(dx, q[b, t, n])
                d_v[b, cols, m] += np.outer(p * kept, d_o[b, t, n])
    d_bias = None if bias is None else _sum_to(d_s, np.shape(bias))
    found = Truth(o, lse, d_q, d_k, d_v, d_bias, d_sink, d_slope)
    return found if store == dtype else Truth(*(x if x is None or x is lse else x.astype(store) for x in found))


def _sum_to(x, shape):
    """x summed over the axes along which an array of `shape` was broadcast."""
    padded = (1,) * (x.ndim - len(shape)) + tuple(shape)
    axes = tuple(a for a in range(x.ndim) if padded[a] == 1 and x.shape[a] != 1)
    return x.sum(axis=axes, keepdims=True).reshape(shape)


def kept(rate, words, b, n, i, j):
    """Whether dropout keeps scores: the hash of (key, b, n, i, j), whose positions are integers or broadcast."""
    full, h = 0xFFFFFFFF, words[0]
    for word in (words[1], b, n, i, j):
        h = h ^ word * 0x9E3779B1 & full
        h = (h ^ h >> 16) * 0x85EBCA6B & full
        h = (h ^ h >> 13) * 0xC2B2AE35 & full
        h = h ^ h >> 16
    return h >= round(rate * 2**32)
