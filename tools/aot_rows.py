"""What `make aot` compiles, and the most that each program may need: a row that needs more fails.

To measure another program, add a row; to add a limit to one, give the number that the tool prints. Numbers may only
fall. They hold for the compilers in aot-requirements.txt.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

import attnjax as aj
from tools import hlo, targets

MIB = 2**20
CALL = (1, 8192, 8, 128)  # B, T, N, H of every row, in bfloat16


@dataclasses.dataclass(frozen=True)
class Row:
    """One program on one kind of chip, and the most that it may need."""

    target: str
    pattern: str
    what: str  # "forward", or "both": forward and backward
    most: float  # launches on a GPU, millions of estimated cycles on a TPU
    mib: int  # of temporaries
    quick: bool = True
    # which visits, "full" or "partial", each loop makes whose trips XLA does not know, in the program's order
    loops: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.target}-{self.pattern}-{self.what}"


ROWS = (
    Row("sm_90", "window(1024)", "forward", most=65, mib=162),
    Row("sm_90", "window(1024)", "both", most=773, mib=385),
    Row("sm_90", "causal()", "forward", most=362, mib=162),
    Row("sm_90", "causal()", "both", most=2775, mib=353),
    Row("v5e", "window(1024)", "forward", most=5.5, mib=81),
    Row("v5e", "window(1024)", "both", most=100, mib=278),
    Row("v5e", "causal()", "forward", most=22.5, mib=57),
    Row("v5e", "causal()", "both", most=100, mib=238),
    Row("v6e", "window(1024)", "forward", most=100, mib=100, quick=False),
    Row("v6e", "window(1024)", "both", most=100, mib=400, quick=False),
    Row("v6e", "causal()", "forward", most=100, mib=100, quick=False),
    Row("v6e", "causal()", "both", most=100, mib=400, quick=False),
)


def program(row: Row) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
    """(function, shapes of its arguments)."""
    pattern, x = aj.parse(row.pattern), jax.ShapeDtypeStruct(CALL, jnp.bfloat16)

    def forward(q: Any, k: Any, v: Any) -> Any:
        return aj.attend(q, k, v, pattern, backend="tiled")

    def both(q: Any, k: Any, v: Any, d_o: Any) -> Any:
        return jax.vjp(forward, q, k, v)[1](d_o)

    return (forward, [x] * 3) if row.what == "forward" else (both, [x] * 4)


def visits(row: Row, backend: str) -> tuple[int, ...]:
    """How often the loops that the row names run, by the plan of the call on such a host."""
    x = jax.ShapeDtypeStruct(CALL, jnp.bfloat16)
    with targets.as_on(backend):
        tiles = aj.explain(x, x, x, aj.parse(row.pattern), backend="tiled").tiles
    assert tiles is not None, "the backend tiled has no tiles"
    return tuple(tiles[kind] for kind in row.loops)


def measure(row: Row) -> dict[str, Any]:
    """The row compiled: what it needs, as a plain dictionary."""
    target = targets.TARGETS[row.target]
    compiled = targets.compiled(*program(row), target)
    text, runs = hlo.Program(compiled.as_text()), visits(row, target.backend)
    found: dict[str, Any] = {"row": row.name}
    if target.platform == "tpu":
        found |= {"mega_cycles": round(text.total(hlo.cycles, runs) / 1e6, 3), "kernels": text.total(hlo.kernels, runs)}
    else:
        found |= {"launches": text.total(hlo.launches, runs)}
    return found | {"temporaries_mib": round(compiled.memory_analysis().temp_size_in_bytes / MIB, 2)}


def over(row: Row, found: dict[str, Any]) -> list[str]:
    """A sentence for each limit that the row exceeds."""
    value, unit = (found["launches"], "launches") if "launches" in found else (found["mega_cycles"], "million cycles")
    compared = (value, row.most, unit), (found["temporaries_mib"], row.mib, "MiB of temporaries")
    return [f"{row.name}: {had:,} {what}, at most {most:,}" for had, most, what in compared if had > most]
