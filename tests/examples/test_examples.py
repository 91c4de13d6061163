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


def test_there_are_examples() -> None:
    """The folder was found."""
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("path", [*EXAMPLES, *LEARNING], ids=lambda path: path.stem)
def test_example_runs_and_says_something(path: Path, tmp_path: Path) -> None:
    """It exits with 0, prints, and warns about nothing."""
    if path in LEARNING and "import torch" in path.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(path), *(["--quick"] if path in LEARNING else [])],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert done.stderr == ""
