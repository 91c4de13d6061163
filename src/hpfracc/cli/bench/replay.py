"""Replaying a table of stored times, by ``benchmarks/selection.py`` of the source tree, which does just that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hpfracc.cli.answer import Answer
from hpfracc.errors import InvalidInputError, MissingDependencyError

__all__ = ["find_benchmark", "replay"]

_SCRIPT = Path("benchmarks") / "selection.py"


def replay(table: Path) -> Answer:
    """What the benchmark says of ``table``; its exit status is ours.

    Raises
    ------
    InvalidInputError
        If there is no such table.
    MissingDependencyError
        If the source tree is not at hand.
    """
    if not table.is_file():
        raise InvalidInputError(f"table {str(table)!r} is not a file; name one in the form of benchmarks/data/*.json")
    script = find_benchmark()
    if script is None:
        raise MissingDependencyError(
            f"replaying {str(table)!r} needs {_SCRIPT}, which an installed package does not have; run the command in a "
            "checkout of the source, or leave --table out to measure this machine"
        )
    root = script.parents[1]
    path = os.pathsep.join(filter(None, [str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(script), "--table", str(table.resolve())],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InvalidInputError(
            f"table {str(table)!r} could not be replayed ({last}); compare it with benchmarks/data/*.json"
        )
    data = {"table": str(table), "status": done.returncode, "report": done.stdout.splitlines()}
    return Answer(data, lambda: done.stdout.rstrip(), done.returncode)


def find_benchmark() -> Path | None:
    """The benchmark of the checkout that this package runs from, or that the command is run in."""
    places = (Path(__file__).resolve().parents[4], Path.cwd())
    return next((place / _SCRIPT for place in places if (place / _SCRIPT).is_file()), None)
