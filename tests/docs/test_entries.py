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
    """Of its own, or on its page of the site; one sentence sums up what it is."""
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


def test_related_names_and_guides(related: Any):
    """Those that a docstring lists, or mentions; guides before other pages; a short piece of code."""
    assert related.see_also("hpfracc.caputo")[:2] == ["hpfracc.Caputo", "hpfracc.riemann_liouville"]
    assert "hpfracc.pde.Neumann" in related.see_also("hpfracc.pde.Robin")
    assert related.pages("hpfracc.pde.Robin") == ["/how-to/boundary-conditions", "/reference/partial"]
    assert "Robin(" in related.block("hpfracc.pde.Robin")
    assert related.link("hpfracc.caputo") == ":py:obj:`hf.caputo <hpfracc.caputo>`"


def test_a_script_links_to_guides_and_names(related: Any):
    """The guides that share its rarest names come first."""
    line = related.links("from hpfracc import control\n\ncontrol.oustaloup(control.s**0.5, (0.1, 10.0))\n")
    assert line.startswith("See {doc}`/how-to/control`")
    assert "{py:obj}`hf.control.oustaloup <hpfracc.control.oustaloup>`" in line
    assert related.links("print(1)") == ""
