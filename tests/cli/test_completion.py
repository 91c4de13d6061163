"""``hpfracc completion`` prints scripts that shells complete with."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from hpfracc.cli import main


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("w", {"wisdom"}),
        ("wisdom ", {"show", "export", "import", "clear", "--help"}),
        ("wisdom clear --", {"--help", "--json", "--yes"}),
        ("wisdom clear --y", {"--yes"}),
        ("explain --op fft --sh", {"--shape"}),
        ("--v", {"--version"}),
        ("profile run --json", {"--json", "--json-out"}),
        ("sweep export show --h", {"--help"}),
        ("demo nothing", set()),
    ],
)
def test_bash_completes(line: str, found: set[str], capsys: pytest.CaptureFixture[str]):
    """As after the tab key at the end of the line."""
    words = ["hpfracc", *line.split(" ")]
    typed = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _hpfracc; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script("bash", capsys) + ask], capture_output=True, text=True, check=True)
    assert (set(done.stdout.split()), done.stderr) == (found, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_given_the_same_words(shell: str, capsys: pytest.CaptureFixture[str]):
    """And find no error in the script, where they are installed."""
    text = script(shell, capsys)
    for word in ("wisdom", "compare", "fail-on-regression", "scheduler"):
        assert word in text
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]):
    """It is told with those that are; and JSON there is none."""
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err.replace("bash, zsh, fish", "'bash', 'zsh', 'fish'")
    assert main(["completion", "bash", "--json"]) == 2
    assert "the script cannot both go to stdout" in capsys.readouterr().err
