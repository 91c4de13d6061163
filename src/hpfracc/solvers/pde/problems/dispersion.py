"""Transport with long jumps: the fractional advection-dispersion equation in a column."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from hpfracc.solvers.pde.boundary import Dirichlet
from hpfracc.solvers.pde.problems.base import ModelEquation, model_equation
from hpfracc.solvers.pde.terms import Advection, OneSided

__all__ = ["breakthrough", "column", "plume"]

Array = np.ndarray[Any, Any]


@model_equation
def column(
    order: float = 1.6,
    velocity: float = 1.0,
    dispersion: float = 0.1,
    length: float = 20.0,
    points: int = 801,
    width: float = 0.3,
    start: float = 3.0,
    t_end: float = 8.0,
) -> ModelEquation:
    r"""A tracer pulse in a column of sediment: :math:`u_t = -v u_x + D\, D^\beta_{0+} u`.

    Some particles are swept far ahead, so that the plume has a heavy leading edge, :math:`u \sim x^{-1-\beta}`.

    Parameters
    ----------
    order : float
        Beta, ``1 < order < 2``: the smaller, the heavier the tail.
    velocity, dispersion : float
        v and D.
    length : float
        Length of the column.
    points : int
        Number of grid points, ends included.
    width, start : float
        Standard deviation and centre of the initial pulse.
    t_end : float
        The end of the interval.

    Returns
    -------
    ModelEquation
        Its solution is that on the whole line, a stable density (:func:`plume`); the far end of the column absorbs what
        reaches it.
    """
    x = np.linspace(0.0, length, points)

    def solution(t: float, x: Array) -> Array:
        return plume(t, x - start, order, velocity, dispersion, width)

    return ModelEquation(
        name="column",
        x=x,
        space=OneSided(order, "left", dispersion) + Advection(velocity),
        boundary=Dirichlet(0.0),
        u0=np.where((x > 0.0) & (x < length), solution(0.0, x), 0.0),
        t_span=(0.0, t_end),
        method="crank_nicolson",
        solution=solution,
        reference="D. A. Benson, S. W. Wheatcraft, M. M. Meerschaert, Water Resour. Res. 36 (2000) 1403-1412",
        parameters={
            "order": order,
            "velocity": velocity,
            "dispersion": dispersion,
            "length": length,
            "points": points,
            "width": width,
            "start": start,
            "t_end": t_end,
        },
    )


def plume(t: Any, x: Any, order: float, velocity: float, dispersion: float, width: float) -> Array:
    r"""The concentration on the whole line at distance x from the release point of a Gaussian pulse of mass 1.

    .. math:: u(t, x) = \frac1\pi \int_0^\infty \mathrm{Re}\,
        e^{ik(x-vt) + tD(ik)^\beta - \sigma^2 k^2/2}\,dk

    Parameters
    ----------
    t, x : array_like
        Times and positions; they broadcast.
    order, velocity, dispersion, width : float
        As for :func:`column`.
    """
    times, places = np.broadcast_arrays(np.asarray(t, dtype=float), np.asarray(x, dtype=float))
    # 64 Gauss points on each panel. Panels double from the wave number at which the slowest decay sets in, and none
    # has more than some six periods of the fastest wave.
    farthest = float(np.abs(places - velocity * times).max(initial=0.0))
    latest = dispersion * float(times.max(initial=0.0))
    end = math.sqrt(2.0 * 40.0) / width
    first = min(end, 0.5 * latest ** (-1.0 / order)) if latest > 0.0 else end
    doubled = first * 2.0 ** np.arange(math.ceil(math.log2(end / first)) + 1)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    edges = [0.0]
    for stop in np.minimum(doubled, end).tolist():
        parts = max(1, math.ceil((stop - edges[-1]) * farthest / 40.0))
        edges += np.linspace(edges[-1], stop, parts + 1)[1:].tolist()
    total = np.zeros(times.size)
    ahead, passed = (places - velocity * times).reshape(-1, 1), dispersion * times.reshape(-1, 1)
    for low, high in itertools.pairwise(edges):
        k = 0.5 * (high - low) * (nodes + 1.0) + low
        power = k**order * np.exp(0.5j * math.pi * order)
        exponent = 1j * ahead * k + passed * power - 0.5 * (width * k) ** 2
        total += 0.5 * (high - low) * (np.exp(exponent).real @ weights)
    return np.asarray(total.reshape(times.shape) / math.pi)


def breakthrough(x: Any, u: Any, position: float) -> Array:
    """The breakthrough curve, i.e. the concentration over time at one position, from ``result.x`` and ``result.u``.

    Parameters
    ----------
    x : array_like, shape (n,)
        The grid.
    u : array_like, shape (times, n)
        The solution.
    position : float
        Position of the detector; between points by a cubic polynomial through the four nearest.
    """
    from scipy.interpolate import make_interp_spline

    grid = np.asarray(x, dtype=float)
    near = int(np.clip(np.searchsorted(grid, position) - 2, 0, grid.size - 4))
    return np.asarray(make_interp_spline(grid[near : near + 4], np.asarray(u)[:, near : near + 4].T)(position))
