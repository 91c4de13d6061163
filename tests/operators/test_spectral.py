"""Functions given as callables: near machine precision where they are smooth, honest where they are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.exact import caputo_of_exponential, of_exponential, of_power

T = np.linspace(0.0, 10.0, 41)
ORDERS = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.3, 1.8, 2.5]


def worst(value: np.ndarray, right: np.ndarray) -> float:
    """The largest error relative to the largest value."""
    return float(np.abs(value - right).max() / (np.abs(right).max() or 1.0))


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("name", ["exp", "sin"])
def test_smooth_functions_on_a_long_interval(name: str, alpha: float):
    """Caputo of exp and sin on [0, 10]: 1e-11 of the largest value up to order 1, 1e-8 up to 2.5; estimated so too."""
    f, rate = (np.exp, 1.0) if name == "exp" else (np.sin, 1.0j)
    exact = caputo_of_exponential(rate, alpha, T)
    right = exact.real if name == "exp" else exact.imag
    if alpha == 1.0:
        right = np.exp(T) if name == "exp" else np.cos(T)
    result = hf.caputo(f, T, alpha, full_output=True)
    error = worst(result.value, right)
    assert result.method == "spectral"
    assert result.converged
    assert error <= (1e-11 if alpha <= 1.0 else 1e-8)
    assert error <= 10.0 * result.error_estimate / np.abs(right).max() + 1e-15


@pytest.mark.parametrize("s", [-0.5, 0.3, 1.5])
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.2])
def test_integrals_with_a_factor(s: float, mu: float):
    """``t^s cos t`` integrates to machine precision with its factor declared, an integrable pole included."""
    at = T[1:9]
    terms = [(-1) ** k / math.factorial(2 * k) * of_power(s + 2 * k, -mu, at) for k in range(40)]
    value = hf.riemann_liouville_integral(lambda t: t**s * np.cos(t), at, mu, factor=s)
    assert worst(value, np.sum(terms, axis=0)) <= 1e-13


@pytest.mark.parametrize("alpha", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("operator", [hf.riemann_liouville, hf.grunwald_letnikov])
def test_initial_terms(operator: Callable[..., Any], alpha: float):
    """Riemann-Liouville, and the limit of Grünwald's sums, of exp: with its initial terms, infinite at the origin."""
    value = operator(np.exp, T, alpha)
    assert value[0] == (-1.0) ** (math.ceil(alpha) - 1) * math.inf
    assert worst(value[1:], of_exponential(1.0, alpha, T[1:]).real) <= 1e-9


def test_shapes_and_kinds_of_points():
    """A number gives a number, a list a row, several functions at once a stack along any axis."""
    one = hf.caputo(np.exp, 1.0, 0.5)
    assert np.shape(one) == ()
    assert hf.caputo(np.exp, [0.5, 1.0], 0.5)[1] == pytest.approx(float(one), rel=1e-13)
    both = hf.caputo(lambda t: np.stack([np.exp(t), np.sin(t)]), T[1:5], 0.5)
    assert both.shape == (2, 4)
    turned = hf.caputo(lambda t: np.stack([np.exp(t), np.sin(t)], axis=1), T[1:5], 0.5, axis=0)
    np.testing.assert_allclose(turned.T, both, rtol=1e-12)
    np.testing.assert_allclose(both[1], hf.caputo(np.sin, T[1:5], 0.5), rtol=1e-11)


def test_complex_callables_and_other_origins():
    """exp(it) from the origin 2 is the real answer shifted."""
    t = np.linspace(2.0, 5.0, 7)
    value = hf.caputo(lambda s: np.exp(1j * (s - 2.0)), t, 0.5, origin=2.0)
    right = caputo_of_exponential(1.0j, 0.5, t - 2.0)
    np.testing.assert_allclose(value, right, atol=1e-12)
    assert hf.caputo(np.sin, t, 0.5, origin=2.0, full_output=True).origin == 2.0
    assert hf.caputo(np.sin, t, 0.5, full_output=True).origin == 0.0


def test_few_evaluations_suffice():
    """exp on [0, 1] takes some tens of evaluations, and the function is never asked outside the interval."""
    asked = []

    def f(t: np.ndarray) -> np.ndarray:
        asked.extend(t.tolist())
        return np.exp(t)

    hf.caputo(f, np.linspace(0.0, 1.0, 1000), 0.5)
    assert len(asked) <= 64
    assert 0.0 <= min(asked) <= max(asked) <= 1.0


@pytest.mark.parametrize("s", [0.3, 0.9])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_an_undeclared_power_falls_to_the_graded_mesh(s: float, alpha: float):
    """Where one polynomial does not converge the result says so, and the graded mesh is right to 1e-9 all the same."""
    result = hf.caputo(lambda t: t**s, T, alpha, full_output=True)
    assert result.method == "graded"
    assert "one polynomial did not converge" in result.message
    np.testing.assert_allclose(result.value[1:], of_power(s, alpha, T[1:]), rtol=1e-9)


def test_kinks_and_jumps_on_the_graded_mesh():
    """|t - 3| and a step at 3: derivatives below and above order 1 include what the kink and the jump contribute."""
    at = np.array([1.0, 2.0, 3.5, 5.0, 9.0])
    beyond = np.maximum(at - 3.0, 0.0)
    kink = hf.caputo(lambda t: np.abs(t - 3.0), at, 0.5)
    np.testing.assert_allclose(kink, -of_power(1, 0.5, at) + 2.0 * of_power(1, 0.5, beyond), atol=1e-9)
    bent = hf.caputo(lambda t: np.abs(t - 3.0), at, 1.5)
    np.testing.assert_allclose(bent, 2.0 * (at > 3.0) * of_power(1, 1.5, np.where(at > 3.0, beyond, 1.0)), atol=1e-6)
    step = hf.riemann_liouville_integral(lambda t: np.where(t > 3.0, 1.0, 0.0), at, 0.7)
    np.testing.assert_allclose(step, of_power(0, -0.7, beyond), atol=1e-9)


def test_jax_callables():
    """A callable of JAX arrays gives JAX arrays; traced, it runs blind and is still right."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    with jax.enable_x64(True):
        t = jnp.linspace(0.0, 2.0, 5)
        value = hf.caputo(jnp.sin, t, 0.5)
        assert isinstance(value, jax.Array)
        np.testing.assert_allclose(np.asarray(value), hf.caputo(np.sin, np.asarray(t), 0.5), atol=1e-12)

        def total(rate: Any) -> Any:
            return hf.caputo(lambda s: jnp.exp(rate * s), t, 0.5).sum()

        up, down = (float(total(1.0 + e)) for e in (1e-6, -1e-6))
        assert float(jax.jit(jax.grad(total))(1.0)) == pytest.approx((up - down) / 2e-6, rel=1e-6)


def test_the_error_estimate_knows_what_was_dropped():
    """On a short interval the second derivative of exp is below rounding: the estimate says so instead of 0."""
    found = hf.caputo(np.exp, 1e-6, 2.5, full_output=True)
    exact = 1e-6**0.5 / math.gamma(1.5)
    assert abs(found.value - exact) <= found.error_estimate


@pytest.mark.parametrize("mu", [0.3, 1e-4, 1e-9, 1e-13, 1e-15, 1e-17, 1e-300])
def test_integrals_of_small_order_on_the_graded_mesh(mu: float):
    """To rounding, also where mu - 1 is -1; and derivatives as near to an integer order."""
    at = np.array([0.01, 0.5, 2.0])
    found = hf.riemann_liouville_integral(np.sqrt, at, mu, method="graded", full_output=True)
    np.testing.assert_allclose(found.value, of_power(0.5, -mu, at), rtol=1e-13)
    assert float(found.error_estimate) < 1e-12
    np.testing.assert_allclose(
        hf.caputo(lambda t: t**1.5, at, 1.0 - mu, method="graded"), of_power(1.5, 1.0 - mu, at), rtol=1e-10
    )


@pytest.mark.parametrize("operator", [hf.riemann_liouville, hf.marchaud, hf.grunwald_letnikov])
def test_the_origin_on_the_graded_mesh(operator: Callable[..., Any]):
    """Infinite with the sign of f there, as for samples and smooth f; 0 for f that vanishes; nan if it is not known."""
    at = np.array([0.0, 0.5, 1.0])
    for f, below, above in (
        (lambda t: np.abs(t - 0.3), math.inf, -math.inf),
        (lambda t: np.sqrt(t) - 1.0, -math.inf, math.inf),
        (lambda t: np.abs(t - 0.3) - 0.3, 0.0, -math.inf),
        (lambda t: np.maximum(t - 0.3, 0.0), 0.0, 0.0),
        (np.sqrt, 0.0, math.nan),
    ):
        for alpha, right in ((0.4, below), (1.6, above)):
            found = operator(f, at, alpha, method="graded", full_output=True).value[0]
            np.testing.assert_equal(float(found) + 0.0, right)
    assert hf.riemann_liouville(np.sqrt, at, -0.4)[0] == 0.0  # an integral


def test_orders_above_the_degree_of_the_polynomials():
    """The derivative of order 16 and more of 16 coefficients is no 0 that is certain."""
    for alpha in (15.5, 16.0, 20.5):
        found = hf.caputo(np.sin, 1.0, alpha, full_output=True)
        assert not found.converged
        assert found.error_estimate > 1.0
        with pytest.raises(hf.errors.InvalidInputError, match="up to order 15"):
            hf.caputo(np.sin, 1.0, alpha, method="graded")
    with pytest.raises(hf.errors.InvalidInputError, match="512 terms"):
        hf.caputo(np.sin, 1.0, 600.5)
