"""Arrays that functions of a call (the rules of `Where`, `score_fn`) close over, as arguments of the call.

Left where they are, they would enter every program that asks the function unseen, and be dead in those that are made
later, such as a backward. So the function is traced once where a call is bound, on single numbers; the arrays that it
read travel with the call's others; and whoever asks it maps the trace over the places in question. What patterns and
programs are compared by stays the function itself.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.errors import TracerArrayConversionError, TracerIntegerConversionError
from jax.extend.core import ClosedJaxpr, Literal

from attnjax.patterns import Pattern, PerHead
from attnjax.shapes import to_rank
from attnjax.varying import axes_of, vary


class Arrays(NamedTuple):
    """The JAX arrays that a function closes over, each kind in the order in which it reads them."""

    floats: tuple[Any, ...] = ()  # may have derivatives
    others: tuple[Any, ...] = ()


class Closed:
    """A function that closes over arrays, traced on single numbers; equal to every trace of the same function."""

    def __init__(self, fn: Callable[..., Any], traced: ClosedJaxpr, axes: frozenset[str]):
        self.fn, self._jaxpr, self._axes = fn, traced.jaxpr, axes
        self._consts = [_is_float(x) if isinstance(x, jax.Array) else x for x in traced.consts]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closed) and self.fn == other.fn

    def __hash__(self) -> int:
        return hash(self.fn)

    def __call__(self, arrays: Arrays, places: tuple[Any, ...], params: Any = None) -> Any:
        """What the function gives at these places, arrays that broadcast, reading these arrays."""
        axes = self._axes | axes_of((arrays, places, params))
        floats, others = map(iter, vary(arrays, axes - self._axes))  # along the others they vary as when it was traced
        consts = [next(floats if x else others) if isinstance(x, bool) else x for x in self._consts]
        ask, fixed = functools.partial(_evaluated, ClosedJaxpr(self._jaxpr, consts)), jax.tree.leaves(params)
        places, fixed = vary((places, fixed), axes)
        return _mapped(lambda *numbers: ask(*numbers, *fixed)[0], places)


def of_rules(
    pattern: Pattern | PerHead, T: Any, S: Any, axes: frozenset[str] = frozenset()
) -> tuple[tuple[Closed, ...], tuple[Arrays, ...]]:
    """The rules of a pattern that close over arrays, and these arrays.

    Args:
        pattern, T, S: of the call.
        axes: along which its arrays vary under `jax.shard_map`.

    Raises:
        TypeError: if one indexes a NumPy array or a list, which cannot be asked about traced positions.
        ValueError: if one closes over arrays and is not elementwise.
    """
    found = [_closed(rule, (_places(1, T, 1), _places(1, 1, S)), (), axes) for rule in pattern.rules]
    some = [one for one in found if one is not None]
    return tuple(closed for closed, _ in some), tuple(arrays for _, arrays in some)


def of_score_fn(
    score_fn: Callable[..., Any], params: Any, shape: tuple[Any, ...], dtype: Any, axes: frozenset[str] = frozenset()
) -> tuple[Closed | None, Arrays]:
    """What a score_fn closes over, for scores of this shape [B, N, T, S] and dtype; raises as `of_rules`."""
    _, N, T, S = shape
    places = _places(1, 1, T, 1), _places(1, 1, 1, S), _places(1, N, 1, 1)
    return _closed(score_fn, (jax.ShapeDtypeStruct(shape, dtype), *places), (params,), axes) or (None, Arrays())


def _places(*shape: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _closed(
    fn: Callable[..., Any], places: tuple[Any, ...], params: tuple[Any, ...], axes: frozenset[str]
) -> tuple[Closed, Arrays] | None:
    """The trace of a function and what it closes over; None if that is no array."""
    single, given = vary((tuple(jnp.zeros((), x.dtype) for x in places), params), axes)
    name = getattr(fn, "__qualname__", repr(fn))
    try:
        traced = _traced(fn, *single, *given)
    except (TracerArrayConversionError, TracerIntegerConversionError):
        raise TypeError(
            f"{name} indexes a NumPy array or a list, or calls NumPy; positions are traced here, so give it JAX "
            "arrays: jnp.asarray(ids) once, outside of the function"
        ) from None
    except Exception:  # a function that needs the shapes of whole arrays, and may be fine if it closes over none
        traced = None
    if traced is None or [x.shape for x in traced.out_avals] != [()]:
        if not any(isinstance(x, jax.Array) for x in _traced(fn, *places, *params).consts):
            return None
        raise ValueError(
            f"{name} closes over arrays, so it is asked about single positions and must give one number for each: "
            "read its arrays at the positions (or heads) that it is asked about, e.g. ids[q] == ids[k]"
        )
    arrays = [x for x in traced.consts if isinstance(x, jax.Array)]
    if not arrays:
        return None
    if not axes_of(arrays) <= axes:
        return _closed(fn, places, params, axes | axes_of(arrays))
    found = Arrays(tuple(filter(_is_float, arrays)), tuple(x for x in arrays if not _is_float(x)))
    return Closed(fn, traced, axes), found


def _traced(fn: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """What fn does, traced anew: JAX would remember the trace of fn itself, and what it closes over may change."""
    return jax.make_jaxpr(lambda *args: fn(*args))(*args)


def _evaluated(traced: ClosedJaxpr, *args: Any) -> list[Any]:
    """What the traced function gives, computed in the mesh of whoever asks and not in that of the trace."""
    jaxpr = traced.jaxpr
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*traced.consts, *args), strict=True))

    def read(x: Any) -> Any:
        return x.val if isinstance(x, Literal) else known[x]

    for step in jaxpr.eqns:
        values, inner = list(map(read, step.invars)), step.params.get("jaxpr")
        values = vary(values, axes_of(values))  # the trace may be of a place where nothing varied
        if step.primitive.name in ("jit", "pjit") and isinstance(inner, ClosedJaxpr):
            out = _evaluated(inner, *values)
        else:
            out = step.primitive.bind(*values, **step.primitive.get_bind_params(step.params))
            out = out if step.primitive.multiple_results else [out]
        known.update(zip(step.outvars, out, strict=True))
    return list(map(read, jaxpr.outvars))


def _mapped(ask: Callable[..., Any], places: tuple[Any, ...]) -> Any:
    """`ask`, of single numbers, at every place of arrays that broadcast."""
    shape = jnp.broadcast_shapes(*(x.shape for x in places))
    places = tuple(to_rank(x, len(shape)) for x in places)
    for axis in reversed(range(len(shape))):
        if shape[axis] != 1:
            ask = jax.vmap(ask, in_axes=tuple(0 if x.shape[axis] != 1 else None for x in places))
    return ask(*(x.reshape([size for size in x.shape if size != 1]) for x in places)).reshape(shape)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)
