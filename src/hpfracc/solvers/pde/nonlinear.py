"""The nonlinear equation of an implicit step: ``(shift - A) v = rhs + R(t, v)``."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from hpfracc.errors import SolveError
from hpfracc.history.intervals import order_value
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.space.krylov import gmres
from hpfracc.solvers.stepping.system import StepFailedError

#: Fraction of the tolerance to which the equation of a step is solved.
_SHARE = 1e-2
#: Largest numbers of fixed-point iterations and of Newton iterations, and the residual of the linear equations.
_MAX_SIMPLE, _MAX_NEWTON, _LINEAR = 12, 15, 1e-3
#: Residual of linear equations for an error, of which a few digits are enough.
ROUGH = 1e-3
#: Distance of a change from its guess, relative to it, above which it is computed again.
_FAR = 0.1
#: Contraction rate above which the fixed-point iteration is abandoned for Newton's method.
_SLOW = 0.35


class ReactionSolver:
    r"""Solves for v by a fixed point with the mean slope of the reaction on the left, then by Newton's method.

    The fixed-point iteration is :math:`v \leftarrow (c - m - A)^{-1} (\text{rhs} + R(v) - m v)` with m the mean slope
    of R, a number for each component. Where it contracts slowly, Newton's method takes over. Its linear equations are
    solved by GMRES, preconditioned with the same operator. The Jacobian is given by the user, pointwise, or replaced by
    finite differences along the vectors of GMRES.

    Parameters
    ----------
    problem : EvolutionProblem
        With a reaction.
    share : float
        Share of the tolerance to which the equations are solved, relative to that of other methods.
    """

    def __init__(self, problem: EvolutionProblem, share: float = 1.0) -> None:
        self.problem, self.xp, self.stats = problem, problem.xp, problem.stats
        self._atol, self._rtol = _SHARE * share * float(np.max(problem.atol)), _SHARE * share * problem.rtol
        assert problem.reaction is not None
        self.space, self._react = problem.space, problem.reaction
        #: The mean slope of the reaction.
        self.slope: Any = None
        #: The newest rate of contraction.
        self._rate = 1.0
        self._trusted = 0
        #: The newest iterate, and the reaction there.
        self._newest: tuple[Any, Any] = (None, None)

    def solve(self, t: Any, shift: Any, rhs: Any, guess: Any) -> Any:
        """Solve for the v of this step."""
        problem = self.problem
        if problem.frozen is not None:
            self._freeze(t, guess)
        if self._trusted <= 0:
            # Where the guess is 0, the first iterate shows how large solutions are.
            near = guess if problem.largest(guess) else self.space.solve(shift, rhs + self._react(t, guess), guess)
            scale = problem.largest(near)
            self.slope = 0.0 if problem.frozen is not None else self._mean_slope(t, guess, shift, scale)
            self._trusted = 20
        self._trusted -= 1
        react, solve, largest = self._react, self.space.solve, problem.largest
        m, v, last = self.slope, guess, math.inf
        shifted = shift - m
        for number in range(_MAX_SIMPLE):
            value = react(t, v)
            self._newest = v, value
            new = solve(shifted, rhs + value - m * v, v)
            self.stats["solves"] += 1
            change, size = largest(new - v), largest(new)
            v = new
            if not math.isfinite(change):
                break
            allowed = self._atol + self._rtol * size
            if change <= allowed:
                return v
            if number:
                rate = self._rate = change / last
                if rate > _SLOW:
                    self._trusted = 0
                    break
                # The remaining error is about change * rate / (1 - rate).
                if change * rate / (1.0 - rate) <= allowed:
                    return v
            last = change
        return self._newton(t, shift, rhs, guess if not math.isfinite(problem.largest(v)) else v)

    def perturbed(self, t: Any, shift: Any, rhs: Any, guess: Any) -> Any:
        """The change of the newest solution by ``rhs``, to first order; ``guess`` is a similar change.

        By one step of the fixed point, by a second one if that is too far, or by GMRES where it contracts slowly.
        """
        # The slope where the reaction was evaluated last, next to v.
        (near, value), m, largest = self._newest, self.slope, self.problem.largest
        shifted = shift - m

        def iterated(e: Any) -> Any:
            self.stats["solves"] += 1
            return self.space.solve(shifted, rhs + self._react(t, near + e) - value - m * e, e, ROUGH)

        first = found = iterated(guess)
        change = largest(first - guess)
        if self._rate * change > _FAR * largest(first):
            found = iterated(first)
            if largest(found - first) > _FAR * change:
                with contextlib.suppress(SolveError):
                    found = found + self._solve_linear(t, shift, near, value, iterated(found) - found)
        return found

    def _freeze(self, t: Any, v: Any) -> None:
        """Take the operator whose coefficient of u is that at ``v``, and what this leaves of the reaction."""
        whole, reaction = self.problem.space, self.problem.reaction
        assert self.problem.frozen is not None and reaction is not None
        space = self.space = self.problem.frozen(t, v)
        self._react = lambda t, v: reaction(t, v) + (whole.apply(v) - space.apply(v))

    def _newton(self, t: Any, shift: Any, rhs: Any, v: Any) -> Any:
        problem, m = self.problem, self.slope
        self._rate = 1.0
        for _ in range(_MAX_NEWTON):
            self.stats["newton_iterations"] += 1
            if problem.frozen is not None:
                self._freeze(t, v)
            value = self._react(t, v)
            self._newest = v, value
            defect = self.space.solve(shift - m, rhs + value - m * v, v) - v
            self.stats["solves"] += 1
            if not math.isfinite(problem.largest(defect)):
                break
            target = self._atol + self._rtol * problem.largest(v)
            try:
                change = self._solve_linear(t, shift, v, value, defect)
            except SolveError:
                break
            v = v + change
            if problem.largest(change) <= target:
                return v
        raise StepFailedError(
            f"the nonlinear equation of the step to t = {order_value(t):g} did not converge: take a smaller step, give "
            "jac, or check that the reaction is smooth there"
        )

    def _solve_linear(self, t: Any, shift: Any, v: Any, value: Any, defect: Any) -> Any:
        """Solve ``(1 - (shift - m - A)^-1 (J - m)) change = defect``."""
        m = self.slope

        def product(x: Any) -> Any:
            self.stats["solves"] += 1
            return x - self.space.solve(shift - m, self._along(t, v, value, x, scale) - m * x, None)

        scale = max(self.problem.largest(v), self.problem.largest(defect))
        return gmres(product, lambda x: x, defect, rtol=_LINEAR)[0]

    def _along(self, t: Any, v: Any, value: Any, x: Any, scale: float) -> Any:
        """``J x``, by the user's Jacobian or a finite difference along x, small for values of this scale."""
        problem = self.problem
        if problem.jacobian is not None:
            return problem.jacobian(t, v)(x)
        step = 1e-7 * scale / (problem.largest(x) or 1.0)
        return (self._react(t, v + step * x) - value) / step

    def _mean_slope(self, t: Any, v: Any, shift: Any, scale: float) -> Any:
        """The mean of dR/du for each component, at most half of ``shift``, so that the operator stays definite."""
        problem, xp = self.problem, self.xp
        least = float(np.min(shift)) if isinstance(shift, np.ndarray) else order_value(shift)
        limit = 0.5 * abs(least) if math.isfinite(least) else 0.0
        found = [min(_number(slopes.mean()), limit) for slopes in own_slopes(problem, t, v, scale)]
        if len(found) == 1 or problem.space.symbol is None or problem.space.mixes:
            return float(np.mean(found))  # some discretisations take a single number only
        return xp.array(np.array(found).reshape(-1, *(1,) * len(problem.space.shape)))


def own_slopes(problem: EvolutionProblem, t: Any, u: Any, scale: float) -> list[Any]:
    """The slope at each point of the reaction of each component with respect to itself, by finite differences.

    A component changes by a millionth of its largest value or, where that is 0, of the largest of all, ``scale``, or
    ``atol``.
    """
    reaction, xp = problem.reaction, problem.xp
    assert reaction is not None
    value, whole = reaction(t, u), problem.largest(u) or scale or problem.atol or 1.0
    if problem.components is None:
        step = 1e-6 * whole
        return [(reaction(t, u + step) - value) / step]
    found = []
    for component in range(problem.components):
        step = 1e-6 * (problem.largest(u[component]) or whole)
        mask = np.zeros((problem.components, *(1,) * len(problem.space.shape)))
        mask[component] = step
        found.append((reaction(t, u + xp.array(mask)) - value)[component] / step)
    return found


def _number(value: Any) -> float:
    """The real part, as a number detached from automatic differentiation."""
    found = complex(value.item() if hasattr(value, "item") else value).real
    return found if math.isfinite(found) else 0.0
