"""Domains other than boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError

__all__ = ["Disc"]

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True, slots=True)
class Disc:
    """A disc around the origin, given in place of a grid.

    Parameters
    ----------
    radius : float
        Radius of the disc.
    radial : int
        Number of points along a radius.
    angles : int
        Number of points on each circle.
    """

    radius: float = 1.0
    radial: int = 24
    angles: int = 48

    def __post_init__(self) -> None:
        _reading.number("Disc: radius", self.radius, above=0.0)
        _reading.whole("Disc: radial", self.radial, least=2)
        _reading.whole("Disc: angles", self.angles, least=1)
        if self.angles // 2 >= 2 * self.radial:
            raise InvalidInputError(
                f"Disc: {self.angles} angles with {self.radial} radial points; use at most {4 * self.radial - 1}, "
                "which the points along a radius can resolve"
            )

    def grid(self, order: float) -> tuple[Array, Array]:
        """The radii, of which the last is the radius of the disc, and the angles.

        Parameters
        ----------
        order : float
            Order of the integral Laplacian; the radii depend on it.
        """
        from scipy.special import roots_jacobi

        order = _reading.number("Disc: order", order, above=0.0, below=2.0)
        inside = np.sqrt(0.5 * (1.0 + roots_jacobi(self.radial, 0.5 * order, 0.0)[0]))
        radii = self.radius * np.append(inside, 1.0)
        return radii, 2.0 * math.pi / self.angles * np.arange(self.angles)

    def coordinates(self, order: float) -> tuple[Array, Array]:
        """Coordinates x and y of all points, of shape (radial + 1, angles)."""
        r, theta = self.grid(order)
        return r[:, None] * np.cos(theta), r[:, None] * np.sin(theta)
