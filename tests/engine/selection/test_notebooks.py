"""An explanation in a notebook is shown once."""

from __future__ import annotations

import builtins

import pytest

import hpfracc as hf


class ZMQInteractiveShell:
    """Named like the shell of a notebook, by which rich recognises one."""


@pytest.mark.parametrize("make", [repr, str])
def test_the_text_of_an_explanation_is_returned_not_displayed(
    make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """In a notebook too, where rich displays what it is told to print to a file."""
    found = hf.explain("fft", shape=(64,))
    plain = make(found)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    assert make(found) == plain
    assert "fft: 33 float64" in plain
    assert capsys.readouterr().out == ""
