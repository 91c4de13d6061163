"""The progress bar, and what a notebook shows."""

from __future__ import annotations

import builtins
import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf

T = np.linspace(0.0, 2.0, 9)


class ZMQInteractiveShell:
    """The shell of a notebook, by its name."""


RUNS: dict[str, Callable[[], Any]] = {
    "ode": lambda: hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=0.05, progress=True),
    "sde": lambda: hf.solve_fsde(lambda t, y: -y, 0.1, (0.0, 1.0), [1.0], step=0.25, paths=50, rng=0, progress=True),
    "batch": lambda: hf.batch.run(hf.engine.reduction, [T, T], progress=True),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_notebook_without_widgets_shows_a_bar_of_text(name, monkeypatch):
    """rich itself only warns there."""
    out = io.StringIO()
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr("hpfracc._interrupts.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "stderr", out)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RUNS[name]()
    assert "━" in out.getvalue()


def shown(value: Any) -> tuple[dict[str, Any], str]:
    """What a notebook gets for the last value of a cell, and what is printed meanwhile."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", printed)
        try:
            from IPython.core.formatters import DisplayFormatter
        except ImportError:
            found = {"text/plain": repr(value), "text/html": value._repr_html_()}
        else:
            found = DisplayFormatter().format(value)[0]
    return found, printed.getvalue()


def test_a_notebook_shows_each_value_once():
    """A short text and HTML, and nothing printed, for an explanation and for results."""
    values = [
        hf.explain("caputo", shape=(1000,)),
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=0.25),
        hf.solve_fsde(lambda t, y: -y, 0.1, (0.0, 1.0), [1.0], step=0.25, paths=3, rng=0),
        hf.solve_fpde(
            None, (0.0, 1.0), np.sin(T), x=T, space=hf.pde.Diffusion(1.0), boundary="no_flux", t_eval=[0.0, 1.0]
        ),
        hf.fit_fode(lambda t, y, k: -k * y, T, np.exp(-T), parameters={"k": 0.8}, alpha=0.9, y0=[1.0]),
        hf.caputo(T**2, T, 0.5, full_output=True),
    ]
    for value in values:
        found, printed = shown(value)
        assert set(found) == {"text/plain", "text/html"}
        assert found["text/html"].count("<table") >= 1
        assert printed == ""


def test_an_explanation_is_text_in_a_notebook(monkeypatch):
    """Its ``repr`` returns the table, where rich would display it a second time."""
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    found, printed = shown(hf.explain("caputo", shape=(1000,)))
    assert "causal_convolution" in found["text/plain"] and printed == ""
