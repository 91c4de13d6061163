"""Step costs of a lattice: weights of points or edges, and obstacles, combined into one array."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import library_of, to_host
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.lattice.geometry import Array, Geometry


@dataclass(frozen=True, slots=True)
class Costs:
    """Step costs in the form that ``stencil_relax`` takes.

    Attributes
    ----------
    array : array
        Cost of entering each point, in the shape of the lattice; or cost of each edge, with a leading axis of
        directions. Infinite where closed. It has the library and device of the user's weights.
    edges : bool
        Whether the costs belong to edges.
    closed : numpy.ndarray of bool or None
        The obstacles, including points of infinite weight.
    host : numpy.ndarray
        The same costs in host memory.
    minimum, mean, maximum : float
        Statistics of the finite costs.
    """

    array: Any
    edges: bool
    closed: Array | None
    host: Array
    minimum: float = 1.0
    mean: float = 1.0
    maximum: float = 1.0


def like(array: Array, other: Any) -> Any:
    """Convert ``array`` to the library and device of ``other``."""
    xp = array_namespace(other)
    # Numbers of 64 bits stay so in JAX: the other array has them already.
    with xp.scope() if array.dtype == other.dtype else contextlib.nullcontext():
        return xp.asarray(array, like=other)


def read_costs(geometry: Geometry, weights: Any, obstacles: Any) -> Costs | None:
    """Check weights and obstacles and combine them. Returns None where neither is given."""
    closed = None if obstacles is None else _read_obstacles(geometry, obstacles)
    if weights is None:
        if closed is None:
            return None
        costs = np.where(closed, math.inf, 1.0)
        return Costs(costs, False, closed, costs)
    if library_of(weights) == "python":
        weights = np.asarray(weights)
    shape, directions = tuple(weights.shape), len(geometry.forward)
    edges = shape == (directions, *geometry.shape)
    if not edges and shape != geometry.shape:
        raise ShapeError(
            f"weights have shape {shape} on a lattice of shape {geometry.shape}; use {geometry.shape} for weights of "
            f"points, or {(directions, *geometry.shape)} for weights of edges by direction"
        )
    given = to_host(weights)
    if given.dtype.kind not in "fiu":
        raise InvalidInputError(f"weights have dtype {given.dtype}; use real numbers")
    if (given < 0).any() or np.isnan(given).any():
        raise InvalidInputError("weights contain negative values or nan; use values of at least 0 (infinity: closed)")
    floats = given.dtype in (np.float32, np.float64)
    host = given if floats else given.astype(np.float64)
    if closed is not None:
        host = _with_obstacles(geometry, host, closed, edges)
    array = weights if host is given else like(host, weights)
    if not edges:
        closed = np.isinf(host)  # a point of infinite weight is an obstacle too
    opened = host[np.isfinite(host)]
    if not opened.size:
        return Costs(array, edges, closed, host)
    maximum = float(opened.max())
    if maximum > float(np.finfo(host.dtype).max) / geometry.size:
        raise InvalidInputError(
            f"weights up to {maximum:g} in {host.dtype}: the cost of a path could overflow; scale them down "
            "(use infinity for closed points)"
        )
    # Scaled by the maximum, because the sum of large weights could overflow.
    mean = float((opened / maximum).mean(dtype=np.float64)) * maximum if maximum else 0.0
    return Costs(array, edges, closed, host, float(opened.min()), mean, maximum)


def _read_obstacles(geometry: Geometry, obstacles: Any) -> Array:
    if isinstance(obstacles, list | tuple) and obstacles and all(isinstance(point, tuple) for point in obstacles):
        # Tuples are coordinates, even where the list has the shape of a mask.
        indices = [geometry.index(point) for point in obstacles]
        closed = np.zeros(geometry.shape, bool)
        closed.reshape(-1)[indices] = True
        return closed
    mask = to_host(obstacles)
    if mask.dtype == bool:
        if mask.shape != geometry.shape:
            raise ShapeError(f"obstacles have shape {mask.shape}; a mask of this lattice has shape {geometry.shape}")
        return mask.copy()
    if mask.ndim > 1 and mask.shape == geometry.shape:
        raise InvalidInputError(f"obstacles have the lattice's shape and dtype {mask.dtype}; use dtype bool for a mask")
    closed = np.zeros(geometry.shape, bool)
    closed.reshape(-1)[geometry.indices(obstacles)] = True
    return closed


def _with_obstacles(geometry: Geometry, weights: Array, closed: Array, edges: bool) -> Array:
    if not edges:
        return np.asarray(np.where(closed, np.asarray(math.inf, weights.dtype), weights))
    costs = weights.copy()
    axes = tuple(range(len(geometry.shape)))
    for direction, offset in enumerate(geometry.forward):
        costs[direction][closed | np.roll(closed, [-step for step in offset], axes)] = math.inf
    return costs
