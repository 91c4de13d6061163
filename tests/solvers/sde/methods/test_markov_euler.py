"""Markov factors: the covariance of the paths, from the response to single increments, and the order 1/2."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate as quadrature

from hpfracc.solvers.sde.methods.markov_euler import Controlled, MarkovEuler
from hpfracc.solvers.sde.noise.fractional_brownian import Brownian
from hpfracc.solvers.sde.problem import NoisyProblem, read_problem
from tests.helpers.caputo_order import integrate

STEPS, END = 40, 2.0
H = END / STEPS


def still() -> NoisyProblem:
    """No drift, and the noise itself as the state."""
    return read_problem(lambda t, y, *rest: 0.0 * y, np.ones(1), 0.0, np.zeros((1, 1)), Brownian(), "ito")


def responses(hurst: float, factors: int = 8) -> np.ndarray:
    """What each increment, and each further number of a step, adds to the path: shape (2 steps, times)."""
    unit = np.cumsum(np.eye(STEPS), axis=1)
    driving = np.zeros((2 * STEPS, 2, STEPS + 1))
    driving[:STEPS, 0, 1:], driving[STEPS:, 1, 1:] = unit, unit
    times = np.linspace(0.0, END, STEPS + 1)
    start = np.zeros((2 * STEPS, 1))
    return np.asarray(integrate(still(), MarkovEuler(factors), hurst, times, H, start, driving)[:, 0])


def covariance(hurst: float, s: float, t: float) -> float:
    """Of Riemann and Liouville's process."""
    power = hurst - 0.5
    weight = {"weight": "alg", "wvar": (power, 0.0)}
    found, _ = quadrature.quad(lambda x: (t - s + x) ** power if x > 0 or t > s else 0.0, 0.0, s, **weight)
    return float(2.0 * hurst * found)


@pytest.mark.parametrize("hurst", [0.1, 0.3, 0.8])
def test_variances_and_covariances(hurst: float):
    """The variance after a step is exact; later ones, and covariances over half the interval, within a percent."""
    answer = responses(hurst)
    found = H * answer.T @ answer
    assert found[1, 1] == pytest.approx(H ** (2 * hurst), rel=1e-12)
    for early, late in ((STEPS // 2, STEPS), (10, 30)):
        exact = covariance(hurst, early * H, late * H)
        assert found[early, late] == pytest.approx(exact, rel=0.01)
        assert found[late, late] == pytest.approx((late * H) ** (2 * hurst), rel=0.01 if hurst > 0.2 else 0.03)


def test_brownian_motion_at_one_half():
    """The path is W itself, to rounding, and the second numbers are not used."""
    answer = responses(0.5)
    exact = np.concatenate([np.zeros((STEPS, 1)), np.triu(np.ones((STEPS, STEPS)))], 1)
    np.testing.assert_allclose(answer[:STEPS], exact, atol=1e-12)
    assert not answer[STEPS:].any()


def test_a_constant_control_moves_the_mean():
    """By the integral of the kernel, and its cost is half its square times the time."""
    method = Controlled(MarkovEuler(), lambda t, y, factors: np.full_like(y, 1.5))
    times = np.linspace(0.0, END, STEPS + 1)
    for hurst in (0.2, 0.9):
        found = integrate(still(), method, hurst, times, H, np.zeros((1, 2)), np.zeros((1, 2, STEPS + 1)))
        exact = 1.5 * np.sqrt(2 * hurst) * END ** (hurst + 0.5) / (hurst + 0.5)
        assert found[0, 0, -1] == pytest.approx(exact, rel=1e-4)
        assert found[0, 1, -1] == pytest.approx(0.5 * 1.5**2 * END, rel=1e-12)
