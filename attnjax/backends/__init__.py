"""Backends: leaves that compute one call. None imports another; `choose` picks one, and only this file names them."""

import difflib
import logging
from typing import Any

from attnjax.backends import dense, tiled
from attnjax.backends.base import PLATFORMS, Backend, Differentiable, HoldsWeights, Target, default_target
from attnjax.call import Call

BACKENDS: dict[str, Backend] = {"tiled": tiled, "dense": dense}  # in order of preference
LENDS: Differentiable = tiled  # backward and tangent, to those without their own

log = logging.getLogger("attnjax")


def derivatives_of(name: str) -> Differentiable:
    """What differentiates a backend: itself, or the one that lends.

    Raises:
        ValueError: if it would have to borrow, and gives no log-sum-exp.
    """
    own: Any = BACKENDS[name]
    if isinstance(own, Differentiable):
        return own
    if not own.gives_lse:
        raise ValueError(
            f"backend={name!r} has no derivative: it brings none, and gives no log-sum-exp for one that it could borrow"
        )
    return LENDS


def holding_weights() -> tuple[str, HoldsWeights]:
    """(name, backend) of the one that gives the weights themselves."""
    return next((name, own) for name, own in BACKENDS.items() if isinstance(own, HoldsWeights))


def settled(call: Call, backend: str, lse: bool = False) -> str:
    """What is known of the choice before the target is: "auto", unless plain JAX suits every platform or one is named.

    Args:
        call, backend: as for `choose`.
        lse: whether the log-sum-exp is asked for.

    Raises:
        ValueError: for an unknown name, or a backend that runs the call on no platform.
    """
    here = default_target()
    if backend == "auto":
        chosen = {choose(call, backend, Target(platform), lse)[0] for platform in PLATFORMS}
        return backend if len(chosen) > 1 or not BACKENDS[min(chosen)].plain else min(chosen)
    if backend not in BACKENDS or all(_why_not(backend, call, Target(p), lse) for p in PLATFORMS):
        choose(call, backend, here, lse)  # which says what is wrong
    return backend


def _why_not(name: str, call: Call, target: Target, lse: bool) -> str | None:
    own = BACKENDS[name]
    if lse and not own.gives_lse:
        return "it gives no log-sum-exp, which return_lse=True and sink_logits need"
    return own.why_not(call, target)


def _has_derivative(name: str) -> bool:
    return BACKENDS[name].gives_lse or isinstance(BACKENDS[name], Differentiable)


def choose(call: Call, backend: str, target: Target, lse: bool = False) -> tuple[str, dict[str, str]]:
    """(name of the backend, reason for each backend); a named backend that cannot run raises.

    Raises:
        ValueError: for an unknown name, or a backend that cannot run the call there.
    """
    usable = {name: _why_not(name, call, target, lse) for name in BACKENDS}
    names = ", ".join(["'auto'", *(repr(n) for n, why in usable.items() if why is None)])
    if backend != "auto":
        if backend not in BACKENDS:
            near = difflib.get_close_matches(str(backend), ["auto", *BACKENDS], 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"backend={backend!r} is unknown; usable here: {names}.{hint}")
        if usable[backend] is not None:
            raise ValueError(f"backend={backend!r} cannot run this call: {usable[backend]}; usable here: {names}")
    asked = {name: own.prefers(call, target) for name, own in BACKENDS.items() if usable[name] is None}
    liked = [name for name, (preferred, _) in asked.items() if preferred and _has_derivative(name)]
    best = next(iter(liked or asked))
    chosen = best if backend == "auto" else backend
    reasons = {}
    for name, why in usable.items():
        if name == chosen:
            reasons[name] = f"chosen: {'named by the caller' if backend != 'auto' else asked[name][1]}"
        else:
            reasons[name] = f"cannot run: {why}" if why else f"can run; {asked[name][1]}, where auto takes {best}"
    log.debug("attend %s: %s", call.options.pattern, reasons[chosen])
    return chosen, reasons
