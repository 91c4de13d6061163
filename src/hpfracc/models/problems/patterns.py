"""Reaction-diffusion equations that form patterns, with fractional diffusion in space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._xp import namespace_of
from hpfracc.models.problems.base import ModelEquation, model_equation
from hpfracc.solvers.pde.boundary import Exterior
from hpfracc.solvers.pde.space.jacobi import jacobi_grid
from hpfracc.solvers.pde.terms import FractionalDiffusion

Array = np.ndarray[Any, Any]


@model_equation
def gray_scott(
    order: float = 2.0,
    points: int = 128,
    feed: float = 0.037,
    kill: float = 0.06,
    length: float = 1.25,
    dimensions: int = 2,
    t_end: float = 2000.0,
    seed: int = 0,
) -> ModelEquation:
    r"""The Gray-Scott reaction with fractional diffusion, in a periodic box.

    .. math:: u_t = -d_u (-\Delta)^{\alpha/2} u - u v^2 + F (1 - u), \quad
        v_t = -d_v (-\Delta)^{\alpha/2} v + u v^2 - (F + k) v

    with :math:`d_v = d_u / 2 = 10^{-5}\, \ell^{\alpha-2}`, so that waves of length :math:`2 \pi \ell`, with
    :math:`\ell = 1/60`, decay at the same rate for every order; started from a noisy square of v in the middle.

    Parameters
    ----------
    order : float
        The order alpha of diffusion in space, in (1, 2].
    points : int
        Number of grid points along each axis.
    feed, kill : float
        F and k.
    length : float
        Length of a side.
    dimensions : int
        Number of dimensions: 1, 2 or 3.
    t_end : float
        The end of the interval.
    seed : int
        Seed of the noise.
    """
    axis = length / points * np.arange(points)
    spread = 1e-5 * 60.0 ** (2.0 - order)
    rng = np.random.default_rng(seed)
    shape = (points,) * dimensions
    state = np.stack([np.ones(shape), np.zeros(shape)])
    core = slice(int(0.4 * points), int(0.6 * points))
    middle = (core,) * dimensions
    for part, height in zip(state, (0.5, 0.25), strict=True):
        part[middle] = height + 0.02 * rng.uniform(-1.0, 1.0, part[middle].shape)

    def reaction(t: float, y: Any) -> Any:
        u, v = y[0], y[1]
        eaten = u * v * v
        return namespace_of(y).stack([feed * (1.0 - u) - eaten, eaten - (feed + kill) * v])

    return ModelEquation(
        name="gray_scott",
        x=(axis,) * dimensions if dimensions > 1 else axis,
        space=[FractionalDiffusion(order, coefficient=2.0 * spread), FractionalDiffusion(order, coefficient=spread)],
        boundary="periodic",
        u0=state,
        t_span=(0.0, t_end),
        reaction=reaction,
        method="etdrk4",
        reference="J. E. Pearson, Science 261 (1993) 189-192",
    )


@model_equation
def fitzhugh_nagumo(
    order: float = 1.7, points: int = 128, diffusion: float = 1e-4, t_end: float = 400.0
) -> ModelEquation:
    r"""An excitable medium with fractional diffusion: a wave that curls into a spiral.

    .. math:: u_t = -K (-\Delta)^{\alpha/2} u + u (1-u)(u-a) - v, \quad v_t = \varepsilon (\beta u - \gamma v - \delta)

    with :math:`a = 0.1, \varepsilon = 0.01, \beta = 0.5, \gamma = 1, \delta = 0` on :math:`(0, 2.5)^2` with free ends.

    Parameters
    ----------
    order : float
        The order alpha of diffusion in space.
    points : int
        Number of grid points along each axis.
    diffusion : float
        K.
    t_end : float
        The end of the interval.
    """
    a, epsilon, beta, gamma, delta = 0.1, 0.01, 0.5, 1.0, 0.0
    axis = np.linspace(0.0, 2.5, points)
    x, y = np.meshgrid(axis, axis, indexing="ij", sparse=True)
    state = np.stack([np.where((x < 1.25) & (y < 1.25), 1.0, 0.0), np.where(y >= 1.25, 0.1, 0.0) + 0.0 * x])

    def reaction(t: float, state: Any) -> Any:
        u, v = state[0], state[1]
        return namespace_of(state).stack([u * (1.0 - u) * (u - a) - v, epsilon * (beta * u - gamma * v - delta)])

    return ModelEquation(
        name="fitzhugh_nagumo",
        x=(axis, axis),
        space=[
            FractionalDiffusion(order, "spectral", diffusion),
            FractionalDiffusion(order, "spectral", 0.0),
        ],
        boundary="neumann",
        u0=state,
        t_span=(0.0, t_end),
        reaction=reaction,
        method="etdrk4",
        reference="A. Bueno-Orovio, D. Kay, K. Burrage, BIT Numer. Math. 54 (2014) 937-954",
    )


@model_equation
def allen_cahn(
    order: float = 1.5,
    points: int = 256,
    thickness: float = 0.1,
    alpha: float = 1.0,
    t_end: float = 20.0,
    seed: int = 0,
) -> ModelEquation:
    r"""Phase separation: :math:`D^\alpha u = -\varepsilon^2 (-\Delta)^{s} u + u - u^3`, periodic, from noise.

    Its energy :math:`\int \tfrac{\varepsilon^2}{2} |(-\Delta)^{s/2} u|^2 + \tfrac14 (1-u^2)^2` never grows at
    :math:`\alpha = 1`; ``method="imex_bdf2"`` preserves that at any step.

    Parameters
    ----------
    order : float
        Twice the power s.
    points : int
        Number of grid points.
    thickness : float
        Epsilon.
    alpha : float
        The order in time.
    t_end : float
        The end of the interval.
    seed : int
        Seed of the noise.
    """
    x = 2.0 * math.pi / points * np.arange(points)
    noise = np.random.default_rng(seed).standard_normal((8, 2))
    k = np.arange(1, 9)[:, None]
    u0 = 0.1 * np.sum(noise[:, :1] * np.cos(k * x) + noise[:, 1:] * np.sin(k * x), axis=0)

    def reaction(t: float, u: Any) -> Any:
        return u * (1.0 - u * u)

    return ModelEquation(
        name="allen_cahn",
        x=x,
        space=FractionalDiffusion(order, coefficient=thickness**2),
        boundary="periodic",
        u0=u0,
        t_span=(0.0, t_end),
        alpha=alpha,
        reaction=reaction,
        reference="S. M. Allen, J. W. Cahn, Acta Metall. 27 (1979) 1085-1095",
    )


@model_equation
def peierls_nabarro(points: int = 60, half_width: float = 4.0, t_end: float = 1.0) -> ModelEquation:
    r"""A dislocation at rest: :math:`u_t = -(-\Delta)^{1/2} u + \tfrac1\pi \sin \pi u`.

    Parameters
    ----------
    points : int
        Number of grid points inside the interval.
    half_width : float
        Half the length of the interval, outside of which the solution is given.
    t_end : float
        The end of the interval in time.

    Returns
    -------
    ModelEquation
        With the integral Laplacian and exterior data; :math:`u = \tfrac2\pi \arctan x` at all times.
    """

    def layer(t: float, x: Any) -> Any:
        return 2.0 / math.pi * np.arctan(x)

    def reaction(t: float, u: Any) -> Any:
        return np.sin(math.pi * u) / math.pi

    x = jacobi_grid(points, 1.0, (-half_width, half_width))
    return ModelEquation(
        name="peierls_nabarro",
        x=x,
        space=FractionalDiffusion(1.0, "integral"),
        boundary=Exterior(layer),
        u0=layer(0.0, x),
        t_span=(0.0, t_end),
        reaction=reaction,
        method="imex_bdf2",
        solution=layer,
        reference="X. Cabre, J. Sola-Morales, Comm. Pure Appl. Math. 58 (2005) 1678-1732",
    )
