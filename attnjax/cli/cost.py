"""attnjax cost: scores, FLOPs, bytes and cache of a pattern or of a published model at some length."""

import argparse
from collections import Counter
from typing import NamedTuple

from attnjax.cli.arguments import add_heads, add_lengths, whole
from attnjax.cost import Cost, cost
from attnjax.patterns import Causal, Pattern, PerHead, parse

NAME = "cost"
HELP = "count what attention costs at a length: exact scores, FLOPs, bytes moved, bytes of the cache"
EXAMPLES = """examples:
  attnjax cost llama2_7b --length 131072
  attnjax cost "window(4096) | sink(1)" --length 131072 --heads 32 --kv-heads 8 --head-dim 128

A forward pass of attention alone: projections and everything else of a layer are left out.
"""
OF_A_PATTERN = "heads", "kv_heads", "head_dim", "layers"
Sizes = dict[str, int]


class Layers(NamedTuple):
    """Layers that look alike, and what they cost: each one, if it were causal, and all together."""

    number: int
    pattern: Pattern | PerHead
    each: Cost
    causal: Cost


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("what", metavar="MODEL|PATTERN", help='a model such as llama2_7b, or "window(4096) | sink(1)"')
    add_lengths(parser)
    parser.add_argument("--bytes-per-number", type=whole(1), default=2, metavar="W", help="2 for 16 bits (the default)")
    parser.add_argument("--batch", type=whole(1), default=1, metavar="B", help="sequences (default: 1)")
    sizes = parser.add_argument_group("of a pattern (a model has its own)")
    add_heads(sizes)
    sizes.add_argument("--layers", type=whole(1), metavar="L", help="layers of this kind (default: 1)")


def run(args: argparse.Namespace) -> str:
    """A table: a line for each kind of layer, their sum, and what causal attention would cost."""
    kinds, sizes = pattern_layers(args) if "(" in args.what else model_layers(args)
    layers = [costed(args, one, number, sizes) for one, number in kinds.items()]
    return table(args.what if "(" not in args.what else str(next(iter(kinds))), args, layers, sizes)


def pattern_layers(args: argparse.Namespace) -> tuple[dict[Pattern | PerHead, int], Sizes]:
    """Layers of a bare pattern: heads and their number come from the command line."""
    one = parse(args.what)
    heads = args.heads or (len(one.patterns) if isinstance(one, PerHead) else None)
    missing = [name for name, value in (("--heads", heads), ("--head-dim", args.head_dim)) if value is None]
    if heads is None or args.head_dim is None:
        raise ValueError(f"a pattern has no heads of its own: give {' and '.join(missing)} (--heads 32 --head-dim 128)")
    sizes = {"num_heads": heads, "num_kv_heads": args.kv_heads or heads, "head_dim": args.head_dim}
    return {one: args.layers or 1}, sizes


def model_layers(args: argparse.Namespace) -> tuple[dict[Pattern | PerHead, int], Sizes]:
    """Layers of a published model by pattern. Importing models takes flax, so only here."""
    from attnjax.models import config

    given = [f"--{name.replace('_', '-')}" for name in OF_A_PATTERN if getattr(args, name) is not None]
    if given:
        raise ValueError(f"{', '.join(given)}: {args.what} has its own; leave it out, or give a pattern like causal()")
    model = config(args.what)
    head_dim = model.head_dim or model.d_model // model.num_heads
    sizes = {"num_heads": model.num_heads, "num_kv_heads": model.num_kv_heads or model.num_heads, "head_dim": head_dim}
    return dict(Counter(model.legend[letter] for letter in model.letters)), sizes


def costed(args: argparse.Namespace, one: Pattern | PerHead, number: int, sizes: Sizes) -> Layers:
    """Layers of one kind."""
    more = dict(q_offset=args.q_offset, batch=args.batch, bytes_per_number=args.bytes_per_number)
    each, causal = (cost(p, args.length, args.keys, **sizes, **more) for p in (one, Causal()))
    return Layers(number, one, each, causal)


def table(name: str, args: argparse.Namespace, layers: list[Layers], sizes: Sizes) -> str:
    """What `run` writes."""
    keys = args.length if args.keys is None else args.keys
    heads = args.batch * sizes["num_heads"]
    rows: list[tuple[str, ...]] = [("layers", "pattern", "scores, one head", "scores", "FLOPs", "moved", "cache")]
    for kind in layers:
        rows.append((str(kind.number), str(kind.pattern), *_numbers([(kind.number, kind.each)], heads)))
    if len(layers) > 1:
        rows.append((str(_sum(layers)), "all of them", *_numbers([(k.number, k.each) for k in layers], heads)))
    if any(kind.pattern != Causal() for kind in layers):
        rows.append((str(_sum(layers)), "if causal()", *_numbers([(k.number, k.causal) for k in layers], heads)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{name}: {args.length:,} queries, {keys:,} keys, {args.batch} x {sizes['num_heads']} query heads and "
        f"{sizes['num_kv_heads']} key heads of {sizes['head_dim']}, {args.bytes_per_number} bytes a number",
        "",
    ]
    for row in rows:
        cells = [row[0].rjust(widths[0]), row[1].ljust(widths[1])]
        lines.append("  ".join(cells + [cell.rjust(wide) for cell, wide in zip(row[2:], widths[2:], strict=True)]))
    per_token = args.batch * sum(k.number * k.each.kv_bytes_per_token for k in layers)
    return "\n".join([*lines, "", f"a token in the cache of all layers: {byte_text(per_token)}"])


def _sum(layers: list[Layers]) -> int:
    return sum(kind.number for kind in layers)


def _numbers(costs: list[tuple[int, Cost]], heads: int) -> tuple[str, ...]:
    """Scores of a head in a layer (the mean, where they differ), then sums over all layers and heads."""
    layers = sum(number for number, _ in costs)
    scores, flops, moved, cache = (
        sum(number * getattr(one, name) for number, one in costs) for name in ("scores", "flops", "bytes", "kv_bytes")
    )
    return f"{round(scores / layers / heads):,}", f"{scores:,}", flop_text(flops), byte_text(moved), byte_text(cache)


def flop_text(count: int) -> str:
    """A number of operations with three digits: 6.93 T."""
    for power, name in ((15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if count >= 10**power:
            return f"{count / 10**power:,.2f} {name}"
    return f"{count:,}"


def byte_text(count: int) -> str:
    """A number of bytes with three digits: 512.0 KiB."""
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:,.1f} {name}"
    return f"{count:,} B"
