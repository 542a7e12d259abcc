"""attnjax explain: what attention would do with a call of some size, and why."""

import argparse

import jax
import jax.numpy as jnp

from attnjax.cli.arguments import PATTERN_HELP, add_heads, add_lengths, pattern, whole
from attnjax.explain import Explanation, explain
from attnjax.patterns import PerHead

NAME = "explain"
HELP = "say which backend would compute a call, in which tiles, with how many scores and how much memory"
EXAMPLES = """examples:
  attnjax explain "window(4096) | sink(4)" --length 32768 --heads 32 --kv-heads 8 --head-dim 128 --dtype bfloat16
  attnjax explain "causal()" --length 1 --keys 4096 --q-offset 4095
"""
DTYPES = "float32", "bfloat16", "float16"


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("pattern", type=pattern, help=PATTERN_HELP)
    add_lengths(parser)
    add_call(parser)


def add_call(parser: argparse._ActionsContainer) -> None:
    """What a call has besides a pattern and lengths."""
    add_heads(parser)
    parser.add_argument("--batch", type=whole(1), metavar="B", help="sequences (default: 1)")
    parser.add_argument("--dtype", choices=DTYPES, help="of q, k and v (default: float32)")
    parser.add_argument("--backend", metavar="NAME", help="auto (the default), or one that `attnjax explain` lists")


def run(args: argparse.Namespace) -> str:
    """The explanation."""
    return str(explained(args))


def explained(args: argparse.Namespace) -> Explanation:
    """What `aj.explain` says of arrays of these sizes; none are made. Sizes left out: one head of 64, one sequence."""
    own = len(args.pattern.patterns) if isinstance(args.pattern, PerHead) else None
    heads = args.heads or own or args.kv_heads or 1
    kv_heads, head_dim, batch = args.kv_heads or heads, args.head_dim or 64, args.batch or 1
    keys = args.length if args.keys is None else args.keys
    dtype = jnp.dtype(args.dtype or "float32")
    q = jax.ShapeDtypeStruct((batch, args.length, heads, head_dim), dtype)
    k = jax.ShapeDtypeStruct((batch, keys, kv_heads, head_dim), dtype)
    return explain(q, k, k, args.pattern, q_offset=args.q_offset, backend=args.backend or "auto")
