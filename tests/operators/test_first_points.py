"""The first points of orders above 1: right to the order of the rule, or nan where they cannot be known."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import rgamma

import hpfracc as hf
from tests.helpers.thinned import thinned

ORDERS = [1.3, 1.5, 2.5, 3.5, 4.5]
#: Coefficients of a polynomial of higher degree than any that a rule takes for its first points.
COEFFICIENTS = np.array([1.0, -0.7, 0.5, 2.0, -1.0, 0.8, 0.6, -0.4, 0.3])


def powers(p: float, alpha: float, t: Any) -> Any:
    """``D^alpha t^p``."""
    return math.gamma(p + 1.0) * rgamma(p + 1.0 - alpha) * t ** (p - alpha)


def exact(alpha: float, t: Any, caputo: bool) -> Any:
    lowest = math.ceil(alpha) if caputo else 0
    return sum(c * powers(p, alpha, t) for p, c in enumerate(COEFFICIENTS) if p >= lowest)


def bent(h: float) -> np.ndarray:
    """A grid whose steps grow from one point to the next."""
    return h * (np.arange(24.0) + 0.02 * np.arange(24.0) ** 2)


def uniform(h: float) -> np.ndarray:
    return h * np.arange(24.0)


RULES: list[tuple[Callable[..., Any], str, Callable[[float], np.ndarray], float]] = [
    (hf.caputo, "l1-2", uniform, 2.0),
    (hf.caputo, "l1", uniform, 1.0),
    (hf.caputo, "l1", bent, 1.0),
    (hf.caputo, "fast", bent, 1.0),
    (hf.riemann_liouville, "l1-2", uniform, 2.0),
    (hf.riemann_liouville, "l1", bent, 1.0),
    (hf.riemann_liouville, "cq2", uniform, 1.0),
    (hf.riemann_liouville, "cq4", uniform, 2.0),
    (hf.riemann_liouville, "cq6", uniform, 2.0),
]


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize(("operator", "method", "grid", "beyond"), RULES)
@thinned(lambda alpha: alpha in (1.3, 2.5))
def test_every_first_point_converges(
    operator: Callable[..., Any], method: str, grid: Callable[[float], np.ndarray], beyond: float, alpha: float
) -> None:
    """At points 1 .. n + 1 the error shrinks at least like ``h^(n + beyond - alpha)``, the order of the rule.

    The next ones, where the rule itself begins, do not stand out.
    """
    n = math.ceil(alpha)
    errors = []
    for h in (2e-2, 1e-2, 5e-3):
        t = grid(h)
        value = operator(np.polynomial.polynomial.polyval(t, COEFFICIENTS), t, alpha, method=method)
        errors.append(np.abs(value - exact(alpha, np.maximum(t, 1e-9), operator is hf.caputo))[1 : n + 4])
    scale = np.abs(exact(alpha, 5e-3 * np.arange(1.0, n + 4), operator is hf.caputo)).max()
    head = [error[: n + 1] for error in errors]
    # What is left is rounding of the samples, magnified, or falls at the rate of the rule.
    floor = 1e-14 * 2.0 ** (n + 6) * 5e-3**-alpha
    assert (head[2] <= np.maximum(1.3 * head[0] * 4.0 ** -(n + beyond - alpha - 0.4), floor)).all()
    assert errors[2].max() <= 0.05 * scale + floor


@pytest.mark.parametrize("alpha", [1.5, 2.5])
def test_what_used_to_be_zero(alpha: float) -> None:
    """``t^n`` is exact from the first point on, along any axis, and the tempered and logarithmic kin with it."""
    n = math.ceil(alpha)
    t = np.linspace(0.0, 1.0, 11)
    right = powers(n, alpha, t)
    np.testing.assert_allclose(hf.caputo(t**n, t, alpha), right, atol=1e-10)
    np.testing.assert_allclose(hf.caputo(np.stack([t**n, 2 * t**n], 1), t, alpha, axis=0)[:, 1], 2 * right, atol=1e-10)
    np.testing.assert_allclose(hf.psi_caputo(t**n, t, alpha, t), right, atol=1e-10)
    np.testing.assert_allclose(hf.variable_order(t**n, t, np.full(11, alpha)), right, atol=1e-9)
    fading = np.exp(-2.0 * t)
    for operator in (hf.tempered_caputo, hf.tempered):
        np.testing.assert_allclose(operator(t**n * fading, t, alpha, rate=2.0), right * fading, atol=1e-9)
    x = np.geomspace(1.0, np.e, 11)
    for operator in (hf.hadamard, hf.caputo_hadamard):
        np.testing.assert_allclose(operator(np.log(x) ** n, x, alpha), powers(n, alpha, np.log(x)), atol=1e-9)
    np.testing.assert_allclose(hf.marchaud(t**n, t, alpha), right, atol=1e-10)


def test_samples_too_steep_for_the_first_points_are_nan() -> None:
    """A tempered derivative cannot continue samples back over 40 time constants: nan there, later points as before."""
    t = np.linspace(0.0, 100.0, 21)
    value = hf.tempered_caputo(np.sin(t), t, 1.5, rate=9.0)
    assert np.isnan(value[:3]).any()
    assert np.isfinite(value[4:]).all()


@pytest.mark.parametrize("alpha", [1.5, 2.5])
def test_the_origin_of_riemann_liouville_above_order_one(alpha: float) -> None:
    """The lowest power decides: infinite with its sign below the order, 0 above, nan where samples do not tell."""
    for t in (np.linspace(0.0, 0.2, 21), 0.2 * np.linspace(0.0, 1.0, 21) ** 1.2):
        for p in range(4):
            for sign in (1.0, -1.0):
                for method in ("auto", "l1"):
                    found = hf.riemann_liouville(sign * (t**p + t**4), t, alpha, method=method)[0]
                    right = sign * rgamma(p + 1.0 - alpha) * math.inf if p < alpha else 0.0
                    assert found == right, (p, sign)
        assert np.isnan(hf.riemann_liouville(t**1.7, t, alpha)[0])
    for p in range(4):
        right = rgamma(p + 1.0 - alpha) * math.inf if p < alpha else 0.0
        assert hf.riemann_liouville(lambda s, p=p: s**p + s**4, [0.0, 1.0], alpha, rtol=1e-8)[0] == right


def test_whole_orders_have_their_order_at_once() -> None:
    """Differences of order 4 have it at every point: the derivative of a quartic is exact from the first on."""
    for t in (np.linspace(0.0, 1.0, 12), np.linspace(0.0, 1.0, 12) ** 1.3):
        np.testing.assert_allclose(hf.caputo(t**4, t, 1.0), 4.0 * t**3, atol=1e-10)


@pytest.mark.parametrize("grid", [uniform, bent])
def test_gradients_of_the_first_points(grid: Callable[[float], np.ndarray]) -> None:
    """In samples and order by autograd as by differences; a tensor of whole order has its derivative at the origin."""
    torch = importlib.import_module("torch")
    t = grid(0.05)
    x = torch.tensor(np.cos(3.0 * t), requires_grad=True)
    alpha = torch.tensor(1.6, dtype=torch.float64, requires_grad=True)
    for operator in (hf.caputo, hf.riemann_liouville):
        value = operator(x, t, alpha)[1:5]
        np.testing.assert_allclose(value.detach(), operator(x.detach().numpy(), t, 1.6)[1:5], rtol=1e-12)
        in_x, in_alpha = torch.autograd.grad(value.sum(), (x, alpha))
        step = 1e-6
        by_alpha = [operator(x.detach().numpy(), t, 1.6 + s)[1:5].sum() for s in (step, -step)]
        assert float(in_alpha) == pytest.approx((by_alpha[0] - by_alpha[1]) / (2 * step), rel=1e-6)
        unit = 1e-7 * np.eye(24)[3]  # too small to change the choice of the start
        by_x = [operator(x.detach().numpy() + change, t, 1.6)[1:5].sum() for change in (unit, -unit)]
        assert float(in_x[3]) == pytest.approx((by_x[0] - by_x[1]) / 2e-7, rel=1e-5)
        for whole in (1.0, 2.0):
            order = torch.tensor(whole, dtype=torch.float64)
            right = operator(x.detach().numpy(), t, whole)[0]
            assert float(operator(x.detach(), t, order)[0]) == pytest.approx(right, rel=0.1, abs=0.01)


def test_first_points_under_jit() -> None:
    """A traced order gives the same first points, and the derivative at the origin where it happens to be whole."""
    jax = importlib.import_module("jax")
    t = uniform(0.05)
    with jax.enable_x64(True):
        x = jax.numpy.asarray(np.cos(3.0 * t))
        run = jax.jit(lambda alpha: hf.caputo(x, t, alpha, ceiling=2))
        np.testing.assert_allclose(run(1.6), hf.caputo(np.cos(3.0 * t), t, 1.6), rtol=1e-9, atol=1e-9)
        assert float(run(2.0)[0]) == pytest.approx(-9.0, rel=0.1)
