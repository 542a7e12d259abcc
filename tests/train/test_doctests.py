"""The examples in train/'s docstrings run, with the names of their own module."""

import doctest
import importlib
import pkgutil

import pytest

import train

MODULES = [m.name for m in pkgutil.walk_packages(train.__path__, "train.") if m.name != "train.__main__"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) >= 12
