"""SciPy alone: Wright functions of positive order, and operators by quadrature with an algebraic weight."""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate, special

from testset.data import Answer, NotExpressible, Problem
from testset.expressions import ARRAYS, function


def solve(problem: Problem, tolerance: float) -> Answer:
    """The answer with this relative tolerance."""
    given, at = problem.given, problem.at[:, 0]
    if given.get("function") == "wright" and given["lam"] >= 0.0 and at.min() >= 0.0:
        return Answer(special.wright_bessel(given["lam"], given["mu"], at)[None])
    if given.get("function") == "mittag_leffler" and (given["alpha"], given["beta"]) == (0.5, 1.0):
        return Answer(special.erfcx(-at)[None])
    if given.get("operator") != "riemann_liouville_integral":
        raise NotExpressible("no fractional derivatives, equations or processes")
    alpha, calls = problem.parameters["alpha"], 0
    f = function([given["function"]], "t", problem.parameters, ARRAYS)

    def counted(x: float) -> float:
        nonlocal calls
        calls += 1
        return float(f(x)[0])

    found = [
        integrate.quad(counted, 0.0, t, weight="alg", wvar=(0.0, alpha - 1.0), epsabs=0.0, epsrel=tolerance)[0]
        for t in at
    ]
    return Answer(np.array([found]) / math.gamma(alpha), calls)
