"""The examples in the operators' docstrings are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

from hpfracc.operators._registry import all_operators


@pytest.mark.parametrize(
    "module", sorted({*(operator.__module__ for operator in all_operators()), "hpfracc.operators._registry"})
)
def test_examples_run(module: str):
    """Every example of a file prints what it says."""
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
