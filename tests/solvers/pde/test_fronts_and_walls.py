"""Fronts of Fisher's equation, and a wall whose value is switched on and off, against what is known of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import Diffusion, Dirichlet


def test_the_speed_of_fisher_fronts():
    """The front (1 + exp((x - c t) / sqrt(6)))^-2 with c = 5 / sqrt(6) (Ablowitz and Zeppetella 1979)."""
    x = np.linspace(-30.0, 60.0, 601)
    speed = 5.0 / math.sqrt(6.0)

    def front(t: float) -> np.ndarray:
        return (1.0 + np.exp((x - speed * t) / math.sqrt(6.0))) ** -2

    found = hf.solve_fpde(
        lambda t, u: u * (1.0 - u), (0.0, 10.0), front(0.0), x=x, space=Diffusion(1.0), boundary="neumann",
        rtol=1e-5, t_eval=[5.0, 10.0],
    )  # fmt: skip
    assert found.success
    assert np.abs(found.u - np.stack([front(t) for t in found.t])).max() < 1e-4
    places = [float(np.interp(-0.25, -frame, x)) for frame in found.u]
    assert places[1] - places[0] == pytest.approx(5.0 * speed, rel=1e-4)


def _wall(t: np.ndarray, x: np.ndarray, alpha: float) -> np.ndarray:
    """The solution on (0, 1) with zero data but u(t, 0) = 1 for t > 0."""
    k = math.pi * np.arange(1.0, 400.0)
    modes = hf.mittag_leffler(-(k[:, None] ** 2) * np.maximum(t, 0.0) ** alpha, alpha)
    return np.where(
        t[:, None] > 0.0, 1.0 - x - (modes * (2.0 / k)[:, None]).T @ np.sin(k[:, None] * x), np.zeros_like(x)
    )


@pytest.mark.parametrize("alpha", [0.4, 0.8])
@pytest.mark.parametrize("announced", [False, True])
def test_a_wall_that_is_switched(alpha: float, announced: bool):
    x = np.linspace(0.0, 1.0, 65)
    on, off = 0.2, 0.55
    found = hf.solve_fpde(
        None, (0.0, 1.0), np.zeros_like(x), x=x, space=Diffusion(1.0), alpha=alpha, rtol=1e-5, atol=1e-8,
        boundary=(Dirichlet(lambda t: 1.0 if on <= t < off else 0.0), Dirichlet(0.0)),
        t_eval=np.linspace(0.0, 1.0, 41)[1:], breakpoints=(on, off) if announced else (), estimate=False,
    )  # fmt: skip
    assert found.success, found.message
    t = found.t
    inside = slice(4, None)  # the sum of modes converges slowly beside the wall
    exact = _wall(t - on, x, alpha) - _wall(t - off, x, alpha)
    away = (np.abs(t - on) > 1e-9) & (np.abs(t - off) > 1e-9)
    error = np.abs(found.u - exact)[away][:, inside].max()
    grid = np.abs(x[1] - x[0]) ** 2
    assert error < max(5e-5, 0.2 * grid), (error, found.decision.method)
    assert found.stats["steps"] < 1500
