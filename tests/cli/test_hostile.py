"""Commands with hostile streams, environments and arguments end with output or one line of error, not a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpfracc.cli import main
from hpfracc.profiling import get_profiler
from tests.helpers.source import SOURCE
from tests.helpers.thinned import thinned

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses /dev/full and the shell's redirections")

CLI = f"{sys.executable} -W error -m hpfracc"


def shell(line: str, **variables: str) -> tuple[int, str]:
    """Run a shell command; returns its exit status and output."""
    done = subprocess.run(
        ["bash", "-c", line],
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("command", "redirection", "status"),
    [
        ("info", "| head -c 0; exit ${PIPESTATUS[0]}", 141),
        ("wisdom show --json", ">/dev/full", 74),
        ("--help", ">/dev/full", 74),
        ("wisdom import nowhere", "2>/dev/full", 2),
    ],
)
@thinned(one_in=2)
def test_streams_that_are_closed_or_full(command: str, redirection: str, status: int):
    """The exit status is right, and at most one line is printed."""
    found, output = shell(f"{CLI} {command} {redirection}")
    assert "Traceback" not in output
    assert "Exception ignored" not in output
    assert len(output.splitlines()) <= 1
    assert found == status


@pytest.mark.parametrize("columns", ["0", "1", "-5", "many", ""])
def test_any_width_shows_the_answer(columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Invalid or extreme values of ``COLUMNS`` do not prevent the output."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    assert main(["wisdom", "show"]) == 0
    assert "0 records" in capsys.readouterr().out


def test_an_encoding_that_lacks_characters():
    """Characters that the encoding lacks are written as escapes."""
    found, output = shell(f"{CLI} wisdom import 'ünknown'", PYTHONIOENCODING="ascii")
    assert found == 2
    assert "\\xfcnknown" in output


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    profiler = get_profiler(enabled=True)
    profiler.reset()
    with profiler.profile("load"):
        pass
    profiler.disable()
    path = profiler.export_json(tmp_path / "run.json")
    profiler.reset()
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"start_ns":', '"start_ns":NaN,"x":'),
        ('"duration_ns":', '"duration_ns":1e999,"x":'),
        ('"duration_ns":', '"duration_ns":-1,"x":'),
        ('"begun_unix_ns": ', '"begun_unix_ns": "x", "y": '),
        ('"process": {', '"process": 7, "y": {'),
        ('"spans": [', '"spans": [3,'),
        ('"name":"load"', '"name":["load"]'),
        ('"id":', f'"id":1{"0" * 40},"x":'),
        ('"spans": [', '"deep": ' + "[" * 100_000 + "]" * 100_000 + ', "spans": ['),
    ],
)
def test_a_damaged_profile_is_refused(
    old: str, new: str, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """NaN, huge numbers, missing and foreign fields are errors of one line that names the file; no page is written."""
    text = profile.read_text(encoding="utf-8")
    assert old in text
    profile.write_text(text.replace(old, new), encoding="utf-8")
    page = tmp_path / "page.html"
    for command in (["page", str(profile), "-o", str(page)], ["compare", str(profile), str(profile)]):
        assert main(["profile", *command]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "run.json" in err
        assert len(err.splitlines()) == 1
    assert not page.exists()


def test_output_goes_through_links_and_replaces_nothing_else(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Pages and exports are written to the target of a link; devices, FIFOs and folders are not replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for command in (["profile", "page", str(profile), "-o"], ["wisdom", "export"]):
        for path in (pipe, tmp_path, Path(""), Path(os.devnull), Path("/dev/full")):
            assert main([*command, str(path)]) == 2
            assert "not a regular file" in capsys.readouterr().err
        assert main([*command, str(link)]) == 0
        assert link.is_symlink()
        assert target.stat().st_size > 0
        target.unlink()
    assert pipe.is_fifo()


@pytest.mark.parametrize("stdout", ["-", "/dev/stdout"])
def test_output_to_stdout(stdout: str, profile: Path, capsys: pytest.CaptureFixture[str]):
    """With ``-`` or ``/dev/stdout``, stdout has only the file, and messages go to stderr."""
    assert main(["wisdom", "export", stdout]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["records"] == []
    assert "0 records" in err
    assert main(["profile", "page", str(profile), "-o", stdout]) == 0
    assert capsys.readouterr().out.lower().startswith("<!doctype html")
    assert main(["wisdom", "export", stdout, "--json"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["wisdom", "import", "\udcff\x1b[31m"],
        ["wisdom", "export", "no/such/\udcff\x1b[31m"],
        ["explain", "--op", "\x1b[31mfft", "--shape", "8"],
        ["explain", "--op", "fft", "--shape", "9" * 5000],
        ["explain", "--op", "fft", "--shape", "1e999"],
        ["explain", "--op", "fft", "--shape", "nan"],
        ["explain", "--op", "fft", "--shape", ""],
        ["explain", "--op", "fft", "--shape", "1" + "0" * 30],
        ["explain", "--op", "fft", "--shape", "8", "--dtype", "\x1b"],
        ["explain", "--op", "fft", "--shape", "8", "--backend", "\x1b"],
        ["explain", "--op", "fft", "--shape", "8", "--on", "cuda:\x1b"],
        ["calibrate", "--operations", "[/red]"],
        ["calibrate", "--backends", "\x1b"],
        ["profile", "run", "--capacity", "-1", "nowhere.py"],
        ["profile", "run", "/dev/null"],
        ["profile", "page", "/dev/zero"],
        ["profile", "page", "\udcff"],
        ["profile", "compare", "", ""],
        ["demo", "--out", "/dev/null"],
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[1:60],
)
def test_invalid_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """The exit status is 2, and the error is one printable line."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.rstrip("\n").isprintable()


def test_names_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Brackets, colons and escapes in names are not interpreted as markup or terminal codes."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HPFRACC_WISDOM", str(tmp_path / "[/red] :bug: \x1b[31m"))
    for command in (["wisdom", "show"], ["info"]):
        assert main(command) == 0
        out, err = capsys.readouterr()
        assert "[/red] :bug: \ufffd[31m" in out
        assert "\x1b" not in out + err
