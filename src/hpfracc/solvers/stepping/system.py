"""What adaptive steps ask of an equation: its right-hand side, to solve the equation of a step, and sizes of errors.

The equation of a step is ``y = known + weight * f(t, y)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc.errors import HpfraccError

Array = np.ndarray[Any, Any]
#: State and right-hand side at the end of a step; None if the step is too long.
Solved = tuple[Array, Array] | None
#: Absolute and relative tolerance of a step, and the sizes of the state before it.
StepTolerance = tuple[Array, float, Array]


class NotFiniteError(HpfraccError, ArithmeticError):
    """The right-hand side was not finite. A shorter step is tried before the solve fails."""


class StepFailedError(Exception):
    """A step, or the first ones, could not be taken. The message says where, why, and what to do."""


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
    steady : bool
        Whether :meth:`start` is the same at any time.
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
    offset, steady = 0.0, False
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
    def solve(
        self, tau: float, known: Array, weight: Any, guess: Array, tolerance: StepTolerance, attempts: int
    ) -> Solved:
        """Solve the equation of a step to a part of the tolerance; None if the step is too long."""

    @abstractmethod
    def propagate(self, tau: float, y: Array, f: Array, known: Array, weight: Any, moved: Array) -> tuple[Array, Array]:
        """One solution of ``e = known + weight (f(y + e) - f)`` for the estimated error: e, and the change of f.

        ``moved`` is that change at the step before.
        """

    @abstractmethod
    def damp(self, changes: Array) -> Array:
        """The effect of changes of ``known`` on the newest solution, of shape (n,) or (count, n)."""

    def degrees(self) -> Array | None:
        """The highest stable degree of each element, if the equation is stiff and elements are independent."""
        return None

    @abstractmethod
    def accepted(self, weight: Any, scale: Array) -> None:
        """Called with the newest weight and the tolerance of a step that was accepted, if the equation is stiff."""

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
