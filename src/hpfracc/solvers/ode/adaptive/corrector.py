"""The equation of a step, ``y = known + weight * f(t, y)``: by iteration, or by Newton's method where it is stiff."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpfracc.solvers.ode.adaptive.system import FlatSystem

__all__ = ["MOST_ITERATIONS", "MOST_NEWTON", "PART", "Corrector", "Norm", "Solved"]

Array = np.ndarray[Any, Any]

#: The equation of a step is solved to this part of the tolerance.
PART = 0.02
MOST_ITERATIONS = 5
MOST_NEWTON = 7
_MOST_PATIENT = 25
#: So many failed iterations within a stretch of steps make the equation stiff, and so many steps with a small
#: Lipschitz constant make it gentle again.
_FAILURES = 2
_STRETCH = 25
_GENTLE_STEPS = 25
_GENTLE = 0.15


@dataclass(frozen=True, slots=True)
class Solved:
    """State and right-hand side at the end of a step."""

    y: Array
    f: Array


@dataclass(frozen=True, slots=True)
class Norm:
    """Of a change, in units of ``scale``: root mean square over the components of a member, the largest over all."""

    scale: Array
    components: int

    def __call__(self, change: Array) -> float:
        """Its size."""
        return self.rows(change[np.newaxis])[0]

    def rows(self, changes: Array) -> list[float]:
        """Those of several."""
        ratios = (np.abs(changes) / self.scale).reshape(len(changes), -1, self.components)
        squares = np.einsum("rbd,rbd->rb", ratios, ratios).max(axis=1) / self.components
        return [math.sqrt(square) for square in squares.tolist()]


class Loops(Protocol):
    """The loops of the corrector, compiled."""

    def newton(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm, inverse: Array) -> Solved | None:
        """As :meth:`Corrector._loop`."""


class Corrector:
    """Solves the equations of the steps, and notices when they become stiff."""

    def __init__(self, system: FlatSystem) -> None:
        self.system = system
        self.stiff = False
        self.switches = 0
        self.contraction = 0.0
        self._failures: list[int] = []
        self._gentle = 0
        self._jacobian: Array | None = None
        self._age = 0
        self._inverse: Array | None = None
        self._weight: Any = None
        self.loops: Loops | None = None

    @property
    def inverse(self) -> Array | None:
        """What the equation of a stiff step was solved with."""
        return self._inverse if self.stiff else None

    def solve(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm, steps: int) -> Solved | None:
        """The solution to a part of the tolerance, or None where none was found: the step is too long."""
        if self.stiff:
            return self._newton(tau, known, weight, guess, norm)
        found = self._iterate(tau, known, weight, guess, norm)
        if found is None:
            self.failed(steps)
        return found

    def failed(self, steps: int) -> None:
        """Tell that an iteration did not converge, after so many steps: too many such make the equation stiff."""
        self._failures = [step for step in self._failures if step > steps - _STRETCH] + [steps]
        if len(self._failures) >= _FAILURES:
            self._switch(True)

    def solve_anyhow(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved | None:
        """As ``solve``, for steps that cannot be made shorter: with a new Jacobian for each iteration if need be."""
        found = self._newton(tau, known, weight, guess, norm)
        y = guess
        for _ in range(_MOST_PATIENT):
            if found is not None:
                return found
            f = self.system(tau, y)
            self._jacobian, self._age = self.system.jacobian(tau, y, f), 0
            self._factorise(weight)
            change = self._apply(y - known - weight * f)
            y = y - change
            if norm(change) <= PART:
                found = Solved(y, (y - known) / weight)
        return found

    def damped(self, change: Array) -> Array:
        """What a change of ``known`` does to the solution: much less, where the equation is stiff."""
        return self._apply(change) if self.stiff and self._inverse is not None else change

    def propagate(
        self, known: Array, weight: Any, guess: Array, change: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """One solution of ``e = known + weight * change(e)`` for the estimated error; e and its change."""
        moved = change(guess)
        if not self.stiff or self._inverse is None:
            return known + weight * moved, moved
        error = guess - self._apply(guess - known - weight * moved)
        return error, (error - known) / weight

    def aged(self) -> None:
        """Tell that a step was taken: Jacobians grow old."""
        self._age += 1

    def accepted(self, weight: Any) -> None:
        """Tell that an adaptive step was taken: stiff equations may have become gentle."""
        self.aged()
        if not self.stiff or self._jacobian is None:
            return
        d = self.system.components
        largest = np.abs(self._jacobian).sum(axis=-1)
        self.contraction = float((np.abs(np.broadcast_to(weight, self.system.size).reshape(-1, d)) * largest).max())
        self._gentle = self._gentle + 1 if self.contraction < _GENTLE else 0
        if self._gentle >= _GENTLE_STEPS:
            self._switch(False)

    def _switch(self, stiff: bool) -> None:
        self.stiff = stiff
        self.switches += 1
        self._failures.clear()
        self._gentle = 0
        self._jacobian = self._inverse = None

    def _iterate(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved | None:
        y, last = guess, np.inf
        for count in range(MOST_ITERATIONS):
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
        for fresh in (False, True):
            if fresh or self._jacobian is None or self._age > 20:
                self._jacobian = self.system.jacobian(tau, guess, self.system(tau, guess))
                self._age, self._inverse = 0, None
                fresh = True
            if self._inverse is None or not _close(self._weight, weight):
                self._factorise(weight)
            assert self._inverse is not None
            if self.loops is not None:
                found = self.loops.newton(tau, known, weight, guess, norm, self._inverse)
            else:
                found = self._loop(tau, known, weight, guess, norm)
            if found is not None or fresh:
                return found
        return None

    def _loop(self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm) -> Solved | None:
        """Newton's iteration with the matrix that is there."""
        y, last = guess, np.inf
        for _ in range(MOST_NEWTON):
            f = self.system(tau, y)
            change = self._apply(y - known - weight * f)
            y = y - change
            size = norm(change)
            rate = size / last if np.isfinite(last) else 0.5
            if size * max(rate, 0.1) <= PART:
                # Not f(y): where the equation is stiff, that would blow up what is left of Newton's error.
                return Solved(y, (y - known) / weight)
            if rate > 0.9:
                break
            last = size
        return None

    def _factorise(self, weight: Any) -> None:
        assert self._jacobian is not None
        d = self.system.components
        rows = np.broadcast_to(weight, self.system.size).reshape(-1, d, 1)
        self._inverse = np.linalg.inv(np.eye(d) - rows * self._jacobian)
        self._weight = np.array(weight)

    def _apply(self, residual: Array) -> Array:
        assert self._inverse is not None
        d = self.system.components
        return np.asarray((self._inverse @ residual.reshape(-1, d, 1)).reshape(-1))


def _close(one: Any, other: Any) -> bool:
    """Whether a matrix made with one weight does for the other."""
    if isinstance(other, float):
        return bool(abs(one - other) <= 0.05 * abs(other))
    return bool(np.all(np.abs(one - other) <= 0.05 * np.abs(other)))
