"""pycaputo: operators on grids, and equations with fixed steps."""

from __future__ import annotations

import numpy as np
from pycaputo.controller import make_fixed_controller
from pycaputo.derivatives import CaputoDerivative, RiemannLiouvilleDerivative
from pycaputo.differentiation import diff, guess_method_for_order
from pycaputo.events import StepAccepted
from pycaputo.fode.caputo import PECE
from pycaputo.grid import make_uniform_points
from pycaputo.quadrature import quad
from pycaputo.quadrature.riemann_liouville import Trapezoidal
from pycaputo.stepping import evolve

from testset.adapters.fixed import interpolated, simple_equation, steps_for
from testset.data import Answer, NotExpressible, Problem
from testset.expressions import ARRAYS, function


def solve(problem: Problem, tolerance: float) -> Answer:
    """The answer with the steps that stand for this tolerance."""
    if problem.kind == "operator":
        return _operator(problem, tolerance)
    if problem.kind != "ode":
        raise NotExpressible(f"no problems of the kind {problem.kind!r}")
    rhs, orders, start, end = simple_equation(problem)
    steps = steps_for(problem, tolerance)
    calls = 0

    def source(t: float, y: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return np.array(rhs(t, y))

    method = PECE(
        ds=tuple(CaputoDerivative(order) for order in orders),
        control=make_fixed_controller(end / steps, tstart=0.0, tfinal=end),
        source=source,
        y0=tuple(np.array(row) for row in start),
        corrector_iterations=1,
    )
    t, y = [0.0], [np.array(start[0])]
    for event in evolve(method, dtinit=end / steps):
        if not isinstance(event, StepAccepted):
            raise RuntimeError("a step failed")
        t.append(float(event.t))
        y.append(event.y)
    return Answer(interpolated(problem, t, y), calls)


def _operator(problem: Problem, tolerance: float) -> Answer:
    name, alpha, t = problem.given["operator"], problem.parameters.get("alpha"), problem.at[:, 0]
    if name not in ("caputo", "riemann_liouville", "riemann_liouville_integral"):
        raise NotExpressible(f"no operator {name!r}")
    f = function([problem.given["function"]], "t", problem.parameters, ARRAYS)
    points = make_uniform_points(steps_for(problem, tolerance) + 1, 0.0, float(t.max()))
    if name == "riemann_liouville_integral":
        found = quad(Trapezoidal(-alpha), lambda x: f(x)[0], points)
    else:
        kind = CaputoDerivative if name == "caputo" else RiemannLiouvilleDerivative
        found = diff(guess_method_for_order(points, kind(alpha)), lambda x: f(x)[0], points)
    return Answer(np.interp(t, points.x[1:], np.asarray(found)[1:])[None], points.size)
