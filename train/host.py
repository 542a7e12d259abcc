"""What a result depends on besides settings and seed: the machine and the versions."""

import importlib.metadata
import importlib.util
import os
import pathlib
import platform

from train.limits import shown


def versions() -> dict[str, str]:
    """Python and the packages that compute."""
    import flax
    import jax
    import jaxlib
    import numpy
    import optax

    import attnjax

    packages = (attnjax, jax, jaxlib, flax, optax, numpy)
    return {"python": platform.python_version()} | {p.__name__: p.__version__ for p in packages}


def device() -> str:
    """The devices that JAX sees, in words."""
    import jax

    first = jax.local_devices()[0]
    return f"{len(jax.local_devices())} x {first.device_kind} ({first.platform})"


def threads() -> int:
    """Cores that this process may use; XLA starts as many threads, and they decide the order of some sums."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """The processor's name; its instructions decide how sums are vectorised."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory() -> int:
    """Bytes that one device has: its own, or on a CPU those of the host."""
    import jax

    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def have(*packages: str) -> None:
    """Nothing, if packages that only the end needs are installed.

    Raises:
        ValueError: that names the missing ones.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"the results are written with {' and '.join(missing)}, not installed here: "
                         f"pip install {' '.join(missing)}")


def setup(devices: int) -> dict:
    """All that must be equal for two runs to be equal bit by bit, `devices` being how many a run uses."""
    data = {name: importlib.metadata.version(name) for name in ("grain", "orbax-checkpoint")}
    return {
        "device": device(), "devices": devices, "processor": processor(), "threads": threads(),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""), "versions": versions() | data,
    }


def differences(then: dict, now: dict) -> list[str]:
    """What changed between two tables, in words.

    Example:
        >>> differences({"threads": 8, "versions": {"jax": "0.10.2"}}, {"threads": 2, "versions": {"jax": "0.12.0"}})
        ['threads was 8 and is 2', 'versions.jax was 0.10.2 and is 0.12.0']
    """
    found = []
    for name in [*now, *(name for name in then if name not in now)]:
        before, value = then.get(name), now.get(name)
        if isinstance(value, dict):
            nested = before if isinstance(before, dict) else {}
            found += [f"{name}.{line}" for line in differences(nested, value)]
        elif before != value:
            was, is_now = (
                "not set" if x in (None, "") else x if isinstance(x, str) else shown(x) for x in (before, value)
            )
            found.append(f"{name} was {was} and is {is_now}")
    return found


def listed(items: list[str], between: str = "; ") -> str:
    """The first few of many, and how many more there are.

    Example:
        >>> listed(["a", "b", "c", "d", "e"], ", ")
        'a, b, c and 2 more'
    """
    more = f" and {len(items) - 3} more" if len(items) > 3 else ""
    return between.join(items[:3]) + more
