"""Diffusion with memory (subdiffusion, diffusion-waves, distributed orders), and transport with long jumps."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.models.problems.base import ModelEquation, model_equation
from hpfracc.operators._distributed_order import DistributedOrder
from hpfracc.solvers.pde.boundary import Dirichlet
from hpfracc.solvers.pde.terms import Advection, Diffusion, OneSided
from hpfracc.special import mittag_leffler

Array = np.ndarray[Any, Any]


def _string(
    name: str,
    points: int,
    t_end: float,
    solution: Callable[..., Array],
    reference: str,
    alpha: Any,
    velocity: float | None = None,
) -> ModelEquation:
    """``D^alpha u = u_xx`` on (0, pi), zero at both ends, started from its solution; the velocity is that of sin x."""
    x = np.linspace(0.0, math.pi, points)
    return ModelEquation(
        name=name,
        x=x,
        space=Diffusion(1.0),
        boundary="dirichlet",
        u0=solution(0.0, x),
        du0=None if velocity is None else velocity * np.sin(x),
        t_span=(0.0, t_end),
        alpha=alpha,
        solution=solution,
        reference=reference,
    )


@model_equation
def subdiffusion(
    alpha: float = 0.5, points: int = 65, modes: tuple[float, ...] = (1.0, 0.0, 0.5), t_end: float = 1.0
) -> ModelEquation:
    r"""Subdiffusion, :math:`D^\alpha u = u_{xx}` on :math:`(0, \pi)`, zero at both ends.

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 1``.
    points : int
        Number of grid points, ends included.
    modes : tuple of float
        Initial amplitudes of :math:`\sin x, \sin 2x, \ldots`.
    t_end : float
        The end of the interval.

    Returns
    -------
    ModelEquation
        With the solution :math:`\sum_k a_k E_\alpha(-k^2 t^\alpha) \sin kx`.
    """

    def solution(t: float, x: Array) -> Array:
        total = np.zeros_like(x)
        for k, a in enumerate(modes, 1):
            total = total + a * float(np.real(mittag_leffler(-(k**2) * t**alpha, alpha))) * np.sin(k * x)
        return total

    return _string("subdiffusion", points, t_end, solution, "R. Metzler, J. Klafter, Phys. Rep. 339 (2000) 1-77", alpha)


@model_equation
def diffusion_wave(alpha: float = 1.5, points: int = 65, velocity: float = 0.5, t_end: float = 5.0) -> ModelEquation:
    r"""The diffusion-wave equation, :math:`D^\alpha u = u_{xx}` on :math:`(0, \pi)`, started from :math:`\sin x`.

    Parameters
    ----------
    alpha : float
        ``1 < alpha <= 2``.
    points : int
        Number of grid points, ends included.
    velocity : float
        The initial derivative in time is this times :math:`\sin x`.
    t_end : float
        The end of the interval.

    Returns
    -------
    ModelEquation
        With the solution :math:`(E_\alpha(-t^\alpha) + v\,t\,E_{\alpha,2}(-t^\alpha)) \sin x`.
    """

    def solution(t: float, x: Array) -> Array:
        z = -(t**alpha)
        size = np.real(mittag_leffler(z, alpha)) + velocity * t * np.real(mittag_leffler(z, alpha, 2.0))
        return float(size) * np.sin(x)

    reference = "F. Mainardi, Appl. Math. Lett. 9 (1996) 23-28"
    return _string("diffusion_wave", points, t_end, solution, reference, alpha, velocity)


@model_equation
def distributed_order(points: int = 33, nodes: int = 12, t_end: float = 2.0) -> ModelEquation:
    r"""Ultraslow diffusion, whose variance grows logarithmically: :math:`\int_0^1 D^b u\,db = u_{xx}`.

    Parameters
    ----------
    points : int
        Number of grid points, ends included.
    nodes : int
        Number of quadrature nodes in the order.
    t_end : float
        The end of the interval.

    Returns
    -------
    ModelEquation
        On :math:`(0, \pi)` from :math:`\sin x`, whose amplitude has the Laplace transform
        :math:`B/(s (B + 1))`, :math:`B = (s-1)/\ln s`; it is inverted along the cut.
    """

    def solution(t: float, x: Array) -> Array:
        return _amplitude(float(t)) * np.sin(x)

    reference = "A. V. Chechkin, R. Gorenflo, I. M. Sokolov, Phys. Rev. E 66 (2002) 046129"
    return _string("distributed_order", points, t_end, solution, reference, DistributedOrder(nodes=nodes))


@functools.lru_cache(maxsize=256)
def _amplitude(t: float) -> float:
    """``-(1/pi) int exp(-r t) Im F(-r) dr`` over the cut, with r = exp(y) and the trapezoidal rule."""
    if t == 0.0:
        return 1.0
    y = np.linspace(-700.0, math.log(745.0 / t), 40_001)
    r = np.exp(y)
    b = (-r - 1.0) / (y + 1j * math.pi)
    # s F(s) = B / (B + 1) and ds / s = dy.
    values = np.exp(-r * t) * (b / (b + 1.0)).imag / math.pi
    return float(np.sum(0.5 * (values[1:] + values[:-1]) * np.diff(y))) + _far(y[0])


def _far(y: float) -> float:
    """The part of the integral below ``exp(y)``: there B is ``-1 / (y + i pi)`` and the integrand about ``1 / y^2``."""
    return 1.0 / math.pi * (math.pi / 2.0 + math.atan((y - 1.0) / math.pi))


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
