"""Answers that have to agree: with SciPy at alpha = 1, between ways to step, between members of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import hpfracc as hf
from hpfracc.solvers.ode import all_methods
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.special import mittag_leffler
from tests.helpers.thinned import thinned

#: All methods that take equal steps by sums over the past.
METHODS = {method.name: method() for method in all_methods() if issubclass(method, StepMethod)}
SECOND_ORDER = [name for name, method in METHODS.items() if method.promised_order(1.0) == 2.0]


def bound_of(method: str, first: float, higher: float) -> float:
    """Of the error: of order 1, or higher."""
    return first if METHODS[method].promised_order(0.6, rough=True) == 1.0 else higher


def brusselator(t: float, y: Any) -> Any:
    x, z = y[..., 0], y[..., 1]
    return np.stack((1.0 - 4.0 * x + x**2 * z, 3.0 * x - x**2 * z), axis=-1)


@pytest.mark.parametrize("method", SECOND_ORDER)
def test_order_one_is_an_ordinary_equation(method: str):
    """At alpha = 1 the Brusselator agrees with solve_ivp to the error of a second-order method."""
    reference = solve_ivp(brusselator, (0.0, 5.0), [1.2, 2.8], rtol=1e-11, atol=1e-12).y[:, -1]
    result = hf.solve_fode(brusselator, (0.0, 5.0), [1.2, 2.8], 1.0, method=method, step=5e-3)
    np.testing.assert_allclose(result.y[:, -1], reference, atol=2e-4)


def test_order_two_is_a_pendulum():
    """At alpha = 2 a pendulum agrees with solve_ivp for its first-order system."""
    reference = solve_ivp(lambda t, y: [y[1], -np.sin(y[0])], (0.0, 4.0), [1.0, 0.5], rtol=1e-10, atol=1e-12).y[0, -1]
    result = hf.solve_fode(lambda t, y: -np.sin(y), (0.0, 4.0), [1.0], 2.0, dy0=[[0.5]], method="pece", step=2e-3)
    assert result.y[0, -1] == pytest.approx(reference, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_numpy_and_numba_step_alike(method: str):
    """NumPy stepping, compiled stepping around Python, and compiled altogether: the same to rounding."""
    options: dict[str, Any] = {"method": method, "step": 2e-3}
    plain = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, backend="numpy", **options)
    around = hf.solve_fode(brusselator, (0.0, 2.0), [1.2, 2.8], 0.8, backend="numba", compile=False, **options)

    def scalar(t: float, y: Any) -> Any:
        return np.array([1.0 - 4.0 * y[0] + y[0] ** 2 * y[1], 3.0 * y[0] - y[0] ** 2 * y[1]])

    whole = hf.solve_fode(scalar, (0.0, 2.0), [1.2, 2.8], 0.8, compile=True, **options)
    assert plain.decision is not None and not plain.decision.compiled
    assert whole.decision is not None and whole.decision.compiled
    np.testing.assert_allclose(around.y, plain.y, rtol=1e-9)
    np.testing.assert_allclose(whole.y, plain.y, rtol=1e-9)
    assert around.nfev == pytest.approx(plain.nfev, rel=0.02)
    assert whole.njev == pytest.approx(plain.njev, rel=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_its_members(method: str):
    """Members of a batch do not see each other."""
    start = np.array([[[1.2, 2.8], [0.9, 3.0], [1.0, 1.0]]])
    together = hf.solve_fode(brusselator, (0.0, 1.0), start, 0.7, method=method, step=0.01)
    assert together.y.shape == (1, 3, 2, 101)
    for member in range(3):
        alone = hf.solve_fode(brusselator, (0.0, 1.0), start[0, member], 0.7, method=method, step=0.01)
        np.testing.assert_allclose(together.y[0, member], alone.y, rtol=1e-11)


def test_orders_differ_in_a_batch():
    """An order for each member is as many solves."""
    orders = np.array([[0.5], [0.75], [1.0]])
    start = np.tile([1.2, 2.8], (3, 1))
    together = hf.solve_fode(brusselator, (0.0, 1.0), start, orders, method="pece", step=1e-3)
    for member in range(3):
        alone = hf.solve_fode(brusselator, (0.0, 1.0), start[member], orders[member, 0], method="pece", step=1e-3)
        np.testing.assert_allclose(together.y[member], alone.y, rtol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_one_order_for_each_component(method: str):
    """Two equations that do not know each other, solved as one system with two orders, above 1 too."""
    result = hf.solve_fode(
        lambda t, y: -y, (0.0, 1.0), [1.0, 1.0], [0.6, 1.4], dy0=[[0.0, 0.5]], method=method, step=1e-3
    )
    first = float(mittag_leffler(-1.0, 0.6))
    second = float(mittag_leffler(-1.0, 1.4) + 0.5 * mittag_leffler(-1.0, 1.4, 2.0))
    np.testing.assert_allclose(result.y[:, -1], [first, second], atol=bound_of(method, 2e-3, 1e-4))


@pytest.mark.parametrize(
    ("method", "compile"),
    [(method, False) for method in METHODS]
    + [("explicit_rectangle", True), ("pece", True), ("implicit_trapezoid", True)],
)
@thinned(lambda compile: not compile)
def test_complex_solutions(method: str, compile: bool):
    """``D^0.8 y = (i - 1) y`` turns in the complex plane; compiled steps are also in ``test_python_calls.py``."""

    def fun(t: float, y: Any) -> Any:
        return (1j - 1.0) * y

    exact = complex(mittag_leffler((1j - 1.0) * 2.0**0.8, 0.8))
    result = hf.solve_fode(fun, (0.0, 2.0), [1.0 + 0j], 0.8, method=method, step=2e-3, compile=compile)
    assert result.y.dtype == np.complex128
    assert result.y[0, -1] == pytest.approx(exact, abs=bound_of(method, 3e-3, 2e-5))


@pytest.mark.parametrize("method", METHODS)
def test_the_origin_of_time_does_not_matter(method: str):
    """An autonomous equation from t0 = 1000 is the one from 0."""
    here = hf.solve_fode(brusselator, (0.0, 1.0), [1.2, 2.8], 0.7, method=method, step=0.01)
    there = hf.solve_fode(brusselator, (1000.0, 1001.0), [1.2, 2.8], 0.7, method=method, step=0.01)
    np.testing.assert_allclose(there.y, here.y, rtol=1e-9)
    np.testing.assert_allclose(there.t, here.t + 1000.0, rtol=1e-15)


def test_homogeneous_riemann_liouville_is_caputo():
    """With zero initial data the two derivatives are one."""
    one, other = (
        hf.solve_fode(lambda t, y: t - y, (0.0, 1.0), [0.0], 0.7, step=0.01, derivative=name)
        for name in ("caputo", "riemann_liouville")
    )
    np.testing.assert_array_equal(one.y, other.y)


@pytest.mark.parametrize("method", ["implicit_trapezoid", "bdf2"])
@pytest.mark.parametrize("compile", [False, True])
def test_a_given_jacobian_gives_the_same(method: str, compile: bool):
    """With ``jac`` Newton's method asks for fewer evaluations and comes to the same solution."""

    def fun(t: float, y: Any, k: float) -> Any:
        return np.array([-k * y[0] * y[1], k * y[0] * y[1] - y[1]])

    def jac(t: float, y: Any, k: float) -> Any:
        return np.array([[-k * y[1], -k * y[0]], [k * y[1], k * y[0] - 1.0]])

    options: dict[str, Any] = {"method": method, "step": 0.01, "args": (3.0,), "compile": compile}
    given = hf.solve_fode(fun, (0.0, 2.0), [0.9, 0.1], 0.8, jac=jac, **options)
    found = hf.solve_fode(fun, (0.0, 2.0), [0.9, 0.1], 0.8, **options)
    np.testing.assert_allclose(given.y, found.y, rtol=1e-9)
    assert given.nfev < found.nfev


def test_a_long_solve():
    """A hundred thousand steps of PECE, one order, error as at the order 1.6."""
    result = hf.solve_fode(lambda t, y: -y, (0.0, 10.0), [1.0], 0.6, method="pece", step=1e-4, compile=True)
    assert result.decision is not None and result.decision.history == "fft"
    assert abs(result.y[0, -1] - mittag_leffler(-(10.0**0.6), 0.6)) < 3e-9
