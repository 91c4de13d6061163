"""The equation of a step, ``y = known + weight * f(t, y)``: by fixed-point iteration, or by Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode.adaptive.system import FlatSystem
from hpfracc.solvers.stepping.jacobian import factorise
from hpfracc.solvers.stepping.newton import KEPT_ITERATIONS, Newton, Norm

Array = np.ndarray[Any, Any]
#: State and right-hand side at the end of a step; None if the step is too long.
Solved = tuple[Array, Array] | None

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
#: Response to an error, relative to it, above which a step with fading memory counts as failed.
_GENTLE_RESPONSE = 0.5
#: Rate of convergence up to which the iteration for the estimated error of a stiff step converges.
_CONVERGENT = 0.45


class Corrector:
    """Solves the equations of the steps, and detects stiffness."""

    #: Whether ``damped`` solves a linear system, and whether ``solve`` iterates until a change is small in its norm.
    solves_to_damp, iterates = False, True

    def __init__(self, system: FlatSystem) -> None:
        self.system = system
        self.stiff = False
        self.switches = 0
        self.contraction = 0.0
        self._failures: list[int] = []
        self._step = 0  # the number of attempts so far
        self._gentle = 0
        self.newton = Newton(system, system.jacobian, system.components)
        self._age = 0
        self.loops: Any = None  # CompiledArithmetic, while steps are compiled
        self._sizes: tuple[Any, Any, Any] = None, None, None  # a Jacobian, its magnitudes and their row sums

    @property
    def inverse(self) -> Array | None:
        """The inverse matrix that a stiff step was solved with."""
        return self.newton.inverse if self.stiff else None

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, norm: Any, steps: int) -> Solved:
        """The solution of ``y = known + weight f(tau, y)`` to a part of the tolerance; None if the step is too long."""
        if self.stiff:
            return self._newton(tau, known, weight, guess, norm)
        found: Solved = (self._iterate if self.loops is None else self.loops.solve)(tau, known, weight, guess, norm)
        self._step = steps
        if found is None:
            self._fail()
        return found

    def _fail(self) -> None:
        """Record a failed iteration: repeated ones mark the equation as stiff."""
        self._failures = [step for step in self._failures if step > self._step - _STRETCH] + [self._step]
        if len(self._failures) >= _FAILURES:
            self._switch(True)

    def _iterate(self, tau: float, known: Array, weight: Any, guess: Array, norm: Any) -> Solved:
        y, last = guess, np.inf
        for count in range(MAX_ITERATIONS):
            f = self.system(tau, y)
            moved = known + weight * f
            change = norm(moved - y)
            y = moved
            if change <= PART:
                return y, f
            if count and change > 0.6 * last:
                break
            last = change
        return None

    def degrees(self) -> None:
        """The highest stable degree of each element: the elements are coupled, and have one degree."""

    def damped(self, change: Array) -> Array:
        """The effect of a change of ``known`` on the solution, damped if the equation is stiff."""
        return self.newton.apply(change) if self.stiff and self.newton.factors is not None else change

    def damped_rows(self, changes: Array) -> list[Array]:
        """The effect of several changes of ``known``."""
        return [self.damped(change) for change in changes]

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
            self._note_response(np.abs(weight * moved).max(), np.abs(guess).max())
            # Where the iteration of the step itself contracts slowly, an error that rotates grows with one evaluation.
            if np.abs(error - guess).max() > FAR * np.abs(error).max():
                moved = change(error)
                error = known + weight * moved
            return error, moved
        rho = self.newton.weight / weight
        guess, apply = known, self.newton.apply
        if np.max(np.abs(1.0 - rho)) * self.newton.growth > _CONVERGENT:
            factors = factorise(self.newton.matrix, weight, known.size)
            if factors is not None:
                rho, apply = np.ones_like(rho), factors.solve
        for _ in range(LINEAR_ITERATIONS):
            guess = apply(rho * known + (1.0 - rho) * guess)
        error = guess - apply(guess - known - weight * change(guess))
        return error, (error - known) / weight

    def _note_response(self, response: float, size: float) -> None:
        """Where the memory fades, steps may be so long that an error is answered by one of its size: that is stiff.

        A good guess then hides that the iteration hardly converges, and neutral equations keep all errors of the steps.
        """
        memory = self.system.problem.memory
        if memory is not None and memory.fades and response > _GENTLE_RESPONSE * size:
            self._fail()

    def accepted(self, weight: Any, scale: Array) -> None:
        """Record an accepted step, which ages the Jacobian and may end stiffness.

        The contraction is a bound of the spectral radius of weight times Jacobian: the smaller of two row-sum bounds,
        unscaled and in units of the tolerance. Either may be far too large if components differ in size.
        """
        self._age += 1
        slopes, d = self.newton.matrix, self.system.components
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

    def _switch(self, stiff: bool) -> None:
        self.stiff = stiff
        self.switches += 1
        self._failures.clear()
        self._gentle = 0
        self.newton.forget()

    def _newton(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved:
        """Newton's method with the stored Jacobian, then with a new one; None if the step is too long."""
        newton = self.newton
        for fresh in (False, True):
            if fresh or newton.matrix is None or self._age > _OLD:
                regular = newton.renew(tau, guess, self.system(tau, guess), weight)
                self._age, fresh = 0, True
            else:
                regular = newton.fits(weight) or newton.refactor(weight)
            found: Solved = None
            if regular and self.loops is not None and newton.inverse is not None:
                found = self.loops.solve(tau, known, weight, guess, norm, newton.inverse)
            elif regular:
                found = newton.keep(tau, known, weight, guess, norm, PART, least_rate=MIN_RATE)
            if found is not None or fresh:
                return found
        return None
