"""Each definition against its closed forms: the order of convergence of every method, callables, and its own ways."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from tests.helpers.convergence import measured_order
from tests.helpers.exact import of_polynomial, of_power
from tests.helpers.thinned import thinned

ORDERS = [0.1, 0.25, 0.5, 0.75, 0.9, 1.3, 1.8, 2.5]
BELOW_ONE = [0.1, 0.25, 0.5, 0.75, 0.9]
#: Of x = log t, psi(t) or t, wherever the operator is a power of it.
COEFFICIENTS = [1.0, -2.0, 3.0, -1.0, 2.0, 0.7, -0.3, 0.2]
RATE = 3.0
Array = np.ndarray[Any, Any]


def polynomial(x: Array) -> Array:
    return np.polynomial.polynomial.polyval(x, COEFFICIENTS)


def tolerance(alpha: float) -> float:
    return 0.2 if alpha <= 0.2 else 0.15


@cache
def memory_of_power(p: int, alpha: float, t: float, kernel: str) -> float:
    """The integral of the derivative of s^p against either kernel, over 1 - alpha, by its series in many digits."""
    step = alpha if kernel == "mittag_leffler" else 1.0
    size = (alpha / (1.0 - alpha) * t**step) ** (1.0 / step)
    with mpmath.workdps(25 + int(0.9 * size)):
        a = mpmath.mpf(alpha)
        z, step = -a / (1 - a) * mpmath.mpf(t) ** step, mpmath.mpf(step)
        total, power, k = mpmath.mpf(0), mpmath.mpf(1), 0
        while k < 20 or abs(term) > mpmath.eps:  # noqa: F821 (set in the first round)
            term = power * mpmath.rgamma(step * k + p + 1)
            total, power, k = total + term, power * z, k + 1
        return float(mpmath.factorial(p) * mpmath.mpf(t) ** p * total / (1 - a))


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("method", ["l1", "l1-2"])
@pytest.mark.parametrize(
    "name", ["hadamard", "caputo_hadamard", "psi_caputo", "marchaud", "tempered", "tempered_caputo"]
)
@thinned(lambda alpha: alpha in (0.25, 1.3))
def test_power_law_memories_converge_at_the_promised_order(name: str, method: str, alpha: float):
    """Of polynomials in the operator's own variable, at points of the second half; as the rule declares."""
    operator, caputo = getattr(hf, name), "caputo" in name
    lowest = math.ceil(alpha) if caputo else 0

    def error_at(n: int) -> float:
        x = np.linspace(0.0, 1.0, n + 1)
        right = of_polynomial(COEFFICIENTS, alpha, np.maximum(x, 1e-9), lowest)
        options: dict[str, Any] = {"method": method}
        t, values = x, polynomial(x)
        if "hadamard" in name:
            t = 2.0 * np.exp(x)
        elif name == "psi_caputo":
            t, options["psi"] = np.sqrt(x), np.square
        elif "tempered" in name:
            options["rate"] = RATE
            values, right = values * np.exp(-RATE * x), right * np.exp(-RATE * x)
        else:
            options["before"] = 0.0
        return float(np.abs(operator(values, t, alpha, **options) - right)[n // 2 :].max())

    promised = math.ceil(alpha) + (1 if method == "l1" else 2) - alpha
    assert measured_order(error_at) == pytest.approx(promised, abs=tolerance(alpha))


@pytest.mark.parametrize(
    ("name", "mu"),
    [
        *((name, mu) for name in ("hadamard_integral", "tempered_integral") for mu in (0.25, 0.75, 1.3)),
        *(("atangana_baleanu_integral", mu) for mu in (0.25, 0.75)),
    ],
)
@pytest.mark.parametrize(("method", "order"), [("trapezoid", 2.0), ("simpson", None), ("cq3", 3.0)])
@thinned(lambda mu: mu == 0.75)
def test_integrals_converge_at_the_promised_order(name: str, method: str, order: float | None, mu: float):
    """The rules of Riemann-Liouville's integral keep their orders."""
    operator = getattr(hf, name)

    def error_at(n: int) -> float:
        x = np.linspace(0.0, 1.0, n + 1)
        right, values, options = of_polynomial(COEFFICIENTS, -mu, x), polynomial(x), {}
        t = np.exp(x) if "hadamard" in name else x
        if "tempered" in name:
            values, right, options = values * np.exp(-RATE * x), right * np.exp(-RATE * x), {"rate": RATE}
        elif "atangana" in name:
            right = (1.0 - mu) * values + mu * right
        return float(np.abs(operator(values, t, mu, method=method, **options) - right)[n // 2 :].max())

    assert measured_order(error_at) == pytest.approx(order or min(3.0 + mu, 4.0), abs=0.15)


@pytest.mark.parametrize("alpha", BELOW_ONE)
@pytest.mark.parametrize(("method", "order"), [("linear", 2.0), ("quadratic", 3.0)])
@pytest.mark.parametrize("name", ["caputo_fabrizio", "atangana_baleanu", "atangana_baleanu_riemann"])
@thinned(lambda alpha: alpha in (0.25, 0.9))
def test_bounded_memories_converge_at_the_promised_order(name: str, method: str, order: float, alpha: float):
    """Of 2 + t^2 - t^4 on [0, 2], against mpmath's series of the kernel."""
    operator = getattr(hf, name)
    kernel = "exponential" if name == "caputo_fabrizio" else "mittag_leffler"
    at = np.array([1.0, 1.5, 2.0])
    powers = ((2, 1.0), (4, -1.0)) + (((0, 2.0),) if name.endswith("riemann") else ())
    right = [sum(c * memory_of_power(p, alpha, t, kernel) for p, c in powers) for t in at]

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 2.0, n + 1)
        value = operator(2.0 + t**2 - t**4, t, alpha, method=method)
        return float(np.abs(value[[n // 2, 3 * n // 4, n]] - right).max())

    assert measured_order(error_at) == pytest.approx(order, abs=tolerance(alpha))


@pytest.mark.parametrize(("first", "last"), [(0.05, 0.2), (0.3, 0.5), (0.8, 0.55), (1.2, 1.8), (2.6, 2.3)])
@pytest.mark.parametrize("method", ["l1", "l1-2"])
@thinned(one_in=2)
def test_order_at_the_present_converges(method: str, first: float, last: float):
    """Variable order, type t: the order of the rule at the order of that point."""

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        value = hf.variable_order(polynomial(t), t, lambda t: first + (last - first) * t, method=method)[-1]
        return float(abs(value - of_polynomial(COEFFICIENTS, last, np.ones(1), math.ceil(last))[0]))

    promised = math.ceil(last) + (1 if method == "l1" else 2) - last
    assert measured_order(error_at) == pytest.approx(promised, abs=tolerance(last))


@pytest.mark.parametrize(("first", "last"), [(0.3, 0.5), (1.2, 1.7)])
def test_order_at_the_present_on_a_graded_grid(first: float, last: float):
    """The same by the rule for any grid, and agreeing with Caputo's there where it is constant."""

    def error_at(n: int) -> float:
        t = hf.graded_grid(1.0, n, 1.5)
        value = hf.variable_order(polynomial(t), t, lambda t: first + (last - first) * t)[-1]
        return float(abs(value - of_polynomial(COEFFICIENTS, last, np.ones(1), math.ceil(last))[0]))

    assert measured_order(error_at) == pytest.approx(math.ceil(last) + 1 - last, abs=0.15)
    t = hf.graded_grid(2.0, 100, 1.5)
    right = hf.caputo(np.cos(t), t, last)
    np.testing.assert_allclose(hf.variable_order(np.cos(t), t, last), right, atol=1e-11 * np.abs(right).max())


@pytest.mark.parametrize("at", ["s", "t-s"])
@pytest.mark.parametrize("near", [0.1, 0.25, 0.5, 0.75, 0.9])
@thinned(lambda near: near in (0.25, 0.9))
def test_order_at_the_past_and_of_the_lag_converge(at: str, near: float):
    """Types s and t-s, against mpmath's quadrature of the definition; ``near`` is the order at the newest past."""
    far = near - 0.05

    def order(x: Any) -> Any:
        return far + (near - far) * x if at == "s" else near + (far - near) * x

    def integrand(u: Any) -> Any:
        a = order(1 - u) if at == "s" else order(u)
        return u**-a * mpmath.rgamma(1 - a) * (3 * (1 - u) ** 2 + 1)

    right = float(mpmath.quad(lambda w: integrand(w**12) * 12 * w**11, [0, 0.5, 1]))

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1)
        return float(abs(hf.variable_order(t**3 + t, t, order, at=at)[-1] - right))

    assert measured_order(error_at) == pytest.approx(2.0 - near, abs=tolerance(near))
    if at == "s":
        assert hf.variable_order(lambda s: s**3 + s, 1.0, order, at="s") == pytest.approx(right, rel=1e-9)


@pytest.mark.parametrize("at", ["t", "s", "t-s"])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.95, 1.0])
@thinned(lambda alpha: alpha in (0.5, 1.0))
def test_a_constant_variable_order_is_caputo(at: str, alpha: float):
    """Where alpha is constant all three are Caputo's L1, to rounding; and L1-2 too for at="t"."""
    t = np.linspace(0.0, 1.0, 1001)
    x = np.cos(3.0 * t)
    for method in ("l1", "l1-2") if at == "t" else ("l1",):
        right = hf.caputo(x, t, alpha - 1e-16, method=method) if alpha < 1.0 else None
        value = hf.variable_order(x, t, np.full(1001, alpha), at=at, method=method)
        if right is not None:
            np.testing.assert_allclose(value, right, atol=2e-12 * np.abs(right).max())
        elif method == "l1":
            np.testing.assert_allclose(value[1:], np.diff(x) / 1e-3, atol=1e-11)


CALLABLES: dict[str, tuple[Callable[[Array, float], Array], Callable[[Array, float], Array]]] = {
    "hadamard": (
        lambda t, a: hf.hadamard(lambda s: np.log(s / 2.0) ** 3, t, a, origin=2.0),
        lambda t, a: of_power(3, a, np.log(t / 2.0)),
    ),
    "caputo_hadamard": (
        lambda t, a: hf.caputo_hadamard(lambda s: 5.0 + np.log(s / 2.0) ** 3, t, a, origin=2.0),
        lambda t, a: of_power(3, a, np.log(t / 2.0)),
    ),
    "hadamard_integral": (
        lambda t, a: hf.hadamard_integral(lambda s: np.log(s / 2.0) ** 3, t, a, origin=2.0),
        lambda t, a: of_power(3, -a, np.log(t / 2.0)),
    ),
    "psi_caputo": (
        lambda t, a: hf.psi_caputo(lambda s: 1.0 + s**6, t, a, np.square),
        lambda t, a: of_power(3, a, t**2),
    ),
    "psi_caputo with its inverse": (
        lambda t, a: hf.psi_caputo(lambda s: 1.0 + s**6, t, a, np.square, inverse=np.sqrt),
        lambda t, a: of_power(3, a, t**2),
    ),
    "marchaud": (
        lambda t, a: hf.marchaud(lambda s: 2.0 + s**3, t, a, before=-1.0),
        lambda t, a: of_power(3, a, t) + 3.0 * of_power(0, a, t),
    ),
    "tempered": (
        lambda t, a: hf.tempered(lambda s: s**3 * np.exp(-RATE * s), t, a, RATE),
        lambda t, a: of_power(3, a, t) * np.exp(-RATE * t),
    ),
    "tempered_caputo": (
        lambda t, a: hf.tempered_caputo(lambda s: (4.0 + s**3) * np.exp(-RATE * s), t, a, RATE),
        lambda t, a: of_power(3, a, t) * np.exp(-RATE * t),
    ),
    "tempered_integral": (
        lambda t, a: hf.tempered_integral(lambda s: s**3 * np.exp(-RATE * s), t, a, RATE),
        lambda t, a: of_power(3, -a, t) * np.exp(-RATE * t),
    ),
    "variable_order": (
        lambda t, a: hf.variable_order(lambda s: s**3, t, lambda s: a + 0.02 * s),
        lambda t, a: np.array([of_power(3, a + 0.02 * x, x) for x in t]),
    ),
}


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.3])
@pytest.mark.parametrize("name", CALLABLES)
@thinned(lambda alpha: alpha in (0.5, 1.3))
def test_callables_of_power_law_memories(name: str, alpha: float):
    """Near machine precision, against closed forms."""
    t = np.array([2.5, 3.0, 5.0])
    value, right = (make(t, alpha) for make in CALLABLES[name])
    np.testing.assert_allclose(value, right, atol=3e-10 * np.abs(right).max(), rtol=0)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("name", ["caputo_fabrizio", "atangana_baleanu", "atangana_baleanu_riemann"])
@thinned(one_in=2)
def test_callables_of_bounded_memories(name: str, alpha: float):
    """1 + t^3, by quadrature, against mpmath's series; the estimate bounds the error."""
    kernel = "exponential" if name == "caputo_fabrizio" else "mittag_leffler"
    result = getattr(hf, name)(lambda s: 1.0 + s**3, [0.0, 0.5, 2.0], alpha, full_output=True)
    first = 1.0 / (1.0 - alpha) if name.endswith("riemann") else 0.0
    extra = [memory_of_power(0, alpha, t, kernel) if first else 0.0 for t in (0.5, 2.0)]
    right = np.array(
        [first, *(memory_of_power(3, alpha, t, kernel) + e for t, e in zip((0.5, 2.0), extra, strict=True))]
    )
    assert result.converged and result.method == "quadrature"
    error = np.abs(result.value - right).max()
    assert error <= 1e-12 * np.abs(right).max()
    assert error <= result.error_estimate + 1e-14 * np.abs(right).max()


@pytest.mark.parametrize("name", ["caputo_fabrizio", "atangana_baleanu"])
def test_normalisation(name: str):
    """M or B, a number or a function of the order, multiplies the derivative and divides the integral."""
    t = np.linspace(0.0, 1.0, 33)
    x = np.cos(t)
    derivative, integral = getattr(hf, name), getattr(hf, f"{name}_integral")

    def losada_nieto(a: Any) -> Any:
        return 2.0 / (2.0 - a)

    for norm in (losada_nieto, 2.0 / 1.6):
        result = derivative(x, t, 0.4, normalisation=norm, full_output=True)
        plain = derivative(x, t, 0.4, full_output=True)
        np.testing.assert_allclose(result.value, 1.25 * plain.value, rtol=1e-14)
        np.testing.assert_allclose(result.error_estimate[2:], 1.25 * plain.error_estimate[2:], rtol=1e-12)
        np.testing.assert_allclose(integral(x, t, 0.4, normalisation=norm), integral(x, t, 0.4) / 1.25, rtol=1e-14)
        np.testing.assert_allclose(
            derivative(np.cos, t, 0.4, normalisation=norm), 1.25 * derivative(np.cos, t, 0.4), atol=1e-14
        )


@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_integrals_undo_derivatives(alpha: float):
    """I D f = f - f(0) in Caputo's sense, f in Riemann's."""
    t = np.linspace(0.0, 1.0, 801)
    x = 2.0 + np.sin(3.0 * t)
    np.testing.assert_allclose(
        hf.caputo_fabrizio_integral(hf.caputo_fabrizio(x, t, alpha), t, alpha), x - x[0], atol=1e-7
    )
    back = hf.atangana_baleanu_integral(hf.atangana_baleanu(x, t, alpha), t, alpha)
    np.testing.assert_allclose(back[80:], (x - x[0])[80:], atol=1e-4)
    back = hf.atangana_baleanu_integral(hf.atangana_baleanu_riemann(x, t, alpha), t, alpha)
    np.testing.assert_allclose(back[80:], x[80:], atol=5e-3)
    back = hf.tempered(hf.tempered_integral(x, t, alpha, RATE), t, alpha, RATE)
    np.testing.assert_allclose(back[80:], x[80:], atol=5e-3)


ZERO_ON_CONSTANTS: dict[str, Callable[[Array, float], Any]] = {
    "caputo_hadamard": lambda x, a: hf.caputo_hadamard(x, step=0.1, alpha=a),
    "psi_caputo": lambda x, a: hf.psi_caputo(x, np.sqrt(np.arange(len(x))), a, np.square),
    "marchaud": lambda x, a: hf.marchaud(x, step=0.1, alpha=a, before="first"),
    "caputo_fabrizio": lambda x, a: hf.caputo_fabrizio(x, step=0.1, alpha=a),
    "atangana_baleanu": lambda x, a: hf.atangana_baleanu(x, step=0.1, alpha=a),
    **{
        f"variable_order at {at}": lambda x, a, at=at: hf.variable_order(x, step=0.1, alpha=np.full(len(x), a), at=at)
        for at in ("t", "s", "t-s")
    },
}


@pytest.mark.parametrize("name", ZERO_ON_CONSTANTS)
@pytest.mark.parametrize("value", [1.0, -12345.678])
def test_exactly_zero_on_constants(name: str, value: float):
    """Not small: zero, for every definition in Caputo's sense."""
    for alpha in (0.1, 0.5, 0.9):
        assert not ZERO_ON_CONSTANTS[name](np.full(100, value), alpha).any()


def test_whole_orders_are_ordinary_derivatives():
    """Order 1 of each, and the limit from below: t d/dt, d/dpsi, d/dt, d/dt + rate."""
    t = np.linspace(1.0, 2.0, 401)
    even, x = np.geomspace(1.0, 2.0, 401), np.sin(3.0 * t)
    slope = 3.0 * np.cos(3.0 * t)
    for alpha, atol in ((1.0, 1e-6), (1.0 - 1e-6, 1e-2)):
        np.testing.assert_allclose(
            hf.caputo_hadamard(np.sin(3.0 * even), even, alpha)[9:], (3.0 * even * np.cos(3.0 * even))[9:], atol=atol
        )
        root = np.sqrt(np.linspace(1.0, 4.0, 401))
        np.testing.assert_allclose(
            hf.psi_caputo(np.sin(3.0 * root), root, alpha, np.square)[9:],
            (1.5 * np.cos(3.0 * root) / root)[9:],
            atol=atol,
        )
        for name in ("caputo_fabrizio", "atangana_baleanu", "atangana_baleanu_riemann", "marchaud"):
            value = getattr(hf, name)(x, t, alpha)
            far = 200 if "riemann" in name else 9
            np.testing.assert_allclose(value[far:], slope[far:], atol=atol, err_msg=name)
        value = hf.tempered_caputo(x, t, alpha, RATE)
        np.testing.assert_allclose(value[9:], (slope + RATE * x)[9:], atol=2 * atol)
    np.testing.assert_allclose(hf.tempered(x, t, 2.0, RATE)[9:], (9 * x - 9 * x + 6 * slope)[9:], atol=1e-4)
    for name in ("caputo_fabrizio", "atangana_baleanu", "atangana_baleanu_riemann"):
        np.testing.assert_allclose(getattr(hf, name)(np.sin, t, 1.0), np.cos(t), atol=1e-11)


def test_marchaud_is_what_it_says():
    """Its integral by mpmath, f being c before the origin: for a jump, for none, and for c = 0."""
    alpha, at = 0.6, 0.8

    def right(before: float) -> float:
        here = math.cos(at)
        # cos(at) - cos(at - u), over u
        change = lambda u: -mpmath.sin(at - u / 2) * mpmath.sinc(u / 2)  # noqa: E731
        inner = mpmath.quad(lambda w: change(w**5) * w ** (-5 * alpha) * 5 * w**4, [0, at ** (1 / 5)])
        outer = (here - before) / (alpha * at**alpha)
        return float((inner + outer) * alpha / mpmath.gamma(1 - alpha))

    t = np.linspace(0.0, at, 801)
    for before, number in ((0.0, 0.0), (0.3, 0.3), ("first", 1.0)):
        assert hf.marchaud(np.cos, at, alpha, before=before) == pytest.approx(right(number), rel=1e-12)
        assert hf.marchaud(np.cos(t), t, alpha, before=before)[-1] == pytest.approx(right(number), rel=1e-5)
    np.testing.assert_array_equal(hf.marchaud(np.cos(t), t, alpha), hf.riemann_liouville(np.cos(t), t, alpha))
    np.testing.assert_allclose(
        hf.marchaud(np.cos(t), t, alpha, before="first"), hf.caputo(np.cos(t), t, alpha), atol=1e-12
    )
    stack = np.stack([np.cos(t), np.sin(t)])
    both = hf.marchaud(stack, t, alpha, before=np.array([[1.0], [0.5]]))
    np.testing.assert_allclose(both[1, 1:], hf.marchaud(np.sin(t), t, alpha, before=0.5)[1:], rtol=1e-12)
    two = hf.marchaud(lambda s: np.stack([np.cos(s), np.sin(s)], axis=-1), t[1:], alpha, before="first", axis=0)
    np.testing.assert_allclose(two[:, 1], hf.marchaud(np.sin, t[1:], alpha, before="first"), atol=1e-12)


def test_tempering_does_not_overflow():
    """exp(rate t) = exp(1e4) never appears: far from the origin the answer is that of the whole line."""
    t = np.linspace(0.0, 1000.0, 100_001)
    x = np.cos(t)
    for value, power in (
        (hf.tempered(x, t, 0.5, 10.0), 0.5),
        (hf.tempered_caputo(x, t, 1.5, 10.0), 1.5),
        (hf.tempered_integral(x, t, 0.5, 10.0), -0.5),
    ):
        right = ((10.0 + 1.0j) ** power * np.exp(1j * t)).real
        assert np.isfinite(value[1:]).all()
        assert np.abs(value - right)[1000:].max() < 2e-3 * np.abs(right).max()
    at = np.array([1.0, 700.0, 1500.0])
    value = hf.tempered(np.cos, at, 0.5, 100.0)
    np.testing.assert_allclose(value, ((100.0 + 1.0j) ** 0.5 * np.exp(1j * at)).real, rtol=1e-11)
    result = hf.tempered_integral(np.cos, np.linspace(0.0, 40.0, 30), 0.7, 2.0, full_output=True)
    assert result.converged
    right = [
        float(mpmath.quad(lambda u, s=s: u**-0.3 * mpmath.exp(-2 * u) * mpmath.cos(s - u), [0, 0.1, 1, 10]))
        / math.gamma(0.7)
        for s in (40.0,)
    ]
    assert result.value[-1] == pytest.approx(right[0], rel=1e-7)


@pytest.mark.parametrize("alpha", [0.4, 1.6])
def test_centred_tempered_derivative(alpha: float):
    """Far from the origin its symbol is (rate + ik)^alpha less the start of its series; it vanishes on constants."""
    t = np.linspace(0.0, 20.0, 4001)
    k, rate = 1.5, 2.0
    symbol = (rate + 1j * k) ** alpha - rate**alpha - (alpha * rate ** (alpha - 1.0) * 1j * k if alpha > 1.0 else 0.0)
    right = (symbol * np.exp(1j * k * t)).real
    value = hf.tempered(np.cos(k * t), t, alpha, rate, centred=True)
    np.testing.assert_allclose(value[3000:], right[3000:], atol=2e-4)
    at = np.array([15.0, 20.0])
    exact = (symbol * np.exp(1j * k * at)).real
    np.testing.assert_allclose(hf.tempered(lambda s: np.cos(k * s), at, alpha, rate, centred=True), exact, atol=1e-9)
    assert np.abs(hf.tempered(np.ones(4001), t, alpha, rate, centred=True)[3000:]).max() < 1e-4


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("name", ["tempered", "tempered_caputo", "tempered_integral"])
def test_tempered_on_a_graded_grid(name: str, alpha: float):
    """Order 2 - alpha (2 for the integral) where every step has its own length, far along too without overflow."""
    sign = -1.0 if name == "tempered_integral" else 1.0
    lowest = 1 if name == "tempered_caputo" else 0
    right = of_polynomial(COEFFICIENTS, sign * alpha, np.ones(1), lowest)[0] * math.exp(-RATE)

    def error_at(n: int) -> float:
        t = np.linspace(0.0, 1.0, n + 1) ** 1.3
        return float(abs(getattr(hf, name)(polynomial(t) * np.exp(-RATE * t), t, alpha, RATE)[-1] - right))

    assert measured_order(error_at) == pytest.approx(2.0 if sign < 0 else 2.0 - alpha, abs=tolerance(alpha))
    far = 500.0 * np.linspace(0.0, 1.0, 201) ** 2
    assert np.isfinite(getattr(hf, name)(np.cos(far), far, alpha, 10.0)[1:]).all()


def test_tempered_gradients_on_any_grid():
    """In samples, order and rate, where the grid is not uniform; orders above 1 are refused there."""
    torch = pytest.importorskip("torch")
    t = np.linspace(0.0, 1.0, 12) ** 1.5
    inputs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (np.cos(t), 0.4, 1.5)]
    for operator in (hf.tempered, hf.tempered_caputo, hf.tempered_integral):
        assert torch.autograd.gradcheck(lambda x, a, r, op=operator: op(x, t, a, r)[1:], inputs, atol=1e-5)
    with pytest.raises(hf.errors.InvalidInputError, match=r"of order 1.4 needs a uniform grid; on any other"):
        hf.tempered(np.cos(t), t, 1.4)


def test_a_variable_order_refuses_a_step_that_moves_its_points():
    """A function of the points is called with numbers, so a derivative in the step would be half of it: refused."""
    torch = pytest.importorskip("torch")
    step = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(InvalidInputError, match="detach the step"):
        hf.variable_order(torch.ones(9, dtype=torch.float64), step=step, alpha=lambda t: 0.5 + 0.1 * t)


def test_variable_orders_against_the_sums_written_out():
    """The fast sums are the plain ones: order at t row by row; the other two by the kernel's pieces."""
    t = np.linspace(0.0, 1.0, 41)
    x, h, alpha = np.sin(5.0 * t), 1.0 / 40, 0.3 + 0.5 * t**2
    steps = np.diff(x)
    right = np.zeros(41)
    for k in range(1, 41):
        lag = np.arange(k)[::-1]
        p = 1.0 - alpha[k]
        right[k] = ((lag + 1.0) ** p - lag**p) @ steps[:k] * h ** -alpha[k] / math.gamma(1.0 + p)
    np.testing.assert_allclose(hf.variable_order(x, t, alpha, method="l1"), right, atol=1e-13)


def test_rate_zero_is_no_tempering():
    """With rate 0 the tempered operators are the plain ones."""
    t = np.linspace(0.0, 1.0, 65)
    x = np.cos(t)
    for alpha in (0.4, 1.6):
        np.testing.assert_allclose(hf.tempered_caputo(x, t, alpha, 0.0), hf.caputo(x, t, alpha), atol=1e-11)
        np.testing.assert_allclose(
            hf.tempered(x, t, alpha, 0.0)[1:], hf.riemann_liouville(x, t, alpha)[1:], rtol=1e-11, atol=1e-11
        )
        np.testing.assert_allclose(
            hf.tempered_integral(x, t, alpha, 0.0), hf.riemann_liouville_integral(x, t, alpha), atol=1e-13
        )
