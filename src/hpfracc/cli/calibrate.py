"""``hpfracc calibrate``: time every arm on this machine, within a box of time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hpfracc.cli.answer import Answer
from hpfracc.cli.progress import progress_bar

if TYPE_CHECKING:
    from hpfracc.engine.execution.calibration import Step

__all__ = ["add_command"]


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("calibrate", help=summary, description=__doc__, parents=[common], allow_abbrev=False)
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="finer and larger sizes, float32 too, and a box of 120 s instead of 10 s",
    )
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="length of the box; imports and compilations come beside it"
    )
    parser.add_argument(
        "--operations", type=_names, metavar="NAME[,NAME...]", help="only these operations (default: the built-in six)"
    )
    parser.add_argument("--backends", type=_names, metavar="NAME[,NAME...]", help="only these backends (default: all)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Calibrate, with a bar that fills as the box does."""
    from hpfracc.engine.execution.calibration import calibrate

    with progress_bar("Calibrating") as report:

        def tell(step: Step) -> None:
            report(step.spent / step.budget, f"{step.what} {step.subject} {step.arm}")

        outcome = calibrate(
            arguments.operations,
            budget_seconds=arguments.budget,
            thorough=arguments.thorough,
            progress=tell,
            backends=arguments.backends,
        )
    return Answer(outcome.to_dict(), lambda: outcome)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
