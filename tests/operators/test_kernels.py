"""Operators with a given kernel: Prabhakar's, and the user's own with its associated kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from tests.helpers.convergence import measured_order
from tests.helpers.exact import of_power
from tests.helpers.thinned import thinned

T = np.linspace(0.0, 2.0, 65)
SHAPE = (0.7, 2.0, -1.0)
Array = np.ndarray[Any, Any]


def three_parameters(z: float, rho: float, beta: float, gamma: float) -> float:
    """E by its series in many digits."""
    with mpmath.workdps(40):
        total = mpmath.nsum(
            lambda k: mpmath.rf(gamma, k) / mpmath.factorial(k) * mpmath.mpf(z) ** k * mpmath.rgamma(rho * k + beta),
            [0, mpmath.inf],
        )
        return float(total)


def of_powers(operator: Any, alpha: float, t: float, powers: dict[float, float]) -> float:
    rho, gamma, omega = SHAPE
    order = alpha if operator is hf.prabhakar else -alpha
    sign = -1.0 if operator is hf.prabhakar else 1.0
    return sum(
        c
        * math.gamma(p + 1.0)
        * t ** (p - order)
        * three_parameters(omega * t**rho, rho, p + 1.0 - order, sign * gamma)
        for p, c in powers.items()
        if p or operator is not hf.prabhakar
    )


@pytest.mark.parametrize("alpha", [0.6, 0.8])
@pytest.mark.parametrize("method", ["linear", "quadratic"])
@pytest.mark.parametrize("operator", [hf.prabhakar, hf.prabhakar_integral])
@thinned(one_in=2)
def test_prabhakar_converges(operator: Any, method: str, alpha: float):
    """At the declared order, against mpmath; callables to rounding."""
    powers = {0.0: 1.0, 1.0: 2.0, 3.0: -1.0}
    right = of_powers(operator, alpha, 2.0, powers)

    def f(t: Array) -> Array:
        return np.asarray(sum(c * t**p for p, c in powers.items()))

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 2.0, n + 1)
        return float(abs(operator(f(t), t, alpha, *SHAPE, method=method)[-1] - right))

    kind = hf.Prabhakar if operator is hf.prabhakar else hf.PrabhakarIntegral
    assert measured_order(error_at, (64, 128, 256)) == pytest.approx(kind.rules[method].accuracy(alpha), abs=0.2)
    if method == "quadratic":
        assert operator(f, 2.0, alpha, *SHAPE) == pytest.approx(right, rel=1e-9)


def test_prabhakar_has_the_power_laws_as_limits():
    """gamma = 0 and omega = 0 are Caputo and Riemann-Liouville; rho = gamma = 1 is tempered with alpha = 1."""
    f = np.cos(3.0 * T) + T
    for shape in ((0.7, 0.0, -1.0), (0.7, 2.0, 0.0)):
        np.testing.assert_allclose(
            hf.prabhakar(f, T, 0.4, *shape, method="linear"), hf.caputo(f, T, 0.4, method="l1"), atol=1e-12
        )
        np.testing.assert_allclose(
            hf.prabhakar_integral(f, T, 0.4, *shape, method="linear"),
            hf.riemann_liouville_integral(f, T, 0.4, method="trapezoid"),
            atol=1e-12,
        )
    np.testing.assert_allclose(
        hf.prabhakar_integral(np.cos, T[1::16], 1.0, 1.0, 1.0, -2.0),
        hf.tempered_integral(np.cos, T[1::16], 1.0, 2.0),
        rtol=1e-9,
    )


def test_prabhakar_derivative_inverts_the_integral():
    """And two integrals add their orders and their third parameters; the estimate holds; other arrays."""
    t = np.linspace(0.0, 1.0, 301)
    f = np.sin(2.0 * t)
    inner = hf.prabhakar_integral(f, t, 0.6, 0.7, 1.0, -1.0)
    np.testing.assert_allclose(hf.prabhakar(inner, t, 0.6, 0.7, 1.0, -1.0)[30:], f[30:], atol=2e-3)
    twice = hf.prabhakar_integral(inner, t, 0.3, 0.7, 1.0, -1.0)
    np.testing.assert_allclose(twice, hf.prabhakar_integral(f, t, 0.9, 0.7, 2.0, -1.0), atol=1e-5)
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    np.testing.assert_allclose(hf.prabhakar(torch.tensor(f), t, 0.5).numpy(), hf.prabhakar(f, t, 0.5), atol=1e-12)
    samples = torch.tensor(f[:9], requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: hf.prabhakar_integral(x, t[:9], 0.5), (samples,))
    with jax.enable_x64(True):
        value = jax.jit(lambda x: hf.prabhakar(x, step=t[1], alpha=0.5))(f)
    np.testing.assert_allclose(np.asarray(value), hf.prabhakar(f, t, 0.5), atol=1e-11)


def test_prabhakar_refuses():
    """Orders out of range or with a derivative, rho above 1, a step with a derivative, an infinite start."""
    for alpha in (0.0, 1.0, 1.5):
        with pytest.raises(InvalidInputError, match="above 0 and below 1"):
            hf.prabhakar(T, T, alpha)
    with pytest.raises(InvalidInputError, match="rho"):
        hf.prabhakar(T, T, 0.5, 1.5)
    with pytest.raises(InvalidInputError, match="infinite at the origin"):
        hf.prabhakar(np.sin, 1.0, 0.5, factor=-0.5)
    torch = pytest.importorskip("torch")
    tracked = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    with pytest.raises(InvalidInputError, match="carry no derivative"):
        hf.prabhakar(torch.tensor(T), T, tracked)
    with pytest.raises(InvalidInputError, match="not differentiable in the step"):
        hf.prabhakar(torch.tensor(T), step=tracked, alpha=0.5)


def power_law(a: float) -> Callable[[Array], Array]:
    return lambda u: u**-a * special.rgamma(1.0 - a)


KERNELS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "0.1": (power_law(0.1), power_law(0.9)),
    "0.9": (power_law(0.9), power_law(0.1)),
    "two": (
        lambda u: power_law(0.7)(u) + power_law(0.4)(u),
        lambda u: u**-0.3 * hf.mittag_leffler(-(u**0.3), 0.3, 0.7),
    ),
    "tempered": (
        lambda u: np.exp(-2.0 * u) * power_law(0.5)(u),
        lambda u: np.exp(-2.0 * u) * power_law(0.5)(u) + math.sqrt(2.0) * special.erf(np.sqrt(2.0 * u)),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("end", [0.5, 20.0])
def test_associated_kernels(name: str, end: float):
    """Against closed forms from 1e-6 of the end on; the residual bounds the error."""
    kernel, exact = KERNELS[name]
    found = hf.SonineDerivative(kernel=kernel).associated(end)
    u = end * np.geomspace(1e-6, 1.0, 60)
    error = np.abs(found(u) / exact(u) - 1.0).max()
    assert error <= max(10.0 * found.residual, 1e-11)
    assert found.residual < 1e-6


def test_sonine_derivatives_with_a_power_law_are_caputo():
    """By the same rules; and the integral is Riemann-Liouville's; callables too."""
    f = np.cos(3.0 * T) + T
    for alpha in (0.2, 0.5, 0.9):
        derivative, integral = hf.SonineDerivative(power_law(alpha)), hf.SonineIntegral(power_law(alpha))
        np.testing.assert_allclose(derivative(f, T), hf.caputo(f, T, alpha), atol=1e-11)
        np.testing.assert_allclose(derivative(np.exp, T[1::8]), hf.caputo(np.exp, T[1::8], alpha), rtol=1e-8)
        right = hf.riemann_liouville_integral(np.exp, T[1::8], alpha)
        np.testing.assert_allclose(integral(np.exp, T[1::8]), right, rtol=1e-8)
        result = integral(np.exp(T), T, full_output=True)
        error = np.abs(result.value - hf.riemann_liouville_integral(np.exp, T, alpha))
        assert (error <= 3.0 * np.asarray(result.error_estimate))[2:].all()


@pytest.mark.parametrize("name", ["two", "tempered"])
def test_fundamental_theorem(name: str):
    """D I f = f and I D f = f - f(0), at the order of the rule."""
    kernel, _ = KERNELS[name]
    derivative, integral = hf.SonineDerivative(kernel), hf.SonineIntegral(kernel)

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        f = np.cos(2.0 * t)
        return float(np.abs(integral(derivative(f, t), t) - (f - 1.0))[n // 2 :].max())

    assert error_at(256) < 1e-4
    assert measured_order(error_at, (64, 128, 256)) > 1.2
    t = np.linspace(0.0, 1.0, 257)
    inner = integral(np.sin(2.0 * t), t)
    np.testing.assert_allclose(derivative(inner, t)[26:], np.sin(2.0 * t)[26:], atol=2e-3)


def test_two_power_laws_are_the_sum_of_two_derivatives():
    """The derivative with a sum of kernels, of samples at order 3 - a."""
    kernel, _ = KERNELS["two"]

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        right = of_power(3.0, 0.7, t[-1:]) + of_power(3.0, 0.4, t[-1:])
        return float(abs(hf.sonine_derivative(t**3, t, kernel)[-1] - right[0]))

    assert measured_order(error_at) == pytest.approx(2.3, abs=0.15)


def test_kernels_without_an_associated_one_are_refused():
    """Bounded, increasing, not integrable, not positive, and no function."""
    for kernel, reason in (
        (lambda u: np.exp(-u), "it is bounded"),
        (lambda u: u**0.5, "increases from"),
        (lambda u: u**-1.0, "not integrable"),
        (lambda u: -(u**-0.5), "positive"),
        (lambda u: 0.0 * u + 1.0, "decrease"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            hf.sonine_derivative(T, T, kernel)
        with pytest.raises(InvalidInputError, match=reason):
            hf.sonine_integral(T, T, kernel)
    with pytest.raises(InvalidInputError, match="is not a function"):
        hf.SonineDerivative(0.5)
    with pytest.raises(InvalidInputError, match="differs from 1 by"):
        hf.SonineDerivative(lambda u: u**-0.5 + (u < 0.3)).associated(1.0)


@pytest.mark.parametrize("alpha", [0.99, 1.0 - 1e-9])
def test_prabhakar_near_order_1(alpha: float):
    """The kernel has most of its integral before any lag that is a number: of samples, callables and integrals."""
    at, rho, gamma, omega = T[[1, 30, 64]], *SHAPE
    exact = [t ** (1.0 - alpha) * three_parameters(omega * t**rho, rho, 2.0 - alpha, -gamma) for t in at]
    np.testing.assert_allclose(hf.prabhakar(T, T, alpha, *SHAPE)[[1, 30, 64]], exact, rtol=1e-11)
    mu = 1.0 - alpha
    exact = [t ** (1.0 + mu) * three_parameters(omega * t**rho, rho, 2.0 + mu, gamma) for t in at]
    np.testing.assert_allclose(hf.prabhakar_integral(lambda t: t, at, mu, *SHAPE), exact, rtol=1e-11)


def test_a_kernel_that_is_no_power_where_its_integral_counts():
    """With rho and the order near 0 it varies before the smallest lag, and is refused."""
    with pytest.raises(InvalidInputError, match="not proportional to"):
        hf.prabhakar_integral(T, T, 0.001, 0.01)
    np.testing.assert_array_equal(hf.prabhakar_integral(T, T, 0.3, 0.01)[:1], [0.0])


@pytest.mark.parametrize("a", [0.02, 0.97, 0.985])
def test_sonine_kernels_near_both_limits(a: float):
    """Kernels that are nearly bounded, or nearly not integrable, by the closed forms of power laws."""
    at, scale = T[[1, 30, 64]], math.gamma(1.0 - a)
    found = hf.sonine_derivative(T, T, lambda u: u**-a)[[1, 30, 64]]
    np.testing.assert_allclose(found, scale * of_power(1.0, a, at), rtol=1e-11)
    found = hf.sonine_derivative(np.square, at, lambda u: u**-a)
    np.testing.assert_allclose(found, scale * of_power(2.0, a, at), rtol=1e-11)
    found = hf.sonine_integral(lambda t: t, at, lambda u: u**-a)
    np.testing.assert_allclose(found, of_power(1.0, -a, at) / scale, rtol=1e-10)


@pytest.mark.parametrize("origin", [0.0, 1.0])
@pytest.mark.parametrize("factor", [-0.99, -0.5, 0.01, 0.5])
def test_kernels_and_a_declared_power(factor: float, origin: float):
    """Of the distance from the origin, wherever that is, with an estimate that holds."""
    at = np.array([0.25, 2.0])
    rho, gamma, omega = SHAPE

    def f(t: Array) -> Array:
        return np.asarray((t - origin) ** factor)

    options: dict[str, Any] = {"origin": origin, "factor": factor, "full_output": True}
    cases = [(hf.prabhakar_integral, -0.6, gamma)] + [(hf.prabhakar, 0.6, -gamma)] * (factor > 0.0)
    for operator, alpha, third in cases:
        exact = np.array(
            [
                math.gamma(factor + 1.0)
                * t ** (factor - alpha)
                * three_parameters(omega * t**rho, rho, factor + 1.0 - alpha, third)
                for t in at
            ]
        )
        found = operator(f, origin + at, abs(alpha), *SHAPE, **options)
        np.testing.assert_allclose(found.value, exact, rtol=1e-9)
        assert found.converged
        assert (np.abs(found.value - exact) <= 3.0 * found.error_estimate + 1e-14 * np.abs(exact)).all()


@pytest.mark.parametrize("operator", [hf.prabhakar, hf.prabhakar_integral, hf.sonine_derivative, hf.sonine_integral])
def test_kernels_of_unusual_input(operator: Callable[..., Any]):
    """Callables in single precision, which the kernel exceeds; the origin alone; few samples."""
    order = power_law(0.4) if operator in (hf.sonine_derivative, hf.sonine_integral) else 0.6
    single = operator(lambda t: np.cos(t).astype(np.float32), T[[1, 64]], order)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, operator(np.cos, T[[1, 64]], order), atol=1e-5)
    assert operator(np.cos, 0.0, order) == 0.0
    assert operator(np.cos, T[[0, 64]], order)[0] == 0.0
    for n in (2, 5):
        assert np.isfinite(operator(np.ones(n), T[:n], order)).all()


def test_a_kernel_whose_parameter_changed_is_a_new_one():
    """The function is the same object, its values are not: samples, callables and the associated kernel follow them."""
    parameter = {"a": 0.3}

    def kernel(u: Array) -> Array:
        return np.asarray(u ** -parameter["a"])

    for operator in (hf.sonine_derivative, hf.sonine_integral):
        for f, t in ((np.cos(T), T), (np.cos, T[[8, 64]])):
            parameter["a"] = 0.3
            operator(f, t, kernel)
            parameter["a"] = 0.6
            np.testing.assert_allclose(operator(f, t, kernel), operator(f, t, lambda u: u**-0.6), rtol=1e-13)
