"""Caputo's equation with white noise: variances, second moments, strong order, and the memory's digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from tests.helpers.caputo_order import strong_order
from tests.helpers.law import mean_error


def test_variance_of_the_linear_equation() -> None:
    """D^0.75 X = -X + W': Var X(1), within 4 standard errors."""
    result = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), 0.0, step=1 / 200, alpha=0.75, paths=4000, rng=1, save="last")
    assert result.method == "euler"
    assert abs(mean_error(result.y[:, 0] ** 2, 0.6060288143284627)) < 4


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
    assert abs(mean_error(result.y[:, 0] ** 2, 1.443965850400541)) < 4


def test_strong_order_of_euler() -> None:
    """alpha - 1/2 less 0.15."""
    assert strong_order("euler", 0.8, (16, 32, 64, 128), 1024, 300) > 0.8 - 0.5 - 0.15


@pytest.mark.parametrize("method", ["euler", "milstein", "implicit_euler"])
@pytest.mark.parametrize("y0", [1.0, [1.0, 2.0]], ids=["one component", "two"])
def test_paths_do_not_depend_on_how_many_there_are(method: str, y0: Any) -> None:
    """Up to rounding, with the noise that is handed out."""
    options: dict[str, Any] = {"step": 0.05, "alpha": 0.7, "rng": 4, "interpretation": "ito", "method": method}
    whole = hf.solve_fsde(lambda t, y: -y, lambda t, y: y, (0, 1), y0, paths=40, **options)
    for first, count in ((0, 1), (3, 2), (7, 5), (11, 1), (20, 20)):
        part = hf.solve_fsde(lambda t, y: -y, lambda t, y: y, (0, 1), y0, paths=count, first_path=first, **options)
        np.testing.assert_allclose(part.y, whole.y[first : first + count], rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(part.noise, whole.noise[first : first + count])
    assert whole.noise.shape == (40, np.size(y0), 21)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"alpha": 0.5}, "above 1/2"),
        ({"alpha": 1.5}, "at most 1"),
        ({"alpha": "half"}, "'half'"),
        ({"alpha": 0.7, "method": "second_order"}, "'milstein'"),
        ({"alpha": 0.7, "diffusion": lambda t, y: y, "interpretation": "stratonovich"}, "the Ito sense"),
    ],
    ids=["1/2", "above 1", "no number", "method", "interpretation"],
)
def test_refuses(bad: dict[str, Any], words: str) -> None:
    """Orders without a solution, noise and methods that do not go with them."""
    given = {"drift": lambda t, y: -y, "diffusion": 1.0, "t_span": (0, 1), "y0": 1.0, "step": 0.1, "rng": 1, **bad}
    with pytest.raises(InvalidInputError) as caught:
        hf.solve_fsde(**given)
    assert words in str(caught.value)
