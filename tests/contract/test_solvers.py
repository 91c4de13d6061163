"""The contract's solver: names, paths and behaviour that users' code already relies on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.solvers.ode_solvers import FixedStepODESolver
from hpfracc.special import mittag_leffler


def test_solve_gives_times_and_states():
    """``.solve(f, t_span, y0, alpha, h)`` -> ``(t, y)``, y of shape (N, *y0.shape); the method is PECE."""
    t, y = FixedStepODESolver().solve(lambda t, y: -y, (0.0, 1.0), np.array([1.0, 2.0]), 0.6, 0.01)
    assert t.shape == (101,) and y.shape == (101, 2)
    expected = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0, 2.0], 0.6, method="pece", step=0.01)
    np.testing.assert_array_equal(y, expected.y.T)


@pytest.mark.parametrize("y0", [1.0, [1.0], [[1.0, 2.0], [3.0, 4.0]]])
def test_the_shape_of_the_start_is_kept(y0: Any):
    """A number, a vector or a batch of them."""
    t, y = FixedStepODESolver(method="implicit_trapezoid").solve(lambda t, y: -y, (0.0, 1.0), y0, 0.6, 0.1)
    assert y.shape == (len(t), *np.shape(y0))
    np.testing.assert_allclose(y[-1], np.asarray(y0) * mittag_leffler(-1.0, 0.6), rtol=0.02)


def test_adaptive_steps_are_given_on_the_same_grid():
    """``adaptive=True`` follows the tolerance; h is then the spacing of the answer."""
    t, y = FixedStepODESolver(adaptive=True).solve(lambda t, y: -y, (0.0, 1.0), [1.0], 0.9, 0.25, rtol=1e-4)
    np.testing.assert_allclose(t, [0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(y[:, 0], mittag_leffler(-(t**0.9), 0.9), atol=2e-4)


def test_numbers_and_tensors_as_states():
    """A number has arguments and delayed states as arrays have; tensors stay tensors."""
    _, y = FixedStepODESolver().solve(lambda t, y, rate: -rate * y, (0.0, 1.0), 1.0, 0.6, 0.1, args=(2.0,))
    _, arrays = FixedStepODESolver().solve(lambda t, y: -2.0 * y, (0.0, 1.0), [1.0], 0.6, 0.1)
    np.testing.assert_array_equal(y, arrays[:, 0])
    _, y = FixedStepODESolver().solve(
        lambda t, y, past: -past[0], (0.0, 0.5), 1.0, 0.6, 0.1, delays=[1.0], history=1.0, method="implicit_trapezoid"
    )
    assert y[-1] == pytest.approx(1.0 - 0.5**0.6 / math.gamma(1.6))
    torch = pytest.importorskip("torch")
    _, y = FixedStepODESolver().solve(lambda t, y: -2.0 * y, (0.0, 1.0), torch.ones(2, dtype=torch.float64), 0.6, 0.1)
    assert isinstance(y, torch.Tensor) and y.shape == (11, 2)


def test_other_derivatives():
    """``derivative_type`` is the derivative of ``solve_fode``."""
    solver = FixedStepODESolver(derivative_type="riemann_liouville", method="bdf2")
    _, y = solver.solve(lambda t, y: -y, (0.0, 1.0), [1.0], 0.7, 0.01)
    assert y[-1, 0] == pytest.approx(float(mittag_leffler(-1.0, 0.7, 0.7)), abs=1e-4)


def test_it_never_gives_a_short_answer():
    """What ``solve_fode`` tells in its result is an exception here."""
    with pytest.raises(SolveError, match="not finite"), np.errstate(all="ignore"):
        FixedStepODESolver().solve(lambda t, y: y**2, (0.0, 5.0), [1.0], 0.9, 0.01)
    with pytest.raises(InvalidInputError, match="h=0"):
        FixedStepODESolver().solve(lambda t, y: -y, (0.0, 5.0), [1.0], 0.9, 0)
    with pytest.raises(InvalidInputError, match="derivative='weyl'"):
        FixedStepODESolver("weyl").solve(lambda t, y: -y, (0.0, 5.0), [1.0], 0.9, 0.1)


def test_fdeint():
    """``fdeint(func, y0, t, alpha)`` -> states along a first axis of times."""
    times = np.array([0.0, 0.3, 0.35, 1.0])
    found = hf.fdeint(lambda t, y: -y, np.ones((2, 3)), times, 0.8, step=1e-3)
    assert found.shape == (4, 2, 3)
    np.testing.assert_allclose(found[:, 1, 2], mittag_leffler(-(times**0.8), 0.8), atol=1e-5)
