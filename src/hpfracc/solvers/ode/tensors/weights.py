"""Weights of the predictor and the corrector, in the library of the order, so that it can carry a derivative."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import NUMPY, Namespace, namespace_of
from hpfracc.operators.core.sequences import power_difference, second_difference

__all__ = ["Weights", "convert", "make_weights"]


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
