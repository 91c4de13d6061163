"""What holds for every operator, whatever the samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import hpfracc as hf
from tests.helpers.definitions import BELOW_ONE, OPERATORS, rules_of
from tests.helpers.thinned import thinned

EVERY_RULE = [(operator, method) for operator in OPERATORS for method in rules_of(operator)]
N = 24
STEP = 0.125
ROWS = arrays.arrays(np.float64, N, elements=st.floats(-10.0, 10.0, width=32))
ALPHAS = st.floats(0.05, 2.95).filter(lambda a: abs(a - round(a)) > 0.02)


def apply(operator: Any, method: str, alpha: float, x: np.ndarray) -> np.ndarray:
    """The operator beyond the origin, by NumPy, so that no choice of arms stands between two calls."""
    return np.asarray(operator(alpha, method=method)(x, step=STEP, backend="numpy"))[..., 1:]


def matrix(operator: Any, method: str, alpha: float) -> np.ndarray:
    """What the operator does to each sample: column j is its answer to a one at point j."""
    return np.asarray(operator(alpha, method=method)(np.eye(N), step=STEP, backend="numpy")).T


@pytest.mark.parametrize(("operator", "method"), EVERY_RULE)
@settings(max_examples=8, deadline=None)
@given(x=ROWS, y=ROWS, a=st.floats(-3.0, 3.0), alpha=ALPHAS)
@thinned(one_in=3)
def test_linear(operator: Any, method: str, x: np.ndarray, y: np.ndarray, a: float, alpha: float):
    """``D(a x + y) = a D x + D y``, to rounding of the largest term."""
    if operator in BELOW_ONE:
        alpha = min(max(alpha / 3.0, 0.05), 0.95)
    left = apply(operator, method, alpha, a * x + y)
    one, two = apply(operator, method, alpha, x), apply(operator, method, alpha, y)
    size = 1.0 + abs(a) * np.abs(x).max() + np.abs(y).max()
    gain = np.abs(matrix(operator, method, alpha)[1:]).sum(axis=1).max()
    assert np.abs(left - a * one - two).max() <= 1e-13 * gain * size


@pytest.mark.parametrize("method", list(hf.Caputo.rules))
@settings(max_examples=30, deadline=None)
@given(value=st.floats(-1e6, 1e6), alpha=st.floats(0.01, 3.0))
def test_caputo_of_a_constant_is_exactly_zero(method: str, value: float, alpha: float):
    """Not small: zero, whatever the constant and the order."""
    assert not hf.caputo(np.full(200, value), step=STEP, alpha=alpha, method=method).any()


@settings(max_examples=20, deadline=None)
@given(one=st.floats(0.1, 1.5), two=st.floats(0.1, 1.5), power=st.floats(2.0, 4.0))
def test_integrals_form_a_semigroup(one: float, two: float, power: float):
    """``I^a I^b f = I^(a+b) f``, within the error of the rule."""
    t = np.linspace(0.0, 1.0, 401)
    x = t**power
    twice = hf.riemann_liouville_integral(hf.riemann_liouville_integral(x, t, one), t, two)
    np.testing.assert_allclose(twice, hf.riemann_liouville_integral(x, t, one + two), atol=2e-7)


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.4])
def test_a_derivative_undoes_the_integral(alpha: float):
    """``D^alpha I^alpha f = f`` for Riemann-Liouville, and for Caputo where f vanishes at the origin."""
    t = np.linspace(0.0, 1.0, 2001)
    x = t**3 * np.cos(t)
    whole = hf.riemann_liouville_integral(x, t, alpha)
    for operator in (hf.caputo, hf.riemann_liouville):
        np.testing.assert_allclose(operator(whole, t, alpha)[200:], x[200:], atol=1e-4)


@pytest.mark.parametrize("method", list(hf.Caputo.rules))
@pytest.mark.parametrize("m", [1, 2])
def test_orders_next_to_whole_ones_come_close(method: str, m: int):
    """As alpha rises to m the Caputo derivative tends to f^(m); from above, to f^(m) - f^(m)(0)."""
    t = np.linspace(0.0, 1.0, 401)
    below = hf.caputo(np.sin(t + 1.0), t, m - 1e-7, method=method)
    exact = np.cos(t + 1.0) if m == 1 else -np.sin(t + 1.0)
    np.testing.assert_allclose(below[10:], exact[10:], atol=5e-3)
    above = hf.caputo(np.sin(t + 1.0), t, m + 1e-7, method=method)
    np.testing.assert_allclose(above[10:], (exact - exact[0])[10:], atol=5e-3)


@pytest.mark.parametrize(("operator", "method"), EVERY_RULE)
@pytest.mark.parametrize("alpha", [0.5, 1.5])
@thinned(lambda alpha: alpha == 0.5)
def test_adjoint(operator: Any, method: str, alpha: float):
    """The gradient of ``<D f, g>`` in f is ``D* g``, the transposed matrix applied to g: no matrix is ever built."""
    torch = pytest.importorskip("torch")
    alpha = 0.5 if operator in BELOW_ONE else alpha
    generator = np.random.default_rng(7)
    f, g = generator.normal(size=(2, N))
    samples = torch.tensor(f, requires_grad=True)
    value = operator(alpha, method=method)(samples, step=STEP)
    (value[1:] * torch.tensor(g[1:])).sum().backward()
    rows = matrix(operator, method, alpha)[1:]
    np.testing.assert_allclose(samples.grad.numpy(), rows.T @ g[1:], rtol=1e-9, atol=1e-11 * np.abs(rows).sum())
    left, right = float((rows @ f) @ g[1:]), float(f @ samples.grad.numpy())
    assert math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9 * np.abs(rows).sum())


@pytest.mark.parametrize(("operator", "method"), EVERY_RULE)
def test_causal_and_the_same_at_every_place(operator: Any, method: str):
    """No later sample counts: the matrix is lower triangular."""
    rows = matrix(operator, method, 0.7)[1:]
    assert np.abs(np.triu(rows, 2)).max() <= 1e-13 * np.abs(rows).max()
