"""What a method of stochastic equations is: one class a method, whatever the array library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from hpfracc.solvers.sde.problem import NoisyProblem, Traits

__all__ = ["Carry", "PathMethod", "Weights"]

#: What a step hands to the next: the state, shape ``(paths, d)``, and what else the method remembers.
Carry = tuple[Any, ...]
#: Numbers and arrays that are made once, before the first step.
Weights = tuple[Any, ...]


class PathMethod(ABC):
    """Steps of one size along given noise.

    Attributes
    ----------
    name : str
        What a user writes as ``method=``.
    order : str
        The strong order and where it holds, in words.
    remembers : bool
        Whether it carries a memory of decaying states along.
    """

    name: ClassVar[str]
    order: ClassVar[str]
    remembers: ClassVar[bool] = False

    @abstractmethod
    def refuses(self, traits: Traits) -> str | None:
        """Why it cannot take the equation, and what to do instead; None if it can."""

    def lowest_hurst(self, traits: Traits) -> float:
        """The H above which it converges."""
        return 0.0

    def parts(self, traits: Traits, steps: int) -> int:
        """Parts of a step in each of which noise is drawn."""
        return 1

    def sets(self, traits: Traits) -> int:
        """Independent processes that are drawn for each noise."""
        return 1

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Made once, in double precision; ``hurst`` is H where it is a tensor."""
        return ()

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """What :meth:`advance` takes for each step, from increments of shape ``(steps, paths, sets * m)``."""
        return dz

    def begin(self, problem: NoisyProblem, weights: Weights, y: Any) -> Carry:
        """Before the first step."""
        return (y,)

    @abstractmethod
    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
