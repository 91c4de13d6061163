"""Random problems with noise: errors of prices, and standard errors against known moments and indices."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
from scipy import integrate

import hpfracc as hf
from benchmarks._trust.campaign import Outcome, Trial
from hpfracc import noise, rough
from hpfracc.errors import AccuracyWarning


def _heston_put_below(model: rough.Heston, strike: float, T: float) -> float:
    """Heston's closed transform at H = 1/2, integrated by QUADPACK; the call less its bound, forward and S0 being 1."""

    def integrand(x: float) -> float:
        u = x - 0.5j
        b = model.kappa - 1j * model.rho * model.sigma * u
        d = np.sqrt(b * b + model.sigma**2 * (u * u + 1j * u))
        g, e = (b - d) / (b + d), np.exp(-d * T)
        level = model.kappa * model.theta / model.sigma**2 * ((b - d) * T - 2.0 * np.log((1.0 - g * e) / (1.0 - g)))
        phi = np.exp(level + model.v0 / model.sigma**2 * (b - d) * (1.0 - e) / (1.0 - g * e))
        return float((phi * np.exp(-1j * x * math.log(strike))).real / (x * x + 0.25))

    ends = [0.0, *np.geomspace(1.0, 1e5, 26)]
    total = sum(integrate.quad(integrand, low, high, epsabs=1e-13, limit=400)[0] for low, high in pairwise(ends))
    return 1.0 - math.sqrt(strike) / math.pi * total


def heston_prices(rng: np.random.Generator) -> Outcome:
    """Calls in Heston's model against its closed form, at any correlation up to 0.95 in size."""
    T = 10.0 ** rng.uniform(-1.5, 0.7)
    model = rough.Heston(
        H=0.5, v0=rng.uniform(0.01, 0.2), theta=rng.uniform(0.01, 0.2), kappa=10.0 ** rng.uniform(-1.0, 1.0),
        sigma=10.0 ** rng.uniform(-1.0, 0.2), rho=rng.uniform(-0.95, 0.95),
    )  # fmt: skip
    strike = math.exp(rng.uniform(-1.5, 1.5) * math.sqrt(model.theta * T))
    tol = 10.0 ** rng.uniform(-9.0, -5.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AccuracyWarning)
        found = model.price(strike, T, rtol=tol)
    error = abs(float(found.value) - _heston_put_below(model, strike, T))
    told = " ".join(str(each.message) for each in caught)
    return Outcome(f"{model}, K={strike:.6g}, T={T:.6g}", error, float(found.error), 1e-11, tol, not told, told)


def heston_paths(rng: np.random.Generator) -> Outcome:
    """Prices from paths against those of the transform: a standard error and the bias are the estimate."""
    model = rough.Heston(
        H=float(rng.choice([0.05, 0.1, 0.3, 0.5])), v0=rng.uniform(0.02, 0.1), theta=rng.uniform(0.02, 0.1),
        kappa=rng.uniform(0.1, 3.0), sigma=rng.uniform(0.1, 0.6), rho=rng.uniform(-0.9, 0.5),
    )  # fmt: skip
    T, count = rng.uniform(0.1, 2.0), 4000
    paths = model.sample([0.0, T], count, rng=int(rng.integers(2**31)), atol=1e-3)
    strike = math.exp(rng.uniform(-0.5, 0.5) * math.sqrt(model.theta * T))
    spot = paths.S[:, -1]
    payoff = np.maximum(spot - strike, 0.0)
    payoff -= np.cov(spot, payoff)[0, 1] / spot.var() * (spot - 1.0)
    # The vega of an option is at most 0.4 sqrt(T).
    estimate = float(payoff.std()) / math.sqrt(count) + 0.4 * math.sqrt(T) * paths.bias
    error = abs(float(payoff.mean()) - float(model.price(strike, T).value))
    return Outcome(f"{model}, K={strike:.6g}, T={T:.6g}", error, estimate, 1e-12)


def fractional_moments(rng: np.random.Generator) -> Outcome:
    """The second moment of fractional motion from ``solve_fsde``, against sigma^2 T^2H, by its standard error."""
    index, sigma, T = rng.uniform(0.1, 0.95), rng.uniform(0.1, 3.0), rng.uniform(0.2, 5.0)
    result = hf.solve_fsde(
        lambda t, y: 0.0 * y, sigma, (0.0, T), 0.0, step=T / 16, noise=noise.FractionalBrownian(index), paths=4000,
        rng=int(rng.integers(2**31)), save=lambda t, y: y[:, 0, -1] ** 2, keep="moments",
    )  # fmt: skip
    error = abs(float(result.mean()) - sigma**2 * T ** (2.0 * index))
    return Outcome(f"H={index:.6g}, sigma={sigma:.6g}, T={T:.6g}", error, float(result.standard_error), 1e-12)


def caputo_means(rng: np.random.Generator) -> Outcome:
    """The mean of D^alpha X = -rate X + sigma W', a Mittag-Leffler function; the step's bias is far below the noise."""
    order, rate, sigma = rng.uniform(0.6, 1.0), rng.uniform(0.1, 1.5), rng.uniform(1.0, 3.0)
    result = hf.solve_fsde(
        lambda t, y: -rate * y, sigma, (0.0, 1.0), 0.3, step=1 / 128, alpha=order, paths=400,
        rng=int(rng.integers(2**31)), save="last",
    )  # fmt: skip
    error = abs(float(result.mean()[0]) - 0.3 * float(hf.mittag_leffler(-rate, order)))
    return Outcome(
        f"alpha={order:.6g}, rate={rate:.6g}, sigma={sigma:.6g}", error, float(result.standard_error[0]), 1e-12
    )


def _hurst(method: str) -> Trial:
    def trial(rng: np.random.Generator) -> Outcome:
        index, steps = rng.uniform(0.02, 0.95), int(rng.integers(300, 1500))
        found = hf.hurst(hf.fbm(steps, index, rng=int(rng.integers(2**31))), method=method)  # type: ignore[arg-type]
        return Outcome(f"H={index:.6g}, steps={steps}", abs(found.H - index), found.standard_error, 1e-6)

    return trial


#: Estimates that are one standard error hold within three of them in 99.7 % of the problems.
FAMILIES: dict[str, Trial] = {
    "Heston prices": heston_prices,
    "rough Heston paths": heston_paths,
    "moments of fractional noise": fractional_moments,
    "means of Caputo equations with noise": caputo_means,
    "Hurst index by Whittle": _hurst("whittle"),
    "Hurst index by variations": _hurst("variations"),
}
