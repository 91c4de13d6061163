"""The fractional Fourier transform: what the chirp and the eigenvector method keep, and what they do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.thinned import thinned

METHODS = ["chirp", "eigen"]
ORDERS = [0.1, 0.37, 0.5, 0.93, 1.2, 1.5, 1.77, 2.3, 3.6, -0.4, -7.3, 101.1]


def noise(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def times(n: int) -> np.ndarray:
    return (np.arange(n) - n // 2) / math.sqrt(n)


def hermite_function(degree: int, n: int) -> np.ndarray:
    """The eigenfunction of every order, of eigenvalue ``exp(-i pi degree order / 2)``."""
    x = math.sqrt(2 * math.pi) * times(n)
    before, now = np.zeros(n), 2**0.25 * np.exp(-(x**2) / 2)
    for k in range(degree):
        before, now = now, math.sqrt(2 / (k + 1)) * x * now - math.sqrt(k / (k + 1)) * before
    return now


def centred_dft(x: np.ndarray) -> np.ndarray:
    return np.fft.fftshift(np.fft.fft(np.fft.ifftshift(x, axes=-1), norm="ortho"), axes=-1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [128, 129])
@thinned(one_in=4)
def test_chirps_keep_hermite_gauss_functions(n: int, order: float):
    """Eigenfunctions come back with their eigenvalue to 1e-13, at every order."""
    for degree in (0, 1, 2, 7, 15):
        h = hermite_function(degree, n)
        np.testing.assert_allclose(hf.frft(h, order), np.exp(-0.5j * np.pi * order * degree) * h, atol=1e-13)


def test_a_chirp_against_its_formula():
    """A shifted, modulated bell at order 1/3: the integral done by hand."""
    n, a = 256, 1 / 3
    u, phi = times(n), np.pi / 6
    cot, csc = 1 / np.tan(phi), 1 / np.sin(phi)
    # exp(-pi p v^2 + 2 pi b v) under the kernel: a Gaussian integral.
    p, b = 1.3 - 0.4j, 0.9 + 0.8j
    x = np.exp(-np.pi * p * u**2 + 2 * np.pi * b * u)
    width = p - 1j * cot
    factor = np.sqrt(1 - 1j * cot) / np.sqrt(width)
    right = factor * np.exp(1j * np.pi * cot * u**2 + np.pi * (b - 1j * csc * u) ** 2 / width)
    np.testing.assert_allclose(hf.frft(x, a), right, atol=1e-13 * np.abs(right).max())


def test_eigenvectors_approach_the_integral():
    """The eigenvector method differs from the integral by O(1/N)."""
    errors = []
    for n in (128, 512):
        h = hermite_function(2, n)
        errors.append(np.abs(hf.frft(h, 0.4, method="eigen") - np.exp(-0.4j * np.pi) * h).max())
    assert errors[1] < 0.3 * errors[0] < 0.01


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 100, 101, 512])
def test_eigenvectors_are_unitary_and_additive_on_noise(n: int):
    """The norm is kept and orders add up to 1e-12, whatever the signal; order 1 is approached smoothly."""
    x = noise(n) / math.sqrt(n)
    once = hf.frft(x, 0.37, method="eigen")
    assert np.linalg.norm(once) == pytest.approx(np.linalg.norm(x), rel=1e-13)
    np.testing.assert_allclose(hf.frft(once, 1.21, method="eigen"), hf.frft(x, 1.58, method="eigen"), atol=1e-12)
    np.testing.assert_allclose(hf.frft(once, -0.37, method="eigen"), x, atol=1e-12)
    near = hf.frft(x, 1 + 1e-15, method="eigen")
    np.testing.assert_allclose(near, centred_dft(x), atol=1e-12)


def test_chirps_lose_noise():
    """What the docstring warns of: on noise the chirp method is not additive, on a fitting signal it is."""
    x, h = noise(256) / 16, hermite_function(3, 256) + hermite_function(8, 256)

    def defect(signal: np.ndarray) -> float:
        twice = hf.frft(hf.frft(signal, 0.4), 0.5)
        return float(np.linalg.norm(twice - hf.frft(signal, 0.9)) / np.linalg.norm(signal))

    assert defect(x) > 0.05
    assert defect(h) < 1e-13


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 100, 101])
def test_whole_orders_are_exact(n: int, method: str):
    """0 is the signal, 1 the centred DFT, 2 its mirror image, 3 the inverse, and so on in both directions."""
    x = noise(2, n)
    mirrored = np.fft.fftshift(np.roll(np.fft.ifftshift(x, axes=-1)[:, ::-1], 1, axis=-1), axes=-1)
    assert np.array_equal(hf.frft(x, 0, method=method), x)
    assert np.array_equal(hf.frft(x, 2, method=method), mirrored)
    np.testing.assert_allclose(hf.frft(x, 1, method=method), centred_dft(x), atol=1e-14)
    np.testing.assert_allclose(centred_dft(hf.frft(x, 3.0, method=method)), x, atol=1e-13)
    assert np.array_equal(hf.frft(x, -3, method=method), hf.frft(x, 5, method=method))
    result = hf.frft(x, 0, method=method)
    assert not np.shares_memory(result, x)


@pytest.mark.parametrize("method", METHODS)
def test_batches_axes_dtypes(method: str):
    """Rows are independent, any axis, real and single precision, no points."""
    x = noise(2, 3, 20)
    whole = hf.frft(x, 0.6, method=method)
    np.testing.assert_allclose(whole[1, 2], hf.frft(x[1, 2], 0.6, method=method), atol=1e-13)
    np.testing.assert_allclose(hf.frft(x, 0.6, 0, method=method)[:, 0, 0], hf.frft(x[:, 0, 0], 0.6, method=method))
    real = hf.frft(x.real, 0.6, method=method)
    np.testing.assert_allclose(real + 1j * hf.frft(x.imag, 0.6, method=method), whole, atol=1e-13)
    single = hf.frft(x.astype(np.complex64), 0.6, method=method)
    assert single.dtype == np.complex64
    np.testing.assert_allclose(single, whole, atol=1e-5)
    assert hf.frft(np.zeros((2, 0)), 0.6, method=method).shape == (2, 0)
    assert hf.frft([1, 2, 3], 0.6, method=method).dtype == np.complex128


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("order", [0.37, 1.0, 2.6])
@thinned(lambda order: order == 0.37)
def test_torch_gradcheck(method: str, order: float):
    """gradcheck in signal and order, also at a whole order; odd lengths have no lonely edge sample."""
    import torch

    x = torch.tensor(noise(5), requires_grad=True)
    a = torch.tensor(order, dtype=torch.float64, requires_grad=True)

    def transform(x: Any, a: Any) -> Any:
        return hf.frft(x, a, method=method)

    np.testing.assert_allclose(transform(x, a).detach().numpy(), hf.frft(noise(5), order, method=method), atol=1e-13)
    assert torch.autograd.gradcheck(transform, (x, a), fast_mode=True)
    if order == 0.37:
        assert torch.autograd.gradgradcheck(transform, (x, a), fast_mode=True)


def test_torch_vmap_over_orders():
    """Orders that cannot be read, each in its own quarter turn."""
    import torch

    orders = [-0.9, 0.2, 0.8, 1.9, 3.1]
    x = noise(9)
    for method in METHODS:
        many = torch.func.vmap(lambda a, m=method: hf.frft(torch.tensor(x), a, method=m))(
            torch.tensor(orders, dtype=torch.float64)
        )
        for a, found in zip(orders, many, strict=True):
            np.testing.assert_allclose(found.numpy(), hf.frft(x, a, method=method), atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
@thinned(lambda method: method == "chirp")
def test_jax_under_jit(method: str):
    """One compilation serves all orders, gradient included; double precision although JAX was not told so."""
    import jax

    x = noise(9)

    def energy(a: Any) -> Any:
        return (abs(hf.frft(x, a, method=method)) ** 2 * np.arange(9)).sum()

    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(energy)), {}
        for a in (-1.2, 0.3, 2.2):
            found, slope[a] = map(float, value(a))
            assert found == pytest.approx(float(energy(a)), rel=1e-12)
            right = (float(energy(a + 1e-6)) - float(energy(a - 1e-6))) / 2e-6
            assert slope[a] == pytest.approx(right, rel=1e-6, abs=1e-6)
    assert hf.frft(jax.numpy.asarray(x.real, dtype="float32"), 0.3, method=method).dtype == "complex64"


@pytest.mark.parametrize(
    ("x", "order", "options", "words"),
    [
        (np.ones(4), 0.5, {"method": "fast"}, "'chirp', 'eigen'"),
        (np.ones(4), float("inf"), {}, "order=inf"),
        (np.ones(4), None, {}, "order is missing"),
        (np.ones(4), 0.5, {"axis": 1}, "axis=1"),
        (1.0, 0.5, {}, "single number"),
        (np.ones(2**13 + 1), 0.5, {"method": "eigen"}, "use method='chirp'"),
        (np.ones(4, dtype=object), 0.5, {}, "dtype object"),
    ],
)
def test_bad_input_is_named(x, order, options, words):
    """The error shows the value and what to do."""
    with pytest.raises(hf.errors.HpfraccError, match=words):
        hf.frft(x, order, **options)
