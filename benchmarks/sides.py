"""The sides that run in this process: attnjax, jax.nn, flax and tokamax, each at its best public options."""

import functools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from work import leaves, numbers, rule

import attnjax as aj

MASK_LIMIT = 8192  # jax.nn and flax hold all T x T scores: above this they need more memory than they are worth


class Unable(Exception):
    """The peer has no way to run this work; the text says why."""


def ours(work):
    """attnjax with its own choice of backend."""
    return functools.partial(aj.attend, pattern=aj.parse(work.pattern))


def must_fit(work):
    """Refuses work whose scores a peer that holds them all cannot hold."""
    if work.T > MASK_LIMIT:
        raise Unable(f"it would hold {work.heads} x {work.T} x {work.T} scores")


def visible(work):
    """bool [T, T] for peers that know a pattern only as an array."""
    must_fit(work)
    at = np.arange(work.T)
    return jnp.asarray(rule(work.pattern)(at[:, None], at[None, :]))


def said(work):
    """The pattern in the options of jax.nn, whose window counts the keys before the query, not the query."""
    match leaves(work.pattern):
        case [("full", _)]:
            return {}
        case [("causal", _)]:
            return {"is_causal": True}
        case [("window", n)]:
            return {"is_causal": True, "local_window_size": (n - 1, 0)}
        case _:
            return {"mask": visible(work)[None, None]}


def jax_nn(work):
    """jax.nn.dot_product_attention."""
    must_fit(work)
    return functools.partial(jax.nn.dot_product_attention, **said(work))


def flax_nnx(work):
    """flax.nnx.dot_product_attention."""
    from flax import nnx

    mask = visible(work)
    options = {"is_causal": True} if work.pattern == "causal()" else {"mask": mask[None, None]}
    return functools.partial(nnx.dot_product_attention, **options)


def tokamax(work):
    """tokamax.dot_product_attention in its chunked XLA form, the one of its forms for a CPU with O(T) memory."""
    try:
        import tokamax as library
        from absl import flags
    except ImportError as error:
        raise Unable("tokamax is not installed") from error
    flags.FLAGS(sys.argv[:1])  # else tokamax reads this program's own options as absl flags, and refuses them
    return functools.partial(library.dot_product_attention, implementation="xla_chunked", **said(work))


SIDES = {"attnjax": ours, "jax.nn": jax_nn, "flax": flax_nnx, "tokamax": tokamax}


def fresh_program(peer, work):
    """A jitted function of q, k, v and the cotangent that returns a tuple of results; traced by nobody yet."""
    function = SIDES[peer](work)

    def forward(q, k, v, g):
        return (function(q, k, v),)

    def backward(q, k, v, g):
        o, pull = jax.vjp(function, q, k, v)
        return (o, *pull(g))

    return jax.jit(forward if work.direction == "forward" else backward)


program = functools.lru_cache(maxsize=8)(fresh_program)


def arrays(work, seed):
    """The work's numbers in its dtype, ready on the device."""
    return jax.block_until_ready([jnp.asarray(x, work.dtype) for x in numbers(work, seed)])


class JaxSide:
    """One function of this process at one work."""

    def __init__(self, name, peer, work):
        self.name, self.peer, self.work = name, peer, work

    def result(self, seed):
        """Output, and with a backward the three gradients, as NumPy arrays."""
        return [np.asarray(x, np.float32) for x in program(self.peer, self.work)(*arrays(self.work, seed))]

    def seconds(self, seed, calls):
        """Seconds of one call, the mean of several, after one that is not counted; arrays are made before."""
        function, inputs = program(self.peer, self.work), arrays(self.work, seed)
        jax.block_until_ready(function(*inputs))  # wakes the threads, which slept while another process worked
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(function(*inputs))
        return (time.perf_counter() - start) / calls
