"""Hilfer's derivative, Riesz and Feller's, and that of distributed order: closed forms, limits and orders."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from tests.helpers.convergence import measured_order
from tests.helpers.exact import caputo_of_exponential, of_power

T = np.linspace(0.0, 2.0, 65)
F = np.cos(3.0 * T) + T
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_hilfer_of_bounded_functions(beta: float):
    """Riemann-Liouville's for every type below 1, Caputo's for type 1: of samples, callables, chunks, other arrays."""
    right = hf.caputo if beta == 1.0 else hf.riemann_liouville
    for points in (T, T**1.5):
        np.testing.assert_array_equal(hf.hilfer(F, points, 0.3, beta)[1:], right(F, points, 0.3)[1:])
    np.testing.assert_allclose(hf.hilfer(np.exp, T[1:], 0.3, beta), right(np.exp, T[1:], 0.3), rtol=1e-12)
    np.testing.assert_allclose(hf.hilfer(np.exp, T[1:], 1.0, beta), np.exp(T[1:]), rtol=1e-10)
    stream = hf.Hilfer(0.3, beta).stream(T[1])
    np.testing.assert_allclose(stream.push(F)[1:], right(F, T, 0.3)[1:], atol=1e-5)
    torch = pytest.importorskip("torch")
    inputs = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (F[:9], 0.4)]
    assert torch.autograd.gradcheck(lambda x, a: hf.hilfer(x, T[:9], a, beta)[1:], inputs, atol=1e-5)


@pytest.mark.parametrize(("alpha", "beta"), [(0.4, 0.3), (0.7, 0.8), (0.5, 0.0)])
def test_hilfer_of_powers(alpha: float, beta: float):
    """t^(gamma - 1) has the derivative 0, higher powers that of Riemann-Liouville, lower ones none."""
    low, t = (alpha + beta * (1.0 - alpha)) - 1.0, T[1:]
    np.testing.assert_allclose(hf.hilfer(lambda s: 3.0 * s**low, t, alpha, beta, factor=low), 0.0 * t, atol=1e-10)
    value = hf.hilfer(lambda s: s**low * np.exp(s), t, alpha, beta, factor=low)
    with mpmath.workdps(30):
        exact = [
            mpmath.nsum(
                lambda k, x=x: (
                    mpmath.gamma(low + 1 + k)
                    * mpmath.rgamma(low + 1 + k - alpha)
                    * mpmath.mpf(x) ** (low + k - alpha)
                    / mpmath.factorial(k)
                ),
                [1, mpmath.inf],
            )
            for x in t[::16]
        ]
    np.testing.assert_allclose(value[::16], np.array(exact, dtype=float), rtol=1e-9)
    for p in (0.5 * low, 0.5, 2.0):
        value = hf.hilfer(lambda s, p=p: s**p, t, alpha, beta, factor=p)
        np.testing.assert_allclose(value, of_power(p, alpha, t), rtol=1e-10)
    if low > -0.9:
        with pytest.raises(InvalidInputError, match="exists for powers from gamma - 1 on"):
            hf.hilfer(lambda s: s ** (low - 0.05), t, alpha, beta, factor=low - 0.05)


def test_hilfer_refuses():
    """Types out of range, orders above 1, and unbounded callables without their power."""
    with pytest.raises(InvalidInputError, match="beta"):
        hf.hilfer(F, T, 0.5, 1.5)
    with pytest.raises(InvalidInputError, match="defined for 0 < alpha < 1"):
        hf.hilfer(F, T, 1.5, 0.5)
    with pytest.raises(InvalidInputError, match="declare a singular power with factor="):
        hf.hilfer(lambda s: s**-0.25, T[1:], 0.5, 0.5)


@pytest.mark.parametrize(("alpha", "theta"), [(0.6, 0.3), (0.6, -0.6), (1.0, 0.7), (1.5, 0.4), (1.5, -0.5), (2.0, 0.0)])
def test_riesz_feller_of_a_gaussian(alpha: float, theta: float):
    """Against its Fourier integral: order 2 on the line, to rounding by waves; the estimate holds."""
    k, weights = np.polynomial.legendre.leggauss(400)
    k, weights = 6.0 * (k + 1.0), 6.0 * weights
    at = np.array([-1.5, 0.0, 0.4, 1.1])

    def exact(x: Array) -> Array:
        size = -(k**alpha) * np.exp(-(k**2) / 4.0) * weights / math.sqrt(math.pi)
        return np.array([(size * np.cos(k * each - 0.5 * math.pi * theta)).sum() for each in x])

    def error_at(n: int) -> float:
        x = np.linspace(-6.0, 6.0, n + 1)
        result = hf.riesz_feller(np.exp(-(x**2)), x, alpha, theta, full_output=True)
        inside = np.abs(x) < 3.0
        error, estimate = np.abs(result.value - exact(x))[inside], np.asarray(result.error_estimate)[inside]
        assert (error <= 3.0 * estimate + 1e-6).all()
        return float(error.max())

    assert 1.85 <= measured_order(error_at, (240, 480, 960)) <= 2.4  # between those of both parts
    period = 40.0
    waves = 2.0 * math.pi / period * np.arange(1, 80)
    size = -(waves**alpha) * np.exp(-(waves**2) / 4.0) * 2.0 * math.sqrt(math.pi) / period
    right = [(size * np.cos(waves * each - 0.5 * math.pi * theta)).sum() for each in at]
    x = np.arange(-160, 160) * 0.125
    value = hf.riesz_feller(np.exp(-(x**2)), x, alpha, theta, method="spectral", period=period)
    np.testing.assert_allclose(value[[148, 160]], [right[0], right[1]], atol=1e-12)


def test_riesz_feller_is_both_one_sided_derivatives():
    """With c_+ and c_- where they exist, and Riesz's without skewness; a mirrored function has the other sign."""
    x = np.linspace(-1.0, 1.0, 401)
    f = (1.0 - x**2) ** 4 * (1.0 + 0.5 * x)
    for alpha, theta in ((0.7, 0.2), (1.6, -0.3)):
        plus, minus = (
            math.sin((alpha - sign * theta) * math.pi / 2.0) / math.sin(alpha * math.pi) for sign in (1.0, -1.0)
        )
        right = -plus * hf.riemann_liouville(f, x, alpha) - minus * hf.riemann_liouville(f, x, alpha, side="right")
        value = hf.riesz_feller(f, x, alpha, theta)
        np.testing.assert_allclose(value[20:-20], right[20:-20], atol=2e-3 * np.abs(right).max())
        np.testing.assert_allclose(hf.riesz_feller(f[::-1], x, alpha, -theta)[::-1], value, atol=1e-10)
    np.testing.assert_array_equal(hf.riesz_feller(f, x, 1.3), hf.riesz(f, x, 1.3))
    np.testing.assert_allclose(
        hf.riesz_feller(np.cos, T, 1.5, 0.5, method="spectral", period=2 * np.pi), -np.cos(T - np.pi / 4)
    )
    torch = pytest.importorskip("torch")
    inputs = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (f[::40], 0.6)]
    assert torch.autograd.gradcheck(
        lambda v, a: hf.riesz_feller(v, step=0.2, alpha=a, theta=0.2)[1:-1], inputs, atol=1e-5
    )
    with pytest.raises(InvalidInputError, match=r"theta=0.7 with alpha=1.5"):
        hf.riesz_feller(f, x, 1.5, 0.7)
    with pytest.raises(InvalidInputError, match="orders up to 2"):
        hf.riesz_feller(f, x, 2.5)


def test_distributed_order_of_a_cube():
    """With the weight Gamma(4 - beta): 6 (t^3 - t^2) / log t, of a callable to rounding, of samples at order 2."""

    def weight(beta: float) -> float:
        return math.gamma(4.0 - beta)

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 3.0, n + 1)
        result = hf.distributed_order(t**3, t, weight, full_output=True)
        right = 6.0 * (t[n // 2 :] ** 3 - t[n // 2 :] ** 2) / np.log(t[n // 2 :])
        error = np.abs(result.value[n // 2 :] - right)
        assert (error <= 3.0 * np.asarray(result.error_estimate)[n // 2 :]).all()
        return float(error.max())

    assert 2.0 <= measured_order(error_at) <= 2.6
    t = np.array([0.3, 2.0, 3.0])
    result = hf.distributed_order(lambda s: s**3, t, weight, full_output=True)
    np.testing.assert_allclose(result.value, 6.0 * (t**3 - t**2) / np.log(t), rtol=1e-11)
    assert result.converged
    assert np.abs(hf.distributed_order(np.ones(9), T[:9])).max() == 0.0


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.9), (1.1, 1.9)])
def test_distributed_order_of_an_exponential(low: float, high: float):
    """Against mpmath's integral over the orders; on any grid, of any array, and as the order of an equation."""
    points = np.array([0.5, 1.0, 2.0])
    nodes, weights = np.polynomial.legendre.leggauss(30)
    orders = low + 0.5 * (high - low) * (nodes + 1.0)
    right = (
        0.5
        * (high - low)
        * sum(w * (1.0 + a) * caputo_of_exponential(-1.0, a, points).real for a, w in zip(orders, weights, strict=True))
    )
    operator = hf.DistributedOrder(lambda beta: 1.0 + beta, low, high)
    assert operator.alpha == high
    np.testing.assert_allclose(operator(lambda s: np.exp(-s), points), right, rtol=1e-7)
    t = 2.0 * np.linspace(0.0, 1.0, 401) ** 1.5
    found = operator(np.exp(-t), t, full_output=True)
    assert np.abs(found.value[-1] - right[-1]) <= min(3.0 * np.asarray(found.error_estimate)[-1], 1e-2)
    torch = pytest.importorskip("torch")
    value = operator(torch.tensor(F), T)
    np.testing.assert_allclose(value.numpy(), operator(F, T), rtol=1e-9, atol=1e-9)
    few = hf.DistributedOrder(lambda beta: math.exp(-((beta - low) ** 2) * 40.0), low, high, nodes=6)
    rough = few(F, T, full_output=True)
    exact = hf.DistributedOrder(few.weight, low, high, nodes=120)(F, T)
    assert (np.abs(rough.value - exact) <= 3.0 * np.asarray(rough.error_estimate))[20:].all()


@pytest.mark.parametrize("kind", ["peak", "bell", "root"])
def test_the_estimate_of_distributed_order_sees_narrow_weights(kind: str):
    """Weights that a polynomial of high degree does not resolve: the error of t^2 is small, and within three estimates.

    The sums that it is compared with have an error of 4e-13.
    """
    random, at = np.random.default_rng(4), np.array([1e-4, 0.1, 3e3])
    x, w = np.polynomial.legendre.leggauss(400)
    for _ in range(12):
        place, width = random.uniform(0.0, 1.0), 10.0 ** random.uniform(-2.0, -0.5)

        def weight(beta: Any, place: float = place, width: float = width) -> Any:
            off = (beta - place) / width
            return {"peak": 1.0 / (1.0 + off**2), "bell": np.exp(-(off**2)), "root": abs(off) ** 0.5}[kind]

        # Squares of the distance from the peak, in which a root is smooth.
        u = 0.5 * (1.0 + x)
        orders = np.concatenate([place + (end - place) * u**2 for end in (0.0, 1.0)])
        parts = np.concatenate([abs(end - place) * u * w for end in (0.0, 1.0)]) * weight(orders)
        for t in at:
            exact = sum(parts * 2.0 * t ** (2.0 - orders) * special.rgamma(3.0 - orders))
            found = hf.distributed_order(np.square, t, weight, full_output=True)
            assert abs(found.value - exact) <= 3.0 * np.max(found.error_estimate) + 1e-12 * exact
            assert np.max(found.error_estimate) < 1e-9 * exact
