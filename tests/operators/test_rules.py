"""Every method for uniform grids: its order of convergence, what it is exact on, what it needs, and its causality."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import FractionalOperator
from hpfracc.operators.core.registry import definitions
from tests.helpers.convergence import measured_order
from tests.helpers.definitions import OPERATORS, orders_of
from tests.helpers.exact import of_exponential, of_polynomial, of_power
from tests.helpers.thinned import thinned

ORDERS = [0.1, 0.25, 0.5, 0.75, 0.9, 1.3, 1.8, 2.5]
#: Nothing of it vanishes at the origin or comes out even.
COEFFICIENTS = [1.0, -2.0, 3.0, -1.0, 2.0, 0.7, -0.3, 0.2]
VANISHING = [0.0, 0.0, *COEFFICIENTS]
Operator = Callable[..., Any]

BY_POLYNOMIAL = [
    *((hf.caputo, method, "caputo") for method in ("l1", "l1-2")),
    *((hf.riemann_liouville, method, "riemann_liouville") for method in ("l1", "l1-2")),
    (hf.grunwald_letnikov, "gl", "riemann_liouville"),
    (hf.grunwald_letnikov, "wsgl", "vanishing"),
    *((hf.riemann_liouville_integral, method, "integral") for method in ("trapezoid", "simpson")),
]


def promised(operator: Operator, method: str, alpha: float) -> float:
    """The order of accuracy that the rule itself declares."""
    kind = "integral" if operator is hf.riemann_liouville_integral else "derivative"
    (found,) = [c for c in definitions(kind).values() if c.definition in operator.__name__]
    return found.rules[method].accuracy(alpha)


def exact(what: str, alpha: float, t: np.ndarray) -> np.ndarray:
    if what == "caputo":
        return of_polynomial(COEFFICIENTS, alpha, t, math.ceil(alpha))
    if what == "integral":
        return of_polynomial(COEFFICIENTS, -alpha, t)
    return of_polynomial(VANISHING if what == "vanishing" else COEFFICIENTS, alpha, t)


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize(("operator", "method", "what"), BY_POLYNOMIAL)
@thinned(lambda alpha: alpha in (0.25, 0.9, 1.3))
def test_converges_at_the_promised_order(operator: Operator, method: str, what: str, alpha: float):
    """At points of [1/2, 1] the error on a polynomial shrinks with the order that the rule declares."""
    coefficients = VANISHING if what == "vanishing" else COEFFICIENTS

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        value = operator(np.polynomial.polynomial.polyval(t, coefficients), t, alpha, method=method)
        return float(np.abs(value - exact(what, alpha, np.maximum(t, 1e-9)))[n // 2 :].max())

    tolerance = 0.2 if alpha <= 0.2 else 0.15
    assert measured_order(error_at) == pytest.approx(promised(operator, method, alpha), abs=tolerance)


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("p", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("operator", [hf.riemann_liouville, hf.riemann_liouville_integral])
@thinned(lambda alpha: alpha in (0.25, 1.3))
def test_convolution_quadrature_converges_at_order_p(operator: Operator, p: int, alpha: float):
    """The same for convolution quadrature, on functions rough enough that rounding does not hide order 6."""
    at = np.array([0.5, 0.625, 0.75, 0.875, 1.0])
    derivative = operator is hf.riemann_liouville
    f = (lambda t: np.sin(15.0 * t)) if derivative else (lambda t: np.exp(5.0 * t))
    right = of_exponential(15.0j, alpha, at).imag if derivative else of_exponential(5.0, -alpha, at).real

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        value = operator(f(t), t, alpha, method=f"cq{p}")
        return float(np.abs(value[n // 2 :: n // 8] - right).max())

    counts = (128, 256, 512) if p < 5 else (104, 152, 200)
    assert promised(operator, f"cq{p}", alpha) == p
    assert measured_order(error_at, counts) == pytest.approx(p, abs=0.2 if alpha <= 0.2 else 0.15)


@pytest.mark.parametrize("s", [0.3, 0.5])
def test_a_rough_start_lowers_the_order(s: float):
    """What the docstrings warn of: on t^s L1-2 has order 1 + s at a fixed t, and none at the first point."""

    def error_at(n: int, point: int = -1) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        return float(abs(hf.caputo(t**s, t, s)[point] - math.gamma(1.0 + s)))

    assert measured_order(error_at) == pytest.approx(1.0 + s, abs=0.15)
    assert measured_order(lambda n: error_at(n, 1)) == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.9, 1.3, 1.8, 2.5])
def test_caputo_of_low_powers_is_exact(alpha: float):
    """Linear interpolation is exact on lines, quadratic on parabolas beyond the first interval's share."""
    t = np.linspace(0.0, 2.0, 41)
    n = math.ceil(alpha)
    for degree in range(n):
        assert np.abs(hf.caputo(t**degree, t, alpha)).max() <= 1e-10
    for method in ("l1", "l1-2"):
        value = hf.caputo(t**n, t, alpha, method=method)
        np.testing.assert_allclose(value, of_power(n, alpha, t), atol=2e-9)


@pytest.mark.parametrize("mu", [0.3, 1.0, 1.7])
@pytest.mark.parametrize(
    ("method", "degree", "start"), [("trapezoid", 1, 0), ("simpson", 2, 2), ("cq2", 1, 1), ("cq4", 3, 3), ("cq6", 5, 5)]
)
@thinned(lambda mu: mu != 1.0)
def test_integrals_are_exact_on_what_they_interpolate(method: str, degree: int, start: int, mu: float):
    """Each rule integrates the polynomials it is made for exactly, from the point on that it has the samples for."""
    t = np.linspace(0.0, 1.0, 301)
    for power in range(degree + 1):
        value = hf.riemann_liouville_integral(t**power, t, mu, method=method)
        np.testing.assert_allclose(value[start:], of_power(power, -mu, t)[start:], rtol=1e-11, atol=1e-13)


def test_riemann_liouville_at_the_origin():
    """Infinite with the sign of f(0) / Gamma(1 - alpha), and 0 where f vanishes."""
    t = np.linspace(0.0, 1.0, 17)
    for method in ("l1-2", "l1", "cq2", "cq5"):
        assert hf.riemann_liouville(np.cos(t), t, 0.5, method=method)[0] == math.inf
        assert hf.riemann_liouville(-np.cos(t), t, 0.5, method=method)[0] == -math.inf
        assert hf.riemann_liouville(np.cos(t), t, 1.5, method=method)[0] == -math.inf
        assert hf.riemann_liouville(np.sin(t), t, 0.5, method=method)[0] == 0.0


def test_rounding_does_not_grow_with_the_step():
    """A Grünwald sum of order 2.5 over 1e4 points is right to 1e-11; summed plainly by FFT it was 2e-5 off."""
    n = 10_000
    t = np.linspace(0.0, 1.0, n + 1)
    x = 1.0 + np.exp(t)

    def series(a: float, count: int) -> np.ndarray:
        """Coefficients of (1 - z)^a in extended precision."""
        k = np.arange(1, count, dtype=np.longdouble)
        return np.cumprod(np.concatenate([[1.0], (k - (a + 1.0)) / k]))

    # The same sum by parts, so that nothing cancels: sums of (1 - z)^a are those of (1 - z)^(a-1).
    head = [np.diff(x[:3].astype(np.longdouble), i)[0] for i in range(3)]
    total = (series(-0.5, n - 2) * np.diff(x.astype(np.longdouble), 3)[::-1]).sum()
    total += sum(difference * series(1.5 - i, n + 1 - i)[-1] for i, difference in enumerate(head))
    assert hf.grunwald_letnikov(x, t, 2.5)[-1] == pytest.approx(float(total * np.longdouble(n) ** 2.5), rel=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", [1, 2, 12])
@pytest.mark.parametrize("alpha", [0.5, 1.5])
def test_non_finite_samples_stay_causal(bad: float, where: int, alpha: float):
    """For every rule: points before a bad sample are right, that point and all later ones are not finite.

    Above order 1 the first points take the first samples, and are not finite if one of those is bad.
    """
    t = np.linspace(0.0, 1.0, 65)
    x = np.cos(t)
    spoilt = x.copy()
    spoilt[where] = bad
    for operator in every_operator():
        for method in operator.rules:
            if alpha not in orders_of(operator, alpha):
                continue
            made = operator(alpha, method=method)  # type: ignore[call-arg]
            right, value = made(x, t), made(spoilt, t)
            told = np.isfinite(value[:where]) if alpha > 1.0 and where < 12 else np.full(where, True)
            np.testing.assert_allclose(value[:where][told], right[:where][told], rtol=1e-9, atol=1e-9, err_msg=method)
            assert not np.isfinite(value[where:]).any(), method


def every_operator() -> list[type[FractionalOperator]]:
    return OPERATORS


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("operator", [hf.caputo, hf.riemann_liouville])
def test_whole_orders_are_ordinary_derivatives(operator: Operator, m: int):
    """A derivative of whole order is exact on polynomials of degree m + 3, at every point."""
    t = np.linspace(0.0, 1.0, 33)
    coefficients = [1.0, 2.0, -1.0, 0.5, 0.25, 0.1, -0.3][: m + 4]
    value = operator(np.polynomial.polynomial.polyval(t, coefficients), t, float(m))
    right = np.polynomial.polynomial.polyval(t, np.polynomial.polynomial.polyder(coefficients, m))
    np.testing.assert_allclose(value, right, atol=1e-8)
