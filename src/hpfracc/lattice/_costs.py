"""What steps on a lattice cost: weights of points or of edges, and obstacles, as one array for the engine."""

from __future__ import annotations

import contextlib
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.lattice._geometry import Array, Geometry

__all__ = ["Costs", "like", "read_costs", "to_host"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs as ``stencil_relax`` takes them.

    Attributes
    ----------
    array : array
        Entering each point, in the shape of the lattice; or each edge, with an axis of directions in front. Infinite
        where it is closed. Of the library and on the device of the weights.
    edges : bool
        Which of the two.
    closed : numpy.ndarray of bool or None
        The obstacles: those that were named, and points that cost infinitely much.
    host : numpy.ndarray
        The same costs in host memory.
    least, mean, greatest : float
        Of all open ones.
    """

    array: Any
    edges: bool
    closed: Array | None
    host: Array
    least: float = 1.0
    mean: float = 1.0
    greatest: float = 1.0


def to_host(array: Any) -> Array:
    """A NumPy array of the same numbers."""
    library = library_of(array)
    if library == "torch":
        return np.asarray(array.detach().cpu().numpy())
    return np.asarray(array.get() if library == "cupy" else array)


def like(array: Array, other: Any) -> Any:
    """``array`` as one of the library and on the device of ``other``."""
    library = library_of(other)
    if library == "torch":
        return sys.modules["torch"].as_tensor(array, device=other.device)
    if library == "cupy":
        return sys.modules["cupy"].asarray(array)
    if library == "jax":
        jax = sys.modules["jax"]
        # Numbers of 64 bits stay so: the other array has them already.
        with jax.enable_x64(True) if array.dtype == other.dtype else contextlib.nullcontext():
            return jax.numpy.asarray(array)
    return array


def read_costs(geometry: Geometry, weights: Any, obstacles: Any) -> Costs | None:
    """Check weights and obstacles; None where there are neither."""
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
            f"weights of shape {shape} on a lattice {geometry.shape}; give one for each point, or with the shape "
            f"{(directions, *geometry.shape)} one for each edge, by direction"
        )
    given = to_host(weights)
    if given.dtype.kind not in "fiu":
        raise InvalidInputError(f"weights of dtype {given.dtype}; use real numbers")
    if (given < 0).any() or np.isnan(given).any():
        raise InvalidInputError("weights that are negative or nan; a step costs 0 or more (infinity closes it)")
    floats = given.dtype in (np.float32, np.float64)
    host = given if floats else given.astype(np.float64)
    if closed is not None:
        host = _with_obstacles(geometry, host, closed, edges)
    array = weights if host is given else like(host, weights)
    if not edges:
        closed = np.isinf(host)  # whoever cannot be entered is an obstacle, named or not
    opened = host[np.isfinite(host)]
    if not opened.size:
        return Costs(array, edges, closed, host)
    greatest = float(opened.max())
    if greatest > float(np.finfo(host.dtype).max) / geometry.size:
        raise InvalidInputError(
            f"weights up to {greatest:g} in {host.dtype}: the cost of a path could be infinite; scale them (infinity "
            "itself closes a point)"
        )
    # As shares of the greatest: the sum of large ones may be infinite.
    mean = float((opened / greatest).mean(dtype=np.float64)) * greatest if greatest else 0.0
    return Costs(array, edges, closed, host, float(opened.min()), mean, greatest)


def _read_obstacles(geometry: Geometry, obstacles: Any) -> Array:
    if isinstance(obstacles, list | tuple) and obstacles and all(isinstance(point, tuple) for point in obstacles):
        places = [
            geometry.place(point) for point in obstacles
        ]  # coordinates, also where there are as many as a mask has
        closed = np.zeros(geometry.shape, bool)
        closed.reshape(-1)[places] = True
        return closed
    mask = to_host(obstacles)
    if mask.dtype == bool:
        if mask.shape != geometry.shape:
            raise ShapeError(f"obstacles of shape {mask.shape} on a lattice {geometry.shape}; give them the same")
        return mask.copy()
    if mask.ndim > 1 and mask.shape == geometry.shape:
        raise InvalidInputError(f"obstacles of the lattice's shape and dtype {mask.dtype}; a mask has dtype bool")
    closed = np.zeros(geometry.shape, bool)
    closed.reshape(-1)[geometry.places(obstacles)] = True
    return closed


def _with_obstacles(geometry: Geometry, weights: Array, closed: Array, edges: bool) -> Array:
    if not edges:
        return np.asarray(np.where(closed, np.asarray(math.inf, weights.dtype), weights))
    costs = weights.copy()
    axes = tuple(range(len(geometry.shape)))
    for direction, offset in enumerate(geometry.forward):
        costs[direction][closed | np.roll(closed, [-step for step in offset], axes)] = math.inf
    return costs
