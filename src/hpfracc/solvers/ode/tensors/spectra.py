"""Largest eigenvalues of a right-hand side, and growth of a solution, for arrays of PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["growth", "rotation"]

#: Iterations to find the largest eigenvalue of a large system.
_ITERATIONS = 12


def rotation(xp: Any, fun: Callable[[Any], Any], y: Any, scale: Any, eps: float) -> Any:
    """A matrix (..., 2, 2) for each member, with about the largest eigenvalues of ``scale df/dy``.

    By power iteration on differences of ``fun``; the angle by which a vector is turned is that of the eigenvalues.
    """

    def norm(value: Any) -> Any:
        return xp.sqrt((abs(value) ** 2).sum(-1))[..., None]

    value = fun(y)
    reach = xp.maximum(norm(y), norm(scale * value))
    width = eps ** (1.0 / 3.0) * xp.where(reach > 0.0, reach, 1.0 + 0.0 * reach)
    direction = xp.where(value == 0.0, 1.0 + 0.0 * value, value)
    along = size = norm(0.0 * y)
    for _ in range(_ITERATIONS):
        length = norm(direction)
        unit = direction / xp.where(length > 0.0, length, 1.0 + 0.0 * length)
        moved = scale * (fun(y + width * unit) - value) / width
        along, size, direction = (unit.conj() * moved).real.sum(-1)[..., None], norm(moved), moved
    across = xp.sqrt(xp.maximum(size**2 - along**2, 0.0 * size))
    return xp.stack([xp.concatenate([along, -across], -1), xp.concatenate([across, along], -1)], -2)


def growth(xp: Any, states: Any) -> Any:
    """Size of the solution at each step, of the member that has grown most, over its first two; 0 if not finite."""
    sizes = xp.amax(abs(states), -1).reshape(states.shape[0], -1)
    sizes = xp.where(xp.isfinite(sizes), sizes, 0.0 * xp.ones_like(sizes))
    first = xp.amax(sizes[:2], 0)
    tiny = float(xp.finfo(sizes.dtype).tiny) ** 0.5
    return xp.amax(sizes / xp.maximum(first, tiny + 0.0 * first), 1)
