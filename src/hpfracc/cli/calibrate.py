"""``hpfracc calibrate``: time every arm (backend, algorithm, device) on this machine, and store the times."""

from __future__ import annotations

import argparse
from typing import Any

from hpfracc.cli.answer import Answer, names, progress_bar


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("calibrate", help=summary, parents=[common], allow_abbrev=False)
    parser.add_argument(
        "--operations", type=names, metavar="NAME[,NAME...]", help="only these operations (default: the built-in six)"
    )
    parser.add_argument("--backends", type=names, metavar="NAME[,NAME...]", help="only these backends (default: all)")
    parser.add_argument(
        "--energy",
        action="store_true",
        help="measure the power of each arm too (2 s each), for hf.config(objective='energy')",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Calibrate, with a progress bar."""
    from hpfracc.engine.execution.calibration import calibrate

    with progress_bar("Calibrating") as report:
        outcome = calibrate(arguments.operations, backends=arguments.backends, energy=arguments.energy, progress=report)
    return Answer(outcome.to_dict(), lambda: outcome)
