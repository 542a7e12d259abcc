"""What every test runs under: strict dtypes, no silent broadcasting of ranks, repeatable property tests.

This file must not import attnjax: it is read before the jaxtyping hook is in place, and what is imported
before the hook goes unchecked.
"""

import os
import pathlib

# Before jax is imported: the tests are written for the CPU, and each xdist worker has one core to itself.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax
import pytest

TRAIN_TESTS = pathlib.Path(__file__).parent / "train"

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def promotion(request):
    """Strict promotion, no rank promotion; tests of train/ run as its users do (optax needs standard)."""
    if request.path.is_relative_to(TRAIN_TESTS):
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def standard_promotion(promotion):
    """For calls into other libraries that do not pass under strict promotion (flax's own modules, optax)."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
