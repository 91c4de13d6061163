"""Waves: fractional Schrödinger equations and Burgers' equation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._xp import namespace_of
from hpfracc.models.problems.base import ModelEquation, model_equation
from hpfracc.solvers.pde.terms import FractionalDiffusion

Array = np.ndarray[Any, Any]


@model_equation
def schroedinger(
    order: float = 1.5,
    potential: float = 0.5,
    cubic: float = 0.0,
    points: int = 256,
    length: float = 40.0,
    shift: float = 2.0,
    t_end: float = 5.0,
) -> ModelEquation:
    r"""A wave packet in a harmonic trap: :math:`i u_t = \tfrac12 (-\Delta)^{\alpha/2} u + \kappa x^2 u + g |u|^2 u`.

    Parameters
    ----------
    order : float
        alpha, ``1 < order <= 2``.
    potential : float
        Kappa.
    cubic : float
        g.
    points : int
        Number of points of the periodic grid.
    length : float
        The period; the packet stays away from its ends.
    shift : float
        Initial position of the packet.
    t_end : float
        The end of the interval.

    Returns
    -------
    ModelEquation
        With order 2, kappa = 1/2 and g = 0 a coherent state with a known solution. The norm is always conserved.
    """
    x = length / points * np.arange(points) - 0.5 * length

    def reaction(t: float, u: Any) -> Any:
        trap = potential * namespace_of(u).array(x) ** 2
        return -1j * (trap + cubic * (u.real**2 + u.imag**2)) * u

    def solution(t: float, x: Array) -> Array:
        middle, momentum = shift * math.cos(t), -shift * math.sin(t)
        phase = 0.5 * t + 0.5 * middle * momentum - momentum * x
        return np.asarray(math.pi**-0.25 * np.exp(-0.5 * (x - middle) ** 2 - 1j * phase))

    known = order == 2.0 and potential == 0.5 and cubic == 0.0
    return ModelEquation(
        name="schroedinger",
        x=x,
        space=FractionalDiffusion(order, coefficient=0.5j),
        boundary="periodic",
        u0=solution(0.0, x),
        t_span=(0.0, t_end),
        reaction=reaction,
        method="yoshida4",
        solution=solution if known else None,
        reference="N. Laskin, Phys. Rev. E 66 (2002) 056108",
    )


@model_equation
def plane_wave(
    order: float = 1.3, wave: int = 3, amplitude: float = 0.7, points: int = 32, t_end: float = 2.0
) -> ModelEquation:
    r"""A plane wave of the cubic equation :math:`i u_t = (-\Delta)^{\alpha/2} u + |u|^2 u`, of period :math:`2\pi`.

    Parameters
    ----------
    order : float
        alpha.
    wave : int
        The wave number k.
    amplitude : float
        The modulus A.
    points : int
        Number of grid points.
    t_end : float
        The end of the interval.

    Returns
    -------
    ModelEquation
        With the solution :math:`A e^{i(kx - \omega t)}`, :math:`\omega = |k|^\alpha + A^2`.
    """
    x = 2.0 * math.pi / points * np.arange(points)
    frequency = abs(wave) ** order + amplitude**2

    def solution(t: float, x: Array) -> Array:
        return np.asarray(amplitude * np.exp(1j * (wave * x - frequency * t)))

    def reaction(t: float, u: Any) -> Any:
        return -1j * (u.real**2 + u.imag**2) * u

    return ModelEquation(
        name="plane_wave",
        x=x,
        space=FractionalDiffusion(order, coefficient=1j),
        boundary="periodic",
        u0=solution(0.0, x),
        t_span=(0.0, t_end),
        reaction=reaction,
        method="yoshida4",
        solution=solution,
        reference="B. Guo, D. Huang, J. Math. Phys. 53 (2012) 083702",
    )


@model_equation
def burgers(order: float = 2.0, viscosity: float = 0.1, points: int = 128, t_end: float = 1.5) -> ModelEquation:
    r"""Burgers' equation with fractional dissipation, :math:`u_t = -u u_x - \nu (-\Delta)^{\alpha/2} u`.

    Parameters
    ----------
    order : float
        alpha; above 1 the solution stays smooth, at smaller orders it may form shocks.
    viscosity : float
        nu.
    points : int
        Number of grid points on the period :math:`2\pi`.
    t_end : float
        The end of the interval.

    Returns
    -------
    ModelEquation
        Started from :math:`\sin x`; for order 2 with the solution by the Cole-Hopf transformation.
    """
    x = 2.0 * math.pi / points * np.arange(points)

    def solution(t: float, x: Array) -> Array:
        from scipy.special import ive

        # exp(-(1 - cos x)/(2 nu)) has the Fourier coefficients exp(-z) I_k(z), z = 1/(2 nu).
        z = 0.5 / viscosity
        count = int(8.0 * math.sqrt(z) + 40.0)
        theta, slope = np.zeros_like(x), np.zeros_like(x)
        for k in range(count):
            size = (1.0 if k == 0 else 2.0) * ive(k, z) * math.exp(-viscosity * k**2 * t)
            theta = theta + size * np.cos(k * x)
            slope = slope - k * size * np.sin(k * x)
        return np.asarray(-2.0 * viscosity * slope / theta)

    return ModelEquation(
        name="burgers",
        x=x,
        space=FractionalDiffusion(order, coefficient=viscosity),
        boundary="periodic",
        u0=np.sin(x),
        t_span=(0.0, t_end),
        reaction=burgers_flux(2.0 * math.pi, points),
        method="etdrk4",
        solution=solution if order == 2.0 else None,
        reference="J. Cole, Quart. Appl. Math. 9 (1951) 225-236; A. Kiselev et al., Dyn. PDE 5 (2008) 211-240",
    )


def burgers_flux(length: float, points: int) -> Callable[[float, Any], Any]:
    r"""The reaction :math:`-\tfrac12 (u^2)_x` on a periodic grid, without aliasing.

    The product uses the lower two thirds of the waves only, so that no wave is aliased onto them (the 2/3 rule of
    Orszag 1971).

    Parameters
    ----------
    length : float
        The period.
    points : int
        Number of grid points.

    Returns
    -------
    callable
        ``reaction(t, u)``, along the last axis of u, for arrays of NumPy, PyTorch and JAX.
    """
    whole = np.arange(points // 2 + 1)
    kept = (3 * whole < points).astype(float)
    slope = -0.5 * 2.0 * math.pi / length * whole * kept

    def reaction(t: float, u: Any) -> Any:
        xp = namespace_of(u)
        low = xp.irfftn(xp.rfftn(u, (-1,)) * xp.array(kept), [points], (-1,))
        waves = xp.rfftn(low * low, (-1,))
        # Multiply the coefficients by i k.
        turned = xp.complex(-xp.array(slope) * waves.imag, xp.array(slope) * waves.real)
        return xp.irfftn(turned, [points], (-1,))

    return reaction
