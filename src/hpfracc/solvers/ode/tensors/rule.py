"""The common form of fixed-step methods for PyTorch and JAX, and their weights.

Weights are computed in the library of the order, so that it can be differentiated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hpfracc._reading import choice
from hpfracc._xp import Namespace, array_namespace, convert_like, namespace_of
from hpfracc.operators.core.sequences import power_difference, second_difference

__all__ = ["ADJOINTS", "Sums", "TensorRule", "Weights", "check_adjoint", "convert_like", "make_weights"]


#: ``"auto"``: the one that takes the least time and has the derivative. ``"recomputed"``: blocks are recomputed in the
#: backward pass. ``"stored"``: the steps are transposed, from stored
#: states. ``"direct"``: autograd stores everything.
ADJOINTS = ("auto", "recomputed", "stored", "direct")


def check_adjoint(adjoint: str) -> None:
    """Raise an error for an unknown adjoint."""
    choice("adjoint", adjoint, ADJOINTS)


class Weights(NamedTuple):
    """Weights for k = 0 .. N steps between a value and its use, each (N + 1, ...) with the shape of the order.

    Attributes
    ----------
    predictor : array
        Product rectangle; 0 at k = 0, because the newest value is not known.
    corrector : array
        Product trapezoid; at k = 0 the weight of the newest value.
    first : array
        Additional weight of the value at t0 in the corrector, after n steps.
    """

    predictor: Any
    corrector: Any
    first: Any


class Sums(NamedTuple):
    """The weights of a rule's history sums, as flat data that can be passed to a program.

    Attributes
    ----------
    sequences : tuple of arrays
        Each ``w[0 .. N]`` of shape (N + 1, ...): ``sum_j w[n - j] f_j`` is known before step n.
    first : array or None
        Additional weight of the value at t0 in the last sum, shape (N + 1, ...).
    newest : array or None
        Weight of the value at step n in the last sum.
    """

    sequences: tuple[Any, ...]
    first: Any
    newest: Any


@dataclass(frozen=True, slots=True)
class TensorRule:
    """Description of a fixed-step method.

    Attributes
    ----------
    name : str
        ``"explicit_rectangle"``, ``"pece"``, ``"implicit_rectangle"`` or ``"implicit_trapezoid"``.
    corrections : int
        Corrections of PECE.
    adjoint : str
        How the gradient is computed: one of ``ADJOINTS``.
    """

    name: str
    corrections: int = 1
    adjoint: str = "auto"

    @property
    def implicit(self) -> bool:
        """Whether the equation of a step is solved by Newton's method."""
        return self.name.startswith("implicit")

    @property
    def starts_blind(self) -> bool:
        """Whether the right-hand side at t0 has no weight and is not evaluated."""
        return self.name == "implicit_rectangle"

    def sums(self, weights: Weights) -> Sums:
        """The weights that the rule uses."""
        if self.name == "explicit_rectangle":
            return Sums((weights.predictor,), None, None)
        if self.name == "implicit_rectangle":
            return Sums((_earlier(weights.predictor),), None, weights.predictor[1])
        sequences = (weights.predictor, weights.corrector) if self.name == "pece" else (weights.corrector,)
        return Sums(sequences, weights.first, weights.corrector[0])

    def evaluations(self, steps: int) -> int | None:
        """Evaluations of the right-hand side in ``steps`` steps; None if they depend on Newton's method."""
        if self.implicit:
            return None
        return 1 + (1 + self.corrections if self.name == "pece" else 1) * steps


def _earlier(predictor: Any) -> Any:
    """``(k+1)^alpha - k^alpha`` from ``k^alpha - (k-1)^alpha``; the last one, for t0, is 0."""
    return array_namespace(predictor).concatenate([predictor[1:], 0.0 * predictor[:1]])


def make_weights(alpha: Any, steps: int, step: float, like: Any) -> Weights:
    """The weights in float64 of the order's own library, then in the library, dtype and device of ``like``."""
    xp = namespace_of(alpha)
    with xp.scope():
        made = _write(xp, xp.array(alpha), steps, step)
        return Weights(*(convert_like(each, like) for each in made))


def _write(xp: Namespace, alpha: Any, steps: int, step: float) -> tuple[Any, Any, Any]:
    ones = xp.exp(0.0 * alpha)[None]  # 1, of the order's shape
    column = (slice(None), *(None,) * alpha.ndim)
    k = np.arange(1.0, steps + 1.0)
    scale = xp.exp(alpha * math.log(step))
    rises = power_difference(xp, alpha, k[: steps - 1][column]) if steps > 1 else ones[:0]
    predictor = xp.concatenate([0.0 * ones, ones, rises]) * (scale * xp.rgamma(alpha + 1.0))
    bends = [ones, 2.0 * xp.expm1(alpha * math.log(2.0))[None]]
    if steps > 1:
        bends.append(second_difference(xp, alpha + 1.0, k[1:][column]))
    corrector = xp.concatenate(bends)
    # The rule is exact on constants: the weights sum to (alpha + 1) n^alpha.
    whole = xp.concatenate([0.0 * ones, (alpha + 1.0) * xp.power(k[column], alpha)])
    first = whole - xp.cumsum(corrector, 0)
    first = xp.concatenate([0.0 * ones, first[1:]])
    factor = scale * xp.rgamma(alpha + 2.0)
    return predictor, corrector * factor, first * factor
