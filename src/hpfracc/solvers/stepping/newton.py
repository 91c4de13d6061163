"""Newton's method for the equation of an implicit step, shared by all implicit methods.

The matrix of a step is reused while the iteration converges quickly with it (simplified Newton iteration). If that
fails, the Jacobian is computed at every iterate, and corrections are damped by the natural monotonicity test: a
correction is accepted if the next one with the same matrix is smaller. The test is invariant under scaling of equations
and unknowns (P. Deuflhard, Newton Methods for Nonlinear Problems (2004),
chapter 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.stepping.jacobian import Factors, factorise

Array = np.ndarray[Any, Any]
#: The residual of a flat vector, not finite where it is not defined; factors of its derivative, None if it is singular.
Residual = Callable[[Array], Array]
FactorsAt = Callable[[Array], Factors | None]
#: A residual and the size of a correction; the least rate of convergence, the assumed one, and the largest.
Before = tuple[Array | None, float]
Rates = tuple[float, float, float]

#: The equation of a fixed step is solved to this fraction of ``atol + rtol |y|``. Its errors accumulate like the number
#: of steps to the power alpha, so the fraction decreases accordingly above the second number of steps.
PART, _PART_STEPS = 1e-7, 100
#: Minimum accuracy relative to the largest component, for any tolerance.
DIGITS = 1e-10
#: Maximum iterations with a reused matrix. More would cost more than a new one.
KEPT_ITERATIONS = 7
#: Lower bound of the estimated rate of convergence.
MIN_RATE = 1e-3
#: Steps after which the rate of convergence is measured again.
REMEASURE = 16
#: A guess is extrapolated if that changes a component by less than this fraction.
SMALL_CHANGE = 0.05
#: Rate of convergence below which a matrix is reused.
_GOOD_RATE = 0.3
#: Maximum iterates with a new Jacobian each, and minimum damping factor, before a step fails.
_MAX_NEW = 60
_MIN_DAMPING = 1e-7
#: Maximum steps in pseudo-time towards a solution on another branch.
_MAX_FOLLOWED = 150
#: Corrections that no longer decrease are rounding errors. They are accepted up to this multiple of the target.
_ROUNDING = 1e3


@dataclass(frozen=True, slots=True)
class Norm:
    """Norm of a change in units of ``scale``: root mean square over components, maximum over members."""

    scale: Array
    components: int

    def __call__(self, change: Array) -> float:
        """The norm of one change."""
        ratios = np.abs(change) / self.scale
        if ratios.size == self.components:
            return math.sqrt(ratios.dot(ratios) / self.components)
        return float(self.members(change).max())

    def rows(self, changes: Array) -> list[float]:
        """The norms of several changes."""
        ratios = (np.abs(changes) / self.scale).reshape(len(changes), -1, self.components)
        squares = np.einsum("rbd,rbd->rb", ratios, ratios).max(axis=1) / self.components
        return [math.sqrt(square) for square in squares.tolist()]

    def members(self, change: Array) -> Array:
        """The norm for each member of the batch."""
        ratios = (np.abs(change) / self.scale).reshape(-1, self.components)
        return np.asarray(np.sqrt(np.einsum("bd,bd->b", ratios, ratios) / self.components))


def step_part(steps: int, alpha: float) -> float:
    """Fraction of the tolerance to which the equation of each of ``steps`` steps is solved."""
    return PART * float(min(1.0, (_PART_STEPS / steps) ** alpha))


def extrapolate(newest: Array, before: Array, first: Array) -> Array:
    """Quadratic extrapolation of three states by one step; the newest state where it would change much."""
    change = 2.0 * newest - 3.0 * before + first
    return newest + np.where(np.abs(change) <= SMALL_CHANGE * np.abs(newest), change, 0.0)


def step_scale(known: Array, guess: Array, components: int, rtol: float, atol: Any, part: float = PART) -> Array:
    """Target accuracy of the equation of a fixed step, for each component."""
    sizes = np.maximum(np.abs(known), np.abs(guess))
    rows = sizes.reshape(-1, components).max(axis=1)
    largest = np.repeat(rows, components) if rows.size > 1 else rows[0]
    most = DIGITS * (largest + (largest == 0.0))  # 1 if all components are 0
    return np.asarray(np.minimum(part * (atol + rtol * sizes), most) + (1e-15 * largest + 1e-290))


class Newton:
    """Solves ``y = known + weight f(t, y)`` for flat states.

    Parameters
    ----------
    evaluate : callable
        ``f(t, y)``.
    slopes : callable
        ``slopes(t, y, f)``: ``df/dy``, of shape (batch, d, d) or sparse.
    components : int
        d.
    """

    def __init__(self, evaluate: Callable[[float, Array], Array], slopes: Callable[..., Any], components: int) -> None:
        self.evaluate, self.slopes, self.components = evaluate, slopes, components
        #: Tolerances, from which :meth:`solve` computes its scale, and the fraction of them to which it solves.
        self.atol: Any
        self.rtol, self.atol, self.part = 1e-6, 1e-9, PART
        #: The user's function, for compiled steps.
        self.jacobian: Callable[[float, Array], Any] | None = None
        self.iterations = self.jacobians = 0
        self.residual = 0.0
        self.matrix: Any = None
        self.factors: Factors | None = None
        self.weight: Any = None
        #: By how much a residual may grow if the matrix is inverted, at least 1.
        self.growth = 1.0
        #: Evaluations per Jacobian, and the extra iterations caused by reusing it.
        self.price = components + 1
        self._fewest, self._excess = KEPT_ITERATIONS, 0
        #: The last measured rate of convergence with this matrix, and the steps since then.
        self._rate, self._unmeasured = math.inf, 0

    # -- the matrix ---------------------------------------------------------------------------------------------------

    def renew(self, t: float, y: Array, value: Array, weight: Any) -> bool:
        """Compute the Jacobian at a point and factorise; returns whether the matrix is regular."""
        self.jacobians += 1
        self._fewest, self._excess = KEPT_ITERATIONS, 0
        self._rate, self._unmeasured = math.inf, 0
        self.matrix = self.slopes(t, y, value)
        return self.refactor(weight)

    def refactor(self, weight: Any) -> bool:
        """Factorise with the stored Jacobian."""
        size = self.matrix.shape[0] * (self.matrix.shape[1] if self.matrix.ndim == 3 else 1)
        self.factors = factorise(self.matrix, weight, size)
        self.weight = np.array(weight)
        self.growth = math.inf if self.factors is None else max(self.factors.growth(size), 1.0)
        return self.factors is not None

    def forget(self) -> None:
        """Discard the matrix, so that the next step computes a new Jacobian."""
        self.matrix = self.factors = None

    def fits(self, weight: Any) -> bool:
        """Whether the factors were computed with nearly this weight: a nearly singular matrix needs its own."""
        near = 0.05 / self.growth
        return self.factors is not None and bool((abs(self.weight - weight) <= near * abs(weight)).all())

    @property
    def inverse(self) -> Array | None:
        """The inverse of the matrix, if it is dense."""
        return None if self.factors is None else self.factors.inverse

    def apply(self, residual: Array) -> Array:
        """The inverse of the matrix times ``residual``."""
        assert self.factors is not None
        return self.factors.solve(residual)

    # -- the iteration ------------------------------------------------------------------------------------------------

    def solve(
        self, t: float, known: Array, weight: Any, before: Array, guess: Array | None = None
    ) -> tuple[Array, Array] | None:
        """The solution and ``f`` there, for steps that cannot be shortened; None if none is found.

        The iteration starts at ``guess`` and, if that fails, again at the state ``before``.
        """
        before = np.where(np.isfinite(before), before, known)  # a Riemann-Liouville solution may be infinite at t0
        scale = step_scale(known, before, self.components, self.rtol, self.atol, self.part)
        norm = Norm(scale, self.components)
        usable = self.matrix is not None and self._excess < self.price
        if usable and (self.fits(weight) or self.refactor(weight)):
            self._unmeasured += 1
            rate = min(2.0 * self._rate, 0.5) if self._unmeasured <= REMEASURE else 0.5
            begin = before if guess is None else guess
            found = self.keep(t, known, weight, begin, norm, 1.0, least_rate=MIN_RATE, first_rate=rate)
            if found is not None:
                return found
        return self._solve_renewed(t, known, weight, before, norm)

    def keep(
        self,
        t: float,
        known: Array,
        weight: Any,
        guess: Array,
        norm: Norm,
        target: float,
        *,
        least_rate: float,
        first_rate: float = 0.5,
    ) -> tuple[Array, Array] | None:
        """Iterate with the stored matrix; None if it converges too slowly.

        The first correction alone gives no rate of convergence; ``first_rate`` is used for it.
        """

        def residual(y: Array) -> Array:
            self.iterations += 1
            return np.asarray(y - known - weight * self.evaluate(t, y))

        assert self.factors is not None
        rates = (least_rate, first_rate, 0.9)
        found, turns, rate = _contract(residual, self.factors, guess, norm, target, (None, math.inf), rates)
        if rate is not None:
            self._rate, self._unmeasured = rate, 0
        if found is None:
            return None
        self._fewest = min(self._fewest, turns)
        if turns > 1 or first_rate < 0.5:  # otherwise the rate was measured and is the reason
            self._excess += turns - self._fewest
        # Not f(y), which would amplify the remaining error if the equation is stiff.
        return found, (found - known) / weight

    def _solve_renewed(
        self, t: float, known: Array, weight: Any, guess: Array, norm: Norm
    ) -> tuple[Array, Array] | None:
        """Solve with new Jacobians: damped corrections from ``guess``, or from the result of :meth:`_follow`.

        Damped corrections stop if the Jacobian is singular between the start and the solution, for example if the
        solution jumps to another branch within the step. Undamped ones, tried last, may pass such a point.
        """
        value = point = np.empty(0)

        def residual(y: Array) -> Array:
            nonlocal value, point
            value, point = self.evaluate(t, y), y
            return np.asarray(y - known - weight * value)

        def matrix(y: Array) -> Factors | None:
            if point is not y:
                residual(y)
            self.iterations += 1
            return self.factors if self.renew(t, y, value, weight) else None

        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of trial points
            found, self.residual = solve_damped(residual, matrix, guess, norm)
            if found is None:
                near = self._follow(residual, matrix, weight, guess)
                if near is not None:
                    found, self.residual = solve_damped(residual, matrix, near, norm)
            if found is None:
                found, self.residual = solve_damped(residual, matrix, guess, norm, damped=False)
            if found is not None:
                return found, (found - known) / weight
        self.forget()
        return None

    def _follow(self, residual: Residual, matrix: FactorsAt, weight: Any, start: Array) -> Array | None:
        """A point near the stable limit of ``dy/ds = known + weight f(t, y) - y``; None if there is none.

        The equation itself would go there, for example if a reaction ignites or dies within the step (pseudo-transient
        continuation: C. T. Kelley, D. E. Keyes, SIAM J. Numer. Anal. 35 (1998) 508-523). Steps are linearly implicit.
        They are limited so that the residual stays nearly linear and the state changes by at most a half: just after a
        branch has ended the residual is small, and a limit on its size alone would not keep the steps on course.
        """
        y, left, pace = start, residual(start), 1e-3
        if not np.isfinite(left).all():
            return None
        units = np.abs(start) + np.abs(left)
        units = units + (1e-9 * units.max() + 1e-300)
        for _ in range(_MAX_FOLLOWED):
            if matrix(y) is None:
                return None
            while True:
                # (1/pace + 1 - weight J) change = residual, of which change / pace remains if it is linear.
                shift = 1.0 + 1.0 / pace
                if not self.refactor(weight / shift):
                    return None
                change = self.apply(left) / shift
                trial = y - change
                far = float(np.abs(change).max() / (np.abs(y).max() + 1e-300))
                after = residual(trial) if far <= 0.5 else None
                if after is not None and np.isfinite(after).all():
                    moved = float(np.abs(change / units).max())
                    bent = float(np.abs(self.apply(after - change / pace) / (shift * units)).max())
                    if bent <= max(0.3 * moved, 1e-6):
                        break
                pace *= 0.25
                if not pace > 1e-12:
                    return None
            y, left = trial, after
            if pace > 1e4 or (pace > 10.0 and moved < 1e-6):
                return y
            pace *= 0.5 if far > 0.25 else 1.0 if far > 0.1 or bent > 0.15 * moved else 3.0
        return None


def solve_damped(
    residual: Residual, matrix: FactorsAt, start: Array, norm: Norm, *, damped: bool = True, rounding: float = 0.0
) -> tuple[Array | None, float]:
    """A zero of ``residual`` by damped Newton corrections, or None; and the last maximum residual.

    Parameters
    ----------
    residual, matrix : callables
        As said for their types.
    start : array
        Initial guess.
    norm : Norm
        Norm of corrections, the last of which is at most 1; members of a batch are damped separately.
    damped : bool
        Whether corrections are damped. Those that lead to a non-finite residual are always damped.
    rounding : float
        Rounding error of the residual, if known; a smaller residual is not required.
    """
    y = start
    left = residual(y)
    if not np.isfinite(left).all():
        return None, math.nan
    damping = np.ones(len(norm.members(y)))
    width = norm.components
    for _ in range(_MAX_NEW):
        if float(np.abs(left).max()) <= rounding:
            return y, float(np.abs(left).max())
        factors = matrix(y)
        if factors is None:
            break
        change = factors.solve(left)
        sizes = norm.members(change)
        if not np.isfinite(sizes).all():
            break
        damping = np.minimum(1.0, 4.0 * damping)
        while True:
            trial = y - np.repeat(damping, width) * change
            after = residual(trial)
            if not np.isfinite(after).all():
                damping = 0.25 * damping
            else:
                following = factors.solve(after)
                new_sizes = norm.members(following)
                good = (new_sizes <= (1.0 - 0.25 * damping) * sizes) | (new_sizes <= 1.0)
                if good.all() or not damped:
                    break
                if float(sizes.max()) <= _ROUNDING:
                    return trial, float(np.abs(after).max())  # only rounding errors remain
                # From a quadratic model of the residual (Deuflhard, section 3.3).
                bent = norm.members(following - np.repeat(1.0 - damping, width) * change)
                with np.errstate(divide="ignore", invalid="ignore"):
                    model = 0.5 * sizes * damping**2 / bent
                damping = np.where(good, damping, np.fmin(np.fmax(model, 0.02 * damping), 0.5 * damping))
            if float(damping.min()) < _MIN_DAMPING:
                return None, float(np.abs(left).max())
        y, left = trial, after
        if float(damping.min()) == 1.0:
            rates = (MIN_RATE, 0.5, _GOOD_RATE)
            found = _contract(residual, factors, y, norm, 1.0, (left, float(sizes.max())), rates)[0]
            if found is not None:
                return found, float(np.abs(left).max())
    return None, float(np.abs(left).max())


def _contract(
    residual: Residual, factors: Factors, y: Array, norm: Norm, target: float, before: Before, rates: Rates
) -> tuple[Array | None, int, float | None]:
    """Corrections with one matrix while they decrease quickly: the zero or None, the last turn, and the first rate.

    ``before`` is the residual at ``y`` and the size of the last correction, if they are known. A first correction alone
    gives no rate, and the second of ``rates`` is assumed.
    """
    (left, last), measured, (least_rate, first_rate, most_rate) = before, None, rates
    for turn in range(KEPT_ITERATIONS):
        change = factors.solve(residual(y) if left is None else left)
        y, left, size = y - change, None, norm(change)
        rate = first_rate if last == math.inf else size / last if last else 0.0
        if turn == 1:
            measured = rate
        if size * max(rate, least_rate) <= target:
            return y, turn, measured
        # The remaining iterations would cost more than a new matrix.
        if not rate <= most_rate or (turn > 1 and size * rate ** (KEPT_ITERATIONS - turn) > target):
            break
        last = size
    return None, 0, measured
