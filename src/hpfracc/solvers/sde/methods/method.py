"""The base class of methods for stochastic equations: one class per method, for all array libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from hpfracc.solvers.sde.problem import NoisyProblem, Traits

__all__ = ["Carry", "PathMethod", "Weights"]

#: State passed from step to step: the paths, shape ``(paths, d)``, and further arrays of the method.
Carry = tuple[Any, ...]
#: Numbers and arrays that are computed once, before the first step.
Weights = tuple[Any, ...]


class PathMethod(ABC):
    """Equal steps along given noise.

    Attributes
    ----------
    name : str
        Name of the method, for ``method=``.
    order : str
        The strong order and where it holds, in words.
    remembers : bool
        Whether it has a history of decaying states.
    """

    name: ClassVar[str]
    order: ClassVar[str]
    remembers: ClassVar[bool] = False

    @abstractmethod
    def refuses(self, traits: Traits) -> str | None:
        """Reason why it does not support the equation, with a remedy; None if it does."""

    def lowest_hurst(self, traits: Traits) -> float:
        """It converges for H above this value."""
        return 0.0

    def parts(self, traits: Traits, steps: int) -> int:
        """Number of substeps in which noise is drawn."""
        return 1

    def sets(self, traits: Traits) -> int:
        """Number of independent processes for each noise."""
        return 1

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Computed once, in double precision; ``hurst`` is H if it is a tensor."""
        return ()

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """The input of :meth:`advance` for each step, from increments of shape ``(steps, paths, sets * m)``."""
        return dz

    def begin(self, problem: NoisyProblem, weights: Weights, y: Any) -> Carry:
        """The carry before the first step."""
        return (y,)

    @abstractmethod
    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
