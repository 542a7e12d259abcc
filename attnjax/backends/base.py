"""The contract of a backend, and the target that it is asked about.

A backend is a module (or a package) in this folder and a line in the registry. It promises, for a `Call`:

- It computes exactly the pairs that `Call.shown` and the mask show and no bias of -inf hides; keys and values that no
  query may see are 0 when they come, those that only some may see count for nobody else.
- Scores, softmax and sums are float32, float64 where an input is; products have `Options.precision`, in which None
  means HIGHEST with 32- or 64-bit inputs and DEFAULT with 16-bit ones (`scores.matmul_precision`).
- The output [B, T, N, h] has q's dtype. The log-sum-exp [B, T, N] is natural, float32 (float64 where an input is), over
  the scores after the score rule and before dropout. A query that sees no key has output 0 and log-sum-exp -inf.
  A backend that cannot give it says so (`gives_lse`), returns None, and is refused where one is asked for or borrowed.
- Learned sinks are not its business unless it is `plain`: they join afterwards, as do the gradients to them.
- The call's arrays vary alike along the axes of a mesh.
- `backward` gives the cotangents of every array in `Call.diff` but the sinks, in its dtype, from those of output and
  log-sum-exp; rows without keys come with cotangents of 0. `tangent` is linear in its tangents.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

from attnjax.call import Call, Diff
from attnjax.plan import Plan
from attnjax.shapes import is_symbolic
from attnjax.tile_sizes import UNJITTED, small_scores

PLATFORMS = "cpu", "cuda", "rocm", "tpu"  # as JAX names what a program is lowered for


class Target(NamedTuple):
    """What a program is made for."""

    platform: str  # one of PLATFORMS, or what a plugin adds
    device_kind: str | None = None  # as `jax.Device.device_kind` says; None: any of the platform
    compute_capability: str | None = None  # of a GPU
    num_devices: int = 1  # among which the partitioner will split one call


class Work(NamedTuple):
    """What running a call costs."""

    scores: int  # computed, over batch and heads
    bytes: int  # of temporaries of the forward pass, an estimate
    tiles: dict[str, int] | None = None  # visits with and without a mask, for one head; None without tiles
    walks: tuple[str, ...] = ()  # how each part of the pattern is walked through
    plans: tuple[tuple[tuple[int, ...], Plan], ...] = ()  # (heads, their plan)


class Backend(Protocol):
    """What every backend has."""

    plain: bool  # plain JAX: all derivatives are JAX's own, and learned sinks are its business
    gives_lse: bool  # whether `forward` gives a log-sum-exp, which sinks, return_lse and borrowed derivatives need

    def why_not(self, call: Call, target: Target) -> str | None:
        """A sentence that says why it cannot run this call there; None if it can."""
        ...

    def prefers(self, call: Call, target: Target) -> tuple[bool, str]:
        """Whether `auto` should take it there (the first that says so), and the sentence that says why or why not."""
        ...

    def work(self, call: Call, target: Target) -> Work:
        """What running the call there costs."""
        ...

    def forward(self, call: Call, target: Target) -> tuple[Any, Any]:
        """(output [B, T, N, h], log-sum-exp [B, T, N] or None)."""
        ...


@runtime_checkable
class Differentiable(Protocol):
    """A backend that brings its own derivatives; others borrow both."""

    def backward(self, call: Call, target: Target, o: Any, lse: Any, d_o: Any, d_lse: Any) -> Diff:
        """Cotangents of `call.diff` from those of output and log-sum-exp."""
        ...

    def tangent(self, call: Call, target: Target, o: Any, lse: Any, along: Diff) -> tuple[Any, Any]:
        """Tangents of (output, log-sum-exp) along tangents of `call.diff`."""
        ...


@runtime_checkable
class HoldsWeights(Protocol):
    """A backend that can give the weights themselves."""

    def weights(self, call: Call) -> Any:
        """The weights [B, N, T, S] after dropout."""
        ...


def default_target(platform: str | None = None) -> Target:
    """The target of a program that names none: the first device that JAX would use, or any device of a platform.

    Raises:
        ValueError: for a platform that there is not.
    """
    if platform is not None and platform not in PLATFORMS:
        hint = "; name 'cuda' or 'rocm'" if platform == "gpu" else ""
        raise ValueError(f"platform={platform!r} is unknown; there are {', '.join(map(repr, PLATFORMS))}{hint}")
    device: Any = jax.devices(jax.default_backend())[0]
    here = device.platform
    if here == "gpu":  # JAX's devices of both kinds say so, and programs are lowered for one of them
        here = "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
    return target_of(device, platform or here)


def target_of(device: Any, platform: str, num_devices: int = 1) -> Target:
    """The target of a program for a platform, of which this may be a device."""
    if device is None or device.platform not in (platform, "gpu" if platform in ("cuda", "rocm") else platform):
        return Target(platform, num_devices=num_devices)
    return Target(platform, device.device_kind, getattr(device, "compute_capability", None), num_devices)


def needs_one_device(target: Target) -> str | None:
    """Why a kernel cannot run there, if several devices share the call: XLA cannot split what it knows nothing of."""
    if target.num_devices == 1:
        return None
    return (
        f"{target.num_devices} devices share the call, and no mesh says how: wrap it in jax.shard_map, or let its "
        "arrays lie on explicit axes of a mesh (jax.make_mesh and jax.set_mesh)"
    )


def is_small(call: Call, target: Target) -> tuple[bool, str]:
    """Whether computing all scores at once is faster there than visiting tiles, and why."""
    d, most = call.dims, small_scores(target.platform)
    if is_symbolic(d.T, d.S):
        return True, f"T x S = {d.T} x {d.S} stands for any number of"
    size, what = d.T * d.S, f"T x S = {d.T} x {d.S} is"
    config: Any = jax.config
    if config.jax_disable_jit:  # loops over tiles then run in Python, hundreds of times slower
        size, most, what = d.B * d.N * size, UNJITTED, f"jit is switched off and {d.B * d.N * size:,} in all are"
    return size <= most, f"{what} {'at most' if size <= most else 'over'} {most} scores"
