"""``hpfracc calibrate`` passes on its options and shows a progress bar on terminals only."""

from __future__ import annotations

import json
import sys
import time

import pytest

from hpfracc.cli import main
from hpfracc.cli.answer import progress_bar
from hpfracc.engine.execution.calibration.trial import TimeBox


def test_options_are_obeyed(capsys: pytest.CaptureFixture[str]):
    """Operations, backends and the time budget are passed on."""
    command = ["calibrate", "--operations", "bitwise_xor,reduction", "--backends", "numpy", "--budget", "0.3", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["budget_seconds"] == 0.3
    assert not found["thorough"]
    assert {row["operation"] for row in found["operations"]} == {"bitwise_xor", "reduction"}
    assert {timing["arm"].split(":")[0] for row in found["operations"] for timing in row["timings"]} == {"numpy"}


def test_thorough_is_finer_and_has_more_dtypes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """``--thorough`` uses more sizes and a second dtype. Processor time is counted: the machine may be busy."""
    begin = time.process_time()
    monkeypatch.setattr(TimeBox, "spent", property(lambda box: time.process_time() - begin))
    command = ["calibrate", "--operations", "bitwise_xor", "--backends", "numpy", "--budget", "1.5", "--json"]
    assert main([*command, "--thorough"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["dtype"] for row in found["operations"]} == {"int64", "uint8"}
    assert {tuple(timing["shape"]) for timing in found["operations"][0]["timings"]} >= {(32,), (64,), (128,), (256,)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--operations", "matmull"], "did you mean 'matmul'"),
        (["--budget", "0"], "--budget=0.0"),
        (["--budget", "nan"], "--budget=nan"),
        (["--backends", "fortran"], "unknown backend 'fortran'"),
    ],
)
def test_bad_options_are_typed_errors(options: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    """The exit status is 2, and the error is one line."""
    assert main(["calibrate", *options]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A terminal gets a bar with the current step on stderr, a pipe gets none; brackets are not interpreted."""
    with progress_bar("Working") as report:
        report(0.5, "this is not shown")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar("Working") as report:
        report(0.5, "measuring fft [16]")
    out, err = capsys.readouterr()
    assert out == ""
    assert "Working" in err
    assert "measuring fft [16]" in err
