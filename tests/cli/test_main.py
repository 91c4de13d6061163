"""The command line itself: fast start, one line per error, only JSON on stdout with ``--json``."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest
from rich.console import Console

import hpfracc
from hpfracc import cli
from hpfracc.cli import info, main
from hpfracc.cli.answer import Answer
from hpfracc.errors import InvalidInputError, WisdomWarning
from hpfracc.profiling.formats import make_console, make_table
from tests.helpers.source import SOURCE

COMMANDS = [
    ["info"],
    ["explain", "--op", "fft", "--shape", "64"],
    ["wisdom", "show"],
    ["calibrate", "--operations", "bitwise_xor", "--backends", "numpy"],
]


def run_in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "hpfracc", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def replace_info(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], Answer]) -> None:
    """Replace the implementation of ``hpfracc info``."""
    monkeypatch.setattr(info, "run", run)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_stdout_has_only_json(command: list[str], capsys: pytest.CaptureFixture[str]):
    """With ``--json``, stdout is one JSON document without nan, and stderr is empty."""
    assert main([*command, "--json"]) == 0
    out, err = capsys.readouterr()
    assert isinstance(json.loads(out, parse_constant=lambda name: pytest.fail(name)), dict)
    assert err == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_default_output_is_text(command: list[str], capsys: pytest.CaptureFixture[str]):
    """Without ``--json`` the output is a table."""
    assert main(command) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 1
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(out)


def test_help_is_quick():
    """``--help`` takes less than 0.3 s of CPU time in a new interpreter, in the best of five runs."""
    best = math.inf
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = run_in_process("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert answer.returncode == 0
    for command in ("demo", "info", "calibrate", "explain", "wisdom", "sweep"):
        assert command in answer.stdout
    assert best < 0.3


def test_version(capsys: pytest.CaptureFixture[str]):
    """``--version`` prints the version of the library."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"hpfracc {hpfracc.__version__}"


@pytest.mark.parametrize("arguments", [["boil"], ["info", "--frobnicate"], ["wisdom"], ["explain", "--op", "fft"]])
def test_invalid_command_lines(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """argparse prints the error on stderr, and the exit status is 2."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: hpfracc" in err


def test_without_arguments_the_help_is_printed(capsys: pytest.CaptureFixture[str]):
    """As with ``--help``, and the status is 0."""
    assert main(["--help"]) == 0
    text = capsys.readouterr()
    assert main([]) == 0
    assert capsys.readouterr() == text
    assert "usage: hpfracc" in text.out and text.err == ""


def test_our_errors_are_one_line_and_status_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """An error of several lines is printed as one line on stderr, without a traceback."""

    def fail(arguments: argparse.Namespace) -> Answer:
        raise InvalidInputError("size=-1 is negative;\nuse another")

    replace_info(monkeypatch, fail)
    assert main(["info", "--json"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hpfracc: error: size=-1 is negative; use another\n")


def test_errors_that_are_not_ours_are_not_hidden(monkeypatch: pytest.MonkeyPatch):
    """Other exceptions are raised with their traceback."""

    def fail(arguments: argparse.Namespace) -> Answer:
        raise ZeroDivisionError

    replace_info(monkeypatch, fail)
    with pytest.raises(ZeroDivisionError):
        main(["info"])


def test_an_interruption_is_status_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Ctrl-C ends the command without a traceback."""

    def interrupt(arguments: argparse.Namespace) -> Answer:
        raise KeyboardInterrupt

    replace_info(monkeypatch, interrupt)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "hpfracc: interrupted\n"


def test_a_warning_is_a_line_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A warning is printed on stderr as one line, without source code."""

    def warn(arguments: argparse.Namespace) -> Answer:
        warnings.warn("wisdom.json was set aside", WisdomWarning, stacklevel=1)
        return Answer({"fine": True}, lambda: "fine")

    replace_info(monkeypatch, warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["info", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"fine": True}
    assert err == "hpfracc: warning: wisdom.json was set aside\n"


def test_a_closed_pipe_is_not_an_error():
    """``hpfracc info | head -1`` ends without a message."""
    command = f"{sys.executable} -W error -m hpfracc info --json"
    script = f"{command} | head -c 1; status=${{PIPESTATUS[0]}}; echo; echo $status"
    answer = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert answer.stderr == ""
    assert answer.stdout.splitlines()[0] == "{"
    assert answer.stdout.splitlines()[1] in ("0", "141")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"HPFRACC_GPU_MEMORY_LIMIT": "2"}, "HPFRACC_GPU_MEMORY_LIMIT='2'"),
        ({"HPFRACC_ENABLE_LEARNING": "perhaps"}, "HPFRACC_ENABLE_LEARNING='perhaps'"),
        ({"HPFRACC_FORCE_NUMPY": "1", "HPFRACC_DISABLE_NUMPY": "1"}, "cannot be both forced and disabled"),
    ],
)
def test_a_bad_environment_is_named(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The error is one line with the variable and its value."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["info"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1


def test_width_without_a_terminal(monkeypatch: pytest.MonkeyPatch):
    """A pipe gets 132 columns, unless ``COLUMNS`` is set."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console().width == 132
    monkeypatch.setenv("COLUMNS", "90")
    assert make_console().width == 90


def test_every_command_of_the_help_has_a_module():
    """Every command in the table is a module with ``add_command``."""
    for name in cli._COMMANDS:
        assert callable(__import__(f"hpfracc.cli.{name}", fromlist=["add_command"]).add_command)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_table_cuts_nothing(width: int):
    """Where a table does not fit, each row is its name and its values, with their names and units."""
    names = [f"number {number}" for number in range(7)]
    table = make_table("A title", **{"": "word", "span": "word", **dict.fromkeys(names, "number"), "advice": "text"})
    advice = "Work on larger arrays, of which the engine makes one call each."
    table.add_row(">", "causal_convolution", *(f"{number}.25 ms" for number in range(7)), advice)
    table.add_row("", "fft", *["-"] * 7, "")
    shown = io.StringIO()
    Console(width=width, file=shown, force_jupyter=False).print(table)
    out = " ".join(shown.getvalue().split())
    assert max(map(len, shown.getvalue().splitlines())) <= width and "…" not in out
    assert all(f" {number}.25 ms" in out and f"number {number}" in out for number in range(7))
    if width < 120:
        assert "> causal_convolution number 0: 0.25 ms number 1: 1.25 ms" in out
        assert out.endswith(f"advice: {advice} fft")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_output_fits_the_terminal(
    command: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """No line is longer than the terminal is wide, and nothing is cut with an ellipsis."""
    hpfracc.engine.fft([1.0, 2.0, 3.0])
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(command) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
