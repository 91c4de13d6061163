"""Every file in ``examples/`` runs as a user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
#: These train: with ``--quick`` they show in seconds that they run.
LEARNING = sorted((ROOT / "examples" / "learning").glob("*.py"))
#: Runs the files that it is given, and prints each one's name before what it prints.
ONE_BY_ONE = """
import runpy, sys
for path in sys.argv[1:]:
    print(f"<<<{path}>>>", flush=True)
    sys.argv = [path, "--quick"]
    runpy.run_path(path, run_name="__main__")
"""


def test_there_are_examples() -> None:
    """The folder was found."""
    assert len(EXAMPLES) >= 3


def ran(tmp_path: Path, *arguments: str) -> str:
    """What Python printed; it exits with 0 and warns about nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(path: Path, tmp_path: Path) -> None:
    """It exits with 0, prints, and warns about nothing."""
    assert ran(tmp_path, str(path)).strip()


@pytest.mark.slow
def test_examples_that_learn_run_and_say_something(tmp_path: Path) -> None:
    """The same, quickly, one after the other in one process: importing PyTorch takes longer than they do."""
    pytest.importorskip("torch")
    assert len(LEARNING) >= 5
    found = ran(tmp_path, "-c", ONE_BY_ONE, *map(str, LEARNING))
    parts = dict(part.split(">>>", 1) for part in found.split("<<<")[1:])
    assert list(parts) == [str(path) for path in LEARNING]
    assert all(printed.strip() for printed in parts.values())
