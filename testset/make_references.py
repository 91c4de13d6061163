"""Recompute the references of the test set with mpmath, and compare with the values in the files.

python -m testset.make_references            # compares; exits with 1 where a value is wrong
python -m testset.make_references --write    # writes values of closed forms into the files
python -m testset.make_references --collocation   # compares those by two methods, some minutes
"""

from __future__ import annotations

import argparse
import re
import sys

import mpmath
import numpy as np

from testset.collocation import solve, stated
from testset.data import Problem, all_problems, faults
from testset.references import exact


def recomputed(problem: Problem) -> np.ndarray:
    """The values of a closed form, rounded to floats."""
    return np.array([[complex(value) for value in row] for row in exact(problem)])


def collocated(problem: Problem) -> np.ndarray:
    """The values of a nonlinear equation, by collocation."""
    return solve(stated(problem), problem.at[:, 0], problem.number("end") / 100.0, 13)


def written(problem: Problem, values: np.ndarray) -> str:
    """The text of the file with these values."""

    def rows(array: np.ndarray) -> str:
        return "[\n" + "".join(f"    [{', '.join(repr(float(x)) for x in row)}],\n" for row in array) + "]"

    text = problem.path.read_text(encoding="utf-8")
    new = f"values = {rows(values.real)}\n" + (f"imaginary = {rows(values.imag)}\n" if np.any(values.imag) else "")
    text = re.sub(r"^(values|imaginary) = \[\n(    \[.*\],\n)*\]\n", "", text, flags=re.MULTILINE)
    return text.replace("[reference]\n", "[reference]\n" + new, 1)


def main(arguments: list[str] | None = None) -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the values into the files")
    parser.add_argument("--collocation", action="store_true", help="recompute nonlinear equations, too")
    parser.add_argument("--only", default="", help="problems whose family/name matches this regular expression")
    options = parser.parse_args(arguments)
    wrong = 0
    for problem in all_problems():
        name = f"{problem.family}/{problem.name}"
        if not re.search(options.only, name):
            continue
        if "exact" in problem.reference:
            with mpmath.workdps(50):
                values = recomputed(problem)
            if options.write:
                problem.path.write_text(written(problem, values), encoding="utf-8")
                continue
        elif options.collocation and problem.kind == "ode":
            values = collocated(problem)
        else:
            values = None
        if values is not None:
            far = problem.error(values)
            if not far <= 10.0 ** (1 - problem.reference["digits"]):
                wrong += 1
                print(f"{name}: the value found anew differs by {far:.1e}")
        for fault in faults(problem):
            wrong += 1
            print(f"{name}: {fault}")
    print("values written" if options.write else f"{wrong} faults")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
