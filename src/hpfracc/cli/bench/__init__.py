"""``hpfracc bench``: compare the engine's choices with the fastest arms."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hpfracc.cli.answer import Answer, names, progress_bar
from hpfracc.errors import InvalidInputError, MissingDependencyError

_DESCRIPTION = (
    "Times every arm on this machine and then the engine's own choices, and compares them. Stores only compile times."
)
#: The benchmark in the source tree that replays a table of stored times.
_SCRIPT = Path("benchmarks") / "selection.py"


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command and its subjects to the parser."""
    parser = commands.add_parser("bench", help=summary, allow_abbrev=False)
    subjects = parser.add_subparsers(dest="subject", metavar="subject", required=True)
    selection = subjects.add_parser(
        "selection", help="the engine's choices against the best arms", description=_DESCRIPTION, parents=[common]
    )
    selection.add_argument(
        "--operations", type=names, metavar="NAME[,NAME...]", help="only these operations (default: the built-in six)"
    )
    selection.add_argument(
        "--budget", type=float, default=30.0, metavar="SECONDS", help="time budget without compilation (default: 30)"
    )
    selection.add_argument("--table", type=Path, metavar="FILE", help="replay a table of stored times instead")
    selection.set_defaults(run=_selection)


def _selection(arguments: argparse.Namespace) -> Answer:
    if arguments.table is not None:
        return replay_table(arguments.table)
    from hpfracc.cli.bench.live import measure

    with progress_bar("Measuring") as report:
        outcome = measure(arguments.operations, arguments.budget, report)
    return Answer(outcome.to_dict(), lambda: outcome)


def replay_table(table: Path) -> Answer:
    """Replay a table of stored times with ``benchmarks/selection.py``; returns its report and exit status.

    Raises
    ------
    InvalidInputError
        If the table is not a file, or cannot be replayed.
    MissingDependencyError
        If the source tree is not available.
    """
    if not table.is_file():
        raise InvalidInputError(f"table {str(table)!r} is not a file; name one in the form of benchmarks/data/*.json")
    script = find_benchmark()
    if script is None:
        raise MissingDependencyError(
            f"replaying {str(table)!r} needs {_SCRIPT}, which an installed package does not have; run the command in a "
            "checkout of the source, or omit --table to measure this machine"
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
        last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise InvalidInputError(
            f"table {str(table)!r} could not be replayed ({last}); compare it with benchmarks/data/*.json"
        )
    data = {"table": str(table), "status": done.returncode, "report": done.stdout.splitlines()}
    return Answer(data, lambda: done.stdout.rstrip(), done.returncode)


def find_benchmark() -> Path | None:
    """Path of the benchmark, in the checkout that this package runs from or in the current directory."""
    roots = (Path(__file__).resolve().parents[4], Path.cwd())
    return next((root / _SCRIPT for root in roots if (root / _SCRIPT).is_file()), None)
