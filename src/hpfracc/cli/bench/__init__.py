"""``hpfracc bench``: compare the engine's choices with the fastest arms."""

from __future__ import annotations

import argparse
from typing import Any

from hpfracc.cli.answer import Answer, names, progress_bar

_DESCRIPTION = (
    "Times every arm on this machine and then the engine's own choices, and compares them. Stores only compile times."
)


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
    selection.set_defaults(run=_selection)


def _selection(arguments: argparse.Namespace) -> Answer:
    from hpfracc.cli.bench.live import measure

    with progress_bar("Measuring") as report:
        outcome = measure(arguments.operations, arguments.budget, report)
    return Answer(outcome.to_dict(), lambda: outcome)
