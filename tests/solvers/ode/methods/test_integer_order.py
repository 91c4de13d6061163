"""Whole orders by LSODA, with an estimate of the global error."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import hpfracc as hf


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
