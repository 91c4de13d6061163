"""The equation for adaptive steps: flat states, time relative to the start, checked values."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from time import perf_counter
from typing import Any, final

import numpy as np

from hpfracc._reading import check_value
from hpfracc.solvers.ode.fixed.grid import initial_part, initial_polynomial, order_groups
from hpfracc.solvers.ode.problem import Problem, history_at
from hpfracc.solvers.stepping.jacobian import JacobianSource, check_jacobian, factorise
from hpfracc.solvers.stepping.newton import Newton, Norm
from hpfracc.solvers.stepping.system import FlatSystem, NotFiniteError, Solved, StepTolerance

Array = np.ndarray[Any, Any]

#: Largest state that is checked one number at a time.
_FEW = 32
#: The equation of a step is solved to this fraction of the tolerance.
_PART = 0.02
_MAX_ITERATIONS = 5
#: Lower bound of the estimated rate of convergence.
_MIN_RATE = 0.1
#: Iterations for the linear equation of the estimated error of a stiff step.
_LINEAR_ITERATIONS = 4
#: Distance of the estimated error from its guess, relative to it, above which it is evaluated again.
_FAR = 0.1
#: Steps after which a Jacobian is recomputed.
_OLD = 20
#: Failed iterations within a window of steps that mark the equation as stiff, and steps with a contraction below the
#: limit after which it counts as not stiff.
_FAILURES = 2
_STRETCH = 25
_GENTLE_STEPS = 25
_GENTLE = 0.15
#: Response to an error, relative to it, above which a step with fading memory counts as failed.
_GENTLE_RESPONSE = 0.5
#: Rate of convergence up to which the iteration for the estimated error of a stiff step converges.
_CONVERGENT = 0.45


@final
class OrdinarySystem(FlatSystem):
    """``fun`` and ``jac`` of a problem, solved by iteration, and by Newton's method while the equation is stiff.

    Parameters
    ----------
    problem : Problem
        The problem, with known orders.
    offset : float
        Origin of time, relative to t0; above 0 if the solution is infinite at t0. The earlier contribution of the
        right-hand side is neglected.
    """

    def __init__(self, problem: Problem, offset: float = 0.0) -> None:
        self.problem, self.offset = problem, offset
        self.shape, self.dtype = problem.shape, np.dtype(problem.dtype)
        self.initial = [np.asarray(value).reshape(-1) for value in (problem.y0, *problem.dy0)]
        self.components = self.shape[-1]
        self.steady = not problem.dy0 and problem.memory is None and problem.derivative != "riemann_liouville"
        self.nfev = self.njev = 0
        #: The right-hand side, which may be replaced by a compiled one, and the seconds that were spent in it.
        self.fun, self.seconds = problem.fun, 0.0
        self.groups = order_groups(problem)
        self.fades = problem.memory is not None and problem.memory.fades
        #: For delays: the solution and its estimated error so far, and the break that steps approach from the left.
        self.past: Callable[[float], Array] = self.start
        self.past_error: Callable[[float], Array] = self._no_error
        self.break_ahead = math.inf
        #: First and last time between two breakpoints, beyond which rounding must not bring the right-hand side.
        self.segment: tuple[float, float] | None = None
        self._recent: dict[float, Array] = {}
        given = self._given if problem.jac is not None else None
        self._source = JacobianSource(self.shape, self.dtype, self._shaped, given, problem.jac_sparsity)
        self.newton = Newton(self, self.jacobian, self.components)
        self._plain = self.size == self.components and self.dtype.kind != "c"
        self._mean = np.full(self.components, 1.0 / self.components)
        self._failures: list[int] = []
        self._attempts = self._gentle = self._age = 0
        self._sizes: tuple[Any, Any, Any] = None, None, None  # a Jacobian, its magnitudes and their row sums

    def __getstate__(self) -> dict[str, Any]:
        """Without functions, which a solution does not need."""
        dropped = dict.fromkeys(("past", "past_error", "_source", "newton", "fun"))
        return self.__dict__ | dropped | {"problem": self.problem.without_functions(), "_recent": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.past, self.past_error = self.start, self._no_error

    def _shaped(self, tau: float, y: Array) -> Array:
        return self(tau, y.reshape(-1)).reshape(self.shape)

    def _no_error(self, then: float) -> Array:
        return np.zeros_like(self.initial[0])

    def time(self, tau: float) -> float:
        """The time that ``fun`` receives."""
        t = self.problem.t0 + (self.offset + tau)
        return t if self.segment is None else min(max(t, self.segment[0]), self.segment[1])

    def start(self, tau: float) -> Array:
        """The part of the initial values."""
        if self.problem.derivative == "riemann_liouville":
            return np.asarray(initial_part(self.problem, np.array([self.offset + tau]))[:, 0])
        total = self.initial[0] if len(self.initial) == 1 else initial_polynomial(self.offset + tau, self.initial)
        return total if self.problem.memory is None else total * self.problem.memory.fading(tau)

    def __call__(self, tau: float, y: Array, *, shifted: bool = False) -> Array:
        """The right-hand side at time ``tau`` after the start; ``shifted`` adds its error to the history too."""
        problem = self.problem
        self.nfev += 1
        t = problem.t0 + (self.offset + tau)
        if self.segment is not None:
            t = min(max(t, self.segment[0]), self.segment[1])
        more = self._delayed(tau, shifted) if problem.delays else ()
        # Copies, because the function may store or change its argument, and return the same array each time.
        state = y.copy() if len(self.shape) == 1 else y.reshape(self.shape).copy()
        started = perf_counter()
        value = self.fun(t, state, *more, *problem.args)
        self.seconds += perf_counter() - started
        if type(value) is not np.ndarray or value.shape != self.shape or value.dtype != self.dtype:
            value = check_value(value, self.shape, self.dtype, "fun")
        flat: Array = value.flatten()
        # For few numbers Python is faster than NumPy.
        if not (all(map(cmath.isfinite, flat.tolist())) if flat.size <= _FEW else np.isfinite(flat).all()):
            raise NotFiniteError(f"fun(t, y) is not finite at t = {t:.6g}")
        return flat

    def first(self, y: Array) -> Array:
        """The right-hand side at the start; a division by zero there counts as a value that is not finite."""
        try:
            return self(0.0, y)
        except NotFiniteError:
            raise
        except ArithmeticError as error:
            raise NotFiniteError(f"fun(t, y) is not finite at t = {self.time(0.0):.6g} ({error})") from error

    def _delayed(self, tau: float, shifted: bool) -> tuple[tuple[Array, ...]]:
        """The states at the delayed times, for ``fun``."""
        states = []
        for lag in self.problem.delays:
            then = tau - lag
            if then < 0.0 or (tau >= self.break_ahead * (1.0 - 1e-12) and then <= 1e-12 * tau):
                state = history_at(self.problem, self.problem.t0 + min(then, 0.0))
            else:
                state = self._remembered(then)
                if shifted:
                    state = state + self.past_error(then)
            states.append(state.reshape(self.shape).copy())
        return (tuple(states),)

    def _remembered(self, then: float) -> Array:
        # A step evaluates its end several times.
        if then not in self._recent:
            if len(self._recent) > 8 * len(self.problem.delays):
                self._recent.clear()
            self._recent[then] = self.past(then)
        return self._recent[then]

    def _given(self, tau: float, state: Array) -> Any:
        assert self.problem.jac is not None
        more = self._delayed(tau, False) if self.problem.delays else ()
        given = self.problem.jac(self.time(tau), state, *more, *self.problem.args)
        return check_jacobian(given, self.shape, self.dtype)

    def jacobian(self, tau: float, y: Array, f: Array) -> Any:
        """The Jacobian, shape (batch, d, d) or sparse: given, or by forward differences."""
        self.njev += 1
        return self._source(tau, y, f)

    # -- sizes --------------------------------------------------------------------------------------------------------

    def magnitude(self, y: Array) -> Array:
        """The sizes of the elements."""
        return np.abs(y)

    def norm(self, change: Array, scale: Array) -> float:
        """Root mean square over components, maximum over members."""
        return self.norms(change[np.newaxis], scale)[0]

    def norms(self, changes: Array, scale: Array) -> list[float]:
        """The norms of several changes."""
        ratios = np.abs(changes) / scale
        squares = (ratios * ratios).reshape(-1, self.components).dot(self._mean)
        if not self._plain:
            squares = squares.reshape(len(changes), -1).max(axis=1)
        return list(map(math.sqrt, squares.tolist()))

    def measure(self, error: Array, tolerance: Array, resolved: float) -> tuple[float, float]:
        """Of the elements, because a mean over many would hide the error of one."""
        ratios = np.abs(error) / tolerance
        known = tolerance * np.maximum(ratios, resolved * np.sign(ratios))
        return float(ratios[ratios.argmax()]), float(known[known.argmax()])

    # -- the equation of a step ---------------------------------------------------------------------------------------

    def solve(
        self, tau: float, known: Array, weight: Any, guess: Array, tolerance: StepTolerance, attempts: int
    ) -> Solved:
        """By iteration, or Newton's method."""
        scale = tolerance[0] + tolerance[1] * np.maximum(tolerance[2], np.abs(guess))
        if self.stiff:
            return self._solve_stiff(tau, known, weight, guess, Norm(scale, self.components))
        y, last, enough = guess, math.inf, self.components * _PART**2
        for _ in range(_MAX_ITERATIONS):
            f = self(tau, y)
            moved = known + weight * f
            ratios = (moved - y) / scale
            change = float(ratios.dot(ratios)) if self._plain else self.components * self.norm(moved - y, scale) ** 2
            y = moved
            if change <= enough:
                return y, f
            if change > 0.36 * last:
                break
            last = change
        self._attempts = attempts
        self._fail()
        return None

    def _solve_stiff(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved:
        """Newton's method with the stored Jacobian, then with a new one."""
        newton = self.newton
        for fresh in (False, True):
            if fresh or newton.matrix is None or self._age > _OLD:
                regular = newton.renew(tau, guess, self(tau, guess), weight)
                self._age, fresh = 0, True
            else:
                regular = newton.fits(weight) or newton.refactor(weight)
            found = newton.keep(tau, known, weight, guess, norm, _PART, least_rate=_MIN_RATE) if regular else None
            if found is not None or fresh:
                return found
        return None

    def damp(self, changes: Array) -> Array:
        """By the matrix of the newest step, if the equation is stiff."""
        factors = self.newton.factors
        return factors.solve(changes) if self.stiff and factors is not None else changes

    def propagate(self, tau: float, y: Array, f: Array, known: Array, weight: Any, moved: Array) -> tuple[Array, Array]:
        """With one or two evaluations.

        With the matrix M of the step, whose weight is ``rho`` times this
        one, the linear equation is ``M e = rho known + (1 - rho) e``. A few iterations solve it well enough, because
        rho is between 0.6 and 1. One evaluation then corrects it.
        """
        newton = self.newton
        if not self.stiff or newton.factors is None:
            guess = known + weight * moved
            moved = self(tau, y + guess, shifted=True) - f
            answer = weight * moved
            error: Array = known + answer
            if self.fades and np.abs(answer).max() > _GENTLE_RESPONSE * np.abs(guess).max():
                # A good guess hides that the iteration hardly converges, and neutral equations keep all errors.
                self._fail()
            # Where the iteration of the step itself contracts slowly, an error that rotates grows with one evaluation.
            size, far = np.abs(error), np.abs(error - guess)
            if far[far.argmax()] > _FAR * size[size.argmax()]:
                moved = self(tau, y + error, shifted=True) - f
                error = known + weight * moved
            return error, moved
        rho, guess, factors = newton.weight / weight, known, newton.factors
        if np.max(np.abs(1.0 - rho)) * newton.growth > _CONVERGENT:
            exact = factorise(newton.matrix, weight, known.size)
            if exact is not None:
                rho, factors = np.ones_like(rho), exact
        for _ in range(_LINEAR_ITERATIONS):
            guess = factors.solve(rho * known + (1.0 - rho) * guess)
        moved = self(tau, y + guess, shifted=True) - f
        error = guess - factors.solve(guess - known - weight * moved)
        return error, (error - known) / weight

    # -- stiffness ----------------------------------------------------------------------------------------------------

    def accepted(self, weight: Any, scale: Array) -> None:
        """Age the Jacobian, and see whether the equation is still stiff.

        The contraction is a bound of the spectral radius of weight times Jacobian: the smaller of two row-sum bounds,
        unscaled and in units of the tolerance. Either may be far too large if components differ in size.
        """
        self._age += 1
        slopes, d = self.newton.matrix, self.components
        if not self.stiff or slopes is None:
            return
        if slopes is not self._sizes[0]:
            size = abs(slopes)
            self._sizes = slopes, size, np.asarray(size.sum(axis=-1)).reshape(-1)
        _, size, rows = self._sizes
        scaled = (size @ (scale.reshape(-1, d, 1) if size.ndim == 3 else scale)).reshape(-1) / scale
        self.contraction = float(min((weight * rows).max(), (weight * scaled).max()))
        self._gentle = self._gentle + 1 if self.contraction < _GENTLE else 0
        if self._gentle >= _GENTLE_STEPS:
            self._switch(False)

    def _fail(self) -> None:
        """Record a failed iteration: repeated ones mark the equation as stiff."""
        now = self._attempts
        self._failures = [attempt for attempt in self._failures if attempt > now - _STRETCH] + [now]
        if len(self._failures) >= _FAILURES:
            self._switch(True)

    def _switch(self, stiff: bool) -> None:
        self.stiff = stiff
        self.switches += 1
        self._failures.clear()
        self._gentle = 0
        self.newton.forget()
