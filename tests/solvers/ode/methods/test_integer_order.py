"""Whole orders by LSODA, with an estimate of the global error."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy
from scipy.integrate import solve_ivp

import hpfracc as hf

pytestmark = pytest.mark.skipif(
    tuple(int(part) for part in scipy.__version__.split(".")[:2]) < (1, 17),
    reason="LSODA is not used before SciPy 1.17",
)


def predators(t, y):
    return np.array([y[0] * (1.0 - y[1]), y[1] * (y[0] - 1.0)])


@pytest.mark.parametrize("rtol", [1e-4, 1e-8])
def test_the_global_error_follows_the_tolerance(rtol):
    """A single pass at this tolerance has an error of 30 to 60 times it."""
    t = np.linspace(0.0, 30.0, 61)
    found = hf.solve_fode(predators, (0.0, 30.0), [2.0, 1.0], 1.0, t_eval=t, rtol=rtol, atol=1e-3 * rtol)
    exact = solve_ivp(predators, (0.0, 30.0), [2.0, 1.0], "DOP853", t, rtol=1e-13, atol=1e-13).y
    error = np.abs(found.y - exact).max()
    assert found.decision.method == "integer_order"
    assert error < 10.0 * rtol * exact.max()
    assert 0.2 * error < found.error_estimate < 50.0 * error


def test_orders_above_one_and_terms_become_systems():
    found = hf.solve_fode(lambda t, y: -1e4 * y, (0.0, 1.0), [1.0], 2.0, dy0=[[0.0]], dense_output=True)
    assert found.decision.method == "integer_order"
    np.testing.assert_allclose(found.y[0], np.cos(100.0 * found.t), atol=1e-5)
    t = np.array([[0.5, 0.2], [0.9, 0.0]])
    np.testing.assert_allclose(found.sol(t)[0], np.cos(100.0 * t), atol=1e-5)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.y, found.y)
    damped = hf.solve_fode(lambda t, y: -2.0 * y, (0.0, 3.0), [1.0], 2.0, dy0=[[-1.0]], terms=[(2.0, 1.0)])
    np.testing.assert_allclose(damped.y[0], np.exp(-damped.t) * np.cos(damped.t), atol=1e-6)


def test_stiff_members_of_a_batch_have_a_banded_jacobian():
    rates = 10.0 ** np.arange(1.0, 6.0)[:, None] * np.array([1.0, 0.5])
    found = hf.solve_fode(lambda t, y: rates * (np.cos(t) - y), (0.0, 2.0), np.zeros((5, 2)), 1.0)
    exact = (rates**2 * math.cos(2.0) + rates * math.sin(2.0) - rates**2 * np.exp(-2.0 * rates)) / (1.0 + rates**2)
    np.testing.assert_allclose(found.y[..., -1], exact, atol=2e-6)
    assert found.decision.method == "integer_order"
    assert found.nfev < 4000


@pytest.mark.parametrize("given", ["jac", "jac_sparsity"])
def test_given_jacobians(given):
    n = 60
    matrix = (np.eye(n, k=1) - 2.0 * np.eye(n) + np.eye(n, k=-1)) * n**2
    more = {"jac": lambda t, y: matrix, "jac_sparsity": (1, 1)}[given]
    start = np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
    found = hf.solve_fode(lambda t, y: matrix @ y, (0.0, 0.1), start, 1.0, **{given: more})
    rate = 2.0 * n**2 * (1.0 - math.cos(math.pi / (n + 1)))
    np.testing.assert_allclose(found.y[:, -1], math.exp(-0.1 * rate) * start, atol=1e-6)


def test_events_breakpoints_and_progress():
    def half(t, y):
        return y[0] - 0.5

    half.terminal = True
    seen = []
    found = hf.solve_fode(lambda t, y: -y, (0.0, 2.0), [1.0], 1.0, events=half, progress=lambda t, y: seen.append(t))
    assert found.t_events[0] == pytest.approx([math.log(2.0)], rel=1e-6)
    assert found.t[-1] == found.t_events[0][0] and found.stats["terminated"] and seen
    jump = hf.solve_fode(lambda t, y: [1.0 if t < 1.0 else -1.0], (0.0, 2.0), [0.0], 1.0, breakpoints=[1.0])
    assert 1.0 in jump.t
    np.testing.assert_allclose(jump.y[0], 1.0 - np.abs(1.0 - jump.t), atol=1e-9)


def test_adaptive_steps_take_over_where_lsoda_fails():
    found = hf.solve_fode(lambda t, y: y**2, (0.0, 2.0), [1.0], 1.0, rtol=1e-3)
    assert not found.success and "blows up at about t = 1" in found.message
    start = hf.solve_fode(lambda t, y: t**-0.3 + 0.0 * y, (0.0, 1.0), [0.0], 1.0)
    assert start.decision.method == "adaptive" and any("LSODA failed" in note for note in start.decision.notes)
    np.testing.assert_allclose(start.y[0, -1], 1.0 / 0.7, rtol=1e-5)


def test_too_few_steps_and_what_is_left_to_others():
    few = hf.solve_fode(predators, (0.0, 30.0), [2.0, 1.0], 1.0, max_steps=20)
    assert not few.success and "max_steps=20" in few.message
    assert hf.solve_fode(lambda t, y: 1j * y, (0.0, 1.0), [1.0 + 0j], 1.0).decision.method == "adaptive"
    told = hf.explain(hf.solve_fode, predators, (0.0, 1.0), [2.0, 1.0], 1.0)
    assert told.method == "integer_order" and "whole" in told.reason


def test_a_solve_within_a_solve() -> None:
    """Both are right; an error of the function is its own."""

    def fun(t: float, y: np.ndarray) -> np.ndarray:
        inner = hf.solve_fode(lambda s, z: -z, (0.0, 1.0), [1.0], 1.0, compile=False)
        return -y * inner.y[0, -1] * np.e

    found = hf.solve_fode(fun, (0.0, 0.5), [1.0], 1.0, rtol=1e-4, atol=1e-6, compile=False)
    assert found.success and found.y[0, -1] == pytest.approx(np.exp(-0.5), rel=1e-3)

    def fails(t: float, y: np.ndarray) -> np.ndarray:
        if t > 0.2:
            raise RuntimeError("no value")
        return -y

    with pytest.raises(RuntimeError, match="no value"):
        hf.solve_fode(fails, (0.0, 1.0), [1.0], 1.0, compile=False)


def test_old_versions_of_scipy_take_adaptive_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their LSODA has one memory for all solves of a process."""
    monkeypatch.setattr(scipy, "__version__", "1.16.2")
    found = hf.solve_fode(lambda t, y: -y, (0.0, 0.1), [1.0], 1.0, compile=False)
    assert found.decision.method == "adaptive"
    with pytest.raises(hf.errors.HpfraccError, match="needs SciPy 1.17"):
        hf.solve_fode(lambda t, y: -y, (0.0, 0.1), [1.0], 1.0, method="integer_order")


def test_solves_in_threads() -> None:
    """Equal to those one after the other."""

    def solve(rate: float) -> float:
        return float(hf.solve_fode(lambda t, y: -rate * y, (0.0, 1.0), [1.0], 1.0, compile=False).y[0, -1])

    rates = np.linspace(0.5, 40.0, 24)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(solve, rates))
    assert together == [solve(rate) for rate in rates]
