"""Milstein's method for Caputo's equation: its strong order, moments, and noises that do not commute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.caputo_order import strong_order
from tests.helpers.law import mean_error


@pytest.mark.parametrize("alpha", [0.7, 0.85])
def test_strong_order(alpha: float) -> None:
    """2 alpha - 1 less 0.15; Euler's method does not reach that on the same steps."""
    assert strong_order("milstein", alpha, (4, 8, 16, 32), 4096, 100) > 2 * alpha - 1 - 0.15


def test_second_moment_of_multiplicative_noise() -> None:
    """D^0.75 X = X W' / 2, X(0) = 1: E X^2 is a Mittag-Leffler function, E X = 1."""
    options: dict[str, Any] = {"step": 1 / 16, "alpha": 0.75, "paths": 4000, "rng": 2, "interpretation": "ito"}
    result = hf.solve_fsde(
        lambda t, y: 0 * y, lambda t, y: 0.5 * y, (0, 1), 1.0, save="last", method="milstein", **options
    )
    assert result.method == "milstein"
    assert abs(mean_error(result.y[:, 0], 1.0)) < 4
    assert abs(mean_error(result.y[:, 0] ** 2, 1.443965850400541)) < 4


def test_general_noise_is_the_diagonal_one_where_it_is() -> None:
    """A matrix with the same numbers gives the same paths; additive noise needs no parts of a step."""

    def matrix(t: float, y: np.ndarray) -> np.ndarray:
        return 0.5 * np.stack([y * [1, 0], y * [0, 1]], axis=-1)

    options: dict[str, Any] = {"step": 0.1, "alpha": 0.8, "paths": 3, "rng": 5, "interpretation": "ito"}
    options["method"] = "milstein"
    general = hf.solve_fsde(lambda t, y: -y, matrix, (0, 1), [1.0, 2.0], **options)
    diagonal = hf.solve_fsde(lambda t, y: -y, lambda t, y: 0.5 * y, (0, 1), [1.0, 2.0], **options)
    np.testing.assert_allclose(general.y, diagonal.y, rtol=1e-8)
    np.testing.assert_array_equal(general.noise, diagonal.noise)
    options.pop("method")
    euler = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), 1.0, **options)
    additive = hf.solve_fsde(lambda t, y: -y, 1.0, (0, 1), 1.0, method="milstein", **options)
    np.testing.assert_allclose(additive.y, euler.y, rtol=1e-12, atol=1e-14)


def test_order_one_is_the_second_order_method() -> None:
    """By its usual name."""
    found = hf.solve_fsde(
        lambda t, y: -y, lambda t, y: y, (0, 1), 1.0, step=0.1, method="milstein", interpretation="ito", rng=1
    )
    assert found.method == "second_order"


def test_strengths_that_depend_on_other_components():
    """A diffusion of shape (paths, d) is the diagonal of one of shape (paths, d, d)."""
    options = {"step": 0.125, "alpha": 0.8, "interpretation": "ito", "method": "milstein", "rng": 1, "paths": 4}

    def diffusion(t, y):
        return y[:, ::-1] * [1.0, 0.5]

    def whole(t, y):
        return diffusion(t, y)[:, :, None] * np.eye(2)

    one, two = (hf.solve_fsde(lambda t, y: -y, g, (0, 1), [1.0, 2.0], **options).y for g in (diffusion, whole))
    np.testing.assert_allclose(one, two, rtol=1e-13)
