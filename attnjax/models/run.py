"""Running the blocks of a decoder, one by one or a period at a time, with their caches and weights."""

import functools
from typing import Any, NamedTuple

import jax
from flax import nnx

from attnjax.nn.block import Block


class Options(NamedTuple):
    """How to run the blocks: static facts, the same for every layer."""

    return_weights: bool
    backend: str
    remat: bool


class Found(NamedTuple):
    """What came out of blocks: x, each layer's weights if asked for, each layer's cache if it had one."""

    x: jax.Array
    weights: tuple[jax.Array, ...]
    caches: tuple[Any, ...]


# Jitted, because a bare scan is compiled anew at every eager call.
@functools.partial(jax.jit, static_argnames=("graph", "options"))
def scan_periods(
    graph: Any, stack: Any, x: jax.Array, where: Any, keys: Any, caches: Any, options: Options
) -> Found:
    """x through every period of the stack; caches are one stack per place in the layout, or none."""

    def one_period(x: Any, xs: Any) -> Any:
        state, keys, caches = xs
        found = run_blocks(nnx.merge(graph, state).blocks, x, where, keys, caches, options)
        return found.x, found[1:]

    x, (stacks, caches) = jax.lax.scan(one_period, x, (stack, keys, caches))
    periods = stacks[0].shape[0] if stacks else 0
    return Found(x, tuple(weights[period] for period in range(periods) for weights in stacks), caches)


def run_blocks(blocks: Any, x: jax.Array, where: Any, keys: Any, caches: Any, options: Options) -> Found:
    """x through the blocks one after the other.

    `where` is (positions, segments), `keys` the dropout key of each block or None, `caches` one for each block or
    none at all.
    """
    weights, after = [], []
    for i, block in enumerate(blocks):
        key, cache = None if keys is None else keys[i], caches[i] if caches else None
        out = _run_block(block, x, where, key, cache, options)
        x = out.y if caches or options.return_weights else out
        weights += [out.weights] if options.return_weights else []
        after += [out.cache] if caches else []
    return Found(x, tuple(weights), tuple(after))


def _run_block(block: Block, x: jax.Array, where: Any, key: Any, cache: Any, options: Options) -> Any:
    keywords = dict(
        positions=where[0], segments=where[1], deterministic=key is None, dropout_key=key,
        return_weights=options.return_weights, backend=options.backend,
    )  # fmt: skip
    if not options.remat or cache is not None:
        return block(x, cache=cache, **keywords)
    graph, state = nnx.split(block)
    return jax.checkpoint(lambda state, x: nnx.merge(graph, state)(x, **keywords))(state, x)
