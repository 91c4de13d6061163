"""One solve by another library, run by an interpreter that has it. Prints seconds and the final state as JSON.

``python _ode_peers.py LIBRARY PROBLEM STEPS``
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
import time
from typing import Any

import numpy as np

END = 10.0
#: CPU seconds after which no further round is started.
PATIENCE = 1.0
PROBLEMS: dict[str, tuple[float, list[float]]] = {"relaxation": (0.6, [1.0]), "brusselator": (0.8, [1.2, 2.8])}


def relaxation(t: float, y: Any) -> Any:
    return -y


def brusselator(t: float, y: Any) -> Any:
    return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])


def with_pycaputo(problem: str, steps: int) -> list[float]:
    from pycaputo.controller import make_fixed_controller
    from pycaputo.derivatives import CaputoDerivative
    from pycaputo.events import StepFailed
    from pycaputo.fode.caputo import PECE
    from pycaputo.stepping import evolve

    alpha, y0 = PROBLEMS[problem]
    method = PECE(
        ds=tuple(CaputoDerivative(alpha) for _ in y0),
        control=make_fixed_controller(END / steps, tstart=0.0, tfinal=END),
        source=relaxation if problem == "relaxation" else brusselator,
        y0=(np.array(y0),),
        corrector_iterations=1,
    )
    last: Any = None
    for event in evolve(method, dtinit=END / steps):
        if isinstance(event, StepFailed):
            raise RuntimeError("a step failed")
        last = event
    return [float(value) for value in last.y]


def with_numfracpy(problem: str, steps: int) -> list[float]:
    import numfracpy

    alpha, y0 = PROBLEMS[problem]
    with contextlib.redirect_stdout(io.StringIO()):
        if problem == "relaxation":
            return [float(numfracpy.FODE(relaxation, y0, [0.0, END], END / steps, alpha)[1][-1])]
        parts = [lambda state, i=i: brusselator(state[0], state[1:])[i] for i in range(2)]
        found = numfracpy.SystemFODEs(parts, y0, [0.0, END], END / steps, [alpha, alpha])
    return [float(component[-1]) for component in found[1]]


def with_fdeint(problem: str, steps: int) -> list[float]:
    """PECE in PyTorch: a state is a tensor of shape (batch, d)."""
    import torch
    from FDEint import FDEint

    torch.set_num_threads(1)
    alpha, y0 = PROBLEMS[problem]

    def on_tensors(t: Any, y: Any) -> Any:
        if problem == "relaxation":
            return -y
        x, z = y[..., 0], y[..., 1]
        return torch.stack([1.0 - 4.0 * x + x**2 * z, 3.0 * x - x**2 * z], dim=-1)

    times = torch.tensor([0.0, END], dtype=torch.float64)
    start = torch.tensor([y0], dtype=torch.float64)
    with torch.no_grad():
        found = FDEint(
            on_tensors, times, start, torch.tensor(alpha, dtype=torch.float64), h=END / steps, dtype=torch.float64
        )
    return [float(value) for value in found[0, -1]]


def with_fodeint(problem: str, steps: int) -> list[float]:
    """The explicit rectangle rule of first order, its only method."""
    from fodeint import fodeint

    alpha, y0 = PROBLEMS[problem]
    fun = relaxation if problem == "relaxation" else brusselator
    found = fodeint(alpha, lambda y, t: fun(t, y), np.array(y0), np.linspace(0.0, END, steps + 1))
    return [float(value) for value in np.asarray(found)[-1]]


SOLVERS = {"pycaputo": with_pycaputo, "numfracpy": with_numfracpy, "FDEint": with_fdeint, "fodeint": with_fodeint}


def main() -> None:
    library, problem, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    solve = SOLVERS[library]
    solve(problem, 10)  # imports
    best, spent = math.inf, 0.0
    while spent < PATIENCE:  # the quickest of some rounds where they are short, as for ours
        begin = time.process_time()
        end = solve(problem, steps)
        seconds = time.process_time() - begin
        best, spent = min(best, seconds), spent + seconds
    print(json.dumps({"seconds": best, "end": end}))


if __name__ == "__main__":
    main()
