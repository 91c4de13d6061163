"""Grids that crowd at the origin, for functions that start like a power."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.grids import read_number

__all__ = ["graded_grid"]


def graded_grid(end: float, n: int, exponent: float, *, origin: float = 0.0) -> np.ndarray[Any, Any]:
    r"""The points :math:`t_j = t_0 + (T - t_0) (j/n)^r`, j = 0 .. n.

    Parameters
    ----------
    end : float
        The last point T.
    n : int
        Number of steps: one less than there are points.
    exponent : float
        r, at least 1 (uniform). For samples that start like :math:`t^s`, the Caputo derivative of order alpha below 1
        has its full order from ``r = (2 - alpha) / s`` on.
    origin : float
        The first point.

    Returns
    -------
    numpy.ndarray
        Shape ``(n + 1,)``, float64.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.graded_grid(1.0, 4, 2.0)
    array([0.    , 0.0625, 0.25  , 0.5625, 1.    ])
    >>> t = hf.graded_grid(1.0, 400, 3.0)
    >>> bool(abs(hf.caputo(np.sqrt(t), t, 0.5)[1:] - np.sqrt(np.pi) / 2)[200:].max() < 1e-4)
    True
    """
    last, start, power = read_number("end", end), read_number("origin", origin), read_number("exponent", exponent)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InvalidInputError(f"n={n!r} is no number of steps; use a whole number from 1 on")
    if last <= start:
        raise InvalidInputError(f"end={last:g} does not lie beyond the origin {start:g}; give a later one")
    if power < 1.0:
        raise InvalidInputError(f"exponent={power:g} would crowd the points at the end; use 1 (uniform) or more")
    points = start + (last - start) * np.linspace(0.0, 1.0, int(n) + 1) ** power
    if np.any(np.diff(points) <= 0.0):
        raise InvalidInputError(
            f"with exponent={power:g} and n={n} neighbouring points after the origin {start:g} fall together in double "
            "precision; use a smaller exponent, fewer steps, or an origin of 0"
        )
    return np.asarray(points)
