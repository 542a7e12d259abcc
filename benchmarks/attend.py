"""How fast `aj.attend` is against `jax.nn.dot_product_attention`, on the same arrays, in alternation.

    python benchmarks/attend.py --T 1024 4096 --window 256

Results are compared before anything is timed. Each round times both in turn (the order flips from round to
round, so that a drift of the machine hits both), and the figure is the median of the rounds' ratios: above 1
means that attnjax is faster. The last line is one JSON document.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import os
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import attnjax as aj


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: seconds are medians over the rounds."""

    T: int
    pattern: str
    direction: str
    backend: str
    ours_seconds: float
    jax_seconds: float
    ratio: float
    error: float


def arrays(args, T):
    """q, k and v of one call, standard normal."""
    rng = np.random.default_rng(0)
    shapes = (args.heads, args.heads // args.group, args.heads // args.group)
    return [jnp.asarray(rng.standard_normal((args.batch, T, n, args.head_dim)), args.dtype) for n in shapes]


def pairs(args):
    """(pattern, jax.nn's words for it): jax.nn counts the keys before the query, attnjax the query too."""
    yield aj.Causal(), {"is_causal": True}
    yield aj.Window(args.window), {"is_causal": True, "local_window_size": (args.window - 1, 0)}


def forward(function):
    """The output alone."""
    return jax.jit(function)


def backward(function):
    """A loss and its gradients: the pass of a training step."""

    def loss(q, k, v):
        return (function(q, k, v).astype(jnp.float32) ** 2).sum()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))


def compare(got, want):
    """Largest difference, relative to the largest value; a wrong result stops the benchmark."""
    leaves = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    arrays = [(np.asarray(g, np.float64), np.asarray(w, np.float64)) for g, w in leaves]
    errors = [float(np.abs(g - w).max() / np.abs(w).max()) for g, w in arrays]
    bound = 200 * float(jnp.finfo(jax.tree.leaves(want)[-1].dtype).eps)
    if not max(errors) <= bound:
        raise SystemExit(f"results differ by {max(errors):.2e} (bound {bound:.2e}); nothing was timed")
    return max(errors)


def seconds(function, inputs):
    """One call, from the start to finished arrays."""
    start = time.perf_counter()
    jax.block_until_ready(function(*inputs))
    return time.perf_counter() - start


def measure(args, T, pattern, options, direction):
    """Checks, then times both sides in alternation."""
    wrap = {"forward": forward, "backward": backward}[direction]
    ours = wrap(functools.partial(aj.attend, pattern=pattern, backend=args.backend))
    theirs = wrap(functools.partial(jax.nn.dot_product_attention, **options))
    inputs = arrays(args, T)
    error = compare(ours(*inputs), theirs(*inputs))
    times = {ours: [], theirs: []}
    for number in range(args.rounds):
        for function in (ours, theirs) if number % 2 else (theirs, ours):
            times[function].append(seconds(function, inputs))
    ratios = [slow / fast for slow, fast in zip(times[theirs], times[ours], strict=True)]
    return Row(
        T, str(pattern), direction, args.backend, statistics.median(times[ours]),
        statistics.median(times[theirs]), statistics.median(ratios), error,
    )  # fmt: skip


def arguments():
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--T", type=int, nargs="+", default=[1024, 4096], help="lengths")
    parser.add_argument("--window", type=int, default=256, help="keys a query sees in the windowed rows")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8, help="query heads")
    parser.add_argument("--group", type=int, default=1, help="query heads per key head")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--backend", default="auto")
    return parser.parse_args()


def main():
    """The table, then the JSON line."""
    args = arguments()
    heads = "T", "pattern", "direction", "attnjax ms", "jax.nn ms", "ratio", "error"
    print("{:>7}  {:14} {:9} {:>11} {:>11} {:>6} {:>9}".format(*heads))
    rows = []
    for T, (pattern, options), direction in itertools.product(args.T, pairs(args), ("forward", "backward")):
        row = measure(args, T, pattern, options, direction)
        rows.append(dataclasses.asdict(row))
        milliseconds = row.ours_seconds * 1e3, row.jax_seconds * 1e3
        cells = T, row.pattern, direction, *milliseconds, row.ratio, row.error
        print("{:>7}  {:14} {:9} {:>11.2f} {:>11.2f} {:>6.2f} {:>9.1e}".format(*cells), flush=True)
    device = jax.devices()[0]
    about = {
        "attnjax": aj.__version__, "jax": jax.__version__, "device": device.device_kind,
        "cores": os.cpu_count(), "settings": vars(args), "rows": rows,
    }  # fmt: skip
    print(json.dumps(about))


if __name__ == "__main__":
    main()
