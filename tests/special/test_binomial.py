"""Generalised binomial coefficients and Grünwald-Letnikov weights."""

from __future__ import annotations

import contextlib
import importlib

import mpmath as mp
import numpy as np
import pytest

import hpfracc.special as special
from hpfracc.errors import InvalidInputError


@pytest.mark.parametrize("alpha", [0.5, -0.5, 1.7, 3.0, -3.0, 0.0, 12.25])
def test_binomials_agree_with_mpmath(alpha):
    """Integer k agree with mpmath, also for integer and negative alpha."""
    k = np.array([0, 1, 2, 3, 7, 40])
    right = [float(mp.binomial(alpha, int(n))) for n in k]
    np.testing.assert_allclose(special.generalized_binomial(alpha, k), right, rtol=1e-14, atol=1e-300)


def test_binomials_broadcast():
    """Arrays of alpha and k broadcast; k may be fractional; negative integers give 0."""
    value = special.generalized_binomial(np.array([[0.5], [2.0]]), np.array([0, 1, 2]))
    np.testing.assert_allclose(value, [[1, 0.5, -0.125], [1, 2, 1]])
    assert special.generalized_binomial(2.0, 1.5) == pytest.approx(float(mp.binomial(2, 1.5)), rel=1e-13)
    assert special.generalized_binomial(0.5, -1) == 0


@pytest.mark.parametrize("alpha", [0.3, 0.9, 1.5, -0.4])
def test_weights_keep_their_digits(alpha):
    """The last of 100,000 weights agrees with mpmath to twelve digits."""
    weights = special.grunwald_weights(alpha, 100_001)
    with mp.workdps(40):
        for k in (10, 1000, 100_000):
            right = float(mp.gamma(k - mp.mpf(alpha)) / mp.gamma(-mp.mpf(alpha)) / mp.factorial(k))
            assert weights[k] == pytest.approx(right, rel=1e-12)


def test_weights_of_whole_orders():
    """Order 2 is the second difference followed by exact zeros; n = 0 gives an empty array."""
    assert special.grunwald_weights(2.0, 6).tolist() == [1, -2, 1, 0, 0, 0]
    assert special.grunwald_weights(0.5, 0).shape == (0,)
    assert special.grunwald_weights(0.5, 1).tolist() == [1]


def test_weights_carry_the_gradient_of_alpha_in_torch():
    """gradcheck in the order."""
    torch = importlib.import_module("torch")
    alpha = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: special.grunwald_weights(a, 8), (alpha,))


def test_weights_carry_the_gradient_of_alpha_in_jax():
    """The jacobian in the order, under jit."""
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        slope = jax.jit(jax.jacobian(lambda a: special.grunwald_weights(a, 5)))(0.6)
        step = 1e-6
        around = [special.grunwald_weights(0.6 + sign * step, 5) for sign in (-1, 1)]
        np.testing.assert_allclose(slope, (around[1] - around[0]) / (2 * step), atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_weights_of_another_library_are_numpys(library, dtype):
    """In the dtype and library of the order, for every length from 0 on."""
    module = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
    with pytest.importorskip("jax").enable_x64(True) if library == "jax" else contextlib.nullcontext():
        alpha = module.asarray(0.6, dtype=getattr(module, dtype))
        for n in (0, 1, 2, 50):
            weights = special.grunwald_weights(alpha, n)
            assert weights.dtype == alpha.dtype
            np.testing.assert_allclose(weights, special.grunwald_weights(0.6, n), rtol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("call", [(0.5, -1), (0.5, 1.5), (np.nan, 3), (0.5, True)])
def test_bad_weights_are_refused(call):
    """Invalid counts and orders raise an error."""
    with pytest.raises(InvalidInputError):
        special.grunwald_weights(*call)


@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1 - 1e-12, 1 + 1e-12, 1.999999, 3 - 2**-50])
def test_weights_of_orders_near_whole_numbers(alpha: float):
    """All digits remain where one factor of the recurrence almost vanishes."""
    weights, binomials = special.grunwald_weights(alpha, 40), special.generalized_binomial(alpha, np.arange(40))
    with mp.workdps(60):
        right = [float(mp.binomial(mp.mpf(alpha), k)) for k in range(40)]
    np.testing.assert_allclose(binomials, right, rtol=1e-14)
    np.testing.assert_allclose(weights, right * (-1.0) ** np.arange(40), rtol=1e-14)
