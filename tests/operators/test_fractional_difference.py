"""Fractional differences of time series, and what undoes them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import special

import hpfracc as hf
from tests.helpers.thinned import thinned

PRICES = 100 + np.cumsum(np.random.default_rng(1).standard_normal((2, 300)), axis=-1)
WINDOWS = [{}, {"window": 20}, {"threshold": 1e-3}, {"window": 1}]


def by_definition(x: np.ndarray, d: float, taps: int) -> np.ndarray:
    """The sum with exact binomials, term by term."""
    result = np.zeros_like(x)
    weight = Fraction(1)
    for k in range(min(taps, x.shape[-1])):
        result[..., k:] += float(weight) * x[..., : x.shape[-1] - k]
        weight *= (k - Fraction(d)) / (k + 1)
        weight = weight.limit_denominator(2**200)
    return result


@pytest.mark.parametrize("taps", [1, 2, 17, 300, 1000])
@pytest.mark.parametrize("d", [0.0, 0.25, 0.9, 1.0, 1.6, 2.0, -0.4, -1.0])
@thinned(one_in=3)
def test_is_the_sum_that_defines_it(d: float, taps: int):
    """Both windows, for differences and sums of whole and fractional order."""
    right = by_definition(PRICES, d, taps)
    np.testing.assert_allclose(hf.fractional_difference(PRICES, d, window=taps), right, atol=1e-10)
    np.testing.assert_allclose(hf.fractional_difference(PRICES, d), by_definition(PRICES, d, 300), atol=1e-10)


def test_closed_forms():
    """``(1-B)^d`` of ones is Gamma(n+1-d)/(Gamma(1-d) n!); d = 1 and 2 are ordinary differences, -1 a running sum."""
    n = np.arange(200)
    right = np.exp(special.gammaln(n + 0.7) - special.gammaln(0.7) - special.gammaln(n + 1))
    np.testing.assert_allclose(hf.fractional_difference(np.ones(200), 0.3), right, rtol=1e-12)
    np.testing.assert_array_equal(hf.fractional_difference(PRICES, 1)[:, 1:], np.diff(PRICES))
    np.testing.assert_allclose(hf.fractional_difference(PRICES, -1), np.cumsum(PRICES, axis=-1), rtol=1e-13)


@pytest.mark.parametrize("d", [0.3, 0.5, 0.99, 1.0, 1.4, 2.0, -0.6])
def test_sums_undo_differences(d: float):
    """Order -d after order d gives the series back; so does ``inverse=True``."""
    y = hf.fractional_difference(PRICES, d)
    np.testing.assert_allclose(hf.fractional_difference(y, -d), PRICES, rtol=1e-11)
    np.testing.assert_allclose(hf.fractional_difference(y, d, inverse=True), PRICES, rtol=1e-11)


@pytest.mark.parametrize("d", [0.3, 0.8, 1.0, 2.0, -0.4])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@thinned(one_in=3)
def test_windows_are_undone_too(window: dict[str, float], d: float):
    """With a window the inverse is that of the windowed difference."""
    y = hf.fractional_difference(PRICES, d, **window)
    np.testing.assert_allclose(hf.fractional_difference(y, d, inverse=True, **window), PRICES, rtol=1e-11)


def test_a_window_that_cannot_be_undone_is_refused():
    """Above d = 1 what undoes a window grows exponentially: an error, not 1e77."""
    x = np.ones(5000)
    y = hf.fractional_difference(x, 1.7, window=40)
    with pytest.raises(hf.errors.InvalidInputError, match="cannot be undone"):
        hf.fractional_difference(y, 1.7, window=40, inverse=True)


def test_bad_observations_stay_causal():
    """A nan reaches the values that look back on it and no other; whole orders look back no farther than they must."""
    x = PRICES[0].copy()
    x[100] = np.nan
    assert np.isnan(hf.fractional_difference(x, 0.4)).nonzero()[0].tolist() == list(range(100, 300))
    assert np.isnan(hf.fractional_difference(x, 0.4, window=5)).nonzero()[0].tolist() == [100, 101, 102, 103, 104]
    assert np.isnan(hf.fractional_difference(x, 1)).nonzero()[0].tolist() == [100, 101]


def test_axes_dtypes_and_no_points():
    """Time along any axis, integers promoted, single precision kept, complex allowed, nothing of nothing."""
    np.testing.assert_allclose(hf.fractional_difference(PRICES.T, 0.4, axis=0).T, hf.fractional_difference(PRICES, 0.4))
    np.testing.assert_array_equal(hf.fractional_difference([1, 3, 6], 1), [1.0, 2.0, 3.0])
    assert hf.fractional_difference(PRICES.astype(np.float32), 0.4).dtype == np.float32
    z = PRICES * (1 + 2j)
    np.testing.assert_allclose(
        hf.fractional_difference(z, 0.4), hf.fractional_difference(PRICES, 0.4) * (1 + 2j), atol=1e-12
    )
    assert hf.fractional_difference(np.zeros((3, 0)), 0.4).shape == (3, 0)


@pytest.mark.parametrize("options", [*WINDOWS[:2], {"window": 3, "inverse": True}], ids=str)
def test_torch_gradcheck(options):
    """In the series and in d."""
    import torch

    x = torch.tensor(PRICES[0, :8], requires_grad=True)
    d = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, d: hf.fractional_difference(x, d, **options), (x, d))


def test_jax_under_jit():
    """Value and slope in d; a threshold needs the value of d and says so; an inverse out of reach is nan."""
    import jax

    with jax.enable_x64(True):
        x = jax.numpy.asarray(PRICES[0, :30])
        slope = jax.jit(jax.grad(lambda d: hf.fractional_difference(x, d, window=9)[-1]))(0.4)
        ends = [float(hf.fractional_difference(PRICES[0, :30], 0.4 + e, window=9)[-1]) for e in (1e-6, -1e-6)]
        assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-7)
        with pytest.raises(hf.errors.InvalidInputError, match="window="):
            jax.jit(lambda d: hf.fractional_difference(x, d, threshold=0.1))(0.4)
        undone = jax.jit(lambda d: hf.fractional_difference(np.ones(30), d, window=3, inverse=True))(2.7)
        assert np.isnan(np.asarray(undone)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"d": 0.4, "window": 0}, "window=0"),
        ({"d": 0.4, "window": 2.5}, "window=2.5"),
        ({"d": 0.4, "window": True}, "window=True"),
        ({"d": 0.4, "threshold": 0.0}, "threshold=0.0"),
        ({"d": 0.4, "threshold": float("nan")}, "threshold=nan"),
        ({"d": 0.4, "window": 3, "threshold": 0.1}, "give one"),
        ({"d": float("nan")}, "d=nan"),
        ({"d": "half"}, "d='half'"),
        ({"d": 0.4, "axis": 5}, "axis=5"),
    ],
)
def test_bad_input_is_named(options, words):
    """The error shows the value."""
    with pytest.raises(hf.errors.HpfraccError, match=words):
        hf.fractional_difference(PRICES, **options)
