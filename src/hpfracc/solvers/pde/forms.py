"""The unknowns of a step: coefficients of eigenfunctions, or values at points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["FrameBlock", "ModalForm", "NodalForm", "StepForm", "choose_form"]


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """A few consecutive steps, whose values are computed on demand.

    Attributes
    ----------
    count : int
        Number of steps.
    make : callable
        Returns the values at the unknown points, of shape (count, *state). It must be called before the next step.
    fill : callable or None
        A faster alternative, if there is one: ``fill(out)`` writes the values to an array of that shape.
    """

    count: int
    make: Callable[[], Any]
    fill: Callable[[Any], None] | None = None


class NodalForm:
    """Values at points, for equations with a reaction or without a diagonal form of A."""

    modal = False

    def __init__(self, problem: EvolutionProblem) -> None:
        self.problem = problem

    def encode(self, u: Any) -> Any:
        """Return the values unchanged."""
        return u

    def decode(self, c: Any) -> Any:
        """Return the values unchanged."""
        return c

    def known(self, t: Any) -> Any:
        """The sum of source and boundary data."""
        return self.problem.known(t)

    def apply(self, c: Any) -> Any:
        """``A c``."""
        return self.problem.space.apply(c)

    def solve(self, shift: Any, rhs: Any, guess: Any = None) -> Any:
        """``(shift - A)^-1 rhs``."""
        self.problem.count("solves")
        return self.problem.space.solve(shift, rhs, guess)


class ModalForm:
    """Coefficients of the eigenfunctions: a linear equation becomes one scalar equation for each."""

    modal = True

    def __init__(self, problem: EvolutionProblem) -> None:
        self.problem, self.symbol = problem, problem.space.symbol
        self._constant: Any = None

    def encode(self, u: Any) -> Any:
        """The coefficients."""
        return self.problem.space.forward(u)

    def decode(self, c: Any) -> Any:
        """The values."""
        return self.problem.space.backward(c)

    def known(self, t: Any) -> Any:
        """The coefficients of source and boundary data; cached if they are constant in time."""
        if self._constant is not None:
            return self._constant
        values = self.problem.known(t)
        if values is None:
            return None
        zero = self.problem.xp.zeros(self.problem.state_shape, "float64")
        found = self.problem.space.forward(values + zero)
        if not self.problem.varies:
            self._constant = found
        return found

    def apply(self, c: Any) -> Any:
        """Multiply by the eigenvalues."""
        return self.symbol * c

    def solve(self, shift: Any, rhs: Any, guess: Any = None) -> Any:
        """A division."""
        return rhs / (shift - self.symbol)


StepForm = NodalForm | ModalForm


def choose_form(problem: EvolutionProblem) -> StepForm:
    """Coefficients if the equation is linear and diagonalisable, otherwise values."""
    if problem.linear and problem.space.symbol is not None:
        return ModalForm(problem)
    return NodalForm(problem)
