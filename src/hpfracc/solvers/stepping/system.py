"""The equation that adaptive steps solve: its right-hand side, the equation of a step, and the sizes of errors.

The equation of a step is ``y = known + weight * f(t, y)``, solved by fixed-point iteration, or by Newton's method while
the equation is stiff.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc.errors import HpfraccError
from hpfracc.solvers.stepping.jacobian import factorise
from hpfracc.solvers.stepping.newton import Newton, Norm

Array = np.ndarray[Any, Any]
#: State and right-hand side at the end of a step; None if the step is too long.
Solved = tuple[Array, Array] | None
#: Absolute and relative tolerance of a step, and the sizes of the state before it.
Tolerance = tuple[Array, float, Array]

#: The equation of a step is solved to this fraction of the tolerance.
PART = 0.02
MAX_ITERATIONS = 5
#: Lower bound of the estimated rate of convergence.
MIN_RATE = 0.1
#: Iterations for the linear equation of the estimated error of a stiff step.
LINEAR_ITERATIONS = 4
#: Distance of the estimated error from its guess, relative to it, above which it is evaluated again.
FAR = 0.1
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


class NotFiniteError(HpfraccError, ArithmeticError):
    """The right-hand side was not finite. A shorter step is tried before the solve fails."""


def peak(values: Array) -> float:
    """The largest of some values; faster than ``values.max()`` for few."""
    return float(values[values.argmax()])


class FlatSystem(ABC):
    """An equation on flat states, in the time after its start.

    Attributes
    ----------
    initial : list of arrays
        The initial values: the state, and its derivatives if orders exceed 1.
    groups : sequence of (float, index)
        The orders, and the elements that have them.
    shape : tuple of int
        The shape that absolute tolerances broadcast to.
    offset : float
        Where time starts, above 0 if the solution is infinite at 0.
    stiff : bool
        Whether errors are damped by the solution of the equation of a step.
    contraction : float
        A bound of the newest weight times the slopes of the right-hand side, while the equation is stiff.
    solves_to_damp : bool
        Whether :meth:`damp` costs as much as a step.
    switches : int
        How often the equation became stiff, or ceased to be.
    """

    initial: list[Array]
    groups: Sequence[tuple[float, Any]]
    dtype: Any
    shape: tuple[int, ...]
    offset = 0.0
    stiff, contraction, solves_to_damp, switches = False, 0.0, False, 0

    @property
    def size(self) -> int:
        """Number of elements of the state."""
        return self.initial[0].size

    @abstractmethod
    def time(self, tau: float) -> float:
        """The time that the right-hand side receives."""

    @abstractmethod
    def start(self, tau: float) -> Array:
        """The part of the initial values."""

    @abstractmethod
    def __call__(self, tau: float, y: Array, *, shifted: bool = False) -> Array:
        """The right-hand side; raises :class:`NotFiniteError`. ``shifted``: of a state that is moved by its error."""

    def first(self, y: Array) -> Array:
        """The right-hand side at the start."""
        return self(0.0, y)

    @abstractmethod
    def solve(self, tau: float, known: Array, weight: Any, guess: Array, tolerance: Tolerance, attempts: int) -> Solved:
        """Solve the equation of a step to a part of the tolerance; None if the step is too long."""

    @abstractmethod
    def propagate(self, tau: float, y: Array, f: Array, known: Array, weight: Any, guess: Array) -> tuple[Array, Array]:
        """One solution of ``e = known + weight (f(y + e) - f)`` for the estimated error: e, and the change of f."""

    @abstractmethod
    def damp(self, changes: Array) -> Array:
        """The effect of changes of ``known`` on the newest solution, of shape (n,) or (count, n)."""

    def degrees(self) -> Array | None:
        """The highest stable degree of each element, if elements are independent."""
        return None

    @abstractmethod
    def accepted(self, weight: Any, scale: Array) -> None:
        """Called with the newest weight and the tolerance of a step that was accepted."""

    @abstractmethod
    def magnitude(self, y: Array) -> Array:
        """The sizes that the relative tolerance refers to."""

    @abstractmethod
    def norm(self, change: Array, scale: Array) -> float:
        """The norm of a change in units of ``scale``."""

    @abstractmethod
    def norms(self, changes: Array, scale: Array) -> list[float]:
        """The norms of several changes."""

    @abstractmethod
    def measure(self, error: Array, tolerance: Array, resolved: float) -> tuple[float, float]:
        """The largest error in units of the tolerance; and its size, at least ``resolved`` times the tolerance."""


class IteratedSystem(FlatSystem):
    """A system of components, solved by iteration, and by Newton's method while it is stiff.

    Parameters
    ----------
    initial : list of arrays
        The flat initial values.
    components : int
        Size of the blocks that are independent of each other; the norm is the root mean square over each.
    """

    #: Whether the memory fades, so that steps may be longer than it.
    fades = False

    def __init__(self, initial: list[Array], components: int) -> None:
        self.initial, self.components = initial, components
        self.newton = Newton(self, self.jacobian, components)
        self._plain = initial[0].size == components and initial[0].dtype.kind != "c"
        self._mean = np.full(components, 1.0 / components)
        self._failures: list[int] = []
        self._attempts = self._gentle = self._age = 0
        self._sizes: tuple[Any, Any, Any] = None, None, None  # a Jacobian, its magnitudes and their row sums

    @abstractmethod
    def jacobian(self, tau: float, y: Array, f: Array) -> Any:
        """The Jacobian, shape (batch, d, d) or sparse."""

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
        return peak(ratios), peak(known)

    # -- the equation of a step ---------------------------------------------------------------------------------------

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, tolerance: Tolerance, attempts: int) -> Solved:
        """By iteration, or Newton's method."""
        scale = tolerance[0] + tolerance[1] * np.maximum(tolerance[2], np.abs(guess))
        if self.stiff:
            return self._solve_stiff(tau, known, weight, guess, Norm(scale, self.components))
        y, last, enough = guess, math.inf, self.components * PART**2
        for _ in range(MAX_ITERATIONS):
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
            found = newton.keep(tau, known, weight, guess, norm, PART, least_rate=MIN_RATE) if regular else None
            if found is not None or fresh:
                return found
        return None

    def damp(self, changes: Array) -> Array:
        """By the matrix of the newest step, if the equation is stiff."""
        factors = self.newton.factors
        return factors.solve(changes) if self.stiff and factors is not None else changes

    def propagate(self, tau: float, y: Array, f: Array, known: Array, weight: Any, guess: Array) -> tuple[Array, Array]:
        """With one or two evaluations.

        If the equation is stiff, ``guess`` is none. With the matrix M of the step, whose weight is ``rho`` times this
        one, the linear equation is ``M e = rho known + (1 - rho) e``; `LINEAR_ITERATIONS` solve it well enough, because
        rho is between 0.6 and 1. One evaluation then corrects it.
        """
        newton = self.newton
        if not self.stiff or newton.factors is None:
            moved = self(tau, y + guess, shifted=True) - f
            answer = weight * moved
            error: Array = known + answer
            if self.fades and np.abs(answer).max() > _GENTLE_RESPONSE * np.abs(guess).max():
                # A good guess hides that the iteration hardly converges, and neutral equations keep all errors.
                self._fail()
            # Where the iteration of the step itself contracts slowly, an error that rotates grows with one evaluation.
            if peak(np.abs(error - guess)) > FAR * peak(np.abs(error)):
                moved = self(tau, y + error, shifted=True) - f
                error = known + weight * moved
            return error, moved
        rho, guess, factors = newton.weight / weight, known, newton.factors
        if np.max(np.abs(1.0 - rho)) * newton.growth > _CONVERGENT:
            exact = factorise(newton.matrix, weight, known.size)
            if exact is not None:
                rho, factors = np.ones_like(rho), exact
        for _ in range(LINEAR_ITERATIONS):
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
