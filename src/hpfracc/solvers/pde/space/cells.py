"""One axis of a grid of cells, for finite volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.pde.boundary import BoundaryCondition, Dirichlet, NoFlux, Periodic
from hpfracc.solvers.pde.space.base import SpaceSetting

__all__ = ["CellAxis", "cell_axis"]

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class CellAxis:
    """One axis: its spacings and the coefficients of the terms along it.

    ``faces`` are the diffusion coefficients between points, ``speeds`` the velocities at points, and ``carriers``, for
    transport in conservative form, those between points; shaped to broadcast, None if there are none.
    """

    place: int  # counted from the end
    x: Array
    lower: BoundaryCondition
    upper: BoundaryCondition
    steps: Array  # between neighbours, boundary points included
    widths: Array  # of the cells of the unknowns
    faces: Any = None
    values: Any = None  # the diffusion coefficient at the unknowns
    ends: tuple[Any, Any] = (None, None)  # the diffusion coefficient on the boundary
    speeds: Any = None
    carriers: Any = None
    outflow: tuple[Any, Any] = (None, None)  # the velocity of the carriers on the boundary

    @property
    def periodic(self) -> bool:
        """Whether the axis has no ends."""
        return isinstance(self.lower, Periodic)

    def missing(self, end: int) -> bool:
        """Whether the boundary point is excluded from the unknowns."""
        return isinstance((self.lower, self.upper)[end], Dirichlet)

    @property
    def symmetric(self) -> bool:
        """Whether there is no transport along it."""
        return self.speeds is None and self.carriers is None

    @property
    def closed(self) -> bool:
        """Whether an end lets no flux through."""
        return isinstance(self.lower, NoFlux) or isinstance(self.upper, NoFlux)

    def trapezoid(self) -> Array:
        """Weights of the trapezoidal rule on the whole axis."""
        if self.periodic:
            return self.widths
        weights = np.zeros(self.x.size)
        weights[:-1] += 0.5 * self.steps
        weights[1:] += 0.5 * self.steps
        return weights


def cell_axis(setting: SpaceSetting, axis: int) -> CellAxis:
    """The spacings and cells of an axis, without coefficients."""
    x, (lower, upper) = setting.grid[axis], setting.boundary[axis]
    steps = np.diff(x)
    if isinstance(lower, Periodic):
        steps = np.full(x.size, setting.spacing(axis))
        return CellAxis(axis - setting.ndim, x, lower, upper, steps, steps.copy())
    widths = np.zeros(x.size)
    widths[:-1] += 0.5 * steps
    widths[1:] += 0.5 * steps
    first, last = isinstance(lower, Dirichlet), isinstance(upper, Dirichlet)
    return CellAxis(axis - setting.ndim, x, lower, upper, steps, widths[int(first) : x.size - int(last)])
