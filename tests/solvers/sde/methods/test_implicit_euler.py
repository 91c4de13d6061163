"""Euler's method, implicit in the drift: stiff drifts, its order, and Newton's method."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.solvers.sde.methods import METHODS
from hpfracc.solvers.sde.problem import read_problem
from tests.helpers.caputo_order import integrate
from tests.helpers.law import mean_error


@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_a_stiff_drift_needs_no_small_step(alpha: float) -> None:
    """A rate of 2,000 with steps of 0.01: no warning, and no growth; explicit steps explode."""
    options: dict[str, Any] = {"step": 0.01, "rng": 1, "paths": 3, "alpha": alpha}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hf.solve_fsde(lambda t, y: -2000.0 * y, 0.1, (0, 0.1), 1.0, method="implicit_euler", **options)
    assert np.all(np.abs(found.y[:, 0, 1:]) < 0.15)
    with pytest.warns(hf.errors.AccuracyWarning):
        wild = hf.solve_fsde(lambda t, y: -2000.0 * y, 0.1, (0, 0.1), 1.0, method="euler", **options)
    assert np.abs(wild.y).max() > 1e3


def test_stationary_variance_of_a_stiff_equation() -> None:
    """Of its own recursion y' = (y + g dW) / (1 + h r): g^2 h / ((1 + h r)^2 - 1)."""
    rate, h = 500.0, 0.02
    found = hf.solve_fsde(
        lambda t, y: -rate * y, 1.0, (0, 1), 0.0, step=h, paths=4000, rng=2, save="last", method="implicit_euler"
    )
    assert abs(mean_error(found.y[:, 0] ** 2, h / ((1 + h * rate) ** 2 - 1))) < 4


def test_strong_order_with_a_nonlinear_drift() -> None:
    """1 with additive noise, less 0.15, against the explicit method on a fine grid; two components that are coupled."""

    def drift(t: Any, y: Any) -> Any:
        return np.stack([-(y[:, 0] ** 3) + y[:, 1], -2 * y[:, 1] - y[:, 0]], -1)

    problem = read_problem(drift, np.array([0.5, 0.3]), 0.0, np.ones((1, 2)), noise.Brownian(), None)
    t = np.linspace(0, 1, 513)
    driving = noise.Brownian().sample(t, (100, 2), rng=1)
    exact = integrate(problem, METHODS["euler"], 1.0, t, 1 / 512, np.ones((100, 2)), driving, keep=False)
    errors, counts = [], (8, 16, 32)
    for count in counts:
        thin = 512 // count
        found = integrate(
            problem,
            METHODS["implicit_euler"],
            1.0,
            t[::thin],
            1 / count,
            np.ones((100, 2)),
            driving[:, :, ::thin],
            keep=False,
        )
        errors.append(np.mean(np.abs(found - exact)))
    assert -np.polyfit(np.log(counts), np.log(errors), 1)[0] > 1 - 0.15


def test_without_noise_the_caputo_equation_is_a_mittag_leffler_function() -> None:
    """First order in the step, like the explicit method's."""
    found = [
        hf.solve_fsde(
            lambda t, y: -y, 0.0, (0, 1), 1.0, step=1 / n, alpha=0.7, rng=1, method="implicit_euler", save="last"
        ).y[0, 0]
        for n in (100, 200, 400)
    ]
    errors = np.abs(np.array(found) - hf.mittag_leffler(-1.0, 0.7))
    assert errors[-1] < 2e-3
    assert errors[0] / errors[1] > 1.6 and errors[1] / errors[2] > 1.6


def test_refuses() -> None:
    """What Euler's method refuses; a step that has no solution."""
    with pytest.raises(InvalidInputError, match="does not converge"):
        hf.solve_fsde(
            lambda t, y: -y,
            lambda t, y: y,
            (0, 1),
            1.0,
            step=0.1,
            noise=noise.FractionalBrownian(0.3),
            method="implicit_euler",
        )
    with pytest.raises(SolveError, match=r"Newton's method did not converge at t=0\.5 for 2 of 2 paths"):
        hf.solve_fsde(lambda t, y: 10 + y**2, 0.0, (0, 1), 1.0, step=0.5, paths=2, rng=1, method="implicit_euler")


def test_first_and_second_derivatives_are_those_of_the_path():
    """In PyTorch, through the implicit function; against differences."""
    torch = pytest.importorskip("torch")
    options = {"step": 0.25, "paths": 2, "rng": 1, "method": "implicit_euler", "save": "last"}

    def end(y0):
        return hf.solve_fsde(lambda t, y: -5.0 * y - y**3, 0.1, (0.0, 1.0), y0, **options).y.sum()

    start = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(end(start), start, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), start)
    with torch.no_grad():
        low, middle, high = (float(end(start + change)) for change in (-1e-3, 0.0, 1e-3))
    assert float(first.detach()) == pytest.approx((high - low) / 2e-3, rel=1e-5)
    assert float(second) == pytest.approx((high - 2.0 * middle + low) / 1e-6, rel=1e-3)
