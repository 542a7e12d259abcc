"""Backends: leaves that compute one call. None imports another; `choose` picks one, and only this file names them."""

import difflib
import logging
from typing import Any

from attnjax.backends import dense, tiled
from attnjax.backends.base import Backend, Differentiable, HoldsWeights, Target
from attnjax.call import Call

BACKENDS: dict[str, Backend] = {"tiled": tiled, "dense": dense}  # in order of preference
LENDS: Differentiable = tiled  # backward and tangent, to those without their own

log = logging.getLogger("attnjax")


def derivatives_of(name: str) -> Differentiable:
    """What differentiates a backend: itself, or the one that lends."""
    own: Any = BACKENDS[name]
    return own if isinstance(own, Differentiable) else LENDS


def holding_weights() -> tuple[str, HoldsWeights]:
    """(name, backend) of the one that gives the weights themselves."""
    return next((name, own) for name, own in BACKENDS.items() if isinstance(own, HoldsWeights))


def choose(call: Call, backend: str, target: Target) -> tuple[str, dict[str, str]]:
    """(name of the backend, reason for each backend); a named backend that cannot run raises.

    Raises:
        ValueError: for an unknown name, or a backend that cannot run the call there.
    """
    usable = {name: own.why_not(call, target) for name, own in BACKENDS.items()}
    names = ", ".join(["'auto'", *(repr(n) for n, why in usable.items() if why is None)])
    if backend != "auto":
        if backend not in BACKENDS:
            near = difflib.get_close_matches(str(backend), ["auto", *BACKENDS], 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"backend={backend!r} is unknown; usable here: {names}.{hint}")
        if usable[backend] is not None:
            raise ValueError(f"backend={backend!r} cannot run this call: {usable[backend]}; usable here: {names}")
    asked = {name: own.prefers(call, target) for name, own in BACKENDS.items() if usable[name] is None}
    best = next((name for name, (preferred, _) in asked.items() if preferred), next(iter(asked)))
    chosen = best if backend == "auto" else backend
    reasons = {}
    for name, why in usable.items():
        if name == chosen:
            reasons[name] = f"chosen: {'named by the caller' if backend != 'auto' else asked[name][1]}"
        else:
            reasons[name] = f"cannot run: {why}" if why else f"can run; {asked[name][1]}, where auto takes {best}"
    log.debug("attend %s: %s", call.options.pattern, reasons[chosen])
    return chosen, reasons
