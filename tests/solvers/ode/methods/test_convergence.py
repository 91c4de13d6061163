"""Each method converges at the order it promises, on smooth solutions and on those that begin like t^alpha."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import gamma

import hpfracc as hf
from hpfracc.solvers.ode import PECE, Method, all_methods
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.special import mittag_leffler
from tests.helpers.convergence import measured_order
from tests.helpers.thinned import thinned

ORDERS = [0.2, 0.5, 0.8, 1.0, 1.5, 1.9]
METHODS = {method.name: method() for method in all_methods() if method.fixed}
CASES = [
    (name, alpha)
    for name, method in METHODS.items()
    for alpha in ORDERS
    if alpha < 1.0 or ("order 1" if alpha == 1.0 else "orders above 1") in method.takes
]
Case = tuple[Callable[..., Any], float, Callable[[float], float]]


def smooth(alpha: float) -> Case:
    """y = t^5, so that f(t, y(t)) has two continuous derivatives for every order here; nonlinear."""
    factor = gamma(6.0) / gamma(6.0 - alpha)
    return (lambda t, y: factor * t ** (5.0 - alpha) + 0.5 * (t**5 - y) * (1.0 + y)), 0.0, lambda t: t**5


def relaxation(alpha: float) -> Case:
    """y = E_alpha(-t^alpha): solution and right-hand side both begin like t^alpha."""
    return (lambda t, y: -y), 1.0, lambda t: float(mittag_leffler(-(t**alpha), alpha))


def diethelm(alpha: float) -> Case:
    """y = t^8 - 3 t^(4+alpha/2) + 9/4 t^alpha: begins like t^alpha, nonlinear."""

    def fun(t: float, y: Any) -> Any:
        source = 40320.0 / gamma(9.0 - alpha) * t ** (8.0 - alpha) + 2.25 * gamma(alpha + 1.0)
        source -= 3.0 * gamma(5.0 + alpha / 2.0) / gamma(5.0 - alpha / 2.0) * t ** (4.0 - alpha / 2.0)
        return source + (1.5 * t ** (alpha / 2.0) - t**4) ** 3 - np.abs(y) ** 1.5

    return fun, 0.0, lambda t: t**8 - 3.0 * t ** (4.0 + alpha / 2.0) + 2.25 * t**alpha


def order_of(method: Method, alpha: float, case: Case, counts: tuple[int, ...] = (256, 512, 1024)) -> float:
    """The order at t = 1, infinite for a method that is exact."""
    fun, y0, exact = case
    dy0 = [[0.0]] if alpha > 1.0 else None
    compiled = {"backend": "numba", "compile": False} if "compiled" in method.takes else {}

    @cache
    def error_at(steps: int) -> float:
        result = hf.solve_fode(fun, (0.0, 1.0), [y0], alpha, dy0=dy0, method=method, step=1.0 / steps, **compiled)
        assert result.success
        return float(abs(result.y[0, -1] - exact(1.0)))

    return math.inf if max(map(error_at, counts)) < 1e-12 else measured_order(error_at, counts)


def tolerance(alpha: float) -> float:
    return 0.2 if alpha <= 0.2 else 0.15


def few(method: str, alpha: float) -> bool:
    """The cases of an ordinary run: those of methods on meshes take seconds."""
    return alpha in ((0.2, 0.8, 1.5) if "compiled" in METHODS[method].takes else (0.8,))


def test_methods_with_a_step_promise_an_order():
    """So that the tests below see each new one; what follows a tolerance promises none."""
    assert {name for name, method in METHODS.items() if method.promised_order(0.5) is None} == set()
    follow = {"adaptive", "adaptive_local", "integer_order"}
    assert {each.name for each in all_methods() if each().promised_order(0.5) is None} == follow


@pytest.mark.parametrize(("method", "alpha"), CASES)
@thinned(few)
def test_order_on_a_smooth_solution(method: str, alpha: float):
    """The error at t = 1 falls as promised where f(t, y(t)) is smooth."""
    found = order_of(METHODS[method], alpha, smooth(alpha))
    assert found == pytest.approx(METHODS[method].promised_order(alpha), abs=tolerance(alpha))


@pytest.mark.parametrize(("method", "alpha"), CASES)
@thinned(few)
def test_order_on_a_solution_like_a_power(method: str, alpha: float):
    """The same where solution and right-hand side begin like t^alpha, or no error for a method exact on linear ones.

    Methods of order 2 come to it only slowly for alpha = 0.2: there a solution whose powers end.
    """
    promised = METHODS[method].promised_order(alpha, rough=True)
    slow = promised == 2.0 and alpha == 0.2
    found = order_of(METHODS[method], alpha, diethelm(alpha) if slow else relaxation(alpha))
    assert found == math.inf or found == pytest.approx(promised, abs=tolerance(alpha))


@pytest.mark.parametrize("corrections", [2, 3])
def test_further_corrections_raise_the_order(corrections: int):
    """PECE gains alpha with each correction: 1.6 and 1.9 instead of 1.3 for alpha = 0.3."""
    method = PECE(corrections=corrections)
    assert method.promised_order(0.3) == pytest.approx(1.0 + 0.3 * corrections)
    assert order_of(method, 0.3, smooth(0.3)) == pytest.approx(1.0 + 0.3 * corrections, abs=0.2)


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if isinstance(method, StepMethod)])
def test_blockwise_history_keeps_the_order(method: str):
    """Beyond the size at which the memory is summed by FFT the error still falls as promised."""
    found = order_of(METHODS[method], 0.8, relaxation(0.8), counts=(1000, 2000, 4000))
    assert found == pytest.approx(METHODS[method].promised_order(0.8, rough=True), abs=0.15)


@pytest.mark.parametrize(("alpha", "method"), [(0.7, "bdf2"), (0.7, "newton_gregory"), (1.5, "multistep_trapezoid")])
def test_riemann_liouville_from_infinity(alpha: float, method: str):
    """``D^alpha y = -y`` with I^(n-alpha) y = 1 at the origin: y = t^(alpha-n) E_{alpha, alpha-n+1}(-t^alpha)."""
    n = int(np.ceil(alpha))
    exact = float(mittag_leffler(-(2.0**alpha), alpha, alpha - n + 1.0)) * 2.0 ** (alpha - n)

    def error_at(steps: int) -> float:
        result = hf.solve_fode(
            lambda t, y: -y,
            (0.0, 2.0),
            [1.0],
            alpha,
            dy0=[[0.0]] if alpha > 1.0 else None,
            derivative="riemann_liouville",
            method=method,
            step=2.0 / steps,
        )
        assert np.isinf(result.y[0, 0])
        return float(abs(result.y[0, -1] - exact))

    assert measured_order(error_at, (256, 512, 1024)) == pytest.approx(2.0, abs=0.15)


def test_variable_order():
    """y = t^2 with alpha(t) = 0.3 + 0.4 t: the L1 rule converges like h^(2 - max alpha) at least."""

    def alpha(t: float) -> float:
        return 0.3 + 0.4 * t

    def fun(t: float, y: Any) -> Any:
        return 2.0 * t ** (2.0 - alpha(t)) / gamma(3.0 - alpha(t)) + t**2 - y

    def error_at(steps: int) -> float:
        result = hf.solve_fode(fun, (0.0, 1.0), [0.0], alpha, step=1.0 / steps)
        assert result.decision is not None and result.decision.method == "variable_order"
        return float(abs(result.y[0, -1] - 1.0))

    assert measured_order(error_at) == pytest.approx(1.3, abs=0.15)


def test_a_variable_order_that_is_constant_is_the_l1_rule():
    """With alpha(t) = 0.5 it tends to the same solution as a constant order, and at 1 it is backward Euler."""
    exact = float(mittag_leffler(-1.0, 0.5))
    result = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], lambda t: 0.5, step=1e-3)
    assert result.y[0, -1] == pytest.approx(exact, abs=1e-3)
    euler = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], lambda t: 1.0, step=0.01)
    np.testing.assert_allclose(euler.y[0], 1.01 ** -np.arange(101.0), rtol=1e-12)
