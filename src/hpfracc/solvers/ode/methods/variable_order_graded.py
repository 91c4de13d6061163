"""Orders that vary with time, on a graded mesh: Alikhanov's scheme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import rgamma

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.mesh import StepError, walk_mesh
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.newton import Newton, make_newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, RightHandSide
from hpfracc.solvers.ode.result import FODEResult, SolveDecision

__all__ = ["VariableOrderGraded"]

Array = np.ndarray[Any, Any]

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(5)


@register_method
@final
@dataclass(frozen=True, slots=True)
class VariableOrderGraded(Method):
    r"""The Caputo derivative with an order :math:`\alpha(t)` of the current time, by L2-1sigma on a graded mesh.

    As :class:`L2Sigma`, with a new order and collocation point :math:`t_{n-\alpha/2}` at each step. Order 2 in the
    maximum error over the mesh if :math:`\alpha(t)` is smooth, also for solutions that start like :math:`t^\alpha`.
    ``alpha(t)`` returns one order for all components,
    :math:`0 < \alpha(t) \le 1`. The weights change at every step, so a solve costs O(N^2). ``step`` is the mean step.

    Parameters
    ----------
    grading : float, optional
        r of the mesh :math:`t_j = t_0 + T (j/N)^r`, at least 1; by default :math:`2/\alpha(t_0)`, at most 10.

    References
    ----------
    A. A. Alikhanov, J. Comput. Phys. 280 (2015) 424-438; R. Du, A. A. Alikhanov, Z.-Z. Sun, Comput. Math. Appl. 79
    (2020) 2952-2972, for variable orders.
    """

    grading: float | None = None

    name: ClassVar[str] = "variable_order_l2"
    aliases: ClassVar[tuple[str, ...]] = ("variable_order_graded",)
    order: ClassVar[str] = "2 on the graded mesh for smooth orders, for solutions like t^alpha too"
    implicit: ClassVar[bool] = True
    search_limit: ClassVar[int] = 8192

    def __post_init__(self) -> None:
        if self.grading is not None and not (np.isfinite(self.grading) and self.grading >= 1.0):
            raise InvalidInputError(f"grading={self.grading!r} has to be 1 (a uniform mesh) or more")

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires the Caputo derivative, and one order up to 1 for all components."""
        if problem.terms or problem.delays:
            return f"method={self.name!r} takes one derivative and no delays"
        if problem.derivative != "caputo":
            return f"method={self.name!r} takes Caputo's derivative, and not derivative={problem.derivative!r}"
        if problem.orders.ceiling > 1:
            return f"method={self.name!r} takes orders up to 1, and alpha exceeds 1"
        if problem.orders.function is None and problem.orders.single is None:
            return f"method={self.name!r} takes one order for all components; use method='variable_order'"
        if problem.orders.function is not None and np.size(problem.orders.function(problem.t0)) != 1:
            return f"method={self.name!r} takes one order for all components; use method='variable_order'"
        return refuse_compiled(options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step."""
        assert options.step is not None
        steps = make_grid(problem.t0, problem.t1, options.step).steps
        grading = min(2.0 / _order(problem, problem.t0), 10.0) if self.grading is None else self.grading
        fun = RightHandSide(problem)
        newton = make_newton(problem, options, fun)
        notes = (f"steps grow like those of t_j = T (j/{steps})^{grading:.4g}",)
        return walk_mesh(
            problem,
            options,
            steps,
            grading,
            lambda mesh: _steps(problem, newton, mesh),
            SolveDecision(self.name, "asked for", "direct", False, notes),
            lambda: (fun.count, newton.jacobians),
        )


def _order(problem: Problem, t: float) -> float:
    value = problem.orders.value
    found = float(np.asarray(value(t) if callable(value) else value).reshape(-1)[0])
    if not 0.0 < found <= 1.0:
        raise InvalidInputError(f"alpha({t:g}) = {found!r}; this method takes orders above 0 and up to 1")
    return found


def _steps(problem: Problem, newton: Newton, mesh: Array) -> Iterator[Array]:
    y = np.array(problem.y0).reshape(-1)
    count = len(mesh) - 1
    widths = np.diff(mesh)
    # On past intervals y' = rise + curve (s - their middle).
    rises, curves = np.zeros((count, y.size), y.dtype), np.zeros((count, y.size), y.dtype)
    for n, (before, now) in enumerate(pairwise(mesh)):
        step = now - before
        alpha, at = _order(problem, problem.t0 + now), now
        for _ in range(4):  # the point depends on the order there
            at = before + (1.0 - 0.5 * alpha) * step
            alpha = _order(problem, problem.t0 + at)
        power, sigma = 1.0 - alpha, 1.0 - 0.5 * alpha
        scale = float(rgamma(1.0 + power))
        at = before + sigma * step
        # The newest, partial interval: (y_n - y)/step over a length sigma step.
        weight = (sigma * step) ** power * scale / step
        past = np.zeros_like(y)
        if n:
            level, tilt = _moments(power, at - mesh[1 : n + 1], widths[:n])
            past = scale * (level @ rises[:n] + tilt[:-1] @ curves[: n - 1])
            # On the interval before, curve = 2 ((y_n - y)/step - rise)/(width + step).
            bend = 2.0 * scale * tilt[-1] / (widths[n - 1] + step)
            past = past - bend * rises[n - 1]
            weight += bend / step
        known = y - sigma * past / weight
        guess = y + sigma * step * rises[n - 1] if n else y
        solved = newton.solve(problem.t0 + at, known, sigma / weight, guess)
        if solved is None:
            raise StepError(
                f"Newton's method did not converge at t = {problem.t0 + at:g}: take a smaller step, give jac, or check "
                "that the right-hand side is smooth there."
            )
        new = y + (solved[0] - y) / sigma
        rises[n] = (new - y) / step
        if n:
            curves[n - 1] = 2.0 * (rises[n] - rises[n - 1]) / (widths[n - 1] + step)
        y = new
        yield y


def _moments(power: float, near: Array, width: Array) -> tuple[Array, Array]:
    """Integrals of ``power u^(power-1)`` and of that times ``middle - u`` from ``near`` to ``near + width``."""
    # At long distances by quadrature, because differences of powers lose digits.
    half = 0.5 * width
    u = (near + half)[:, None] + half[:, None] * _POINTS
    kernel = power * half[:, None] * _WEIGHTS * u ** (power - 1.0)
    level, tilt = kernel.sum(axis=1), -(kernel @ _POINTS) * half
    close = near < 3.0 * width
    a, b = near[close], near[close] + width[close]
    level[close] = b**power - a**power
    first = power * (b ** (power + 1.0) - a ** (power + 1.0)) / (power + 1.0)
    tilt[close] = (a + half[close]) * level[close] - first
    return level, tilt
