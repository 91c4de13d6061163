"""Markov factors of the rough Heston model, and paths made by them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.rough import Heston
from hpfracc.solvers.sde.rough.factors import exponential_sum, next_variance

MODEL = Heston(H=0.1, v0=0.04, theta=0.06, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)


@pytest.mark.parametrize("H", [0.02, 0.1, 0.3, pytest.param(0.45, marks=pytest.mark.slow)])
def test_kernels_converge(H):
    """Weights and nodes are positive, and the integral of the kernel over [s, T] converges with the factors."""
    T = 2.0
    exact = (T ** (H + 0.5) - np.array([0.0, 0.5, 1.5]) ** (H + 0.5)) / special.gamma(H + 1.5)
    errors = []
    for factors in (1, 2, 3, 4):
        nodes, weights = exponential_sum(H, T, factors)
        assert (nodes > 0.0).all() and (weights > 0.0).all()
        found = [(weights / nodes * (np.exp(-nodes * s) - np.exp(-nodes * T))).sum() for s in (0.0, 0.5, 1.5)]
        errors.append(np.abs(found / exact - 1.0).max())
    assert errors[1] < 0.3 * errors[0] and errors[2] < 0.3 * errors[1] and errors[3] < 5e-3


@pytest.mark.parametrize(("y", "tau"), [(0.04, 0.001), (0.04, 0.04), (0.04, 0.4)])
def test_three_points_have_five_moments(y, tau):
    """The law of one step has the moments of dZ = c sqrt(Z) dW, here from its moment generating function."""
    uniform = (np.arange(200_000) + 0.5) / 200_000
    values = next_variance(np.full(uniform.shape, y), tau, uniform)
    assert np.unique(values).size == 3 and (values >= 0.0).all()
    moments = [
        y,
        y**2 + tau * y,
        y**3 + 3 * tau * y**2 + 1.5 * tau**2 * y,
        y**4 + 6 * tau * y**3 + 9 * tau**2 * y**2 + 3 * tau**3 * y,
        y**5 + 10 * tau * y**4 + 30 * tau**2 * y**3 + 30 * tau**3 * y**2 + 7.5 * tau**4 * y,
    ]
    found = [np.mean(values**power) for power in range(1, 6)]
    np.testing.assert_allclose(found, moments, rtol=2e-3)


def test_an_empty_variance_stays():
    """0 is absorbing for the diffusion, and a tiny variance gives no nan."""
    assert next_variance(np.zeros(3), 0.1, np.array([0.0, 0.5, 1.0])).tolist() == [0.0, 0.0, 0.0]
    assert np.isfinite(next_variance(np.array([1e-200, 1e-12]), 0.1, np.array([0.3, 0.999]))).all()


def test_paths_are_keyed():
    """Paths do not depend on how many are made together."""
    together = MODEL.sample([0.0, 0.1, 1.0], 12, rng=5, step=0.1)
    apart = MODEL.sample([0.0, 0.1, 1.0], (2, 3), rng=5, step=0.1, first_path=6)
    assert together.S.shape == (12, 3) and apart.V.shape == (2, 3, 3)
    assert np.array_equal(apart.S.reshape(6, 3), together.S[6:])
    assert np.array_equal(apart.V.reshape(6, 3), together.V[6:])
    assert (together.V >= 0.0).all() and (together.S[:, 0] == 100.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("H", [0.1, 0.5])
def test_sampled_prices(H):
    """Prices from paths agree with the Fourier prices within 4 standard errors, at two times of the same paths."""
    model = Heston(H=H, v0=0.04, theta=0.06, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
    strikes = np.array([80.0, 100.0, 120.0])
    paths = model.sample([0.0, 0.5, 1.0], 100_000, rng=1, step=1 / 384)
    for place, T in ((1, 0.5), (2, 1.0)):
        payoffs = np.exp(-0.03 * T) * np.maximum(paths.S[:, place, None] - strikes, 0.0)
        error = payoffs.std(axis=0) / np.sqrt(len(payoffs))
        assert np.all(np.abs(payoffs.mean(axis=0) - model.price(strikes, T).value) < 4.0 * error)


def test_bad_sampling():
    """Times, steps and the number of factors are checked."""
    with pytest.raises(InvalidInputError, match="increasing times from 0"):
        MODEL.sample([0.5, 1.0])
    with pytest.raises(InvalidInputError, match="step=0"):
        MODEL.sample([0.0, 1.0], step=0)
    with pytest.raises(InvalidInputError, match="factors=9"):
        MODEL.sample([0.0, 1.0], factors=9)
