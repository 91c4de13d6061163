"""The examples in the operators' docstrings are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

from hpfracc.operators.core.registry import all_operators

#: Files of functions that are no operators.
PLAIN = [f"hpfracc.operators.{name}" for name in ("_fractional_difference", "_frft")]


@pytest.mark.parametrize(
    "module",
    sorted({*(operator.__module__ for operator in all_operators()), "hpfracc.operators.core.registry", *PLAIN}),
)
def test_examples_run(module: str):
    """Every example of a file prints what it says."""
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
