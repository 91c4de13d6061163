"""Riemann-Liouville problems whose solution is infinite at t0: the right answer, or a refusal that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import gamma

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.special import mittag_leffler
from tests.helpers.thinned import thinned


def solve(fun: Any, alpha: Any, y0: Any = (1.0,), end: float = 1.0, **options: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return hf.solve_fode(fun, (0.0, end), list(y0), alpha, derivative="riemann_liouville", **options)


def decay(t: float, y: Any) -> Any:
    return -y


def square(t: float, y: Any) -> Any:
    return -(y**2)


def exact_decay(t: Any, alpha: float) -> Any:
    """``D^alpha y = -y`` with I^(n-alpha) y = 1: t^(alpha-n) E_{alpha, alpha-n+1}(-t^alpha)."""
    n = int(np.ceil(alpha))
    return t ** (alpha - n) * mittag_leffler(-(t**alpha), alpha, alpha - n + 1.0)


def exact_square(t: float, alpha: float) -> float:
    """``D^alpha y = -y^2`` with I^(1-alpha) y = 1, by its series in powers of t^(2 alpha - 1)."""
    start, rise = alpha - 1.0, 2.0 * alpha - 1.0
    found = [1.0 / gamma(alpha)]
    for k in range(60):
        product = sum(found[i] * found[k - i] for i in range(k + 1))
        power = 2.0 * start + k * rise
        found.append(-product * gamma(power + 1.0) / gamma(power + alpha + 1.0))
    return float(sum(each * t ** (start + k * rise) for k, each in enumerate(found)))


@pytest.mark.parametrize("alpha", [0.15, 0.3, 0.5, 0.7, 1.4])
@thinned(lambda alpha: alpha in (0.3, 0.7, 1.4))
def test_the_implicit_rectangle_is_of_first_order(alpha: float):
    """Its starting weights take the negative powers exactly; without them the order is 0.3 for alpha = 0.3."""
    for steps in (200, 800, 3200):
        result = solve(
            decay, alpha, end=0.5, method="implicit_rectangle", step=0.5 / steps, dy0=[[0.0]] if alpha > 1.0 else None
        )
        assert result.success and np.isposinf(result.y[0, 0])
        exact = exact_decay(result.t[1:], alpha)
        assert np.max(np.abs(result.y[0, 1:] / exact - 1.0)) < 1.5 * (0.5 / steps)


def test_small_orders_start_with_numbers_beyond_squaring():
    """The first values of the right-hand side are about 1e250 here; no intermediate result overflows."""
    result = hf.solve_fode(
        lambda t, y: -0.42 * y, (5.0, 6.7), [0.5], 0.067, derivative="riemann_liouville", rtol=1.5e-5, atol=2e-7
    )
    exact = 0.5 * 1.7 ** (0.067 - 1.0) * mittag_leffler(-0.42 * 1.7**0.067, 0.067, 0.067)
    assert result.success and abs(result.y[0, -1] - exact) < 1e-5


def test_what_was_a_fifth_off():
    """alpha = 0.3 with a step of 0.005: BDF2 has too many powers, and the rectangle is right to three digits."""
    result = solve(decay, 0.3, step=0.005)
    assert result.success and result.decision.method == "implicit_rectangle"
    np.testing.assert_allclose(result.y[0, 1:], exact_decay(result.t[1:], 0.3), rtol=1e-3)


@pytest.mark.parametrize("rtol", [1e-3, 1e-6])
@pytest.mark.parametrize("alpha", [0.2, 0.4, 0.9])
@thinned(one_in=2)
def test_adaptive_steps_hold_the_tolerance(alpha: float, rtol: float):
    """At every step and at times asked for, however near to t0; at t0 itself it is infinite, with its sign."""
    asked = np.array([0.0, 1e-30, 1e-12, 1e-3, 0.1, 2.0])
    result = solve(decay, alpha, y0=[-1.0], end=2.0, rtol=rtol, atol=1e-3 * rtol, dense_output=True)
    assert result.success and result.decision.method == "adaptive" and result.t[-1] == 2.0
    given = solve(decay, alpha, y0=[-1.0], end=2.0, rtol=rtol, atol=1e-3 * rtol, t_eval=asked)
    assert result.y[0, 0] == given.y[0, 0] == result.sol(0.0)[0] == -np.inf
    for t, y in ((result.t[1:], result.y[0, 1:]), (asked[1:], given.y[0, 1:]), (asked[1:], result.sol(asked[1:])[0])):
        np.testing.assert_allclose(y, -exact_decay(t, alpha), rtol=10.0 * rtol, atol=1e-2 * rtol)


def test_time_is_counted_from_t0():
    """A start at t0 = 100, near which no time below 1e-14 can be told: the solution is the same, moved."""
    moved = hf.solve_fode(decay, (100.0, 101.0), [1.0], 0.5, derivative="riemann_liouville", t_eval=[100.5, 101.0])
    np.testing.assert_allclose(moved.y[0], exact_decay(np.array([0.5, 1.0]), 0.5), rtol=1e-5)


@pytest.mark.parametrize(("method", "step", "within"), [("implicit_rectangle", 1e-3, 1e-3), ("adaptive", None, 3e-6)])
def test_a_nonlinear_right_hand_side_shows_its_powers(method: str, step: float | None, within: float):
    """-y^2 begins with t^(2 alpha - 2), which the order alone does not tell; the series knows the answer."""
    result = solve(square, 0.8, end=0.1, method=method, step=step)
    assert result.success
    assert result.y[0, -1] == pytest.approx(exact_square(0.1, 0.8), rel=within)


@pytest.mark.parametrize(
    ("fun", "alpha", "y0"),
    [
        (lambda t, y: 1.0 - y - y**2, 0.7, [1.0]),
        (lambda t, y: -(np.abs(y) ** 1.5), 0.6, [1.0]),
        (lambda t, y: t**-0.3 - y, 0.6, [1.0]),
        (lambda t, y: np.array([-y[0] + y[1], -2.0 * y[1]]), 0.4, [1.0, 0.0]),
        (lambda t, y: np.array([-y[0] + y[1], -2.0 * y[1] - y[0]]), [0.5, 0.8], [1.0, 2.0]),
    ],
)
@thinned(one_in=2)
def test_two_ways_to_begin_agree(fun: Any, alpha: Any, y0: Any):
    """Starting weights on a uniform grid, and steps that grow from nothing, know nothing of one another."""
    fine = solve(fun, alpha, y0, rtol=1e-8, atol=1e-11)
    stepped = solve(fun, alpha, y0, method="implicit_rectangle", step=1e-3)
    assert fine.success and stepped.success and fine.decision.method == "adaptive"
    np.testing.assert_allclose(stepped.y[:, -1], fine.y[:, -1], rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize(
    ("fun", "alpha", "options", "reason"),
    [
        (square, 0.3, {}, "has no integral"),
        (square, 0.3, {"method": "adaptive"}, "has no integral"),
        (square, 0.3, {"method": "bdf2", "step": 0.01}, "has no integral"),
        (lambda t, y: np.exp(y), 0.7, {"method": "adaptive"}, "not behave like a power|faster than any power"),
        (decay, 0.1, {"step": 0.01}, "use method='adaptive', without a step"),
        (decay, 0.5, {"method": "pece", "step": 0.01}, "use 'adaptive'"),
        (decay, 1.5, {"method": "adaptive", "dy0": [[0.0]]}, "orders up to 1"),
        (lambda t, y, z: -z[0], 0.5, {"delays": [0.1], "history": lambda t: 0.0}, "no delays"),
    ],
)
def test_what_cannot_begin_is_refused(fun: Any, alpha: float, options: dict[str, Any], reason: str):
    """A solution that does not exist, or one that a method cannot begin: an error, and never a wrong answer."""
    with pytest.raises(InvalidInputError, match=reason):
        solve(fun, alpha, **options)


def sourced(t: Any, alpha: float, power: float) -> Any:
    """``D^alpha y = -y + t^power`` from y = 1."""
    decay = mittag_leffler(-(t**alpha), alpha)
    return decay + gamma(power + 1.0) * t ** (alpha + power) * mittag_leffler(-(t**alpha), alpha, alpha + power + 1.0)


@pytest.mark.parametrize(("alpha", "power"), [(0.5, -0.3), (0.9, -0.7), (1.0, -0.3), (1.5, -0.4)])
def test_sources_that_are_infinite_at_the_start(alpha: float, power: float):
    """Python raises an error for 0.0**-0.3, NumPy gives infinity; neither is taken as a value."""
    more: dict[str, Any] = {"dy0": [[0.0]]} if alpha > 1.0 else {}
    for fun in (lambda t, y: -y + t**power, lambda t, y: -y + np.float64(t) ** power):
        with np.errstate(divide="ignore"):
            found = hf.solve_fode(fun, (0.0, 2.0), [1.0], alpha, rtol=1e-5, dense_output=True, **more)
        assert found.success and found.t[0] == 0.0 and found.y[0, 0] == 1.0
        error = np.max(np.abs(found.y[0] - sourced(found.t, alpha, power)))
        assert error < 5e-5 and error < 1.5 * found.error_estimate
        assert abs(found.sol(1e-3)[0] - sourced(1e-3, alpha, power)) < 5e-5


def test_a_source_that_is_undefined_at_the_start():
    """``sin(t)/t`` at 0: the solution of ``D^(1/2) y = sin(t)/t`` by its series."""
    found = hf.solve_fode(lambda t, y: [np.sin(t) / t if t else np.nan], (0.0, 1.0), [0.0], 0.5, rtol=1e-8, atol=1e-10)
    series = sum((-1.0) ** k * found.t ** (2 * k + 0.5) / (2 * k + 1) / gamma(2 * k + 1.5) for k in range(12))
    assert found.success and np.max(np.abs(found.y[0] - series)) < 1e-8


@pytest.mark.parametrize(
    ("fun", "span", "words"),
    [
        (lambda t, y: -y + t**-0.6, (0.0, 1.0), "less than"),
        (lambda t, y: -y + (t - 1.0) ** -0.3, (1.0, 2.0), "s = t - t0"),
        (lambda t, y: np.nan * y, (0.0, 1.0), "nor close behind it"),
    ],
)
def test_sources_that_have_no_start(fun: Any, span: tuple[float, float], words: str):
    found = hf.solve_fode(fun, span, [1.0], 0.5)
    assert not found.success and words in found.message


@pytest.mark.parametrize(("alpha", "rate"), [(0.5, 1.0), (0.8, 6.0)])
def test_the_error_estimate_is_weighted_where_the_solution_is_infinite(alpha: float, rate: float):
    """In the norm of t^(1-alpha) y it is close; without the weight it was 2e10, because y is infinite at t0."""
    found = solve(lambda t, y: -rate * y, alpha, end=2.0, rtol=1e-5, atol=1e-8)
    t = found.t[1:]
    exact = t ** (alpha - 1.0) * mittag_leffler(-rate * t**alpha, alpha, alpha)
    error = float(np.max(np.abs(found.y[0, 1:] - exact) * (t / 2.0) ** (1.0 - alpha)))
    assert found.success and error / 3.0 < found.error_estimate < 1e-4
