"""What `make aot` compiles, and the most that each program may need: a row that needs more fails.

To measure another program, add a row; to add a limit to one, give the number that the tool prints. Numbers may only
fall. They hold for the compilers in aot-requirements.txt.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

import attnjax as aj
from attnjax.backends.base import Target
from attnjax.backends.tiled import jobs, two_passes
from attnjax.door import bind
from attnjax.walks import Tiles
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
    # which loops XLA does not know the trips of, in the program's order: "full" and "partial" visits by rows, "backward
    # full" ..., and "keys full" ... of the backward by key tiles
    loops: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.target}-{self.pattern}-{self.what}"


TILES = "full", "partial"
BOTH = *TILES, "backward full", "backward partial"
ROWS = (
    Row("sm_90", "window(1024)", "forward", most=48, mib=117),
    Row("sm_90", "window(1024)", "both", most=155, mib=321),
    Row("sm_90", "causal()", "forward", most=247, mib=145, loops=TILES),
    Row("sm_90", "causal()", "both", most=650, mib=329, loops=(*BOTH, "keys full", "keys partial")),
    Row("v5e", "window(1024)", "forward", most=3.2, mib=1),
    Row("v5e", "window(1024)", "both", most=8.6, mib=49),
    Row("v5e", "causal()", "forward", most=8.4, mib=1, loops=TILES),
    Row("v5e", "causal()", "both", most=17.8, mib=149, loops=BOTH),
    Row("v6e", "window(1024)", "forward", most=1.8, mib=1, quick=False),
    Row("v6e", "window(1024)", "both", most=4.8, mib=65, quick=False),
    Row("v6e", "causal()", "forward", most=4.5, mib=1, quick=False, loops=TILES),
    Row("v6e", "causal()", "both", most=9.6, mib=149, quick=False, loops=BOTH),
)


def program(row: Row) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
    """(function, shapes of its arguments)."""
    pattern, x = aj.parse(row.pattern), jax.ShapeDtypeStruct(CALL, jnp.bfloat16)

    def forward(q: Any, k: Any, v: Any) -> Any:
        return aj.attend(q, k, v, pattern, backend="tiled")

    def both(q: Any, k: Any, v: Any, d_o: Any) -> Any:
        return jax.vjp(forward, q, k, v)[1](d_o)

    return (forward, [x] * 3) if row.what == "forward" else (both, [x] * 4)


def visits(row: Row) -> tuple[int, ...]:
    """How often the loops that the row names run, by the plan of the call on such a chip."""
    if not row.loops:
        return ()
    x, target = jax.ShapeDtypeStruct(CALL, jnp.bfloat16), Target(targets.TARGETS[row.target].platform)
    call, found = bind(x, x, x, aj.parse(row.pattern))[0], {}
    for backward in (False, True):
        (group,) = jobs.groups(call, target, backward)
        (job,) = jobs.jobs(call, group, target)
        if (tiles := job.walk.tiles) is not None:
            found |= trips("backward " if backward else "", tiles, job.together)
            turned = tiles.transposed(job.walk.S, job.walk.tile_q)
            found |= trips("keys ", turned, two_passes.key_tiles_at_once(job)) if backward else {}
    return tuple(found[loop] for loop in row.loops)


def trips(where: str, tiles: Tiles, together: int) -> dict[str, int]:
    """How often the two loops over a table run, where rows that are taken together wait for the longest."""
    ends = (tiles.starts[:-1], tiles.partials, tiles.starts[1:])
    found = {"full": ends[1] - ends[0], "partial": ends[2] - ends[1]}
    blocks = range(0, len(tiles.partials), together)
    return {where + name: sum(int(x[i : i + together].max()) for i in blocks) for name, x in found.items()}


def measure(row: Row) -> dict[str, Any]:
    """The row compiled: what it needs, as a plain dictionary."""
    target = targets.TARGETS[row.target]
    compiled = targets.compiled(*program(row), target)
    text, runs = hlo.Program(compiled.as_text()), visits(row)
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
