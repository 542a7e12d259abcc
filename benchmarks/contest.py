"""One row: results compared first, then every side timed in turn, round after round."""

import dataclasses
import statistics
import time

import jax.numpy as jnp
import numpy as np
from child import ChildSide
from sides import SIDES, JaxSide, Unable

PEERS = "jax.nn", "flax", "tokamax", "sdpa", "flex"
CHECK_SEED = 10_000
SHORTEST = 0.05  # seconds: a call under this is repeated until the clock has something to see
PAUSE = 0.02  # seconds: idle workers of the side before stop spinning


class Mismatch(SystemExit):
    """Two sides disagree, so neither is timed."""


def side(rival, row, child):
    """The rival's side at the row's work."""
    work = dataclasses.replace(row.work, **dict(rival.changes))
    if rival.peer in SIDES:
        return JaxSide(rival.name, rival.peer, work)
    if child is None:
        raise Unable("torch was not found")
    return ChildSide(rival.name, child, rival.peer, work)


def bound(dtype):
    """Relative to the largest number: accumulated rounding in float32, a few last places in 16 bits."""
    eps = float(jnp.finfo(dtype).eps)
    return 50 * eps if dtype == "float32" else 3 * eps


def compare(name, got, want, dtype):
    """Largest difference of any result, relative to its largest number.

    Raises:
        Mismatch: if that is over the bound.
    """
    errors = [float(np.abs(g - w).max() / np.abs(w).max()) for g, w in zip(got, want, strict=True)]
    if not max(errors) <= bound(dtype):  # so that NaN stops as well
        far = f"{max(errors):.2e} (bound {bound(dtype):.2e})"
        raise Mismatch(f"{name} differs from attnjax by {far}; nothing was timed")
    return max(errors)


def contestants(row, child):
    """(rivals that can run this row with their sides, error of each, why the others cannot)."""
    us = JaxSide("attnjax", "attnjax", row.work)
    want = us.result(CHECK_SEED)
    sides, errors, absent = [us], {}, {}
    for rival in row.rivals:
        try:
            them = side(rival, row, child)
            got = them.result(CHECK_SEED)
        except Unable as why:
            absent[rival.name] = str(why)
            continue
        changed = {field for field, _ in rival.changes}
        if not changed & {"pattern", "direction"}:  # the same function of the same numbers
            errors[rival.name] = compare(rival.name, got, want, row.work.dtype)
        sides.append(them)
    return sides, errors, absent


def alternate(sides, rounds):
    """{name: seconds of each round}; the order turns by one side each round, inputs are new each round."""
    calls = {}
    for each in sides:
        once = each.seconds(CHECK_SEED, 1)
        calls[each.name] = max(1, round(SHORTEST / once))
    times = {each.name: [] for each in sides}
    for number in range(rounds):
        turn = number % len(sides)
        for each in sides[turn:] + sides[:turn]:
            time.sleep(PAUSE)
            times[each.name].append(each.seconds(number, calls[each.name]))
    return times


def spread(values):
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def measure(row, child, rounds):
    """The row as a plain dictionary."""
    sides, errors, absent = contestants(row, child)
    times = alternate(sides, min(rounds, row.rounds or rounds))
    rivals = []
    for rival in row.rivals:
        entry = {"name": rival.name, "at_least": rival.at_least, "aim": rival.aim}
        if rival.name in absent:
            entry["absent"] = absent[rival.name]
        else:
            ratios = [them / us for them, us in zip(times[rival.name], times["attnjax"], strict=True)]
            entry |= {"seconds": spread(times[rival.name]), "ratio": spread(ratios), "error": errors.get(rival.name)}
        rivals.append(entry)
    return {
        "row": row.name,
        "work": dataclasses.asdict(row.work),
        "seconds": spread(times["attnjax"]),
        "rivals": rivals,
    }
