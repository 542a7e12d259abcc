"""Segments: the run-time facts that may only narrow a pattern: packed documents, padding, lengths."""

import typing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int

from attnjax.shapes import shown, to_int32


class Ids(NamedTuple):
    """Segments laid out for one call: q [B|1, T] and k [B|1, S]; negative ids are padding."""

    q: Any
    k: Any
    shared: bool  # whether queries and keys are rows of one sequence


@jax.tree_util.register_pytree_node_class
class Segments:
    """Which rows belong together: pairs with different or negative ids are hidden. Krell et al. 2021, "Efficient
    Sequence Packing without Cross-contamination".

    A pattern stays absolute in packed rows (a sink belongs to the row) unless `positions="segment"` restarts
    positions at the first row of each run of equal ids; in self-attention a run is then a document of its own,
    also if its id comes back later.

    Args:
        q_ids: ids of the query rows, integers [B, T] or [T]; a negative id is padding.
        k_ids: ids of the key rows [B, S] or [S]; None means the same as `q_ids` (self-attention).
        positions: "row" or "segment".

    Raises:
        TypeError: if ids are not integers.
        ValueError: if a rank is wrong or `positions` is neither name.

    Example:
        >>> import attnjax as aj, jax.numpy as jnp
        >>> packed = aj.Segments(jnp.array([0, 0, 1]))
        >>> aj.visible(aj.Causal(), 3, segments=packed)[0, 0].astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    """

    @typing.no_type_check
    def __init__(
        self,
        q_ids: Int[Array, "*B T"],
        k_ids: Int[Array, "*B S"] | None = None,
        *,
        positions: str = "row",
    ) -> None:
        if positions not in ("row", "segment"):
            raise ValueError(f"positions={positions!r} must be 'row' (patterns count rows) or 'segment'")
        self._set(_ids("q_ids", q_ids, 2), None if k_ids is None else _ids("k_ids", k_ids, 2), None, None, positions)

    def _set(self, q_ids: Any, k_ids: Any, q_lengths: Any, k_lengths: Any, positions: str) -> None:
        self.q_ids, self.k_ids, self.q_lengths, self.k_lengths = q_ids, k_ids, q_lengths, k_lengths
        self.positions = positions

    @classmethod
    @typing.no_type_check
    def from_lengths(cls, q: Int[Array, "B"] | None = None, k: Int[Array, "B"] | None = None) -> "Segments":
        """The first q[b] queries and k[b] keys of each sequence are real, the rest is padding.

        Args:
            q: lengths [B] of the queries; None means all are real.
            k: lengths [B] of the keys; None means all are real.

        Raises:
            TypeError: if lengths are not integers.
            ValueError: if both are None or one is not [B].

        Example:
            >>> import attnjax as aj, jax.numpy as jnp
            >>> right_padded = aj.Segments.from_lengths(k=jnp.array([2]))
            >>> aj.visible(aj.Full(), 1, 3, segments=right_padded)[0, 0].astype(int).tolist()
            [[1, 1, 0]]
        """
        if q is None and k is None:
            raise ValueError("from_lengths needs q= or k=; without lengths leave segments out")
        self = object.__new__(cls)
        lengths = [None if x is None else _ids(name, x, 1) for name, x in (("q", q), ("k", k))]
        self._set(None, None, *lengths, "row")
        return self

    def ids(self, B: Any, T: Any, S: Any) -> Ids:
        """The ids laid out for a call of these sizes (any batch size where B is None).

        Raises:
            ValueError: if they do not fit it.
        """
        if self.q_lengths is not None or self.k_lengths is not None:
            zero = jnp.int32(0)  # lengths are [B], or [] under vmap
            q, k = (
                jnp.zeros((1, size), jnp.int32)
                if x is None
                else jnp.where(jnp.arange(size, dtype=jnp.int32)[None] < jnp.atleast_1d(x)[:, None], zero, zero - 1)
                for x, size in ((self.q_lengths, T), (self.k_lengths, S))
            )
            found = Ids(q, k, False)
        else:
            q = self.q_ids if self.q_ids.ndim == 2 else self.q_ids[None]
            k = q if self.k_ids is None else self.k_ids if self.k_ids.ndim == 2 else self.k_ids[None]
            found = Ids(q, k, self.k_ids is None)
        for name, x, size in (("q", found.q, T), ("k", found.k, S)):
            if (B is not None and x.shape[0] not in (1, B)) or x.shape[1] != size:
                way_out = "; give k_ids= as well" if name == "k" and self.k_ids is None and T != S else ""
                raise ValueError(
                    f"segments of the {'queries' if name == 'q' else 'keys'} are {tuple(x.shape)}, but the call has "
                    f"{size if B is None else (B, size)}: they must be [B, length] or [length]{way_out}"
                )
        return found

    def tree_flatten(self) -> tuple[Any, str]:
        return (self.q_ids, self.k_ids, self.q_lengths, self.k_lengths), self.positions

    @classmethod
    def tree_unflatten(cls, positions: str, children: Any) -> "Segments":
        self = object.__new__(cls)
        q_ids, k_ids, q_lengths, k_lengths = children
        self._set(q_ids, k_ids, q_lengths, k_lengths, positions)
        return self


def _ids(name: str, x: Any, most: int) -> Any:
    if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.integer):
        kind = getattr(x, "dtype", type(x).__name__)
        raise TypeError(f"{name} has dtype {kind}; ids and lengths are integer arrays")
    if x.ndim not in range(1, most + 1):
        want = "[B]" if most == 1 else "[B, length] or [length]"
        raise ValueError(f"{shown(**{name: x})} must be {want}")
    return to_int32(name, x)


def same_segment(q_ids: Any, k_ids: Any) -> Any:
    """bool [B|1, T, S] from ids [B|1, T] and [B|1, S]: equal and not negative."""
    q, k = q_ids[:, :, None], k_ids[:, None, :]
    return (q == k) & (q >= 0)


def runs(ids: Any) -> Any:
    """Each run of equal ids numbered, int32 [B|1, length]; padding stays negative."""
    changes = jnp.concatenate([jnp.zeros_like(ids[:, :1]), (ids[:, 1:] != ids[:, :-1]).astype(jnp.int32)], axis=1)
    return jnp.where(ids >= 0, jnp.cumsum(changes, axis=1, dtype=jnp.int32), -1)


def restarted(ids: Any) -> Any:
    """Position of each row within its run of equal ids: int32 [B|1, length]."""
    rows = jnp.broadcast_to(jnp.arange(ids.shape[1], dtype=jnp.int32)[None], ids.shape)
    first = jnp.concatenate([jnp.ones_like(ids[:, :1], bool), ids[:, 1:] != ids[:, :-1]], axis=1)
    return rows - jax.lax.cummax(jnp.where(first, rows, 0), axis=1)
