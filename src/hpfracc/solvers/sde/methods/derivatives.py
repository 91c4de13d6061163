"""Derivatives of the user's functions along a direction: automatic in JAX, by central differences otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._xp import Namespace

__all__ = ["columns", "derivative_along"]

#: Relative step of a central difference, the cube root of the rounding error: the error is about 1e-10 (float64) and
#: 3e-5 (float32).
_STEPS = {"float64": 6e-6, "float32": 5e-3}


def derivative_along(xp: Namespace, function: Callable[[Any], Any], y: Any, direction: Any) -> Any:
    """``d/ds function(y + s direction)`` at s = 0, for y and direction of shape ``(paths, d)``.

    The length of a difference is not differentiated.
    """
    if xp.library == "jax":
        return sys.modules["jax"].jvp(function, (y,), (direction,))[1]
    step = _STEPS[str(y.dtype).rpartition(".")[2]]
    size = _largest(xp, xp.stop_gradient(direction))
    scale = xp.clip(_largest(xp, xp.stop_gradient(y)), 1e-3, None)
    moves = size > 0
    length = step * scale / xp.where(moves, size, 1.0)
    ahead, behind = function(y + length * direction), function(y - length * direction)
    shape = (*length.shape, *(1,) * (ahead.ndim - length.ndim))
    return xp.where(moves.reshape(shape), (ahead - behind) / (2.0 * length.reshape(shape)), 0.0)


def columns(xp: Namespace, function: Callable[[Any], Any], y: Any) -> list[Any]:
    """Derivatives along each component, a list of d arrays."""
    found = []
    for index in range(y.shape[-1]):
        unit = np.zeros(y.shape[-1])
        unit[index] = 1.0
        direction = xp.zeros_like(y) + xp.astype(xp.asarray(unit, like=y), y.dtype)
        found.append(derivative_along(xp, function, y, direction))
    return found


def _largest(xp: Namespace, values: Any) -> Any:
    """The largest absolute component of each path, shape ``(paths, 1)``."""
    return xp.amax(xp.abs(values), -1)[:, None]
