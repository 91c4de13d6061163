"""Caputo's equation with white noise: variances, second moments, strong order, and the memory's digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import hpfracc as hf
from hpfracc import noise
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.methods.caputo_euler import _memory, integrate_caputo, newest_integrals
from hpfracc.solvers.sde.problem import read_problem
from tests.helpers.law import mean_error


@pytest.mark.parametrize("alpha", [0.51, 0.75, 0.99])
def test_memory_is_a_sum_of_exponentials_to_eight_digits(alpha: float) -> None:
    """Means of the kernel over each of 10,000 steps but the newest."""
    decay, weights = _memory(alpha, 10_000)
    for j in (1, 2, 3, 10, 100, 1000, 9999):
        exact = -special.expm1(-alpha * np.log1p(1 / j)) * (j + 1.0) ** alpha / special.gamma(alpha + 1)
        assert weights @ decay ** (j - 1) == pytest.approx(exact, rel=2e-8)
    assert decay.size < 80


def test_variance_of_the_linear_equation() -> None:
    """D^0.75 X = -X + W': Var X(1), within 4 standard errors and the step's half per cent."""
    result = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), 0.0, step=1 / 200, alpha=0.75, paths=4000, rng=1, save="last")
    assert result.method == "euler"
    squares = result.y[:, 0] ** 2
    error = 4 * squares.std() / np.sqrt(squares.size) + 0.005 * 0.606
    assert abs(squares.mean() - 0.6060288143284627) < error


def test_without_noise_it_is_a_mittag_leffler_function() -> None:
    """First order in the step."""
    found = [
        hf.solve_fsde(lambda t, y: -y, 0.0, (0, 1), 1.0, step=1 / n, alpha=0.7, rng=1).y[0, 0, -1]
        for n in (100, 200, 400)
    ]
    errors = np.abs(np.array(found) - hf.mittag_leffler(-1.0, 0.7))
    assert errors[-1] < 2e-3
    assert errors[0] / errors[1] > 1.6 and errors[1] / errors[2] > 1.6


def test_second_moment_of_multiplicative_noise() -> None:
    """D^0.75 X = X W' / 2, X(0) = 1: E X^2 is a Mittag-Leffler function, E X = 1."""
    options: dict[str, Any] = {"step": 1 / 200, "alpha": 0.75, "paths": 4000, "rng": 2, "interpretation": "ito"}
    result = hf.solve_fsde(lambda t, y: 0 * y, lambda t, y: 0.5 * y, (0, 1), 1.0, save="last", **options)
    assert abs(mean_error(result.y[:, 0], 1.0)) < 4
    squares = result.y[:, 0] ** 2
    assert abs(squares.mean() - 1.443965850400541) < 4 * squares.std() / np.sqrt(squares.size) + 0.03


def test_strong_order() -> None:
    """alpha - 1/2 less 0.15, against a fine solution of the same noise."""
    alpha, count, finest = 0.8, 300, 1024
    problem = read_problem(lambda t, y: -y, lambda t, y: np.sin(y) + 1, 0.0, np.ones((1, 1)), noise.Brownian(), "ito")
    random = np.random.default_rng(3)
    h = 1 / finest
    dw = np.sqrt(h) * random.standard_normal((count, 1, finest))
    fine = newest_integrals(alpha, h, dw, random.standard_normal(dw.shape))
    lags = np.arange(1.0, 65.0)
    means = (lags**alpha - (lags - 1) ** alpha) * h ** (alpha - 1) / special.gamma(alpha + 1)
    start = np.ones((count, 1))
    exact = integrate_caputo(problem, alpha, np.linspace(0, 1, finest + 1), h, start, dw, fine)[:, 0, -1]
    errors, steps = [], []
    for thin in (64, 32, 16, 8):
        parts = dw.reshape(count, 1, -1, thin)
        # The newest integral of a coarse step: exact over its last fine step, means of the kernel before.
        newest = parts[..., :-1] @ means[1:thin][::-1] + fine.reshape(parts.shape)[..., -1]
        grid = np.linspace(0, 1, finest // thin + 1)
        found = integrate_caputo(problem, alpha, grid, thin * h, start, parts.sum(-1), newest)[:, 0, -1]
        errors.append(np.mean(np.abs(found - exact)))
        steps.append(thin * h)
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] > alpha - 0.5 - 0.15


def test_paths_do_not_depend_on_how_many_there_are() -> None:
    """To the bit, with the noise that is handed out."""
    options: dict[str, Any] = {"step": 0.02, "alpha": 0.7, "rng": 4, "interpretation": "ito"}
    whole = hf.solve_fsde(lambda t, y: -y, lambda t, y: y, (0, 1), [1.0, 2.0], paths=8, **options)
    part = hf.solve_fsde(lambda t, y: -y, lambda t, y: y, (0, 1), [1.0, 2.0], paths=2, first_path=3, **options)
    np.testing.assert_allclose(part.y, whole.y[3:5], rtol=1e-13)
    np.testing.assert_array_equal(part.noise, whole.noise[3:5])
    assert whole.noise.shape == (8, 2, 51)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"alpha": 0.5}, "above 1/2"),
        ({"alpha": 1.5}, "at most 1"),
        ({"alpha": "half"}, "'half'"),
        ({"alpha": 0.7, "noise": noise.FractionalBrownian(0.7)}, "noise.Brownian()"),
        ({"alpha": 0.7, "noise": noise.StableLevy(1.5)}, "noise.Brownian()"),
        ({"alpha": 0.7, "method": "second_order"}, "'auto' or 'euler'"),
        ({"alpha": 0.7, "diffusion": lambda t, y: y, "interpretation": "stratonovich"}, "Ito's sense"),
    ],
    ids=["1/2", "above 1", "no number", "fractional noise", "stable noise", "method", "interpretation"],
)
def test_refuses(bad: dict[str, Any], words: str) -> None:
    """Orders without a solution, noise and methods that do not go with them."""
    given = {"drift": lambda t, y: -y, "diffusion": 1.0, "t_span": (0, 1), "y0": 1.0, "step": 0.1, "rng": 1, **bad}
    with pytest.raises(InvalidInputError) as caught:
        hf.solve_fsde(**given)
    assert words in str(caught.value)
