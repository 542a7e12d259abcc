"""attnjax cost: scores, FLOPs, bytes and cache of a pattern or of a published model at some length."""

import argparse
from typing import NamedTuple

from attnjax.cli.arguments import add_heads, add_lengths, pattern, whole
from attnjax.cost import Cost, cost
from attnjax.patterns import Causal, Pattern, PerHead

NAME = "cost"
HELP = "count what attention costs at a length: exact scores, FLOPs, bytes moved, bytes of the cache"
EXAMPLES = """examples:
  attnjax cost "window(4096) | sink(1)" --length 131072 --heads 32 --kv-heads 8 --head-dim 128

Forward pass of attention alone: projections and everything else of a layer are left out.
"""


class Layers(NamedTuple):
    """Layers that look alike, and what they cost: each one, if it were causal, and all together."""

    number: int
    pattern: Pattern | PerHead
    each: Cost
    causal: Cost


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("pattern", type=pattern, help='e.g. "window(4096) | sink(1)"')
    add_lengths(parser)
    add_heads(parser)
    parser.add_argument("--layers", type=whole(1), default=1, metavar="L", help="layers of this kind (default: 1)")
    parser.add_argument("--bytes-per-number", type=whole(1), default=2, metavar="W", help="2 for 16 bits (the default)")


def run(args: argparse.Namespace) -> str:
    """A table: a line for each kind of layer, their sum, and what causal attention would cost."""
    sizes = pattern_sizes(args)
    layers = [costed(args, args.pattern, args.layers, sizes)]
    return table(str(args.pattern), args, layers, sizes)


def pattern_sizes(args: argparse.Namespace) -> dict[str, int]:
    """Heads of a bare pattern, all from the command line."""
    heads = args.heads or (len(args.pattern.patterns) if isinstance(args.pattern, PerHead) else None)
    missing = [name for name, value in (("--heads", heads), ("--head-dim", args.head_dim)) if value is None]
    if heads is None or args.head_dim is None:
        raise ValueError(f"a pattern has no heads of its own: give {' and '.join(missing)} (--heads 32 --head-dim 128)")
    return {"num_heads": heads, "num_kv_heads": args.kv_heads or heads, "head_dim": args.head_dim}


def costed(args: argparse.Namespace, one: Pattern | PerHead, number: int, sizes: dict[str, int]) -> Layers:
    """Layers of one kind."""
    more = dict(q_offset=args.q_offset, batch=args.batch or 1, bytes_per_number=args.bytes_per_number)
    each, causal = (cost(p, args.length, args.keys, **sizes, **more) for p in (one, Causal()))
    return Layers(number, one, each, causal)


def table(name: str, args: argparse.Namespace, layers: list[Layers], sizes: dict[str, int]) -> str:
    """What `run` writes."""
    keys = args.length if args.keys is None else args.keys
    batch = args.batch or 1
    heads = batch * sizes["num_heads"]
    rows: list[tuple[str, ...]] = [("layers", "pattern", "scores, one head", "scores", "FLOPs", "moved", "cache")]
    for kind in layers:
        rows.append((str(kind.number), str(kind.pattern), *_numbers([(kind.number, kind.each)], heads)))
    if len(layers) > 1:
        rows.append((str(_sum(layers)), "all of them", *_numbers([(k.number, k.each) for k in layers], heads)))
    rows.append((str(_sum(layers)), "if causal()", *_numbers([(k.number, k.causal) for k in layers], heads)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{name}: {args.length:,} queries, {keys:,} keys, {batch} x {sizes['num_heads']} query heads and "
        f"{sizes['num_kv_heads']} key heads of {sizes['head_dim']}, {args.bytes_per_number} bytes a number",
        "",
    ]
    for row in rows:
        cells = [row[0].rjust(widths[0]), row[1].ljust(widths[1])]
        lines.append("  ".join(cells + [cell.rjust(wide) for cell, wide in zip(row[2:], widths[2:], strict=True)]))
    per_token = batch * sum(k.number * k.each.kv_bytes_per_token for k in layers)
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
