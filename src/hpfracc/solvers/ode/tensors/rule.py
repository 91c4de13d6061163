"""Fixed-step methods for PyTorch and JAX in their common form, and their weights.

Weights are made in the library of the order, so that it can carry a derivative.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import NUMPY, Namespace, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.sequences import power_difference, second_difference

__all__ = ["ADJOINTS", "Sums", "TensorRule", "Weights", "check_adjoint", "convert", "make_weights"]


#: ``"recomputed"``: blocks are run again in the backward pass. ``"stored"``: the steps are transposed, from stored
#: states. ``"direct"``: autograd keeps everything.
ADJOINTS = ("recomputed", "stored", "direct")


def check_adjoint(adjoint: str) -> None:
    """Refuse an unknown way to find the gradient."""
    if adjoint not in ADJOINTS:
        raise InvalidInputError(f"adjoint={adjoint!r} is not known; use one of {', '.join(ADJOINTS)}")


class Weights(NamedTuple):
    """For k = 0 .. N steps between a value and its use, each of shape (N + 1, ...), the order's shape behind.

    Attributes
    ----------
    predictor : array
        Of the product rectangle, 0 at k = 0: the newest value is not known.
    corrector : array
        Of the product trapezoid; at k = 0 that of the newest value.
    first : array
        What the value at t0 weighs in the corrector besides, after n steps.
    """

    predictor: Any
    corrector: Any
    first: Any


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
class TensorRule:
    """How a method steps.

    Attributes
    ----------
    name : str
        ``"explicit_rectangle"``, ``"pece"``, ``"implicit_rectangle"`` or ``"implicit_trapezoid"``.
    corrections : int
        Of PECE.
    adjoint : str
        How the gradient is found: one of ``ADJOINTS``.
    """

    name: str
    corrections: int = 1
    adjoint: str = "recomputed"

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
        """Evaluations of the right-hand side in ``steps`` steps; None where they depend on Newton's method."""
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


def make_weights(alpha: Any, steps: int, step: float, like: Any) -> Weights:
    """The weights in float64 of the order's own library, then in the library, dtype and device of ``like``."""
    xp = namespace_of(alpha)
    with xp.scope():
        made = _write(xp, xp.array(alpha), steps, step)
        return Weights(*(convert(each, like) for each in made))


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
    # On a constant the rule is exact: together the weights are (alpha + 1) n^alpha.
    whole = xp.concatenate([0.0 * ones, (alpha + 1.0) * xp.power(k[column], alpha)])
    first = whole - _cumulated(xp, corrector)
    first = xp.concatenate([0.0 * ones, first[1:]])
    factor = scale * xp.rgamma(alpha + 2.0)
    return predictor, corrector * factor, first * factor


def _cumulated(xp: Namespace, values: Any) -> Any:
    if xp is NUMPY:
        return np.cumsum(values, axis=0)
    return values.cumsum(0)


def convert(values: Any, like: Any) -> Any:
    """Real numbers in the library, on the device and of the width of ``like``."""
    library = library_of(like)
    if library == "torch":
        torch = sys.modules["torch"]
        tensor = torch.as_tensor(values) if library_of(values) == "numpy" else values
        return tensor.to(dtype=_real_dtype(torch, like.dtype), device=like.device)
    jnp = sys.modules["jax"].numpy
    return jnp.asarray(values, dtype=np.empty(0, like.dtype).real.dtype)


def _real_dtype(torch: Any, dtype: Any) -> Any:
    return torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype
