"""Paths of the rough Heston model by inverse Gaussian laws of the integrated variance."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError
from hpfracc.rough import Heston
from hpfracc.solvers.sde.rough.integrated_variance import IntegratedVariance, plan_sampling
from tests.helpers.convergence import observed_order

MODEL = Heston(H=0.1, v0=0.04, theta=0.06, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
#: The model of the guide.
GUIDE = Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)


@pytest.mark.parametrize(("H", "order"), [(0.05, 1.5), (0.1, 1.6), (0.5, 2.0)])
def test_order_of_convergence(H, order):
    """Implied volatilities of the scheme approach those of the model, without statistical error."""
    model = Heston(H=H, v0=0.04, theta=0.06, kappa=0.3, sigma=0.2, rho=-0.7)
    steps = np.array([8, 16, 32])
    biases = [IntegratedVariance(model, np.array([0.0, 1.0]), np.array([n])).bias() for n in steps]
    assert observed_order(1.0 / steps, np.array(biases)) == pytest.approx(order, abs=0.15)
    assert biases[0] < 1e-4


def test_scheme_is_a_martingale():
    """E 1 = E exp(X) = 1 after any number of steps, on steps of different lengths."""
    scheme = IntegratedVariance(MODEL, np.array([0.0, 0.1, 1.0]), np.array([3, 5]))
    for steps in (1, 3, 8):
        np.testing.assert_allclose(scheme.exponent(np.array([0.0, -1.0j]), steps), 0.0, atol=1e-13)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (GUIDE, {}),
        (GUIDE, {"step": 1 / 60}),
        pytest.param(
            Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-1.0, S0=100.0, r=0.03),
            {"step": 1 / 24},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=3.0, rho=-0.7, S0=100.0, r=0.03),
            {},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Heston(H=0.5, v0=0.04, theta=0.04, kappa=0.3, sigma=1.0, rho=-0.7, S0=100.0, r=0.03),
            {},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["guide", "guide with its step", "perfect correlation", "strong", "far from Feller's condition"],
)
def test_sampled_prices(model, options):
    """Prices from paths are those of the characteristic function, within 4 standard errors and the bias."""
    paths = model.sample(np.linspace(0.0, 1.0, 13), 20_000, rng=1, **options)
    assert paths.bias < (1e-3 if model.rho == -1.0 else 1e-4)
    for place in (1, 6, 12):
        T = paths.t[place]
        strikes = model.forward(T) * np.exp(0.2 * math.sqrt(T) * np.array([-1.0, 0.0, 1.0]))
        spot = np.exp(-0.03 * T) * paths.S[:, place]
        payoffs = np.maximum(spot[:, None] - np.exp(-0.03 * T) * strikes, 0.0)
        slopes = np.cov(spot, payoffs.T)[0, 1:] / spot.var()
        payoffs = payoffs - slopes * (spot - 100.0)[:, None]
        error = payoffs.std(axis=0) / math.sqrt(len(payoffs)) + paths.bias * 40.0 * math.sqrt(T)
        assert np.all(np.abs(payoffs.mean(axis=0) - model.price(strikes, T).value) < 4.0 * error)


@pytest.mark.parametrize("H", [0.1, 0.5])
def test_moments_of_the_variance(H):
    """Mean and variance of V are those of the model, and no V is negative."""
    model = Heston(H=H, v0=0.04, theta=0.06, kappa=0.8, sigma=0.3, rho=-0.7)
    paths = model.sample([0.0, 0.5, 1.0], 20_000, rng=2)
    assert (paths.V >= 0.0).all()
    a = H + 0.5
    x, weights = np.polynomial.legendre.leggauss(40)
    for place, T in ((1, 0.5), (2, 1.0)):
        found = paths.V[:, place]
        mean = 0.06 - 0.02 * hf.mittag_leffler(-0.8 * T**a, a)
        assert abs(found.mean() - mean) < 4.0 * found.std() / math.sqrt(found.size)
        # The integral of f(s)^2 E V(T - s), in the variable s^(2H), where the singularity of f is gone.
        s = (0.5 * (1.0 + x)) ** (0.5 / H) * T
        forward = 0.06 - 0.02 * hf.mittag_leffler(-0.8 * (T - s) ** a, a)
        smooth = hf.mittag_leffler(-0.8 * s**a, a, a) ** 2 * forward
        variance = 0.09 * T ** (2.0 * H) / (4.0 * H) * (weights @ smooth)
        squares = (found - mean) ** 2
        assert abs(squares.mean() - variance) < 4.0 * squares.std() / math.sqrt(found.size) + 0.01 * variance


def test_paths_are_keyed():
    """Paths do not depend on how many are made together, up to rounding."""
    together = MODEL.sample([0.0, 0.1, 1.0], 12, rng=5, step=0.1)
    apart = MODEL.sample([0.0, 0.1, 1.0], (2, 3), rng=5, step=0.1, first_path=6)
    assert together.S.shape == (12, 3) and apart.V.shape == (2, 3, 3)
    np.testing.assert_allclose(apart.S.reshape(6, 3), together.S[6:], rtol=1e-10)
    np.testing.assert_allclose(apart.V.reshape(6, 3), together.V[6:], rtol=1e-8, atol=1e-12)
    assert (together.V >= 0.0).all() and (together.S[:, 0] == 100.0).all()


def test_tolerance_chooses_the_steps():
    """A smaller tolerance takes more steps, as many to the first time as to the last; a missed one is told."""
    coarse, bias = plan_sampling(MODEL, (0.0, 0.1, 1.0), None, 1e-3)
    fine, smaller = plan_sampling(MODEL, (0.0, 0.1, 1.0), None, 1e-5)
    assert bias <= 1e-3 and smaller <= 1e-5 and coarse.ends[0] < fine.ends[0]
    with pytest.warns(AccuracyWarning, match="above atol=1e-09"):
        MODEL.sample([0.0, 1.0], rng=1, atol=1e-9)


def test_bad_sampling():
    """Times, steps and tolerances are checked."""
    with pytest.raises(InvalidInputError, match="increasing times from 0"):
        MODEL.sample([0.5, 1.0])
    with pytest.raises(InvalidInputError, match="step=0"):
        MODEL.sample([0.0, 1.0], step=0)
    with pytest.raises(InvalidInputError, match="atol=nan"):
        MODEL.sample([0.0, 1.0], atol=math.nan)
    with pytest.raises(InvalidInputError, match="1,000,000 steps"):
        MODEL.sample([0.0, 1.0], step=1e-6)
