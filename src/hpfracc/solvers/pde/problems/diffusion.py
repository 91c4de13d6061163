"""Diffusion with memory: subdiffusion, the diffusion-wave equation, and distributed orders."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpfracc.solvers.pde.orders import DistributedOrder
from hpfracc.solvers.pde.problems.base import ModelEquation, model_equation
from hpfracc.solvers.pde.terms import Diffusion
from hpfracc.special import mittag_leffler

__all__ = ["diffusion_wave", "distributed_order", "subdiffusion"]

Array = np.ndarray[Any, Any]


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

    x = np.linspace(0.0, math.pi, points)
    return ModelEquation(
        name="subdiffusion",
        x=x,
        space=Diffusion(1.0),
        boundary="dirichlet",
        u0=solution(0.0, x),
        t_span=(0.0, t_end),
        alpha=alpha,
        solution=solution,
        reference="R. Metzler, J. Klafter, Phys. Rep. 339 (2000) 1-77",
        parameters={"alpha": alpha, "points": points, "modes": modes, "t_end": t_end},
    )


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

    x = np.linspace(0.0, math.pi, points)
    return ModelEquation(
        name="diffusion_wave",
        x=x,
        space=Diffusion(1.0),
        boundary="dirichlet",
        u0=np.sin(x),
        du0=velocity * np.sin(x),
        t_span=(0.0, t_end),
        alpha=alpha,
        solution=solution,
        reference="F. Mainardi, Appl. Math. Lett. 9 (1996) 23-28",
        parameters={"alpha": alpha, "points": points, "velocity": velocity, "t_end": t_end},
    )


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

    x = np.linspace(0.0, math.pi, points)
    return ModelEquation(
        name="distributed_order",
        x=x,
        space=Diffusion(1.0),
        boundary="dirichlet",
        u0=np.sin(x),
        t_span=(0.0, t_end),
        alpha=DistributedOrder(nodes=nodes),
        solution=solution,
        reference="A. V. Chechkin, R. Gorenflo, I. M. Sokolov, Phys. Rev. E 66 (2002) 046129",
        parameters={"points": points, "nodes": nodes, "t_end": t_end},
    )


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
