"""Samples on grids that are not uniform: orders of convergence, exactness, causality, gradients, the fast memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import HpfraccError, InvalidInputError, ShapeError
from tests.helpers.convergence import measured_order
from tests.helpers.exact import of_polynomial, of_power
from tests.helpers.thinned import thinned

ORDERS = [0.1, 0.25, 0.5, 0.75, 0.9, 1.3, 1.8, 2.5]
COEFFICIENTS = [1.0, -2.0, 3.0, -1.0, 2.0, 0.7, -0.3, 0.2]
OPERATORS = [hf.caputo, hf.riemann_liouville, hf.riemann_liouville_integral]
METHODS = ["auto", "fast"]
Operator = Callable[..., Any]


def bent(n: int) -> np.ndarray:
    """A grid whose steps go up and down by a third."""
    u = np.linspace(0.0, 1.0, n + 1)
    return u + 0.3 * np.sin(2.0 * np.pi * u) / (2.0 * np.pi)


def scattered(n: int, seed: int = 3) -> np.ndarray:
    """Steps of any size between 1 and 10 of a unit."""
    steps = np.random.default_rng(seed).uniform(1.0, 10.0, n)
    return np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()


def exact(operator: Operator, alpha: float, t: np.ndarray) -> np.ndarray:
    if operator is hf.riemann_liouville_integral:
        return of_polynomial(COEFFICIENTS, -alpha, t)
    return of_polynomial(COEFFICIENTS, alpha, t, math.ceil(alpha) if operator is hf.caputo else 0)


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("operator", OPERATORS)
@thinned(lambda alpha: alpha in (0.25, 1.3))
def test_converges_at_the_promised_order(operator: Operator, method: str, alpha: float) -> None:
    """At points beyond the middle, in the number of steps: n + 1 - alpha for derivatives, 2 for the integral."""

    def error_at(n: int) -> float:
        t = bent(n)
        value = operator(np.polynomial.polynomial.polyval(t, COEFFICIENTS), t, alpha, method=method)
        return float(np.abs(value - exact(operator, alpha, np.maximum(t, 1e-9)))[n // 2 :].max())

    promised = 2.0 if operator is hf.riemann_liouville_integral else math.ceil(alpha) + 1 - alpha
    assert measured_order(error_at) == pytest.approx(promised, abs=0.2 if alpha <= 0.2 else 0.15)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("alpha", "r"), [(0.25, 1.0), (0.25, 3.0), (0.5, 2.0), (0.5, 3.0), (0.75, 2.0), (0.75, 4.0)])
@thinned(lambda alpha: alpha == 0.5)
def test_grading_brings_the_order_back(alpha: float, r: float, method: str) -> None:
    """On t^alpha the error times t^alpha is O(N^-min(2 - alpha, r alpha)) at every point."""

    def error_at(n: int) -> float:
        t = hf.graded_grid(1.0, n, r)
        error = np.abs(hf.caputo(t**alpha, t, alpha, method=method) - math.gamma(1.0 + alpha))
        return float((error * t**alpha)[1:].max())

    assert measured_order(error_at, (101, 202, 404)) == pytest.approx(min(2.0 - alpha, r * alpha), abs=0.15)


@pytest.mark.parametrize("alpha", [0.3, 0.9, 1.4, 2.5])
@pytest.mark.parametrize("operator", OPERATORS)
@thinned(lambda alpha: alpha in (0.3, 1.4))
def test_the_fast_memory_keeps_its_tolerance(operator: Operator, alpha: float) -> None:
    """Fast and direct are the same rule: on steps that differ by 1e12 they agree to the tolerance asked for."""
    t = hf.graded_grid(2.0, 300, 5.0)
    f = np.cos(3.0 * t)
    direct = operator(f, t, alpha)
    scale = np.abs(direct[1:]).max()
    for rtol in (1e-4, 1e-8, 1e-12):
        fast = operator(f, t, alpha, method="fast", rtol=rtol)
        assert np.abs(fast[1:] - direct[1:]).max() <= rtol * scale + 1e-12 * scale
    np.testing.assert_array_equal(operator(f, t, alpha, method="soe"), operator(f, t, alpha, method="fast"))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_agrees_with_the_uniform_rules(alpha: float) -> None:
    """On a uniform grid bent by 1e-5 of a step the answer is that of L1 and of the trapezoid, up to the bend."""
    t = np.linspace(0.0, 1.0, 201)
    f = np.exp(-t) * np.sin(5.0 * t)
    moved = t.copy()
    moved[100] += 1e-7
    for operator, method in ((hf.caputo, "l1"), (hf.riemann_liouville_integral, "trapezoid")):
        uniform = operator(f, t, alpha, method=method)
        np.testing.assert_allclose(operator(f, moved, alpha)[:100], uniform[:100], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(operator(f, t, alpha, method="fast"), uniform, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_exact_on_what_is_interpolated(method: str) -> None:
    """Zero, exactly, on constants; lines to rounding, by derivative and integral, on any grid."""
    t = scattered(60)
    assert not hf.caputo(np.full(61, 7.25), t, 0.4, method=method).any()
    np.testing.assert_allclose(hf.caputo(t, t, 0.4, method=method), of_power(1, 0.4, t), rtol=1e-9, atol=1e-12)
    for mu in (0.3, 1.0, 1.7, 3.2):
        for power in (0, 1):
            value = hf.riemann_liouville_integral(t**power, t, mu, method=method)
            np.testing.assert_allclose(value, of_power(power, -mu, t), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [1.5, 2.5])
def test_powers_above_order_one(alpha: float) -> None:
    """t^n is exact at every point, lower powers vanish under Caputo and have their own law otherwise."""
    t = scattered(40)
    n = math.ceil(alpha)
    np.testing.assert_allclose(hf.caputo(t**n, t, alpha), of_power(n, alpha, t), rtol=1e-5, atol=1e-8)
    for degree in range(n):
        assert np.abs(hf.caputo(t**degree, t, alpha)).max() <= 1e-6
        value = hf.riemann_liouville(t**degree, t, alpha)[1:]
        np.testing.assert_allclose(value, of_power(degree, alpha, t[1:]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_whole_orders_are_ordinary_derivatives(m: int) -> None:
    """Exact on polynomials of degree m + 3, at every point."""
    t = scattered(30)
    coefficients = COEFFICIENTS[: m + 4]
    value = hf.caputo(np.polynomial.polynomial.polyval(t, coefficients), t, float(m))
    right = np.polynomial.polynomial.polyval(t, np.polynomial.polynomial.polyder(coefficients, m))
    np.testing.assert_allclose(value, right, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_shapes_dtypes_and_axes(method: str) -> None:
    """Batches along any axis, complex and single precision, integers promoted."""
    t = scattered(30)
    f = np.random.default_rng(1).standard_normal((2, 31, 3))
    value = hf.caputo(f, t, 0.6, method=method, axis=1)
    assert value.shape == f.shape
    np.testing.assert_allclose(value[1, :, 2], hf.caputo(f[1, :, 2], t, 0.6, method=method), rtol=1e-12, atol=1e-12)
    both = hf.caputo(f[0, :, 0] + 1j * f[0, :, 1], t, 0.6, method=method)
    np.testing.assert_allclose(both, value[0, :, 0] + 1j * value[0, :, 1], rtol=1e-12, atol=1e-12)
    assert hf.caputo(f[0, :, 0].astype(np.float32), t, 0.6, method=method).dtype == np.float32
    np.testing.assert_array_equal(
        hf.caputo(np.arange(31), t, 0.6, method=method), hf.caputo(np.arange(31.0), t, 0.6, method=method)
    )


def test_full_output_names_the_method() -> None:
    """Direct for "auto", whatever the length: a sum of exponentials is approximate and has to be asked for."""
    t = scattered(20)
    assert hf.caputo(t, t, 0.5, full_output=True).method == "l1"
    assert hf.caputo(t, t, 0.5, method="soe", full_output=True).method == "fast"
    assert hf.riemann_liouville_integral(t, t, 0.5, full_output=True).method == "trapezoid"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("operator", OPERATORS)
@thinned(lambda operator, method: method == "auto" or operator is hf.caputo)
def test_torch_gradients(operator: Operator, method: str) -> None:
    """In samples, order and points, against differences."""
    import torch

    t = torch.tensor(np.array([0.0, 0.3, 0.5, 1.1, 1.4, 2.0]), requires_grad=True)
    f = torch.tensor(np.array([0.0, 0.4, -0.2, 0.6, 0.3, -0.5]), dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)

    def call(f: Any, t: Any, alpha: Any = 0.6) -> Any:
        return operator(f, t, alpha, method=method)[..., 1:]

    assert torch.autograd.gradcheck(call, (f, t))
    assert torch.autograd.gradcheck(call, (f, t, alpha))
    with pytest.raises(InvalidInputError, match="detach t"):
        hf.caputo(f, t, 1.5, method=method)


@pytest.mark.parametrize("method", METHODS)
@thinned(lambda method: method == "auto")
def test_jax_under_jit_and_grad(method: str) -> None:
    """A traced order gives the same numbers, and its derivative is that of differences."""
    import jax

    t = scattered(24)
    f = np.sin(3.0 * t)

    def last(alpha: Any) -> Any:
        return hf.caputo(f, t, alpha, method=method)[-1]

    with jax.enable_x64(True):
        value, slope = jax.jit(jax.value_and_grad(last))(0.6)
    # A plain order takes other nodes: the two agree to the tolerance of the fast memory.
    assert float(value) == pytest.approx(float(last(0.6)), rel=1e-8)
    assert float(slope) == pytest.approx((float(last(0.6 + 1e-5)) - float(last(0.6 - 1e-5))) / 2e-5, rel=1e-4)


BAD: list[tuple[Callable[[], Any], type[HpfraccError], str]] = [
    (lambda: hf.grunwald_letnikov(np.ones(9), bent(8), 0.5), InvalidInputError, "needs a uniform grid"),
    (
        lambda: hf.caputo(np.ones(9), bent(8), 0.5, method="l1-2"),
        InvalidInputError,
        "not uniform; use 'auto' or one of l1, fast",
    ),
    (lambda: hf.caputo(np.ones(9), bent(8), 0.5, rtol=1e-6), InvalidInputError, "method='fast'"),
    (lambda: hf.caputo(np.ones(9), bent(8), 0.5, method="fast", rtol=1e-20), InvalidInputError, "rtol=1e-20: give"),
    (lambda: hf.caputo(np.ones(4), [0.0, 1.0, 1.0, 3.0], 0.5), InvalidInputError, "repeated"),
    (lambda: hf.caputo(np.ones(4), [0.0, 1.0, 0.5, 3.0], 0.5), InvalidInputError, "goes back"),
    (lambda: hf.caputo(np.ones(4), [0.0, 1.0, 3.0, 4.0], 1.5), ShapeError, "at least 5 samples"),
    (lambda: hf.riemann_liouville_integral(np.ones(9), bent(8), 4.5, method="fast"), InvalidInputError, "below 4"),
    (lambda: hf.graded_grid(1.0, 0, 2.0), InvalidInputError, "n=0"),
    (lambda: hf.graded_grid(0.0, 5, 2.0), InvalidInputError, "end=0"),
    (lambda: hf.graded_grid(1.0, 5, 0.5), InvalidInputError, "exponent=0.5"),
    (lambda: hf.graded_grid(2.0, 1000, 8.0, origin=1.0), InvalidInputError, "coincide"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_refuses(call: Callable[[], Any], error: type[HpfraccError], words: str) -> None:
    """Typed, with the value and what to do."""
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("operator", [hf.tempered, hf.tempered_caputo, hf.tempered_integral])
def test_tempered_operators_are_differentiable_in_the_points(operator):
    """gradcheck in the points; there used to be no gradient, without a word."""
    torch = pytest.importorskip("torch")
    times = torch.tensor(np.linspace(0.0, 1.3, 9) ** 1.5 + 0.2, requires_grad=True)
    samples = torch.tensor(np.cos(np.arange(9.0)))
    assert torch.autograd.gradcheck(lambda t: operator(samples, t, 0.4, 1.7)[1:], (times,))


@pytest.mark.parametrize("start", [3, 41])
@pytest.mark.parametrize("gap", [1e3, 1e6])
def test_orders_above_one_stay_of_their_size_beyond_a_gap(gap: float, start: int):
    """1/(1+t), sampled on both sides of a gap: no point is off by more than the largest value, and few by much.

    A polynomial through samples before the gap and one beyond it has a slope of any size; from there on the error used
    to grow like the cube of the gap.
    """
    before = np.linspace(0.0, 0.025 * (start - 1), start)
    t = np.concatenate([before, before[-1] + gap + np.linspace(0.0, 1.0, 41)])
    f = 1.0 / (1.0 + t)
    for alpha in (1.0, 1.5, 2.0, 2.5):
        right = hf.caputo(lambda s: 1.0 / (1.0 + s), t, alpha, rtol=1e-6)
        for operator, exact in ((hf.caputo, right), (hf.riemann_liouville, None)):
            found = operator(f, t, alpha)[start:]
            assert np.abs(found).max() < 2.0 * np.abs(right).max()
            if exact is not None and start > 10:
                np.testing.assert_allclose(found[2:], exact[start + 2 :], atol=1e-2 * np.abs(right).max())


@pytest.mark.parametrize("unit", [1e-100, 1e-12, 1e12, 1e100])
@pytest.mark.parametrize("alpha", [0.5, 1.5, 2.7])
@thinned(lambda alpha: alpha == 1.5)
def test_units_of_time_only_scale_the_answer(unit: float, alpha: float):
    """``D^alpha f(t/u) = u^-alpha (D^alpha f)(t/u)`` on uniform and other grids, in units as odd as can be."""
    t = np.linspace(0.0, 1.0, 33)
    f = np.cos(3.0 * t) + t
    for grid in (t, t**1.7):
        for operator in (hf.caputo, hf.riemann_liouville, hf.variable_order, hf.riemann_liouville_integral):
            sign = 1.0 if operator is hf.riemann_liouville_integral else -1.0
            right = operator(f, grid, alpha)[1:] * unit ** (sign * alpha)
            np.testing.assert_allclose(operator(f, grid * unit, alpha)[1:], right, atol=1e-9 * np.abs(right).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("operator", [hf.caputo, hf.riemann_liouville_integral])
def test_units_in_which_answers_leave_the_range_are_refused(operator: Any, dtype: str):
    """A step whose power overflows, or vanishes, names itself and what to do; it used to be a bare OverflowError."""
    unit = 1e-300 if dtype == "float64" else 1e-30
    for power in (1.0, 1.5):
        with pytest.raises(hf.errors.InvalidInputError, match="outside the range of float.*measure t in other units"):
            operator(np.ones(9, dtype), np.linspace(0.0, unit, 9) ** 1.0 * np.linspace(1.0, power, 9), 1.5)


def test_a_grid_that_is_uniform_but_for_its_rounding_is_taken_as_such():
    """Timestamps at 60 Hz with three decimals: the uniform rule, and the full account says so."""
    even = np.arange(200) / 60.0
    given = np.round(even, 3)
    found = hf.caputo(np.sin(even), given, 0.5, full_output=True)
    np.testing.assert_allclose(found.value, hf.caputo(np.sin(even), step=given[-1] / 199, alpha=0.5), rtol=1e-12)
    assert "uniform but for its rounding to 0.001" in found.message


@pytest.mark.parametrize("order", [2.0, 3.0])
def test_rounding_counts_where_steps_are_short(order):
    """A derivative of whole order on steps of random length: rounding, magnified by them, is in the estimate."""
    points = np.concatenate([[0.0], np.cumsum(np.random.default_rng(3).lognormal(0.0, 0.7, 1000))])
    points /= points[-1]
    found = hf.caputo(np.sin(3.0 * points), points, order, full_output=True)
    exact = 3.0**order * np.sin(3.0 * points + 0.5 * np.pi * order)
    error, estimate = np.abs(found.value - exact), np.asarray(found.error_estimate)
    known = np.isfinite(estimate)
    assert known[2:].mean() > 0.9
    assert np.all(error[known] <= 3.0 * estimate[known])
    assert estimate[known].max() < 30.0 * error[known].max()


@pytest.mark.parametrize("alpha", [0.5, 1.5])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("operator", OPERATORS)
@thinned(lambda alpha: alpha == 0.5)
def test_later_samples_change_nothing_earlier(operator: Operator, method: str, alpha: float) -> None:
    """Causal, for finite samples and for nan, which reaches its own point and all later ones."""
    t = scattered(40)
    f = np.sin(7.0 * t)
    value = operator(f, t, alpha, method=method)
    for bad in (5.0, np.nan, np.inf):
        changed = f.copy()
        changed[20] = bad
        found = operator(changed, t, alpha, method=method)
        np.testing.assert_array_equal(found[:20], value[:20])
        assert np.isfinite(found[20:]).all() == (bad == 5.0)
