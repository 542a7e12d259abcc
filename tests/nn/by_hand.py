"""Layers and the decoder in NumPy, written out from their formulas; imports nothing of the package.

`dtype` is float64 for the truth and float32 for an honest low-precision computation of the same thing.
"""

import numpy as np

from tests.support import oracle


def parameters(module, dtype=np.float64):
    """{'path.to.kernel': array} of a module's parameters."""
    from flax import nnx

    flat = nnx.to_flat_state(nnx.state(module, nnx.Param))
    return {".".join(map(str, path)): np.asarray(leaf[...]).astype(dtype) for path, leaf in flat}


def rotate(x, positions, theta=10000.0, layout="half", R=None, dtype=np.float64):
    """rope, one pair of channels at a time. `positions` broadcasts to x's axes without the last."""
    R = x.shape[-1] if R is None else R
    out = np.array(x, dtype)
    for i in range(R // 2):
        a, b = (i, i + R // 2) if layout == "half" else (2 * i, 2 * i + 1)
        angle = np.asarray(positions, dtype) * dtype(theta ** (-2 * i / R))
        xa, xb = x[..., a].astype(dtype), x[..., b].astype(dtype)
        out[..., a] = xa * np.cos(angle) - xb * np.sin(angle)
        out[..., b] = xa * np.sin(angle) + xb * np.cos(angle)
    return out


def dropout(rate, key, shape, shared=False):
    """Factors on the weights [B, N, T, S], from the hash of key and position in Python integers."""
    import jax

    words = [int(word) for word in np.asarray(jax.random.key_data(key))]
    found = np.zeros(shape)
    for b, n, i, j in np.ndindex(shape):
        found[b, n, i, j] = oracle.kept(rate, words, *((0, 0) if shared else (b, n)), i, j) / (1 - rate)
    return found


def rms_norm(x, scale, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.asarray(eps, x.dtype)) * scale


def swiglu(x, p, at):
    gate = x @ p[f"{at}gate.kernel"]
    return (gate / (1 + np.exp(-gate)) * (x @ p[f"{at}up.kernel"])) @ p[f"{at}down.kernel"]


def attention(
    x, p, seen, *, N, K, kv=None, at="", positions=None, kv_positions=None, theta=None, soft_cap=None, bias=None, dropout=None,
):  # fmt: skip
    """One attention layer, query by query: (y [B, T, D], weights [B, N, T, S]). `seen` is [T, S] or [B, N, T, S];
    `bias` [N, T, S] is added to the scores; `dropout` [B, N, T, S] are factors on the weights; a parameter `sinks` [N] joins the softmax without a value."""
    kv, dtype = (x if kv is None else kv), x.dtype.type

    def project(name, source, heads):
        y = source @ p[f"{at}{name}.kernel"] + p.get(f"{at}{name}.bias", dtype(0))
        y = y.reshape(*source.shape[:2], heads, -1)
        scale = p.get(f"{at}{name}_norm.scale")
        return y if scale is None else rms_norm(y, scale)

    q, k, v = project("query", x, N), project("key", kv, K), project("value", kv, K)
    (B, T, _, H), S = q.shape, k.shape[1]
    if theta is not None:
        positions = np.arange(T) if positions is None else positions
        kv_positions = positions if kv is x else np.arange(S) if kv_positions is None else kv_positions
        q, k = (
            rotate(side, np.broadcast_to(where, side.shape[:2])[:, :, None], theta, dtype=dtype)
            for side, where in ((q, positions), (k, kv_positions))
        )
    o, weights = np.zeros((B, T, N, H), dtype), np.zeros((B, N, T, S), dtype)
    seen = np.broadcast_to(seen, weights.shape)
    for b, n, t in np.ndindex(B, N, T):
        cols = np.flatnonzero(seen[b, n, t])
        if len(cols):
            s = k[b, cols, n // (N // K)] @ q[b, t, n] / dtype(np.sqrt(H))
            s = s if soft_cap is None else dtype(soft_cap) * np.tanh(s / dtype(soft_cap))
            s = s if bias is None else s + bias[n, t, cols]
            sink = p[f"{at}sinks"][n] if f"{at}sinks" in p else dtype(-np.inf)
            e = np.exp(s - max(s.max(), sink))
            weights[b, n, t, cols] = e / (e.sum() + np.exp(sink - max(s.max(), sink)))
            weights[b, n, t, cols] *= 1 if dropout is None else dropout[b, n, t, cols].astype(dtype)
            o[b, t, n] = weights[b, n, t, cols] @ v[b, cols, n // (N // K)]
    return o.reshape(B, T, N * H) @ p[f"{at}out.kernel"] + p.get(f"{at}out.bias", dtype(0)), weights


def decoder(tokens, p, seen, *, N, K, theta, positions=None, dropout=None):
    """Logits of a decoder with unrolled layers; `seen`, `theta` and `dropout` hold one entry per layer."""
    x = p["embedding.table"][tokens]
    for i, (mask, base) in enumerate(zip(seen, theta, strict=True)):
        at = f"rest.{i}."
        h = rms_norm(x, p[f"{at}attention_norm.scale"])
        kept = None if dropout is None else dropout[i]
        options = dict(at=f"{at}attention.", theta=base, positions=positions, dropout=kept)
        x = x + attention(h, p, mask, N=N, K=K, **options)[0]
        x = x + swiglu(rms_norm(x, p[f"{at}mlp_norm.scale"]), p, f"{at}mlp.")
    head = p["head.kernel"] if "head.kernel" in p else p["embedding.table"].T
    return rms_norm(x, p["norm.scale"]) @ head
