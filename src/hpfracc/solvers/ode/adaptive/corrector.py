"""The equation of a step, ``y = known + weight * f(t, y)``: by fixed-point iteration, or by Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpfracc.solvers.ode.adaptive.system import FlatSystem, SizeNorm
from hpfracc.solvers.ode.newton import KEPT_ITERATIONS, Newton, Norm

__all__ = [
    "FAR",
    "LINEAR_ITERATIONS",
    "MAX_ITERATIONS",
    "MAX_NEWTON",
    "MIN_RATE",
    "PART",
    "Corrector",
    "Solved",
    "StepCorrector",
]

Array = np.ndarray[Any, Any]

#: The equation of a step is solved to this fraction of the tolerance.
PART = 0.02
MAX_ITERATIONS = 5
MAX_NEWTON = KEPT_ITERATIONS
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


@dataclass(frozen=True, slots=True)
class Solved:
    """State and right-hand side at the end of a step."""

    y: Array
    f: Array


class StepCorrector(Protocol):
    """Solves the equations of steps, and says how stiff they are; see :class:`Corrector`."""

    stiff: bool
    switches: int
    contraction: float

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, norm: SizeNorm, steps: int) -> Solved | None:
        """The solution of ``y = known + weight f(tau, y)``, or None if the step is too long."""

    def damped(self, change: Array) -> Array:
        """The effect of a change of ``known`` on the solution."""

    def propagate(
        self, known: Array, weight: Any, guess: Array, change: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """The estimated error ``e = known + weight * change(e)``, and its change."""

    def degrees(self) -> Array | None:
        """The highest stable degree of each element; None if they are coupled, and have one degree."""

    def accepted(self, weight: Any, scale: Array) -> None:
        """Record an accepted step."""


class Corrector:
    """Solves the equations of the steps, and detects stiffness."""

    def __init__(self, system: FlatSystem) -> None:
        self.system = system
        self.stiff = False
        self.switches = 0
        self.contraction = 0.0
        self._failures: list[int] = []
        self._gentle = 0
        self.newton = Newton(system, system.jacobian, system.components)
        self._age = 0
        self.loops: Any = None  # CompiledArithmetic, while steps are compiled
        self._sized: tuple[Any, Any, Any] = (None, None, None)  # a Jacobian, its magnitudes and their row sums

    @property
    def inverse(self) -> Array | None:
        """The inverse matrix that a stiff step was solved with."""
        return self.newton.inverse if self.stiff else None

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, norm: Any, steps: int) -> Solved | None:
        """The solution to a fraction of the tolerance, or None if the step is too long."""
        if self.stiff:
            return self._newton(tau, known, weight, guess, norm)
        found = self._iterate(tau, known, weight, guess, norm)
        if found is None:
            self.failed(steps)
        return found

    def failed(self, steps: int) -> None:
        """Record that an iteration failed after ``steps`` steps; repeated failures mark the equation as stiff."""
        self._failures = [step for step in self._failures if step > steps - _STRETCH] + [steps]
        if len(self._failures) >= _FAILURES:
            self._switch(True)

    def degrees(self) -> None:
        """The elements are coupled, and have one degree."""

    def damped(self, change: Array) -> Array:
        """The effect of a change of ``known`` on the solution, damped if the equation is stiff."""
        return self.newton.apply(change) if self.stiff and self.newton.factors is not None else change

    def propagate(
        self, known: Array, weight: Any, guess: Array, change: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """One solution of ``e = known + weight * change(e)`` for the estimated error; e and its change.

        If the equation is stiff, the last change is no guess for the next one. With the matrix M of the step, whose
        weight is ``rho`` times this one, the linear equation is ``M e = rho known + (1 - rho) e``; `LINEAR_ITERATIONS`
        solve it well enough, because rho is between 0.6 and 1. One evaluation then corrects it.
        """
        if not self.stiff or self.newton.factors is None:
            moved = change(guess)
            error = known + weight * moved
            # Where the iteration of the step itself contracts slowly, an error that rotates grows with one evaluation.
            if np.abs(error - guess).max() > FAR * np.abs(error).max():
                moved = change(error)
                error = known + weight * moved
            return error, moved
        rho = self.newton.weight / weight
        guess = known
        for _ in range(LINEAR_ITERATIONS):
            guess = self.newton.apply(rho * known + (1.0 - rho) * guess)
        moved = change(guess)
        error = guess - self.newton.apply(guess - known - weight * moved)
        return error, (error - known) / weight

    def accepted(self, weight: Any, scale: Array) -> None:
        """Record an accepted step, which ages the Jacobian and may end stiffness."""
        self._age += 1
        slopes = self.newton.matrix
        if not self.stiff or slopes is None:
            return
        self.contraction = self._bound(slopes, weight, scale)
        self._gentle = self._gentle + 1 if self.contraction < _GENTLE else 0
        if self._gentle >= _GENTLE_STEPS:
            self._switch(False)

    def _bound(self, slopes: Any, weight: Any, scale: Array) -> float:
        """A bound of the spectral radius of ``weight * slopes``.

        The smaller of two row-sum bounds, unscaled and in units of the tolerance. Either may be far too large if
        components differ in size.
        """
        if slopes is not self._sized[0]:
            size = abs(slopes)
            self._sized = slopes, size, np.asarray(size.sum(axis=-1)).reshape(-1, self.system.components)
        _, size, rows = self._sized
        d = self.system.components
        if rows.size == d and np.ndim(weight) == 0:
            row_bound = abs(weight) * rows.max()
            if row_bound < _GENTLE:
                return float(row_bound)
            return float(
                min(row_bound, abs(weight) * ((size.reshape(d, d) if size.ndim == 3 else size) @ scale / scale).max())
            )
        units = scale.reshape(-1, d)
        scaled = np.asarray(size @ (units[..., np.newaxis] if size.ndim == 3 else scale)).reshape(-1, d) / units
        weights = np.abs(np.broadcast_to(weight, self.system.size).reshape(-1, d))
        return float(np.minimum((weights * rows).max(axis=1), (weights * scaled).max(axis=1)).max())

    def _switch(self, stiff: bool) -> None:
        self.stiff = stiff
        self.switches += 1
        self._failures.clear()
        self._gentle = 0
        self.newton.forget()

    def _iterate(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved | None:
        y, last = guess, np.inf
        for count in range(MAX_ITERATIONS):
            f = self.system(tau, y)
            moved = known + weight * f
            change = norm(moved - y)
            y = moved
            if change <= PART:
                return Solved(y, f)
            if count and change > 0.6 * last:
                return None
            self.contraction, last = change / last, change
        return None

    def _newton(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved | None:
        """Newton's method with the stored Jacobian, then with a new one; None if the step is too long."""
        newton = self.newton
        for fresh in (False, True):
            if fresh or newton.matrix is None or self._age > _OLD:
                regular = newton.renew(tau, guess, self.system(tau, guess), weight)
                self._age, fresh = 0, True
            else:
                regular = newton.fits(weight) or newton.refactor(weight)
            found = self._keep(tau, known, weight, guess, norm) if regular else None
            if found is not None or fresh:
                return found
        return None

    def _keep(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved | None:
        inverse = self.newton.inverse
        if self.loops is not None and inverse is not None:
            solved: Solved | None = self.loops.newton(tau, known, weight, guess, norm, inverse)
            return solved
        found = self.newton.keep(tau, known, weight, guess, norm, PART, least_rate=MIN_RATE)
        return None if found is None else Solved(*found)
