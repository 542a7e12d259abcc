"""What every test runs under: strict dtypes, no silent broadcasting of ranks, repeatable property tests.

Compiling is most of what the quick tests cost. They ask XLA for programs that are quick to compile, which takes half as
long; slow tests, and files that are run by name, get what users get.

This file must not import attnjax: it is read before the jaxtyping hook is in place, and what is imported
before the hook goes unchecked.
"""

import collections
import hashlib
import importlib.metadata
import math
import os
import pathlib
import subprocess

# Before jax is imported: the tests are written for the CPU, and each xdist worker has one core to itself.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax
import pytest

TRAIN_TESTS = pathlib.Path(__file__).parent / "train"

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_configure(config):
    if "not slow" in config.option.markexpr:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for the processes that tests start
        jax.config.update("jax_disable_most_optimizations", True)
        if importlib.metadata.version("jaxlib").startswith("0.10."):  # later ones know no such flag, and stop at it
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()


def pytest_addoption(parser):
    parser.addoption("--share", type=float, default=1.0, help="which share of the slow tests is run; all of them by default")
    parser.addoption("--draw", default=drawn_by(), help="what draws rows and that share; the same text draws the same (DRAW, or the commit)")


def drawn_by() -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=TRAIN_TESTS, capture_output=True, text=True, check=False)
    return os.environ.get("DRAW") or commit.stdout.strip() or "0"


def pytest_report_header(config):
    return f"slow tests: a share of {config.getoption('share')}; what is run of them and of each cross is drawn by --draw {config.getoption('draw')}"


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(config, items):
    """Of each cross a fifth of the rows is quick, and the others are slow; leaves out all but a share of what is slow."""
    def place(item) -> int:
        text = f"{config.getoption('draw')} {item.nodeid}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())

    crosses = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("cross") and not item.get_closest_marker("slow"):
            crosses[item.nodeid.partition("[")[0]].append(item)
    for rows in crosses.values():
        for item in sorted(rows, key=place)[math.ceil(len(rows) / 5):]:
            item.add_marker("slow")
    out = [x for x in items if x.get_closest_marker("slow") and place(x) >= config.getoption("share") * 2**32]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [x for x in items if x not in set(out)]


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
