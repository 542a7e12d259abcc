"""The shared table: calls that every backend must get right, in every way that a user can make them."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

import attnjax as aj

door = sys.modules["attnjax.attend"]  # `aj.attend` is the function; its module holds the steps


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

    @property
    def name(self):
        default = Row(self.pattern)
        extra = [f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self)[1:]
                 if getattr(self, f.name) != getattr(default, f.name)]  # fmt: skip
        return " ".join([str(self.pattern).replace(" ", ""), *extra])

    @property
    def seen(self):
        """Visible pairs [B|1, N|1, T, S] by the pattern alone, as NumPy."""
        m = self.pattern.mask(self.T, self.S or self.T, self.q_offset)
        return m[None] if m.ndim == 3 else m[None, None]


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
)
PATHS = {"dense": ("dense", None), "tiled 8x4": ("tiled", (8, 4)), "tiled": ("tiled", None)}


def letters(text, row):
    sizes = {"B": row.B, "N": row.N, "T": row.T, "S": row.S or row.T}
    return tuple(sizes[c] if c in text else 1 for c in "BNTS")


def arrays(row, seed=0):
    """q, k, v, bias, mask (None where absent) and cotangents of output and log-sum-exp, as NumPy."""
    r = np.random.default_rng(seed)
    S = row.S or row.T
    dtype = jnp.dtype(row.dtype)
    draw = lambda shape: r.standard_normal(shape).astype(dtype)  # noqa: E731  # a local shorthand
    q, k, v = draw((row.B, row.T, row.N, row.H)), draw((row.B, S, row.K, row.H)), draw((row.B, S, row.K, row.h))
    bias = mask = None
    if row.bias is not None:
        bias = draw(letters(row.bias, row))
        bias[r.random(bias.shape) < 0.15] = -np.inf
    if row.mask is not None:
        mask = r.random(letters(row.mask, row)) < 0.7
    lse_dtype = np.float64 if row.dtype == "float64" else np.float32
    return q, k, v, bias, mask, draw((row.B, row.T, row.N, row.h)), r.standard_normal((row.B, row.T, row.N)).astype(lse_dtype)


def caller(row, path):
    """f(q, k, v, bias, mask) -> (output, log-sum-exp) on one backend, with the tile sizes of the path."""
    backend, tile = PATHS[path]

    def call(q, k, v, bias=None, mask=None):
        found, dims = door._call(q, k, v, row.pattern, row.q_offset, row.scale, row.soft_cap, bias, mask, None)
        options = dataclasses.replace(found.options, tile=tile)
        assert door.choose(found, backend)[0] == backend
        return door._attend(found.q, found.k, found.v, found.bias, found.mask, options, backend)

    return call


def value_and_gradients(f, q, k, v, bias, mask, d_o, d_lse):
    """(o, lse, *gradients of q, k, v and of bias if there is one); the lse of an empty row has no gradient."""
    inputs = (q, k, v) if bias is None else (q, k, v, bias)

    def run(*inputs):
        return f(*inputs[:3], inputs[3] if len(inputs) > 3 else None, mask)

    (o, lse), pull = jax.vjp(run, *inputs)
    return o, lse, *pull((d_o, jnp.where(jnp.isneginf(lse), jnp.zeros_like(d_lse), d_lse)))
