"""differint: operators of sampled functions."""

from __future__ import annotations

import numpy as np
from differint import differint

from testset.adapters.fixed import steps_for
from testset.data import Answer, NotExpressible, Problem
from testset.expressions import ARRAYS, function


def solve(problem: Problem, tolerance: float) -> Answer:
    """The answer with the steps that stand for this tolerance; its matrix of weights limits them to 1,000."""
    name = problem.given.get("operator")
    if name not in ("riemann_liouville", "riemann_liouville_integral"):
        raise NotExpressible("Riemann-Liouville derivatives and integrals on grids only")
    alpha, end = problem.parameters["alpha"], float(problem.at.max())
    if name == "riemann_liouville" and alpha >= 1.0:
        raise NotExpressible("orders below 1")
    count = min(steps_for(problem, tolerance), 1_000) + 1
    f = function([problem.given["function"]], "t", problem.parameters, ARRAYS)
    t = np.linspace(0.0, end, count)
    found = differint.RL(-alpha if name.endswith("integral") else alpha, f(t)[0], 0.0, end, count)
    return Answer(np.interp(problem.at[:, 0], t, np.asarray(found).ravel())[None], count)
