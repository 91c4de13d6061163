"""``hpfracc calibrate`` passes on its options and shows a progress bar on terminals only."""

from __future__ import annotations

import json
import sys

import pytest

from hpfracc.cli import main
from hpfracc.cli.answer import progress_bar


def test_options_are_obeyed(capsys: pytest.CaptureFixture[str]):
    """Operations and backends are passed on; what was found is told."""
    command = ["calibrate", "--operations", "bitwise_xor,reduction", "--backends", "numpy"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["operation"] for row in found["timings"]} == {"bitwise_xor", "reduction"}
    assert {row["arm"].split(":")[0] for row in found["timings"]} == {"numpy"}
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "bitwise_xor" in out and "records are kept" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--operations", "matmull"], "did you mean 'matmul'"),
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
