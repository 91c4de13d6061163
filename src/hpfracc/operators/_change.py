"""A change of variable: an operator in ``psi(t)`` is an ordinary one in x = psi(t) - psi(origin)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hpfracc._arrays import library_of, tracks_gradient
from hpfracc.errors import InvalidInputError
from hpfracc.operators._function import Function
from hpfracc.operators._namespace import namespace_of
from hpfracc.operators.core.grids import Grid, rounding_of, uniform_step

__all__ = ["function_in", "image_grid", "logarithmic_function", "logarithmic_grid"]

Array = np.ndarray[Any, Any]


def image_grid(points: Array, rounding: float, traced: Any = None) -> Grid:
    """The grid of ``points`` in the new variable, which start at 0; ``traced`` are the same, with a derivative."""
    step: Any = uniform_step(points, rounding)
    if step is None or traced is None:
        return Grid(len(points), 0.0, step, points, traced)
    return Grid(len(points), 0.0, (traced[-1] - traced[0]) / max(len(points) - 1, 1), points)


def logarithmic_grid(grid: Grid, t: Any, who: str) -> Grid:
    """The grid in x = log(t / a); a step given without points is already one in x."""
    _require_positive(grid.origin, who)
    if grid.points is None:
        return Grid(grid.n, 0.0, grid.step)
    x = np.log1p((grid.points - grid.origin) / grid.origin)
    traced = None
    if library_of(t) in ("torch", "jax") and tracks_gradient(t):
        xp = namespace_of(t)
        with xp.scope():
            traced = xp.log(xp.array(t) / grid.origin)
    # A relative rounding of t is an absolute one of its logarithm.
    return image_grid(x, rounding_of(t) * max(1.0, float(x[-1])), traced)


def logarithmic_function(function: Function, who: str) -> Function:
    """The callable as one of x = log(t / a)."""
    a = function.origin
    _require_positive(a, who)
    return function_in(function, np.log1p((function.points - a) / a), lambda x: a + a * np.expm1(x))


def function_in(function: Function, images: Array, inverse: Callable[[Array], Array]) -> Function:
    """The callable as one of the new variable, in which its wanted points are ``images`` and its origin is 0."""
    return replace(function, points=images, origin=0.0, own_to_user=inverse)


def _require_positive(origin: float, who: str) -> None:
    if not origin > 0.0:
        raise InvalidInputError(
            f"{who} starts at origin={origin:g}, but log t needs t > 0 from the first point on; "
            "leave out the points up to 0, or give origin= above 0"
        )
