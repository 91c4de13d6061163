"""The examples in the solvers' docstrings and the example script are true."""

from __future__ import annotations

import doctest
import importlib
import runpy
import sys

import pytest

from tests.helpers.source import REPOSITORY


@pytest.mark.parametrize("module", ["solve", "_fdeint", "methods.mittag_leffler"])
def test_examples_run(module: str):
    """Every example of a file prints what it says."""
    found = doctest.testmod(importlib.import_module(f"hpfracc.solvers.ode.{module}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_example_script_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """It shows the turns of three orders."""
    monkeypatch.setattr(sys, "argv", ["fractional_brusselator.py"])
    runpy.run_path(str(REPOSITORY / "examples" / "fractional_brusselator.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["alpha = 0.7", "alpha = 0.8", "alpha = 1.0"]
