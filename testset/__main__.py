"""Run the test set with a library: ``python -m testset --with hpfracc``.

Prints a row for each problem: the largest error over the largest value, seconds, evaluations, and a verdict. ``right``:
the error is at most ten times the tolerance (of random answers: within 5 standard errors). ``off``: it is larger.
``failed``: the library raised an error. Exits with 1 if a problem that the library can state is off or failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testset.data import NotExpressible, Problem, all_problems

LIBRARIES = ("hpfracc", "pycaputo", "torchfde", "differint", "scipy", "octave")
#: Tolerances of the work-precision diagrams, and their problems.
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
DIAGRAMS = ("linear/relaxation-0.5", "nonlinear/diethelm-0.5", "oscillating/brusselator-0.8", "stiff/relaxation-100")
#: Errors and tolerances that a verdict allows.
LARGEST_RATIO, LARGEST_SCORE = 10.0, 5.0


def run(problem: Problem, solve: Any, tolerance: float) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = {"problem": f"{problem.family}/{problem.name}", "tolerance": tolerance, "error": None}
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = solve(problem, tolerance)
    except NotExpressible as reason:
        return row | {"verdict": "not expressible", "note": str(reason)}
    except ImportError:
        raise
    except Exception as error:
        return row | {"verdict": "failed", "note": f"{type(error).__name__}: {error}"[:200]}
    seconds, error = time.process_time() - started, problem.error(answer.values)
    if answer.standard_error:
        right = abs(answer.values - problem.values).max() <= LARGEST_SCORE * answer.standard_error
    else:
        # A reference is not known to more digits than it states.
        right = error <= LARGEST_RATIO * max(tolerance, 10.0 ** -problem.reference["digits"])
    verdict = "right" if right else "off"
    return row | {"error": error, "seconds": seconds, "evaluations": answer.evaluations, "verdict": verdict}


def shown(row: dict[str, Any]) -> str:
    """A row in words."""
    if row["error"] is None:
        return f"{row['problem']:42s} {row['verdict']:16s} {row['note']}"
    return (
        f"{row['problem']:42s} {row['verdict']:16s} {row['error']:8.1e} {row['seconds']:8.2f} s {row['evaluations']:8d}"
    )


def rows_of(library: str, problems: Iterable[Problem], tolerances: Iterable[float]) -> list[dict[str, Any]]:
    """Run problems with a library, and print what comes of it."""
    solve = importlib.import_module(f"testset.adapters.{library}").solve
    rows = []
    tolerances = tuple(tolerances)
    for problem in problems:
        if len(tolerances) > 1:
            run(problem, solve, max(tolerances))  # what is made once counts for no tolerance
        for tolerance in tolerances:
            rows.append(run(problem, solve, tolerance))
            print(shown(rows[-1]), flush=True)
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run, print, and save."""
    parser = argparse.ArgumentParser(
        prog="python -m testset", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--with", dest="library", choices=LIBRARIES, default="hpfracc")
    parser.add_argument("--only", default="", help="problems whose family/name matches this regular expression")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--ladder", action="store_true", help="the problems of the diagrams, at several tolerances")
    parser.add_argument("--json", type=Path, help="save the rows in this file, for testset.diagrams and testset.table")
    options = parser.parse_args(arguments)
    names = {f"{each.family}/{each.name}": each for each in all_problems()}
    chosen = [
        each
        for name, each in names.items()
        if re.search(options.only, name) and (not options.ladder or name in DIAGRAMS)
    ]
    try:
        rows = rows_of(options.library, chosen, TOLERANCES if options.ladder else (options.tolerance,))
    except ImportError as error:
        print(f"{options.library} is not installed: {error}", file=sys.stderr)
        return 2
    count = Counter(row["verdict"] for row in rows)
    print(f"\n{options.library}: " + ", ".join(f"{number} {verdict}" for verdict, number in count.most_common()))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps({"library": options.library, "rows": rows}, indent=1) + "\n", encoding="utf-8"
        )
    return int(not options.ladder and count["off"] + count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
