"""The shared table: calls that every backend must get right, in every way that a user can make them."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import attnjax as aj
from attnjax.attend import run
from attnjax.backends import choose
from attnjax.backends.base import default_target
from attnjax.door import bind
from tests.support import oracle


def even_keys(q, k):
    return k % 2 == 0


@dataclasses.dataclass(frozen=True)
class Row:
    """One call. `bias` and `mask` are shapes over [B, N, T, S] letters, a letter left out being 1."""

    pattern: object
    B: int = 2
    T: int = 21
    S: int | None = None
    N: int = 4
    K: int = 2
    H: int = 8
    h: int = 8
    q_offset: int | None = None
    scale: float | None = None
    soft_cap: float | None = None
    bias: str | None = None
    mask: str | None = None
    dtype: str = "float32"
    sinks: bool = False
    segments: str | None = None  # "packed", "restart", "lengths", "cross"
    alibi: bool = False
    rate: float = 0.0
    traced: tuple[int, ...] | None = None  # q_offset as an array: one number, or one for each sequence

    @property
    def name(self):
        default = Row(self.pattern)
        extra = [f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self)[1:]
                 if getattr(self, f.name) != getattr(default, f.name)]  # fmt: skip
        return " ".join([str(self.pattern).replace(" ", ""), *extra])

    @property
    def keys(self):
        return self.T if self.S is None else self.S

    def ids(self, seed=0):
        """Segment ids (q [B, T], k [B, S]) as NumPy: two documents and padding, or one document, turn by turn."""
        T, S = self.T, self.keys
        if self.segments == "returning":
            kinds = [[0] * 7 + [1] * 7 + [0] * (T - 14), [3] * T]
        else:
            kinds = [np.where(np.arange(T) < T - T // 8, np.arange(T) * 3 // T, -1), [7] * T]
        turns = [(b + seed) % 2 for b in range(self.B)]
        q = np.array([kinds[turn] for turn in turns])
        if self.segments == "lengths":
            k = np.where(np.arange(S) < np.array([[S // 2], [S]])[turns], 0, -1)
            return np.zeros((self.B, T), int), k
        if not self.own_keys:  # keys of their own: each document has some, in another order
            kinds = [1 - np.arange(S) * 2 // S, [7] * (S - 1) + [-1]]
            return q, np.array([kinds[turn] for turn in turns])
        return q, q

    @property
    def own_keys(self):
        return self.T == self.keys and self.segments != "cross"

    def places(self, seed=0):
        """Positions for the pattern, (q [B, T], k [B, S]), written out row by row."""
        q, k = np.zeros((self.B, self.T), int), np.tile(np.arange(self.keys), (self.B, 1))
        for b in range(self.B):
            offset = self.traced[b % len(self.traced)] + seed if self.traced else self.q_offset or 0
            q[b] = np.arange(self.T) + offset
        if self.segments in RESTART:
            for x, ids in zip((q, k), self.ids(seed), strict=True):
                for b in range(self.B):
                    start = 0
                    for t in range(x.shape[1]):
                        start = t if t and ids[b, t] != ids[b, t - 1] else start
                        x[b, t] = t - start
        return q, k

    @property
    def seen(self):
        return self.seen_at(0)

    def seen_at(self, seed):
        """Visible pairs [B, N|1, T, S] by pattern and segments, as NumPy."""
        q, k = self.places(seed)
        patterns = self.pattern.patterns if isinstance(self.pattern, aj.PerHead) else (self.pattern,)
        shape = (self.B, self.T, self.keys)
        seen = np.stack([np.broadcast_to(p.allows(q[:, :, None], k[:, None, :]), shape) for p in patterns], 1)
        if self.segments:
            ids = self.ids(seed)
            if self.segments in RESTART and self.own_keys:  # a run is a document of its own
                ids = [np.where(x < 0, -1, np.cumsum(np.diff(x, axis=1, prepend=x[:, :1]) != 0, axis=1)) for x in ids]
            seen = seen & ((ids[0][:, :, None] == ids[1][:, None, :]) & (ids[0][:, :, None] >= 0))[:, None]
        return seen


def alibi(s, q_pos, k_pos, head, slopes):
    """Press et al. 2022: a slope for each head times the distance."""
    return s + slopes[head] * (k_pos - q_pos).astype(s.dtype)


W = aj.Window(6)
HEADS = aj.PerHead((aj.Window(3), aj.Causal(), aj.Full(), aj.Sink(2) | aj.Window(2)))
ROWS = (
    Row(aj.Full()),
    Row(aj.Causal()),
    Row(W, soft_cap=2.0),
    Row(W | aj.Sink(2), K=4),
    Row(W | aj.Strided(5), K=1, scale=0.7),
    Row(aj.Chunked(8), h=5),
    Row(aj.Prefix(9), bias="NTS"),
    Row(aj.Band(3, 4), bias="S", soft_cap=3.0),
    Row(aj.Causal() & ~aj.Window(3), mask="BS"),  # its first rows are empty
    Row(aj.Causal() & aj.Where(even_keys), mask="BNTS"),
    Row(W, T=9, S=30, q_offset=21, mask="TS"),
    Row(W, T=9, S=30, q_offset=0, bias="BNTS"),
    Row(aj.Causal(), T=30, S=9, q_offset=-12),  # queries before position 0 see nothing
    Row(aj.Window(4), T=30, S=9, q_offset=0),  # the last queries have no key left
    Row(aj.Causal(), T=1, S=17, q_offset=16, bias="NS"),
    Row(aj.Full(), T=5, S=3, mask="T"),
    Row(~aj.Full()),
    Row(aj.Strided(4), N=3, K=3, B=1, bias="BN"),
    Row(HEADS, K=2),
    Row(HEADS, K=1, mask="NS", bias="T"),
    Row(aj.Causal(), T=8, B=8, N=8, K=8, h=8),  # every axis of one size: a swap cannot hide behind a shape error
    Row(aj.Causal(), T=1, B=1, N=1, K=1),
    Row(W, dtype="bfloat16"),
    Row(aj.Causal(), dtype="bfloat16", bias="NTS", soft_cap=5.0),
    Row(W | aj.Sink(1), dtype="float16"),
    Row(aj.Prefix(5), dtype="float64", mask="BTS", bias="BTS"),
    Row(W | aj.Sink(2), sinks=True),
    Row(aj.Causal() & ~aj.Window(3), sinks=True, soft_cap=2.0, K=1),  # its first rows see the sink logit only
    Row(aj.Causal(), segments="packed"),
    Row(W | aj.Sink(2), segments="restart", sinks=True),
    Row(aj.Chunked(4) | aj.Strided(3), segments="restart", alibi=True),
    Row(aj.Window(4), segments="returning"),
    Row(aj.Full(), segments="lengths", S=13, dtype="float64"),
    Row(aj.Full(), segments="cross", S=12, mask="S"),
    Row(aj.Causal(), alibi=True, bias="NTS", soft_cap=3.0),
    Row(HEADS, alibi=True, K=1, mask="TS"),
    Row(W, rate=0.4),
    Row(aj.Causal(), rate=0.2, sinks=True, q_offset=5, S=26),
    Row(W | aj.Sink(1), traced=(3,), S=26),
    Row(aj.Window(4), traced=(-2, 9), S=26, rate=0.3, alibi=True),
    Row(W, traced=(0,), dtype="float64", sinks=True, alibi=True, segments="packed"),
    Row(W, dtype="bfloat16", sinks=True, rate=0.1, segments="packed"),
)
RESTART = ("restart", "returning")
PATHS = {"dense": ("dense", None), "tiled 8x4": ("tiled", (8, 4)), "tiled": ("tiled", None)}


def letters(text, row):
    sizes = {"B": row.B, "N": row.N, "T": row.T, "S": row.keys}
    return tuple(sizes[c] if c in text else 1 for c in "BNTS")


def key_of(row, seed):
    return jax.random.key(row.T + seed)


def dropout_factors(row, seed=0):
    """[B, N, T, S] by the hash written out by hand; None without dropout."""
    if not row.rate:
        return None
    words, q = [int(w) for w in np.asarray(jax.random.key_data(key_of(row, seed)))], row.places(seed)[0]
    if row.segments in RESTART:
        q = np.tile(np.arange(row.T), (row.B, 1))
    b, n, j = (np.arange(size) for size in (row.B, row.N, row.keys))
    keep = oracle.kept(row.rate, words, b[:, None, None, None], n[:, None, None], q[:, None, :, None], j)
    return np.where(keep, 1 / (1 - row.rate), 0.0)


class Data(NamedTuple):
    """What a row is called with, as NumPy: differentiated inputs, other options, cotangents."""

    inputs: dict
    options: dict
    d_o: np.ndarray
    d_lse: np.ndarray


def data(row, seed=0):
    r = np.random.default_rng(seed)
    S, dtype = row.keys, jnp.dtype(row.dtype)

    def draw(*shape):
        return r.standard_normal(shape).astype(dtype)

    inputs = {"q": draw(row.B, row.T, row.N, row.H), "k": draw(row.B, S, row.K, row.H), "v": draw(row.B, S, row.K, row.h)}
    options = {}
    if row.bias is not None:
        inputs["bias"] = draw(*letters(row.bias, row))
        inputs["bias"][r.random(inputs["bias"].shape) < 0.15] = -np.inf
    if row.mask is not None:
        options["mask"] = r.random(letters(row.mask, row)) < 0.7
    wide = np.float64 if row.dtype == "float64" else np.float32
    if row.sinks:
        inputs["sink_logits"] = draw(row.N)
    if row.alibi:
        inputs["score_params"] = (0.1 * r.standard_normal(row.N)).astype(wide)
        options["score_fn"] = alibi
    if row.segments:
        q, k = row.ids(seed)
        options["segments"] = (
            aj.Segments.from_lengths(k=jnp.asarray((k >= 0).sum(1)))
            if row.segments == "lengths"
            else aj.Segments(jnp.asarray(q), None if row.own_keys else jnp.asarray(k),
                             positions="segment" if row.segments in RESTART else "row")
        )  # fmt: skip
    if row.rate:
        options |= {"dropout_rate": row.rate, "dropout_key": key_of(row, seed)}
    if row.traced:
        options["q_offset"] = jnp.asarray(row.traced if len(row.traced) > 1 else row.traced[0], jnp.int32) + seed
    elif row.q_offset is not None:
        options["q_offset"] = row.q_offset
    return Data(inputs, options, draw(row.B, row.T, row.N, row.h), r.standard_normal((row.B, row.T, row.N)).astype(wide))


def caller(row, path, options=None):
    """f(inputs) -> (output, log-sum-exp) on one backend, with the tile sizes of the path."""
    backend, tile = PATHS[path]
    options = data(row).options if options is None else options

    def call(inputs):
        found, _ = bind(pattern=row.pattern, scale=row.scale, soft_cap=row.soft_cap, **inputs, **options)
        assert choose(found, backend, default_target())[0] == backend
        return run(dataclasses.replace(found, options=dataclasses.replace(found.options, tile=tile)), backend, True)

    return call


def value_and_gradients(f, inputs, d_o, d_lse):
    """{"o", "lse", "d_q", ...}; the lse of an empty row has no gradient."""
    (o, lse), pull = jax.vjp(f, inputs)
    (grads,) = pull((d_o, jnp.where(jnp.isneginf(lse), jnp.zeros_like(d_lse), d_lse)))
    return {"o": o, "lse": lse} | {f"d_{name}": g for name, g in grads.items()}


def on_device(tree):
    """NumPy arrays as JAX arrays."""
    return jax.tree.map(jnp.asarray, tree)
