"""Black's formula and its inverse."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from hpfracc.errors import InvalidInputError
from hpfracc.rough import black_price, implied_volatility


@pytest.mark.parametrize("kind", ["call", "put"])
@pytest.mark.parametrize(
    ("strike", "maturity", "volatility"), [(60, 0.1, 0.2), (100, 1, 0.2), (200, 0.5, 1), (101, 10, 2), (100, 1, 1e-6)]
)
def test_agrees_with_mpmath(kind, strike, maturity, volatility):
    """The formula to 11 digits, also far out of the money where the two terms nearly cancel."""
    with mpmath.workdps(60):
        total = mpmath.mpf(volatility) * mpmath.sqrt(maturity)
        d1 = mpmath.log(mpmath.mpf(100) / strike) / total + total / 2
        call = 100 * mpmath.ncdf(d1) - strike * mpmath.ncdf(d1 - total)
        exact = call if kind == "call" else call - 100 + strike
        assert abs(black_price(100.0, strike, maturity, volatility, kind) / exact - 1) < 5e-12


@pytest.mark.parametrize("total", [1e-17, 1e-13, 1e-8, 1e-4, 0.01, 0.3])
def test_tiny_volatilities_near_the_money(total):
    """Digits as the strike has: differences of close functions lost all of them for a total volatility of 1e-16."""
    for strike in [*(100.0 * np.exp(total * np.array([-3.0, -0.6, 0.0, 0.6, 3.0]))), np.nextafter(100.0, 0)]:
        with mpmath.workdps(400):
            x = mpmath.log(100 / mpmath.mpf(strike)) / mpmath.mpf(total)
            d1, sign = x + mpmath.mpf(total) / 2, 1 if strike >= 100.0 else -1
            first, second = (mpmath.erfc(-sign * d / mpmath.sqrt(2)) / 2 for d in (d1, d1 - mpmath.mpf(total)))
            exact = float(sign * (100 * first - mpmath.mpf(strike) * second))
        found = black_price(100.0, strike, 1.0, total, "call" if sign == 1 else "put")
        assert found == pytest.approx(exact, rel=1e-13, abs=1e-300)
    assert black_price(0.0, 90.0, 1e300, 1e200) == 0.0  # a total volatility beyond float64


@pytest.mark.parametrize("kind", ["call", "put"])
def test_inverse(kind):
    """The volatility comes back from the price of the option out of the money, over 40 orders of magnitude."""
    strikes = np.array([20.0, 60.0, 99.0, 100.0, 101.0, 150.0, 400.0])
    strikes = strikes[strikes >= 100.0] if kind == "call" else strikes[strikes <= 100.0]
    for maturity in (1 / 365, 0.5, 10.0):
        for volatility in (0.05, 0.3, 1.5):
            prices = black_price(100.0, strikes, maturity, volatility, kind)
            found = implied_volatility(prices, 100.0, strikes, maturity, kind)
            has_digits = prices > 1e-290
            np.testing.assert_allclose(found[has_digits], volatility, rtol=1e-11)


@pytest.mark.parametrize("volatility", [1e-6, 0.01, 0.3])
def test_inverse_at_short_maturities(volatility):
    """To the digits that the rounding of strikes leaves, and to all of them at the money, where the price is small."""
    total = volatility * np.sqrt(1 / 365)
    strikes = 100.0 * np.exp(total * np.array([0.0, 0.3, 1.0, 4.0, 20.0]))
    found = implied_volatility(black_price(100.0, strikes, 1 / 365, volatility), 100.0, strikes, 1 / 365)
    np.testing.assert_allclose(found, volatility, rtol=1e-14 + 1e-15 / total)
    assert found[0] == pytest.approx(volatility, rel=1e-14)


def test_prices_without_a_volatility():
    """The intrinsic value gives 0; prices outside the bounds of arbitrage give nan."""
    assert implied_volatility(10.0, 100.0, 90.0, 1.0) == 0.0
    assert np.isnan(implied_volatility([9.0, 100.0, -1.0], 100.0, 90.0, 1.0)).all()


def test_arguments_are_checked():
    """An unknown option is refused by name, and a negative volatility, strike or forward by value."""
    for bad in ({"volatility": -0.2}, {"K": -1.0}, {"forward": -1.0}):
        with pytest.raises(InvalidInputError, match=f"{next(iter(bad))} has an entry of -"):
            black_price(**{"forward": 1.0, "K": 1.0, "T": 1.0, "volatility": 0.2, **bad})
    with pytest.raises(InvalidInputError, match="kind='straddle'"):
        black_price(100.0, 90.0, 1.0, 0.2, "straddle")


def test_strikes_and_forwards_of_zero():
    """A call with strike 0 is the forward, whatever its volatility; a price of such an option has no volatility."""
    found = black_price([100.0, 100.0, 0.0, 0.0], [0.0, 90.0, 100.0, 0.0], [1.0, 0.0, 1.0, 1.0], 0.2)
    np.testing.assert_array_equal(found, [100.0, 10.0, 0.0, 0.0])
    assert black_price(0.0, 100.0, 1.0, 0.2, "put") == 100.0
    assert np.isnan(implied_volatility([100.0, 5.0], [100.0, 0.0], [0.0, 90.0], 1.0)).all()
