"""Rows of the backend table made into calls, the ways of making them, and what each way has to give.

The calls go through `attend` alone; truth is the oracle in float64, and where the oracle has no formula (forward
mode, second order) the differences of its results.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import attnjax as aj
from tests.support import oracle, plain
from tests.support.budget import budget
from tests.support.table import Row, data, dropout_factors, even_keys, on_device

# sizes that reach over one tile and beyond its end; letters of the mask and the bias
SHAPES = {
    "odd": (dict(B=1, T=277, N=2, K=2), "NTS"),
    "equal": (dict(B=8, T=8, N=8, K=8, H=8, h=8), "BN"),  # a swap cannot hide behind a shape error
    "one-query": (dict(B=2, T=1, S=17, N=4, K=2, q_offset=16), "NS"),
    "more-queries": (dict(B=1, T=290, S=170, N=2, K=2, q_offset=-60), "BTS"),  # the first see nothing, the last no key
    "fewer-queries": (dict(B=2, T=37, S=150, N=2, K=2, q_offset=113), "S"),
    "grouped": (dict(B=2, T=133, N=4, K=2), "BNTS"),
    "one-key-head": (dict(B=2, T=45, N=3, K=1), "T"),
    "wide-values": (dict(B=1, T=140, N=2, K=2, h=13), "TS"),
}
PATTERNS = {  # of the number of keys, so that each shows and hides something at every length
    "full": lambda S: aj.Full(),
    "causal": lambda S: aj.Causal(),
    "window": lambda S: aj.Window(2 + S // 6),
    "band": lambda S: aj.Band(S // 6, 1 + S // 9),
    "sink": lambda S: aj.Window(2 + S // 8) | aj.Sink(2),
    "strided": lambda S: aj.Window(2 + S // 12) | aj.Strided(3 + S // 9),
    "chunked": lambda S: aj.Chunked(2 + S // 4),
    "prefix": lambda S: aj.Prefix(2 + S // 3),
    "where": lambda S: aj.Causal() & aj.Where(even_keys),
    "gap": lambda S: aj.Causal() & ~aj.Window(2 + S // 5),  # the first rows are empty
}
OPTIONS = {
    "none": {},
    "packed": {"segments": "packed"},
    "restart": {"segments": "restart", "q_offset": None},  # places every row by itself
    "lengths": {"segments": "lengths"},
    "sinks": {"sinks": True},
    "soft-cap": {"soft_cap": 2.0},
    "score-fn": {"alibi": True},
    "dropout": {"rate": 0.3},
}
DIFFERENCE = 1e-4


def row_of(levels):
    """The call that (pattern, dtype, shape, option) name."""
    pattern, dtype, shape, option = levels
    sizes, letters = SHAPES[shape]
    S, offset = sizes.get("S", sizes["T"]), sizes.get("q_offset", 0)
    chosen = PATTERNS[pattern](S)
    more = OPTIONS.get(option)
    if option in ("mask", "bias"):
        more = {option: letters}
    elif option == "traced":  # one offset for each sequence, where there are several
        more = {"traced": tuple(offset + 1 - 2 * b for b in range(sizes["B"]))}
    elif option == "per-head":
        chosen, more = aj.PerHead(tuple((chosen, aj.Window(3))[n % 2] for n in range(sizes["N"]))), {}
    return Row(chosen, **{**sizes, "dtype": dtype, **more})


def attended(row, backend):
    """f(inputs, facts) -> (output, log-sum-exp); facts are the arrays that nothing is differentiated by."""
    static = {n: x for n, x in data(row).options.items() if n not in facts_of(row)}

    def f(inputs, facts):
        return aj.attend(
            pattern=row.pattern, scale=row.scale, soft_cap=row.soft_cap, **inputs, **facts, **static,
            backend=backend, return_lse=True,
        )  # fmt: skip

    return f


def facts_of(row, seed=0):
    return {n: x for n, x in data(row, seed).options.items()
            if n in ("mask", "segments", "dropout_key") or (n == "q_offset" and row.traced)}  # fmt: skip


class Sample(NamedTuple):
    """A row with numbers: `seed` says which, and with which cotangents its gradients are."""

    row: Row
    seed: int
    inputs: dict
    d_o: np.ndarray
    d_lse: np.ndarray

    @property
    def facts(self):
        return on_device(facts_of(self.row, self.seed))

    def formula(self):
        """What the oracle and the plain form take beside the inputs."""
        row, seed = self.row, self.seed
        q_pos, k_pos = row.places(seed)
        return dict(
            seen=row.seen_at(seed) & data(row, seed).options.get("mask", True),
            scale=row.H**-0.5 if row.scale is None else row.scale,
            soft_cap=row.soft_cap,
            distance=k_pos[:, None, :] - q_pos[:, :, None],
            dropout=dropout_factors(row, seed),
        )

    def truth(self, inputs=None, curved=False, **kind):
        """{"o", "lse", "d_q", ...} by the oracle; `curved` pulls back the cotangents through a sine of the results."""
        inputs = dict(self.inputs if inputs is None else inputs)
        if "score_params" in inputs:
            inputs["slopes"] = inputs.pop("score_params")
        run, d_o, d_lse = functools.partial(oracle.attention, **inputs, **self.formula(), **kind), self.d_o, self.d_lse
        if curved:
            o, lse, *_ = run()
            d_o, d_lse = np.cos(o) * d_o, np.cos(np.where(np.isneginf(lse), 0, lse)) * d_lse
        found = run(d_o=d_o, d_lse=d_lse)._asdict()
        names = {"d_sink": "d_sink_logits", "d_slope": "d_score_params"}
        return {names.get(name, name): x for name, x in found.items() if x is not None}

    def along(self):
        """A direction for each input, finite also where a bias is not."""
        drawn = data(self.row, self.seed + 1).inputs
        return {n: np.where(np.isinf(x), np.ones_like(x), x) for n, x in drawn.items()}


def sample(row, seed=0):
    inputs, _, d_o, d_lse = data(row, seed)
    return Sample(row, seed, inputs, d_o, d_lse)


# -- what a call has to give: {name: (exact, largest error allowed)} ------------------------------------------


def limits(s, names):
    """Values and gradients."""
    double = s.row.dtype == "float64"  # then truth needs more digits than the honest computation has
    exact = s.truth(dtype=np.longdouble if double else np.float64)
    fair = s.truth(dtype=np.float64 if double else np.float32, store=jnp.dtype(s.row.dtype))
    largest = max(np.abs(exact[f"d_{n}"]).max(initial=0.0) for n in "qkv")
    found = {}
    for name in names:
        want, size = exact[name], None
        if name.startswith("d_"):
            size = max(largest, np.abs(want).max(initial=0.0))
        if name in ("d_sink_logits", "d_score_params"):  # sums over all scores: rounding adds up as the root
            size *= (s.row.B * s.row.T * s.row.keys) ** 0.5
        dtype = wide(s.row) if name in ("lse", "d_score_params") else s.row.dtype
        found[name] = want, budget(fair[name], want, dtype, size)
    return found


def differences(s, names, honest, curved=False):
    """Derivatives along `s.along()` of values or gradients; the limit counts the error of the differences."""
    inputs, along = ({n: x.astype(np.float64) for n, x in tree.items()} for tree in (s.inputs, s.along()))

    def slope(step):
        ends = [s.truth({n: x + sign * step * along[n] for n, x in inputs.items()}, curved) for sign in (1, -1)]
        return {n: np.where(np.isinf(ends[0][n]), 0, (ends[0][n] - ends[1][n]) / (2 * step)) for n in names}

    with np.errstate(invalid="ignore"):  # the difference of two infinities, which is then left out
        coarse, fine = slope(DIFFERENCE), slope(DIFFERENCE / 2)
    exact = {n: (4 * fine[n] - coarse[n]) / 3 for n in names}
    largest = max(np.abs(x).max(initial=0.0) for x in exact.values())
    return {
        n: (exact[n], budget(honest[n], exact[n], honest[n].dtype, largest) + np.abs(exact[n] - fine[n]).max(initial=0.0))
        for n in names
    }


def wide(row):
    return "float64" if row.dtype == "float64" else "float32"


def plainly(s):
    """The plain form as f(inputs, facts); facts are those of the sample."""
    formula = s.formula()

    def f(inputs, _):
        inputs = dict(inputs)
        if "score_params" in inputs:
            inputs["slopes"] = inputs.pop("score_params")
        return plain.attention(**inputs, **formula, dtype=jnp.dtype(wide(s.row)))

    return f
