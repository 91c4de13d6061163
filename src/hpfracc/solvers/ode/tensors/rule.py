"""A fixed-step method for tensors in the one form that all of them have."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpfracc._arrays import library_of
from hpfracc.solvers.ode.tensors.weights import Weights

__all__ = ["Rule", "Sums"]


class Sums(NamedTuple):
    """The weights that a rule sums the past with, as flat data that a program can take.

    Attributes
    ----------
    sequences : tuple of arrays
        Each ``w[0 .. N]`` of shape (N + 1, ...): ``sum_j w[n - j] f_j`` is known of the past before step n.
    first : array or None
        What the value at t0 weighs besides, in the last of the sums, shape (N + 1, ...).
    newest : array or None
        The weight of the value at step n itself, in the last of the sums.
    """

    sequences: tuple[Any, ...]
    first: Any
    newest: Any


@dataclass(frozen=True, slots=True)
class Rule:
    """How a method steps.

    Attributes
    ----------
    name : str
        ``"explicit_rectangle"``, ``"pece"``, ``"implicit_rectangle"`` or ``"implicit_trapezoid"``.
    corrections : int
        Of PECE.
    """

    name: str
    corrections: int = 1

    @property
    def implicit(self) -> bool:
        """Whether the equation of a step is solved by Newton's method."""
        return self.name.startswith("implicit")

    @property
    def starts_blind(self) -> bool:
        """Whether the right-hand side at t0 weighs nothing and is never asked for."""
        return self.name == "implicit_rectangle"

    def sums(self, weights: Weights) -> Sums:
        """What of ``weights`` it takes."""
        if self.name == "explicit_rectangle":
            return Sums((weights.predictor,), None, None)
        if self.name == "implicit_rectangle":
            return Sums((_earlier(weights.predictor),), None, weights.predictor[1])
        sequences = (weights.predictor, weights.corrector) if self.name == "pece" else (weights.corrector,)
        return Sums(sequences, weights.first, weights.corrector[0])

    def evaluations(self, steps: int) -> int | None:
        """Of the right-hand side in so many steps; None where that depends on how Newton's method went."""
        if self.implicit:
            return None
        return 1 + (1 + self.corrections if self.name == "pece" else 1) * steps


def _earlier(predictor: Any) -> Any:
    """``(k+1)^alpha - k^alpha`` from ``k^alpha - (k-1)^alpha``; the last belongs to the value at t0, which has none."""
    library = library_of(predictor)
    rest, nothing = predictor[1:], 0.0 * predictor[:1]
    if library == "torch":
        return sys.modules["torch"].cat([rest, nothing])
    return sys.modules["jax"].numpy.concatenate([rest, nothing])
