"""The fractional FFT of Bailey and Swarztrauber."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import signal

import hpfracc as hf
from tests.helpers.thinned import thinned

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 50)) + 1j * RNG.standard_normal((3, 50))


def by_definition(x: np.ndarray, alpha: float, points: int) -> np.ndarray:
    n, k = np.arange(x.shape[-1])[:, None], np.arange(points)
    return x @ np.exp(-2j * np.pi * n * k * alpha)


@pytest.mark.parametrize("points", [None, 7, 121])
@pytest.mark.parametrize("alpha", [0.0, 0.02, 0.137, -1.9, 40.3])
@thinned(one_in=2)
def test_is_the_sum_that_defines_it(alpha: float, points: int | None):
    """``G_k = sum_n x_n exp(-2 pi i n k alpha)``, as many as asked for."""
    right = by_definition(X, alpha, points or 50)
    np.testing.assert_allclose(hf.fractional_fft(X, alpha, points=points), right, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 64, 1000, 4095])
@thinned(one_in=2)
def test_is_the_fourier_transform_at_one_over_n(n: int):
    """With ``alpha = 1/N`` it is the FFT; taken as an exact fraction, to rounding at any length."""
    x = RNG.standard_normal(n)
    scale = np.linalg.norm(x)
    np.testing.assert_allclose(hf.fractional_fft(x, 1 / n), np.fft.fft(x), atol=1e-15 * (8 + n) * scale)
    np.testing.assert_allclose(hf.fractional_fft(x, Fraction(1, n)), np.fft.fft(x), atol=8e-15 * scale)


def test_agrees_with_scipy_s_zoom():
    """The band from 0.1 to 0.2 of the sampling rate in 40 steps is SciPy's chirp-z transform."""
    x = X[0] * np.exp(-2j * np.pi * 0.1 * np.arange(50))
    right = signal.zoom_fft(X[0], [0.1, 0.2], m=40, fs=1.0)
    np.testing.assert_allclose(hf.fractional_fft(x, 0.1 / 40, points=40), right, atol=1e-12)


def test_axes_dtypes_and_whole_numbers():
    """Any axis; single precision stays single, integers are promoted, real becomes complex."""
    np.testing.assert_allclose(hf.fractional_fft(X.T, 0.1, axis=0).T, hf.fractional_fft(X, 0.1), atol=1e-13)
    assert hf.fractional_fft(X.astype(np.complex64), 0.1).dtype == np.complex64
    assert hf.fractional_fft(X.real.astype(np.float32), 0.1).dtype == np.complex64
    np.testing.assert_allclose(hf.fractional_fft([1, 2, 3], 1 / 3), np.fft.fft([1, 2, 3]), atol=1e-14)
    assert hf.fractional_fft(np.zeros((2, 0)), 0.1).shape == (2, 0)


def test_torch():
    """A tensor in, a tensor out; gradcheck in samples and alpha, twice; vmap over alpha."""
    import torch

    x = torch.tensor(X[0, :6], requires_grad=True)
    alpha = torch.tensor(0.13, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(hf.fractional_fft, (x, alpha))
    assert torch.autograd.gradgradcheck(hf.fractional_fft, (x, alpha))
    many = torch.func.vmap(lambda a: hf.fractional_fft(x.detach(), a))(torch.tensor([0.1, 0.2], dtype=torch.float64))
    np.testing.assert_allclose(many[1].numpy(), by_definition(X[0, :6], 0.2, 6), atol=1e-13)


def test_jax():
    """Under jit, with the slope in alpha that the definition has."""
    import jax

    with jax.enable_x64(True):
        x = jax.numpy.asarray(X[0])

        def power(alpha: Any) -> Any:
            return (abs(hf.fractional_fft(x, alpha)) ** 2)[9]

        slope = jax.jit(jax.grad(power))(0.13)
    value = by_definition(X[0], 0.13, 50)[9]
    other = by_definition(X[0] * (-2j * np.pi * 9 * np.arange(50)), 0.13, 50)[9]
    assert float(slope) == pytest.approx(2 * (np.conj(value) * other).real, rel=1e-11)


@pytest.mark.parametrize(
    ("x", "alpha", "options", "words"),
    [
        (1.0, 0.1, {}, "single number"),
        ([1.0], float("nan"), {}, "give a finite number"),
        ([1.0], "half", {}, "not a number"),
        ([1.0], [0.1, 0.2], {}, "not a number"),
        ([1.0], 0.1, {"axis": 2}, "axis=2"),
        ([1.0], 0.1, {"points": -3}, "points=-3"),
    ],
)
def test_bad_input_is_named(x, alpha, options, words):
    """The error shows the value."""
    with pytest.raises(hf.errors.HpfraccError, match=words):
        hf.fractional_fft(x, alpha, **options)


@pytest.mark.parametrize("alpha", [Fraction(10**30 + 1, 7), Fraction(-(10**25)) + Fraction(1, 3), Fraction(10**400, 7)])
def test_fractions_above_1_are_exact(alpha: Fraction):
    """Whole numbers of cycles turn nothing, however many they are."""
    x = np.cos(np.arange(7.0)) + 1j
    phases = np.array([[float(alpha * n * k % 1) for k in range(9)] for n in range(7)])
    right = x @ np.exp(-2j * np.pi * phases)
    np.testing.assert_allclose(hf.fractional_fft(x, alpha, points=9), right, atol=1e-14)
