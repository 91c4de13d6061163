"""The rough Heston model."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError
from hpfracc.rough import Heston, black_price
from hpfracc.solvers.sde.rough import heston, saddle
from hpfracc.solvers.sde.rough.riccati import solve_riccati

MODEL = Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
STRIKES = [75.0, 100.0, 130.0]


@pytest.mark.parametrize(
    ("maturity", "prices"),
    [(1.0, [28.394102723, 8.336636130, 0.20229480]), (2.0, [31.520600112, 12.722719205, 1.285821954])],
)
def test_known_prices(maturity, prices):
    """Reference prices to all the digits they have, and within the error that is reported."""
    found = MODEL.price(STRIKES, maturity, rtol=1e-10)
    np.testing.assert_allclose(found.value, prices, rtol=0.0, atol=2e-9)
    assert np.all(found.error < 1e-8)


def test_errors_are_honest():
    """The distance from prices of a tolerance far below is within the reported error, at short and long maturities."""
    rng = np.random.default_rng(7)
    for _ in range(4):
        model = Heston(
            H=rng.uniform(0.02, 0.5),
            v0=rng.uniform(0.005, 0.3),
            theta=rng.uniform(0.0, 0.3),
            kappa=10.0 ** rng.uniform(-2.0, 1.0),
            sigma=10.0 ** rng.uniform(-2.0, 0.2),
            rho=rng.uniform(-1.0, 1.0),
        )
        maturity = 10.0 ** rng.uniform(-2.0, 0.7)
        strikes = np.exp(np.array([-0.6, 0.0, 0.5]) * np.sqrt(model.v0 * maturity))
        fine = model.price(strikes, maturity, rtol=1e-12)
        for rtol in (1e-5, 1e-8):
            found = model.price(strikes, maturity, rtol=rtol)
            assert np.all(np.abs(found.value - fine.value) <= found.error + fine.error)
            assert np.all(found.error <= rtol)


@pytest.mark.parametrize("maturity", [0.01, 1.0, 10.0])
def test_one_half_is_heston(maturity):
    """At H = 1/2 the transform is Heston's closed form."""
    kappa, theta, sigma, rho, v0 = 1.5, 0.09, 0.8, -0.7, 0.04
    u = np.linspace(0.0, 100.0, 41) - 0.5j
    b = kappa - 1j * rho * sigma * u
    d = np.sqrt(b * b + sigma**2 * (u * u + 1j * u))
    g, e = (b - d) / (b + d), np.exp(-d * maturity)
    level = kappa * theta / sigma**2 * ((b - d) * maturity - 2.0 * np.log((1.0 - g * e) / (1.0 - g)))
    exact = np.exp(level + v0 / sigma**2 * (b - d) * (1.0 - e) / (1.0 - g * e))
    model = Heston(H=0.5, v0=v0, theta=theta, kappa=kappa, sigma=sigma, rho=rho)
    np.testing.assert_allclose(model.characteristic_function(u, maturity), exact, rtol=0.0, atol=1e-13)


def test_transform_of_a_martingale():
    """E exp(X) = 1 and E 1 = 1, whatever the parameters; conjugate symmetry."""
    np.testing.assert_allclose(MODEL.characteristic_function(np.array([0.0, -1.0j]), 2.0), 1.0, atol=1e-12)
    values = MODEL.characteristic_function(np.array([3.0 - 0.5j, -3.0 - 0.5j]), 0.5)
    assert abs(values[0] - values[1].conj()) < 1e-12


def test_parity_shapes_and_volatility():
    """Put-call parity; K and T broadcast; the implied volatility reprices the option."""
    maturities = np.array([[0.25], [1.0]])
    calls = MODEL.price(STRIKES, maturities)
    puts = MODEL.price(STRIKES, maturities, kind="put")
    assert calls.value.shape == calls.error.shape == (2, 3)
    parity = np.exp(-0.03 * maturities) * (MODEL.forward(maturities) - STRIKES)
    np.testing.assert_allclose(calls.value - puts.value, parity, atol=1e-12)
    volatility = MODEL.implied_volatility(STRIKES, maturities, rtol=1e-8)
    again = np.exp(-0.03 * maturities) * black_price(MODEL.forward(maturities), STRIKES, maturities, volatility.value)
    np.testing.assert_allclose(again, calls.value, atol=1e-6)
    assert np.isscalar(MODEL.price(100.0, 1.0).value)
    assert np.all(volatility.value[:, 0] > volatility.value[:, 1])  # the skew of a negative correlation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"H": 0.0}, "H=0.0: give a finite number above 0 and at most 0.5"),
        ({"H": 0.6}, "H=0.6"),
        ({"rho": -1.2}, "rho=-1.2"),
        ({"sigma": -0.1}, "sigma=-0.1: give a finite number at least 0"),
        ({"v0": float("nan")}, "v0=nan"),
        ({"v0": 0.0, "theta": 0.0}, "variance stays 0"),
        ({"S0": 0.0}, "S0=0.0"),
    ],
)
def test_bad_parameters(change, message):
    """Parameters outside the model are refused with their value."""
    parameters = {"H": 0.1, "v0": 0.04, "theta": 0.04, "kappa": 0.3, "sigma": 0.4, "rho": -0.7}
    with pytest.raises(InvalidInputError, match=message):
        Heston(**{**parameters, **change})


def test_bad_strikes():
    """Strikes and maturities are positive and broadcast; frequencies lie where the transform exists."""
    with pytest.raises(InvalidInputError, match="not finite and positive"):
        MODEL.price([-1.0], 1.0)
    with pytest.raises(ShapeError, match="do not broadcast"):
        MODEL.price([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match=r"outside \[-1, 0\]"):
        MODEL.characteristic_function(1.0j, 1.0)
    with pytest.raises(InvalidInputError, match="rtol="):
        MODEL.price(1.0, 1.0, rtol=0.0)
    for bad, match in (({"u": np.nan}, "u is not finite"), ({"u": 1.0, "atol": -1e-8}, "atol=-1e-08")):
        with pytest.raises(InvalidInputError, match=match):
            MODEL.characteristic_function(**bad, T=1.0)


@pytest.mark.parametrize("nodes", [(40, 80), pytest.param(heston._NODES, marks=pytest.mark.slow)], ids=len)
def test_a_missed_tolerance_is_told(nodes, monkeypatch):
    """Where the estimated error stays above the tolerance, as at a correlation of -1 and one day, a warning says so."""
    monkeypatch.setattr(heston, "_NODES", nodes)
    model = Heston(H=0.01, v0=0.04, theta=0.04, kappa=0.3, sigma=3.0, rho=-1.0)
    with pytest.warns(AccuracyWarning, match="above rtol="):
        found = model.price([0.9, 1.0], 1 / 365)
    assert np.all(np.abs(found.value - model_bounds(found.value)) <= found.error)


def model_bounds(values):
    """Prices clipped to the bounds of arbitrage at strikes 0.9 and 1."""
    return np.clip(values, [0.1, 0.0], 1.0)


@pytest.mark.parametrize(
    "maturity", [0.1, pytest.param(0.01, marks=pytest.mark.slow), pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_perfect_correlation(maturity):
    """At rho = -1 the transform decays slowly along the real axis, and fast along the contour that is taken."""
    parameters = {"H": 0.1, "v0": 0.04, "theta": 0.04, "kappa": 0.3, "sigma": 0.4, "S0": 100.0, "r": 0.03}
    strikes = [90.0, 100.0]
    limit = Heston(rho=-1.0, **parameters).price(strikes, maturity)
    assert np.all(limit.error < 1e-6)
    # Prices are smooth in rho up to -1.
    one, two, three = (Heston(rho=rho, **parameters).price(strikes, maturity).value for rho in (-0.97, -0.98, -0.99))
    np.testing.assert_allclose(limit.value, one - 3.0 * two + 3.0 * three, atol=2e-5 + np.max(limit.error))


@pytest.mark.parametrize(
    ("strike", "exact"), [(70.0, 1.037091959401741e-23), (80.0, 2.451536933871723e-13), (120.0, 1.573467638136036e-29)]
)
def test_far_strikes_keep_their_digits(strike, exact):
    """Prices far below rounding, against mpmath's integral of Heston's closed form with 60 digits, along Re s = 30."""
    model = Heston(H=0.5, v0=0.04, theta=0.09, kappa=1.5, sigma=0.8, rho=-0.7, S0=100.0)
    volatility = model.implied_volatility(strike, 0.01)
    price = black_price(100.0, strike, 0.01, volatility.value, "call" if strike > 100.0 else "put")
    assert price == pytest.approx(exact, rel=1e-11)
    assert volatility.error < 1e-12


def test_far_strikes_of_a_rough_model():
    """At T = .001 volatilities were rounding noise, .408 at K = 110, where a bound holds it below .301.

    Prices do not depend on the line of integration.
    """
    strikes = np.array([80.0, 98.0, 102.0, 110.0, 115.0])
    found = MODEL.implied_volatility(strikes, 0.001)
    assert np.all(found.error < 1e-5 * found.value)
    assert np.all(np.diff(found.value[:2]) < 0.0)
    assert np.all(np.diff(found.value[2:]) > 0.0)
    assert found.value[3] < 0.301
    # Along a line that is not through the saddle point, with fewer digits but without those of the other.
    k = np.log(strikes[[1, 2]] / float(MODEL.forward(0.001)))
    transform = lambda s: MODEL._log_transform(-1j * s, 0.001, 1e-10)[:2]  # noqa: E731
    for p, log_moneyness in ((-30.0, k[:1]), (40.0, k[1:])):
        moment = float(transform(np.array([p + 0j]))[0][0].real)
        value, error = saddle._along(transform, p, moment, log_moneyness)
        best, best_error = saddle.far_prices(transform, log_moneyness)
        assert abs(value - best)[0] <= (error + best_error)[0] < 1e-3 * best[0]


@pytest.mark.parametrize("s", [120.0, -80.0, 100 + 30j, 100 + 80j])
def test_moments_beyond_the_strip(s):
    """The logarithm of E exp(s X) against the power series in t^a, with 60 digits of mpmath."""
    mp, count, T = mpmath, 120, 0.001
    with mp.workdps(60):
        a, z = mp.mpf(0.1) + mp.mpf(0.5), mp.mpf(T) ** (mp.mpf(0.1) + mp.mpf(0.5))
        b, g, s_ = mp.mpc(s) * mp.mpf(-0.7) * mp.mpf(0.4) - mp.mpf(0.3), mp.mpf(0.4) ** 2 / 2, mp.mpc(s)
        h, right = [mp.mpc(0)], [s_ * (s_ - 1) / 2]
        for k in range(1, count):
            h.append(right[k - 1] * mp.gamma((k - 1) * a + 1) / mp.gamma(k * a + 1))
            right.append(b * h[k] + g * mp.fsum(h[i] * h[k - i] for i in range(1, k)))
        terms = ((mp.mpf(0.3) * h[k] + right[k]) * z**k / (k * a + 1) for k in range(count))
        exact = complex(mp.mpf(0.04) * mp.mpf(T) * mp.fsum(terms))
    assert MODEL._log_transform(np.array([-1j * s]), T, 1e-10)[0][0] == pytest.approx(exact, rel=1e-11)


def test_classic_prices_near_perfect_correlation():
    """Prices of Heston's model at rho = -.99, from mpmath's integral of the closed form; there were SolveErrors."""
    model = Heston(H=0.5, v0=0.04, theta=0.04, kappa=1.0, sigma=2.0, rho=-0.99, S0=100.0, r=0.03, q=0.01)
    found = model.price([99.0, 105.0, 110.0], 2.0, rtol=1e-10)
    np.testing.assert_allclose(found.value, [8.16687078707304, 3.41662617557501, 0.264009551374755], rtol=0, atol=1e-12)
    assert np.all(found.error < 1e-10)
    assert np.all(model.implied_volatility([60.0, 105.0, 150.0], 2.0).error < 1e-5)


def test_volatility_without_digits_is_nan():
    """Where a price is below the range of float64, the volatility is nan and a warning says why."""
    with pytest.warns(AccuracyWarning, match="implied volatility of K=10000 at T=0.001 and 0 others is nan"):
        found = MODEL.implied_volatility([102.0, 1e4], 0.001)
    assert np.isnan(found.value).tolist() == [False, True]


def test_the_warning_is_of_discounted_prices():
    """After 1,000 years at 3 % the discounted price is accurate, though the forward price is 1e13."""
    found = MODEL.price(100.0, 1000.0)
    assert found.error < 1e-10
    assert 100.0 - 100.0 * np.exp(-30.0) <= found.value <= 100.0


@pytest.mark.parametrize("a", [0.55, 0.8])
def test_linear_riccati_is_mittag_leffler(a):
    """Without the square, the integral of h is c T^(a+1) E_{a,a+2}(b T^a), here from mpmath."""
    c, b, T = -3.0 + 1.0j, -2.0 + 0.5j, 1.7
    with mpmath.workdps(40):
        z = mpmath.mpc(b) * mpmath.mpf(T) ** a
        series = mpmath.nsum(lambda k: z**k / mpmath.gamma(a * k + a + 2), [0, mpmath.inf])
        exact = complex(c * mpmath.mpf(T) ** (a + 1) * series)
    found = solve_riccati(np.array([c]), np.array([b]), 0.0, a, T, weights=(1.0, 0.0), atol=1e-12)
    assert abs(found.integral[0] - exact) < 1e-12 * abs(exact)


@pytest.mark.parametrize("rho", [-1.0, 1.0])
def test_contours_agree(rho, monkeypatch):
    """At H = 1/2, short maturity and perfect correlation, prices do not depend on the angle of the contour."""
    model = Heston(H=0.5, v0=0.04, theta=0.04, kappa=1.0, sigma=0.3, rho=rho)
    found = []
    for angle in (0.3, 0.5):
        monkeypatch.setattr(heston, "_TILTS", (0.0, angle, -angle))
        assert np.any(model._contours(np.array([0.9, 1.0, 1.1]), 0.05)[0] != 0.0)
        found.append(model.price([0.9, 1.0, 1.1], 0.05, rtol=1e-9))
    assert np.all(np.abs(found[0].value - found[1].value) <= found[0].error + found[1].error + 1e-12)
