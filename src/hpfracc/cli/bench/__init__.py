"""``hpfracc bench``: compare what the engine chooses with the best there is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hpfracc.cli.answer import Answer
from hpfracc.cli.progress import progress_bar

__all__ = ["add_command"]

_DESCRIPTION = (
    "Times every arm on this machine, then what `auto` does, in the figures by which the choice is judged; "
    "nothing is learned from it but compile times."
)


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command and its own to the parser."""
    parser = commands.add_parser("bench", help=summary, description=__doc__, allow_abbrev=False)
    subjects = parser.add_subparsers(dest="subject", metavar="subject", required=True)
    selection = subjects.add_parser(
        "selection", help="what auto chose, against the best arm", description=_DESCRIPTION, parents=[common]
    )
    selection.add_argument(
        "--operations", type=_names, metavar="NAME[,NAME...]", help="only these operations (default: the built-in six)"
    )
    selection.add_argument(
        "--budget", type=float, default=30.0, metavar="SECONDS", help="at most so long, compiling aside (default: 30)"
    )
    selection.add_argument("--table", type=Path, metavar="FILE", help="replay a table of stored times instead")
    selection.set_defaults(run=_selection)


def _selection(arguments: argparse.Namespace) -> Answer:
    if arguments.table is not None:
        from hpfracc.cli.bench.replay import replay

        return replay(arguments.table)
    from hpfracc.cli.bench.live import measure

    with progress_bar("Measuring") as report:
        outcome = measure(arguments.operations, arguments.budget, report)
    return Answer(outcome.to_dict(), lambda: outcome)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
