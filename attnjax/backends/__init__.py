"""Backends: leaves that compute one call. None imports another; `attend` chooses."""

from types import ModuleType

from attnjax.backends import dense, tiled

BACKENDS: dict[str, ModuleType] = {"tiled": tiled, "dense": dense}  # in order of preference
