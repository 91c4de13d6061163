"""Right-sided operators: the left-sided ones of the reflected function, for samples and callables."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import rgamma

import hpfracc as hf
from hpfracc.errors import DivergenceError, InvalidInputError

OPERATORS = [hf.caputo, hf.riemann_liouville, hf.grunwald_letnikov, hf.riemann_liouville_integral]
END = 2.0


def cube(t: Any) -> Any:
    return (END - t) ** 3


def right_of(operator: Any, alpha: float, t: Any) -> Any:
    """The law of powers of b - t, which has no sign."""
    order = -alpha if operator is hf.riemann_liouville_integral else alpha
    return 6.0 * rgamma(4.0 - order) * (END - t) ** (3.0 - order)


@pytest.mark.parametrize("alpha", [0.5, 1.5])
@pytest.mark.parametrize("operator", OPERATORS)
def test_powers_of_the_distance_from_the_end(operator: Any, alpha: float) -> None:
    """Samples on uniform and other grids, along any axis, and callables at one point or many."""
    t = np.linspace(0.5, END, 401)
    right = right_of(operator, alpha, t)
    atol = 0.1 if operator is hf.grunwald_letnikov else 1e-3
    np.testing.assert_allclose(operator(cube(t), t, alpha, side="right"), right, atol=atol)
    columns = operator(np.stack([cube(t), 2.0 * cube(t)], 1), t, alpha, side="right", axis=0)
    np.testing.assert_allclose(columns[:, 1], 2.0 * right, atol=2.0 * atol)
    np.testing.assert_allclose(operator(cube, t, alpha, side="right"), right, atol=1e-12)
    assert operator(cube, 0.7, alpha, side="right", origin=END) == pytest.approx(right_of(operator, alpha, 0.7))
    if operator is not hf.grunwald_letnikov:
        bent = END - 1.5 * np.linspace(0.0, 1.0, 401)[::-1] ** 1.5
        for method in ("auto", "fast"):
            value = operator(cube(bent), bent, alpha, side="right", method=method)
            np.testing.assert_allclose(value, right_of(operator, alpha, bent), atol=2e-2)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_two_sides_are_adjoint(operator: Any) -> None:
    """Integration by parts, exactly: the matrix of the right side is that of the left, reflected in both axes."""
    identity = np.eye(12)
    left, right = (operator(identity, step=0.1, alpha=0.6, side=side)[:, :] for side in ("left", "right"))
    finite = np.isfinite(left)
    np.testing.assert_array_equal(right[::-1, ::-1][finite], left[finite])


def test_whole_orders_carry_the_sign_of_the_definition() -> None:
    """``(-1)^n f^(n)``, as the definition has it."""
    t = np.linspace(0.0, 1.0, 101)
    np.testing.assert_allclose(hf.caputo(np.sin(t), t, 1.0, side="right"), -np.cos(t), atol=1e-6)
    np.testing.assert_allclose(hf.riemann_liouville(np.sin, t, 2.0, side="right"), -np.sin(t), atol=1e-9)


def test_a_grid_far_from_zero_stays_uniform() -> None:
    """Points rounded at 1e6 are uniform for both sides alike, and the result says where it starts."""
    t = 1e6 + np.linspace(0.0, 1.0, 33)
    x = np.cos(t)
    found = hf.caputo(x, t, 0.5, side="right", full_output=True)
    assert (found.method, found.origin) == ("l1-2", t[-1])
    assert np.isnan(found.error_estimate[-1]) and np.isfinite(found.error_estimate[0])
    np.testing.assert_allclose(found.value, hf.caputo(x[::-1], step=1 / 32, alpha=0.5)[::-1], atol=1e-8)
    assert hf.caputo(np.cos, t, 0.5, side="right", full_output=True).origin == t[-1]


def test_by_name() -> None:
    """Through the factories, and as a field of the operator."""
    derivative = hf.create_fractional_derivative(0.5, "caputo", side="right")
    assert derivative == hf.Caputo(0.5, side="right")
    assert derivative(cube, 1.0, origin=END) == pytest.approx(right_of(hf.caputo, 0.5, 1.0))
    integral = hf.create_fractional_integral(0.5, side="right")
    assert integral(np.ones(3), step=1.0)[0] == pytest.approx(2.0 * math.sqrt(2.0 / math.pi))


def test_gradients_in_torch() -> None:
    """In samples, order and points: those of the left side, reflected."""
    torch = importlib.import_module("torch")
    t = np.linspace(0.0, 1.0, 20) ** 1.3

    def slopes(side: str, x: np.ndarray, points: np.ndarray, place: int) -> list[np.ndarray]:
        leaves = [torch.tensor(one, requires_grad=True) for one in (x, points, np.array(0.6))]
        value = hf.caputo(leaves[0], leaves[1], leaves[2], side=side)[place]
        return [slope.numpy() for slope in torch.autograd.grad(value, leaves)]

    x = np.sin(3.0 * t)
    right = slopes("right", x, t, 3)
    left = slopes("left", x[::-1].copy(), (t[-1] - t)[::-1].copy(), 16)
    np.testing.assert_allclose(right[0], left[0][::-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(right[1][:-1], -left[1][::-1][:-1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(right[2], left[2], rtol=1e-9)


def test_under_jit() -> None:
    """Samples and step may be traced."""
    jax = importlib.import_module("jax")
    x = np.sin(np.linspace(0.0, 1.0, 20))
    with jax.enable_x64(True):
        run = jax.jit(lambda x, step: hf.caputo(x, step=step, alpha=1.5, side="right"))
        np.testing.assert_allclose(run(x, 0.1), hf.caputo(x, step=0.1, alpha=1.5, side="right"), atol=1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hf.caputo(np.ones(9), step=0.1, alpha=0.5, side="up"), "side='up': use 'left', 'right'"),
        (lambda: hf.caputo(np.sin, 1.0, 0.5, side="right"), "give origin="),
        (lambda: hf.caputo(np.sin, [0.0, 1.0], 0.5, side="right", origin=0.5), "lies beyond origin=0.5"),
        (lambda: hf.caputo(np.ones(3), [0.0, 1.0, 2.0], 0.5, side="right", origin=3.0), "end at t\\[-1\\]=2"),
        (lambda: hf.Caputo(0.5, side="right").stream(0.1), "looks ahead"),
        (lambda: hf.caputo(lambda s: 1.0 / (s < 0.5), [0.0, 1.0], 0.5, side="right"), "f is not finite at t=0"),
    ],
)
def test_refusals(call: Any, words: str) -> None:
    """Each says what was wrong, with points in the caller's own time."""
    with np.errstate(divide="ignore"), pytest.raises(InvalidInputError, match=words):
        call()


def test_a_divergent_end_is_named() -> None:
    """1 / (b - t) has no right-sided derivative; the error names the end."""
    with pytest.raises(DivergenceError, match="near t=2,"):
        hf.caputo(lambda s: 1.0 / (END - s), [1.0, END], 0.5, side="right")
