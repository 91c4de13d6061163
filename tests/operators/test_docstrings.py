"""The examples in the operators' docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pydoc
import re

import pytest

import hpfracc as hf

#: Files of functions that are no operators.
PLAIN = [f"hpfracc.operators.{name}" for name in ("_fractional_difference", "_frft", "core.registry")]
OPERATORS = [name for name in hf.__all__ if hf.FractionalOperator in getattr(getattr(hf, name), "__mro__", ())[1:]]


@pytest.mark.parametrize(
    "module",
    sorted({*(getattr(hf, name).__module__ for name in OPERATORS), *PLAIN}),
)
def test_examples_run(module: str):
    """Every example of a file prints what it says."""
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("name", OPERATORS)
def test_help_describes_every_parameter(name: str):
    """In a terminal, where no other page is at hand: each has its words, which are no mere reference."""
    operator = getattr(hf, name)
    function = getattr(hf, operator.function_name)
    text = pydoc.plain(pydoc.render_doc(function)).partition("Parameters\n")[2].partition("Returns\n")[0]
    described = {each for names in re.findall(r"^ {4}(\w[\w, ]*) : ", text, re.MULTILINE) for each in names.split(", ")}
    assert set(inspect.signature(function).parameters) - set(operator.unused) - described == set()
    assert re.findall(r"\b[Aa]s for :\w+:`[\w.]+`\W?$", text, re.MULTILINE) == []
