"""Reference solutions of the nonlinear problems in ``hpfracc.solvers.ode.problems``, by an independent method.

The method is that of ``testset/collocation.py``, with two resolutions.

    python benchmarks/make_ode_references.py            # rewrites references.json, a few minutes
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder is there instead

from hpfracc.solvers.ode import problems
from testset.collocation import solve

Array = np.ndarray[Any, Any]
TABLE = Path(__file__).parents[1] / "src/hpfracc/models/problems/references.json"
CASES: list[tuple[Any, float]] = [
    (problems.brusselator(0.3), 0.25),
    *((problems.brusselator(alpha), 0.05) for alpha in (0.5, 0.8, 1.0)),
    (problems.brusselator((0.8, 0.7)), 0.05),
    *((problems.lotka_volterra(alpha), 0.1) for alpha in (0.3, 0.5, 0.8, 1.0)),
    *((problems.duffing(alpha), 0.3) for alpha in (0.3, 0.5, 0.9, 1.0)),
    *((problems.lorenz(alpha), 0.05) for alpha in (0.95, 0.995)),
    (problems.viscoelastic_oscillator(0.3), 0.4),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="only entries whose name and orders contain this text")
    options = parser.parse_args()
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    for problem, widest in CASES:
        orders = problem.alpha if isinstance(problem.alpha, tuple) else (problem.alpha,)
        key = f"{problem.name} {' '.join(f'{order:g}' for order in orders)}"
        if options.only and options.only not in key:
            continue
        start = time.perf_counter()
        stop = problem.t_span[1]
        t = stop * np.array([1e-3, 1e-2, 0.05, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0])
        coarse, fine = (solve(problem, t, widest, degree) for degree in (13, 17))
        uncertainty = float(np.abs(fine - coarse).max() / np.abs(fine).max())
        table[key] = {"t": t.tolist(), "y": fine.tolist(), "uncertainty": uncertainty}
        print(f"{key:40s} uncertainty {uncertainty:.1e}   {time.perf_counter() - start:.1f} s", flush=True)
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
