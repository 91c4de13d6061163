"""``hpfracc calibrate``: time every arm (backend, algorithm, device) on this machine, and store the times."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hpfracc.cli.answer import Answer, names, progress_bar

if TYPE_CHECKING:
    from hpfracc.engine.execution.calibration.runner import Step


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("calibrate", help=summary, parents=[common], allow_abbrev=False)
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="more and larger sizes, float32 too, and a budget of 120 s instead of 10 s",
    )
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="time budget, not counting imports and compilation"
    )
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
    from hpfracc import _reading
    from hpfracc.engine.execution.calibration.runner import calibrate

    if arguments.budget is not None:
        _reading.number("--budget", arguments.budget, above=0.0)
    with progress_bar("Calibrating") as report:

        def show_step(step: Step) -> None:
            report(step.spent / step.budget, f"{step.what} {step.subject} {step.arm}")

        outcome = calibrate(
            arguments.operations,
            budget_seconds=arguments.budget,
            thorough=arguments.thorough,
            progress=show_step,
            backends=arguments.backends,
            energy=arguments.energy,
        )
    return Answer(outcome.to_dict(), lambda: outcome)
