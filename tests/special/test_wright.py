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
    with mp.workdps(200):
        total, factor = mp.mpc(0), mp.mpc(1)
        for k in range(1200):
            total += factor * mp.rgamma(mp.mpf(lam) * k + mp.mpf(mu))
            factor = factor * mp.mpc(z) / (k + 1)
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
    """Agrees with mpmath's power series, summed with 200 digits."""
    value = special.wright(z, lam, mu)
    assert value == pytest.approx(by_series(lam, mu, z), rel=3e-13)
    assert np.iscomplexobj(value) == isinstance(z, complex)


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


def test_m_wright_known_cases():
    """nu = 1/2 is a Gaussian, accurate even where it is tiny; nu = 1/3 is an Airy function."""
    x = np.linspace(0, 30, 61)
    np.testing.assert_allclose(special.m_wright(x, 0.5), np.exp(-(x**2) / 4) / np.sqrt(np.pi), rtol=1e-12)
    x = np.linspace(0, 20, 41)
    right = 3 ** (2 / 3) * scipy_special.airy(x / 3 ** (1 / 3))[0]
    np.testing.assert_allclose(special.m_wright(x, 1 / 3), right, rtol=1e-11)


@pytest.mark.parametrize("nu", [0.1, 0.25, 0.6, 0.75])
@thinned(lambda nu: nu == 0.6)
def test_m_wright_is_a_density(nu):
    """M is positive, its integral over the half line is 1, and its first moment is 1/Gamma(1 + nu)."""
    x = np.linspace(0, 40 if nu < 0.5 else 12, 6001)
    density = special.m_wright(x, nu)
    assert (density >= 0).all()
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-5)
    assert np.trapezoid(x * density, x) == pytest.approx(1 / scipy_special.gamma(1 + nu), abs=1e-5)


def test_inaccurate_values_are_errors():
    """An error is raised where cancellation leaves no accuracy, and for invalid parameters."""
    with pytest.raises(InvalidInputError, match="lost in cancellation"):
        special.wright(60.0, -1 / 3, 2 / 3)
    for lam in (-1.0, np.nan, 1e3):
        with pytest.raises(InvalidInputError, match="above -1 and at most 100"):
            special.wright(1.0, lam, 1.0)
    with pytest.raises(InvalidInputError, match="nu=1"):
        special.m_wright(1.0, 1.0)
