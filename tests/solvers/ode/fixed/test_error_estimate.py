"""The error estimate of fixed steps, beside closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.solvers.ode import problems
from hpfracc.special import mittag_leffler
from tests.helpers.thinned import thinned


def relaxation(alpha: float, method: str, **options: Any) -> tuple[Any, float]:
    more: dict[str, Any] = {"dy0": [[0.0]]} if alpha > 1.0 else {}
    result = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], alpha, method=method, step=0.005, **more, **options)
    return result, float(np.abs(result.y[0] - mittag_leffler(-(result.t**alpha), alpha)).max())


@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid", "implicit_rectangle"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.2, 1.5, 1.8])
@thinned(one_in=2)
def test_the_estimate_is_close_for_product_rules(method: str, alpha: float):
    """Within a factor of 4 of the largest error, at a tenth of the solve's evaluations or 50."""
    result, error = relaxation(alpha, method)
    assert error / 4.0 < result.error_estimate < 4.0 * error
    assert result.stats["estimate_evaluations"] <= 50


@pytest.mark.parametrize("method", ["bdf2", "newton_gregory"])
@pytest.mark.parametrize("alpha", [0.3, 0.7, 1.5])
def test_the_estimate_bounds_the_error_of_multistep_methods(method: str, alpha: float):
    """It may be far above for small orders, and not below half."""
    result, error = relaxation(alpha, method)
    assert result.error_estimate > 0.5 * error


@pytest.mark.parametrize("name", ["diethelm", "bagley_torvik"])
def test_the_estimate_holds_for_known_problems(name: str):
    """Diethelm's test and Bagley and Torvik's equation, of which y alone counts."""
    problem = getattr(problems, name)()
    result = hf.solve_fode(
        problem.fun,
        problem.t_span,
        problem.y0,
        problem.alpha,
        dy0=problem.dy0 or None,
        method="implicit_trapezoid",
        step=(problem.t_span[1] - problem.t_span[0]) / 400,
    )
    error = float(np.abs(result.y - problem.solution(result.t)).max())
    assert error / 6.0 < result.error_estimate < 6.0 * error


def test_what_cannot_be_trusted_is_told():
    """PECE at order 0.05 is off by 0.24; the automatic choice takes a graded mesh, and is not."""
    result, error = relaxation(0.05, "pece")
    assert error > 0.2 and "cannot be trusted" in result.message
    result, error = relaxation(0.05, "auto")
    assert result.decision.method == "l1" and error < 5e-3
    assert np.allclose(np.diff(result.t), 0.005)


def robertson(t: float, y: Any) -> Any:
    fast, slow = 3e7 * y[1] ** 2, 1e4 * y[1] * y[2]
    return np.array([-0.04 * y[0] + slow, 0.04 * y[0] - slow - fast, fast])


def test_the_estimate_is_close_where_steps_skip_a_boundary_layer():
    """Robertson's reaction: within a factor of 4, for the fast component too; the message says which of them rings."""
    span, y0 = (0.0, 4.0), [1.0, 0.0, 0.0]
    reference = hf.solve_fode(robertson, span, y0, 0.9, rtol=1e-6, atol=1e-9, dense_output=True, compile=False)
    for method in ("implicit_trapezoid", "implicit_rectangle", "bdf2"):
        result = hf.solve_fode(robertson, span, y0, 0.9, method=method, step=0.05, compile=False)
        errors = np.abs(result.y - reference.sol(result.t)).max(axis=1)
        assert errors.max() / 4.0 < result.error_estimate < 4.0 * errors.max()
        sizes = np.abs(result.y).max(axis=1)
        assert (result.stats["component_errors"] < 4.0 * errors + 0.05 * sizes).all()
        assert (result.stats["component_errors"] > errors / 4.0 - 0.05 * sizes).all()
        rings = "component 1 may be" in result.message and "from t = 0.05 to" in result.message
        assert rings == ("cannot be trusted" in result.message) == (errors[1] > 0.1 * sizes[1])


def test_the_estimate_is_an_option():
    """Beside compiled steps it is made only when asked for, and the message says so."""

    def fun(t: float, y: Any) -> Any:
        return -y

    options: dict[str, Any] = {"method": "pece", "step": 0.01, "compile": True}
    without = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.6, **options)
    assert np.isnan(without.error_estimate) and "estimate=True" in without.message
    asked = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.6, estimate=True, **options)
    assert asked.error_estimate > 0.0
    never = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.6, method="pece", step=0.01, estimate=False)
    assert np.isnan(never.error_estimate)


@pytest.mark.parametrize("method", ["l1", "l2_1sigma", "mittag_leffler"])
def test_methods_without_an_estimate_say_so(method: str):
    """With a given step; without one the step is searched, and the distance of two solutions is the estimate."""
    result, _ = relaxation(0.7, method)
    assert np.isnan(result.error_estimate)
    assert "estimates no error" in result.message
    searched = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.7, method=method, rtol=1e-3, atol=1e-4)
    assert searched.error_estimate < 1e-3
    assert "estimates no error" not in searched.message


@pytest.mark.parametrize("compiled", [False, True])
@thinned(lambda compiled: not compiled)
def test_a_jump_within_a_step_is_told(compiled: bool):
    """A relaxation oscillator (van der Pol, mu = 1000) that skips its jump: the defect of that step is small."""
    if compiled:
        pytest.importorskip("numba")

    def fun(t: float, y: Any) -> Any:
        return np.array([y[1], 1000.0 * (1.0 - y[0] ** 2) * y[1] - y[0]])

    step = 1110.0 / 278
    options: dict[str, Any] = {"method": "implicit_rectangle", "step": step, "compile": compiled}
    result = hf.solve_fode(fun, (0.0, 272 * step), [2.0, 0.0], 0.95, **options)
    assert result.success
    assert "Component 0 crosses more than half of its range within the step to t = 1082.05" in result.message
    before = hf.solve_fode(fun, (0.0, 250 * step), [2.0, 0.0], 0.95, **options)
    assert "crosses" not in before.message


def test_a_jump_of_the_right_hand_side_is_in_the_estimate():
    """Between two steps its time is unknown: the error was 700 times the estimate."""

    def pulse(t: float, y: np.ndarray) -> np.ndarray:
        return -y + (1.0 if 1.0 <= t < 3.0 else 0.0)

    result = hf.solve_fode(pulse, (0.0, 5.0), [1.0], 0.7, step=0.01, estimate=True)
    t, y = result.t, hf.mittag_leffler(-(result.t**0.7), 0.7)
    for place, sign in ((1.0, 1.0), (3.0, -1.0)):
        tau = np.maximum(t - place, 0.0)
        y = y + sign * tau**0.7 * hf.mittag_leffler(-(tau**0.7), 0.7, 1.7)
    error = np.abs(result.y[0] - y).max()
    assert error / 3.0 < result.error_estimate < 3.0 * error


@pytest.mark.parametrize("method", ["implicit_trapezoid", "pece", "bdf2"])
def test_the_kink_after_a_delay_is_in_the_estimate(method: str):
    """``D^0.3 y = -y(t - 1)``, by the method of steps; the error was 1000 times the estimate."""
    result = hf.solve_fode(
        lambda t, y, p: -p[0],
        (0.0, 3.0),
        [1.0],
        0.3,
        delays=[1.0],
        history=1.0,
        step=0.01,
        method=method,
        estimate=True,
    )
    y = sum((-1.0) ** k * np.maximum(result.t - (k - 1), 0.0) ** (0.3 * k) / math.gamma(0.3 * k + 1) for k in range(5))
    y = np.where(result.t >= 0.0, y, 1.0)
    error = np.abs(result.y[0] - y).max()
    assert error / 3.0 < result.error_estimate < 10.0 * error


@pytest.mark.parametrize("alpha", [0.95, 1.8])
def test_errors_of_oscillations_are_resolved(alpha: float):
    """Few nodes miss them: the error was 20 times the estimate."""
    rate = -40.0 if alpha > 1.0 else 0.0
    matrix = np.array([[rate, -6.0], [6.0, rate]])
    given = {"dy0": [[0.0, 0.0]]} if alpha > 1.0 else {}
    result = hf.solve_fode(
        lambda t, y: matrix @ y, (0.0, 4.0), [1.0, 0.0], alpha, step=0.02, method="bdf2", estimate=True, **given
    )
    y = hf.mittag_leffler((rate + 6.0j) * result.t**alpha, alpha)
    error = max(np.abs(result.y[0] - y.real).max(), np.abs(result.y[1] - y.imag).max())
    assert error / 3.0 < result.error_estimate < 10.0 * error


def test_the_estimate_of_components_with_different_orders():
    """The first starts with the power of the second, ``D^0.97 y = t^0.03``; the estimate was a quarter of the error."""
    result = hf.solve_fode(
        lambda t, y: np.array([y[1], math.gamma(1.03)]), (0.0, 1.0), [0.0, 0.0], [0.97, 0.03], step=0.005, method="pece"
    )
    exact = math.gamma(1.03) * np.stack([result.t, result.t**0.03 / math.gamma(1.03)])
    error = float(np.abs(result.y - exact).max())
    assert error > 1e-4 and error / 1.5 < result.error_estimate < 1.5 * error
