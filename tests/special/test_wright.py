"""The Wright and M-Wright functions."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy import special as scipy_special

import hpfracc.special as special
from hpfracc.errors import InvalidInputError
from tests.helpers.thinned import thinned


def by_series(lam: float, mu: float, z: complex) -> complex:
    with mp.workdps(250):
        total, factor, small, k = mp.mpc(0), mp.mpc(1), 0, 0
        while small < 8 or k < 250:  # terms at poles of the Gamma function are 0
            term = factor * mp.rgamma(mp.mpf(lam) * k + mp.mpf(mu))
            total += term
            small = small + 1 if abs(term) < abs(total) * mp.mpf(10) ** -30 else 0
            k += 1
            factor = factor * mp.mpc(z) / k
        return complex(total)


@pytest.mark.parametrize(
    ("lam", "mu", "z"),
    [
        (1.0, 2.0, 30.0),
        (0.5, 1.0, -50.0),
        (0.5, 1.0, -20 + 30j),
        (0.1, 1.0, -10.0),
        (2.0, 5.0, -1e4),
        (0.0, 1.0, -3.0),
        (-0.3, 0.7, -3.0),
        (-0.3, 0.7, -12.0),
        (-0.8, 0.2, -2.0),
        (-0.8, 0.2, -0.9),
        (-0.9, 0.1, -1.2),
        (-1 / 3, 2 / 3, 5.0),
        (-0.2, 0.8, -4 + 3j),
        (-0.5, -1.5, -4.0),
    ],
)
@thinned(one_in=3)
def test_agrees_with_the_series(lam, mu, z):
    """Agrees with mpmath's power series, summed with 250 digits."""
    value = special.wright(z, lam, mu)
    assert value == pytest.approx(by_series(lam, mu, z), rel=3e-13)
    assert np.iscomplexobj(value) == isinstance(z, complex)


@pytest.mark.parametrize("z", [-30.0, -8.0, -1.0, 4.0, 8.0, 12.0, 30.0, 8j, -6 + 6j, 6 + 6j])
@pytest.mark.parametrize("mu", [-5.0, -0.5, 0.3, 1.0, 2.5, 8.0])
@pytest.mark.parametrize("lam", [-0.5, -0.4, -1 / 3, -0.3, -0.1, 0.5])
@thinned(one_in=23)
def test_digits_on_a_grid(lam, mu, z):
    """All digits, also beside the positive axis, where the parabola has no saddle point and 5 to 9 were kept.

    Where W is exponentially small there, the digits are those of other ``mu``, or there is an error.
    """
    exact = by_series(lam, mu, z)
    small = z.real > 4 and abs(exact) < 1e-4
    try:
        assert abs(special.wright(z, lam, mu) - exact) < 4e-13 * (1e-4 if small else abs(exact))
    except InvalidInputError:
        assert small


@pytest.mark.parametrize(
    ("lam", "mu", "z"),
    [(1.0, -20.0, 0.3), (1.0, -20.0, -9.0), (2.0, -60.0, 5 + 1j), (1.0, -100.0, 2.0), (0.3, -80.0, 3.0)],
)
def test_leading_terms_that_vanish(lam, mu, z):
    """The terms at poles of the Gamma function are zero, but not the sum: the values were 0 or lost in cancellation."""
    assert special.wright(z, lam, mu) == pytest.approx(by_series(lam, mu, z), rel=3e-13)


def test_is_bessel():
    """W_{1,n+1}(-x^2/4) (x/2)^n = J_n(x)."""
    x = np.linspace(0.1, 60, 200)
    for n in (0, 1, 4):
        value = special.wright(-(x**2) / 4, 1.0, n + 1.0) * (x / 2) ** n
        np.testing.assert_allclose(value, scipy_special.jv(n, x), rtol=0, atol=2e-14)
    # The power series overflows here; the value was -inf.
    assert special.wright(-1e5, 1.0, 1.0) == pytest.approx(scipy_special.jv(0, 2 * 1e5**0.5), rel=1e-12)
    # A zero, where the error is that of the values around it.
    assert abs(special.wright(-((scipy_special.jn_zeros(0, 1)[0] / 2) ** 2), 1.0, 1.0)) < 1e-15
    assert special.wright([1e6, 1e30], 1.0, 1.0).tolist() == [np.inf, np.inf]


def test_m_wright_known_cases():
    """nu = 1/2 is a Gaussian, accurate even where it is tiny; nu = 1/3 is an Airy function."""
    x = np.linspace(0, 30, 61)
    np.testing.assert_allclose(special.m_wright(x, 0.5), np.exp(-(x**2) / 4) / np.sqrt(np.pi), rtol=1e-12)
    x = np.linspace(0, 20, 41)
    right = 3 ** (2 / 3) * scipy_special.airy(x / 3 ** (1 / 3))[0]
    np.testing.assert_allclose(special.m_wright(x, 1 / 3), right, rtol=1e-11)


@pytest.mark.parametrize(
    ("x", "nu", "exact"),
    [
        (1.2, 0.95, 2.9289884998941971),
        (1.002, 0.999, 40.167924901415468),
        (1.0001, 0.9999, 172.63673722963268),
        (1.0, 0.999999, 6371.0511773728722),
    ],
)
def test_m_wright_near_one(x, nu, exact):
    """The peak narrows as nu approaches 1, and the exponents cancel; there were IndexErrors and OverflowErrors.

    The values are Zolotarev's integral for the density of a one-sided stable variable, with 40 digits of mpmath.
    """
    assert special.m_wright(x, nu) == pytest.approx(exact, rel=1e-14)


def test_m_wright_underflows():
    """Far beyond the peak the density is 0 in float64, at any distance and order."""
    for x, nu in [(10.0, 0.95), (2.0, 0.99), (1.2, 0.999), (2.0, 0.9999), (1e5, 0.99), (1e300, 0.5), (1e300, 0.1)]:
        assert special.m_wright(x, nu) == 0
    # The same exponential function, seen from the lines on which it oscillates.
    with pytest.raises(InvalidInputError, match="lost in cancellation"):
        special.wright(np.array([-1e200j]), -0.5, 0.5)


@pytest.mark.parametrize("nu", [0.1, 0.25, 0.6, 0.75])
@thinned(lambda nu: nu == 0.75)
def test_m_wright_is_a_density(nu):
    """M is positive, its integral over the half line is 1, and its first moment is 1/Gamma(1 + nu)."""
    x = np.linspace(0, 40 if nu < 0.5 else 12, 6001 if nu < 0.5 else 3001)
    density = special.m_wright(x, nu)
    assert (density >= 0).all()
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-5)
    assert np.trapezoid(x * density, x) == pytest.approx(1 / scipy_special.gamma(1 + nu), abs=1e-5)


def test_inaccurate_values_are_errors():
    """An error is raised where cancellation leaves no accuracy, and for invalid parameters."""
    with pytest.raises(InvalidInputError, match="lost in cancellation"):
        special.wright(12.0, -0.5, 0.0)
    with pytest.raises(InvalidInputError, match="lost in cancellation"):
        special.wright(30.0, -0.5, -5.0)  # 8e-86, and the derivative is lost too: nothing to measure the error by
    for lam in (-1.0, np.nan, 1e3):
        with pytest.raises(InvalidInputError, match="above -1 and at most 100"):
            special.wright(1.0, lam, 1.0)
    with pytest.raises(InvalidInputError, match="nu=1"):
        special.m_wright(1.0, 1.0)
