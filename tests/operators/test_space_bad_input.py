"""Operators in space refuse what they cannot do, with the value and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import HpfraccError, InvalidInputError, ShapeError

X = np.linspace(0.0, 1.0, 20, endpoint=False)
F = np.sin(2 * np.pi * X)
PLANE = np.ones((20, 20))
BENT = X + 0.1 * X**2

CASES: dict[str, tuple[Callable[[], Any], type[HpfraccError], str]] = {
    "bent grid": (lambda: hf.weyl(F, BENT, 0.5), InvalidInputError, "needs a uniform grid"),
    "bent plane": (lambda: hf.fractional_laplacian(PLANE, (X, BENT), 1.0, axis=(0, 1)), InvalidInputError, "uniform"),
    "nan order": (lambda: hf.riesz(F, X, np.nan), InvalidInputError, "give a finite number"),
    "negative riesz": (lambda: hf.riesz(F, X, -0.5), InvalidInputError, "fractional_laplacian with a negative"),
    "order zero": (lambda: hf.riesz(F, X, 0.0), InvalidInputError, "alpha=0"),
    "integral beyond 2": (lambda: hf.fractional_laplacian(F, X, 2.5), InvalidInputError, "method='periodic'"),
    "integral of order 0": (lambda: hf.fractional_laplacian(F, X, 0.0), InvalidInputError, "alpha=0"),
    "integral order": (lambda: hf.weyl_integral(F, X, -0.5), InvalidInputError, "use weyl"),
    "unknown method": (lambda: hf.riesz(F, X, 0.5, method="l1"), InvalidInputError, "centred, centred4, spectral"),
    "no such laplacian": (lambda: hf.fractional_laplacian(F, X, 1, method="fft"), InvalidInputError, "dirichlet"),
    "wrong period": (lambda: hf.weyl(F, X, 0.5, period=2.0), InvalidInputError, "cover 1, not the period 2"),
    "period below 0": (lambda: hf.weyl(F, X, 0.5, period=-1.0), InvalidInputError, "a finite number above 0"),
    "period for differences": (lambda: hf.riesz(F, X, 0.5, period=1.0), InvalidInputError, "method='spectral'"),
    "callable without period": (lambda: hf.weyl(np.sin, X, 0.5), InvalidInputError, "needs its period"),
    "not periodic": (lambda: hf.weyl(np.exp, X, 0.5, period=1.0), InvalidInputError, "changes by 1.72"),
    "origin": (lambda: hf.weyl(np.sin, X, 0.5, period=1.0, origin=0.0), InvalidInputError, "no origin"),
    "origin of a laplacian": (lambda: hf.fractional_laplacian(F, X, 1.0, origin=0.0), InvalidInputError, "origin=0.0"),
    "factor": (lambda: hf.riesz(np.sin, X, 0.5, factor=0.5), InvalidInputError, "factor=0.5"),
    "single point": (lambda: hf.riesz(np.sin, 0.3, 0.5), InvalidInputError, "single point"),
    "no axis": (lambda: hf.fractional_laplacian(PLANE, step=1.0, alpha=1.0, axis=()), InvalidInputError, "no axis"),
    "axis twice": (lambda: hf.fractional_laplacian(PLANE, step=1.0, alpha=1.0, axis=(0, 0)), ShapeError, "twice"),
    "axis too far": (lambda: hf.fractional_laplacian(PLANE, step=1.0, alpha=1.0, axis=(0, 2)), ShapeError, "axis=2"),
    "one grid for two": (lambda: hf.fractional_laplacian(PLANE, X, 1.0, axis=(0, 1)), ShapeError, "points along each"),
    "three steps": (
        lambda: hf.fractional_laplacian(PLANE, step=(1.0,) * 3, alpha=1.0, axis=(0, 1)),
        ShapeError,
        "3 entries for 2 axes",
    ),
    "a step below 0": (
        lambda: hf.fractional_laplacian(PLANE, step=(1.0, -1.0), alpha=1.0, axis=(0, 1)),
        InvalidInputError,
        "a finite number above 0",
    ),
    "too short a grid": (
        lambda: hf.fractional_laplacian(PLANE, (X, X[:5]), 1.0, axis=(0, 1)),
        ShapeError,
        "5 points but f has 20",
    ),
    "callable of the wrong shape": (
        lambda: hf.fractional_laplacian(lambda x, y: x[0], (X, X), 1.0, axis=(0, 1)),
        ShapeError,
        "one value per point",
    ),
    "callable without grid": (
        lambda: hf.fractional_laplacian(np.add, step=1.0, alpha=1.0, axis=(0, 1)),
        InvalidInputError,
        "give t",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_the_value_and_the_remedy(name: str):
    """Each is a typed error whose message says what was wrong."""
    call, error, words = CASES[name]
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_steps_with_derivatives_must_be_one():
    """One learnable step serves all axes; several do not."""
    torch = pytest.importorskip("torch")
    steps = [torch.tensor(value, requires_grad=True) for value in (0.1, 0.2)]
    with pytest.raises(InvalidInputError, match="one step for all axes"):
        hf.fractional_laplacian(torch.ones(4, 4), step=steps, alpha=1.0, axis=(0, 1))


def test_definitions_by_name():
    """The factories know them by full and short name."""
    derivative, integral = hf.create_fractional_derivative, hf.create_fractional_integral
    assert derivative(0.5, "weyl") == hf.Weyl(0.5)
    assert derivative(0.5, "Riesz", method="spectral") == hf.Riesz(0.5, "spectral")
    assert derivative(0.5, "laplacian") == hf.FractionalLaplacian(0.5)
    assert integral(0.5, "W", period=1.0) == hf.WeylIntegral(0.5, period=1.0)
