"""Do error estimates hold? Random problems with known truth for every solver and operator that gives an estimate.

``within``: share of estimates that are at least a third of the true error. ``median``, ``99 %``, ``worst``: true error
over estimate. ``nan``: no estimate, with a reason. ``failed``: ``success=False``, with a reason. ``hidden``: successes
with an error above 100 times the tolerance (must be 0). Exits with 1 where a bar is missed.

    python benchmarks/trust.py [--trials 200] [--first 0] [--only REGEX] [--jobs 1]
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder is there instead

import benchmarks._trust as areas
from benchmarks._common import heading
from benchmarks._trust.campaign import HEADER, Outcome, Report, Trial, run

#: Problems that a process solves before it asks for more.
PART = 5


def families() -> dict[str, Trial]:
    """Every family of every area, by name: each area's module has a table ``FAMILIES``."""
    found: dict[str, Trial] = {}
    for module in sorted(each.name for each in pkgutil.iter_modules(areas.__path__)):
        if module != "campaign":
            found |= importlib.import_module(f"{areas.__name__}.{module}").FAMILIES
    return found


def solved(family: str, indices: Iterable[int]) -> list[Outcome]:
    """The outcomes of some problems of a family, in a process of their own."""
    return run(family, families()[family], indices).outcomes


def shared(executor: Executor, family: str, indices: range) -> list[Future[list[Outcome]]]:
    """The problems of a family, handed out in parts."""
    return [executor.submit(solved, family, indices[i : i + PART]) for i in range(0, len(indices), PART)]


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign, print the table and the bars that were missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="problems of each family (default 200)")
    parser.add_argument("--first", type=int, default=0, help="index of the first problem (default 0)")
    parser.add_argument("--only", default="", help="families whose name matches this regular expression")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the problems (default 1)")
    options = parser.parse_args(arguments)
    indices = range(options.first, options.first + options.trials)
    print(heading(f"Error estimates against known truth, {options.trials} random problems a family"), flush=True)
    print(f"problems {indices.start} to {indices.stop - 1}\n{HEADER}", flush=True)
    faults = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as executor:
        names = [name for name in families() if re.search(options.only, name)]
        parts = {name: shared(executor, name, indices) for name in names}
        for name in names:
            report = Report(name, [outcome for part in parts[name] for outcome in part.result()])
            print(report.row(), flush=True)
            faults += report.faults()
    print("\n".join(["", *faults]) if faults else "\nall bars are met")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
