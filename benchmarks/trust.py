"""Do error estimates hold? Random problems with known truth for every solver and operator that gives an estimate.

``within``: share of estimates that are at least a third of the true error. ``median``, ``99 %``, ``worst``: true error
over estimate. ``nan``: no estimate, with a reason. ``failed``: ``success=False``, with a reason. ``hidden``: successes
with an error above 100 times the tolerance (must be 0). Exits with 1 where a bar is missed.

    python benchmarks/trust.py [--trials 200] [--only REGEX]
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder is there instead

import benchmarks._trust as areas
from benchmarks._common import heading
from benchmarks._trust.campaign import HEADER, Trial, run


def families() -> dict[str, Trial]:
    """Every family of every area, by name: each area's module has a table ``FAMILIES``."""
    found: dict[str, Trial] = {}
    for module in sorted(each.name for each in pkgutil.iter_modules(areas.__path__)):
        if module != "campaign":
            found |= importlib.import_module(f"{areas.__name__}.{module}").FAMILIES
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign, print the table and the bars that were missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="problems of each family (default 200)")
    parser.add_argument("--only", default="", help="families whose name matches this regular expression")
    options = parser.parse_args(arguments)
    print(heading(f"Error estimates against known truth, {options.trials} random problems a family"), flush=True)
    print(HEADER, flush=True)
    faults = []
    for name, trial in families().items():
        if re.search(options.only, name):
            report = run(name, trial, range(options.trials))
            print(report.row(), flush=True)
            faults += report.faults()
    print("\n".join(["", *faults]) if faults else "\nall bars are met")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
