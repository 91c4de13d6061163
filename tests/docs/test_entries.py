"""Every entry of the reference has a summary, an example and related names."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

import pytest

import hpfracc
from tests.docs.test_generate import generate as generate  # a fixture

pytest.importorskip("torch")
pytest.importorskip("jax")

FUNCTIONS = [name for name in hpfracc.__all__ if inspect.isfunction(getattr(hpfracc, name))]


@pytest.fixture(scope="module")
def related(generate: ModuleType) -> Any:
    return generate.related()


def test_every_entry_has_a_summary_an_example_and_related_names(related: Any):
    """Of its own, or added when the site is built; one sentence sums up what it is."""
    assert len(related.names) > 300
    assert [name for name in related.names if not re.match(r"[^\n]{10,}", related.text(name))] == []
    assert [name for name in related.names if ">>>" not in related.text(name) and not related.examples(name)] == []
    assert [
        name for name in related.names if "\nSee Also\n" not in related.text(name) and not related.see_also(name)
    ] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_them_in_their_docstrings(name: str):
    """So that ``help`` shows them too; the names that it refers to exist."""
    text = inspect.getdoc(getattr(hpfracc, name)) or ""
    assert "\nExamples\n--------\n" in text
    _, found, after = text.partition("\nSee Also\n--------\n")
    assert found
    listed = re.findall(r"^([\w., ]+?)(?: :.*)?$", after.partition("\n\n")[0], re.MULTILINE)
    for other in ", ".join(listed).split(", "):
        module, _, last = f"hpfracc.{other.removeprefix('hpfracc.')}".rpartition(".")
        assert hasattr(importlib.import_module(module), last), other


def test_what_is_added_to_an_entry(related: Any):
    """Links to related names and to examples where the docstring has none; nothing where it has both."""
    assert "".join(related.lines("hpfracc.caputo")) == ""
    added = "\n".join(related.lines("hpfracc.pde.Robin"))
    assert ".. seealso:: " in added
    assert ":py:obj:`hf.pde.Neumann <hpfracc.pde.Neumann>`" in added
    assert "**Examples:** :doc:`/how-to/boundary-conditions`" in added
    assert "**Examples:** above, on this page" in "".join(related.lines("hpfracc.control.pade"))
    assert related.lines("hpfracc.unknown") == []
