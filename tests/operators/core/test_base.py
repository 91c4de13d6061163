"""One way to call: samples or a callable, points or a step, any axis, dtype and library, and a full account."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.definitions import FUNCTIONS, OPERATORS, orders_of, rules_of
from tests.helpers.gpus import sees_a_gpu
from tests.helpers.thinned import thinned

T = np.linspace(0.0, 2.0, 65)
X = np.cos(3.0 * T) + T
BACKENDS = ["numpy", "numba", "torch", "jax", *(["cupy"] if sees_a_gpu("cupy") else [])]


def finite(value: Any) -> np.ndarray:
    """Without the origin, which is infinite for some."""
    return np.asarray(value)[..., 1:]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_is_data(operator: Any):
    """Frozen, comparable, picklable; the function of the same name gives the same numbers."""
    made = operator(0.5)
    assert made == operator(0.5) != operator(0.6)
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.alpha = 0.7
    np.testing.assert_array_equal(made(X, T), FUNCTIONS[operator](X, T, 0.5))


@pytest.mark.parametrize("operator", OPERATORS)
def test_points_or_a_step(operator: Any):
    """A step, the points, and points that were added up or rounded to float32 give the same answer."""
    right = finite(operator(0.5)(X, T))
    np.testing.assert_allclose(finite(operator(0.5)(X, step=2.0 / 64)), right, rtol=1e-12)
    np.testing.assert_allclose(finite(operator(0.5)(X, np.cumsum(np.full(65, 0.03125)) - 0.03125)), right, rtol=1e-12)
    np.testing.assert_allclose(finite(operator(0.5)(X, (T + 5.0).astype("float32"))), right, rtol=1e-6)
    np.testing.assert_allclose(finite(operator(0.5)(X, T.tolist())), right, rtol=1e-12)


def test_a_drifting_sum_of_steps_is_uniform_and_a_bent_grid_is_not():
    """1e5 added steps of 0.1 are off by 2e-8, yet uniform; a grid bent by a part in a million is refused."""
    n = 100_001
    drifting = np.cumsum(np.full(n, 0.1)) - 0.1
    assert abs(drifting[-1] - 10_000.0) > 1e-8
    assert hf.caputo(np.zeros(n), drifting, 0.5).shape == (n,)
    with pytest.raises(hf.errors.InvalidInputError, match="needs a uniform grid; the steps of t run from"):
        hf.grunwald_letnikov(X, T + 1e-6 * T**2, 0.5)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@thinned(lambda operator, axis: axis == 1 or operator is hf.Caputo)
def test_any_axis_and_leading_shape(operator: Any, axis: int):
    """Along any axis of a stack, each row is what it is alone."""
    stack = np.moveaxis(np.stack([[X, 2 * X], [X**2, np.sin(X)]]), -1, axis)
    value = np.moveaxis(operator(0.5)(stack, T, axis=axis), axis, -1)
    assert value.shape == (2, 2, 65)
    np.testing.assert_allclose(finite(value[1, 0]), finite(operator(0.5)(X**2, T)), rtol=1e-10)


@pytest.mark.parametrize("operator", OPERATORS)
def test_dtypes(operator: Any):
    """float32 stays float32, integers are promoted and not truncated, complex is the sum of its parts."""
    right = operator(0.5)(X, T)
    single = operator(0.5)(X.astype("float32"), T)
    assert single.dtype == np.float32
    np.testing.assert_allclose(finite(single), finite(right), rtol=2e-5, atol=2e-5)
    counts = np.arange(65) % 7
    whole = operator(0.5)(counts, T)
    assert whole.dtype == np.float64
    np.testing.assert_allclose(finite(whole), finite(operator(0.5)(counts.astype(float), T)), rtol=1e-10, atol=1e-10)
    both = operator(0.5)(X + 1j * X**2, T)
    assert both.dtype == np.complex128
    np.testing.assert_allclose(finite(both.real), finite(right), rtol=1e-10)
    np.testing.assert_allclose(finite(both.imag), finite(operator(0.5)(X**2, T)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("backend", BACKENDS)
@thinned(lambda operator, backend: backend != "jax" or operator in (hf.Caputo, hf.AtanganaBaleanu, hf.VariableOrder))
@pytest.mark.usefixtures("with_numba")
def test_every_backend_gives_the_same_numbers(operator: Any, backend: str):
    """Every rule on every backend that is installed, asked for by context and by argument, agrees with NumPy's."""
    for method in rules_of(operator):
        for alpha in orders_of(operator, 0.4, 1.6):
            made = operator(alpha, method=method)
            right = finite(made(X, T, backend="numpy"))
            with hf.use_backend(backend):
                value = made(X, T)
            scale = np.abs(right).max()
            np.testing.assert_allclose(finite(value), right, atol=1e-11 * scale, rtol=0, err_msg=method)
            assert isinstance(made(X, T, backend=backend), np.ndarray)
            decision = made(X, T, backend=backend, full_output=True).decision
            assert {one.backend for one in decision} == {backend}


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("operator", OPERATORS)
@thinned(lambda operator, library: library != "jax" or operator is hf.Caputo)
def test_what_comes_back_is_what_went_in(operator: Any, library: str):
    """A tensor gives a tensor and a JAX array a JAX array, in its own dtype, for plain and for array orders."""
    module = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
    make = module.tensor if library == "torch" else module.asarray
    for dtype, alpha in (("complex64", 0.5), ("float32", make(np.float32(0.5)))):
        samples = make(X.astype(dtype))
        value = operator(alpha)(samples, T)
        assert type(value).__module__.partition(".")[0].removesuffix("lib") == library
        assert value.dtype == samples.dtype
        np.testing.assert_allclose(finite(value), finite(operator(0.5)(X, T)), rtol=3e-5, atol=3e-5)


def test_full_output_tells_everything():
    """Value, method, an error estimate that bounds the error, the decision and the origin."""
    t = np.linspace(1.0, 2.0, 201)
    result = hf.caputo((t - 1.0) ** 3, t, 0.5, full_output=True)
    right = 6.0 / math.gamma(3.5) * (t - 1.0) ** 2.5
    assert result.method == "l1-2"
    assert result.origin == 1.0
    assert result.decision.operation == "causal_convolution"
    error = np.abs(result.value - right)
    assert np.isnan(result.error_estimate[:2]).all()  # the two rules agree there, which says nothing
    assert (error[2:] <= result.error_estimate[2:]).all()
    assert result.error_estimate[2:].max() < 1e-3
    assert np.isnan(hf.caputo(t, t, 0.5, method="l1", full_output=True).error_estimate[:2]).all()


def test_the_origin_may_be_named():
    """``origin`` of samples is their first point; with a step it is only reported."""
    assert hf.caputo(X, step=0.1, alpha=0.5, origin=3.0, full_output=True).origin == 3.0
    assert hf.caputo(X, T, 0.5, origin=0.0, full_output=True).origin == 0.0


def test_negative_orders_integrate():
    """Caputo and Riemann-Liouville of a negative order are the integral; a negative integral is refused."""
    right = hf.riemann_liouville_integral(X, T, 0.7)
    np.testing.assert_array_equal(hf.caputo(X, T, -0.7), right)
    np.testing.assert_array_equal(hf.riemann_liouville(X, T, -0.7), right)
    np.testing.assert_allclose(hf.grunwald_letnikov(X, T, -0.7), right, atol=0.1)
    with pytest.raises(hf.errors.InvalidInputError, match=r"alpha=-0.7.*use riemann_liouville"):
        hf.riemann_liouville_integral(X, T, -0.7)


@pytest.mark.parametrize("method", ["l1-2", "l1"])
def test_a_second_call_of_the_same_kind_is_the_first_one_again(method: str):
    """What is remembered of a call is its kind alone: other samples, steps and batches get answers of their own."""
    operator = hf.Caputo(0.5, method)
    rng = np.random.default_rng(0)
    for shape, step in (((40,), 0.1), ((40,), 0.3), ((3, 40), 0.1), ((40,), 0.1)):
        samples = rng.standard_normal(shape)
        t = step * np.arange(40)
        np.testing.assert_allclose(operator(samples, step=step), operator(samples, t), rtol=1e-11, atol=1e-11)
    operator(rng.standard_normal(40), step=0.1)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(hf.errors.InvalidInputError):
            operator(rng.standard_normal(40), step=bad)
    with pytest.raises(hf.errors.ShapeError):
        operator(rng.standard_normal((40, 40)), step=0.1, axis=2)


@pytest.mark.parametrize("operator", [hf.Caputo, hf.GrunwaldLetnikov, hf.RiemannLiouvilleIntegral])
def test_an_order_in_an_array_is_an_order(operator: Any):
    """An operator that cannot be hashed is not remembered, and gives what the plain order gives, call after call."""
    f = np.sin(np.linspace(0.0, 3.0, 40))
    wanted = operator(0.5)(f, step=0.1)
    for _ in range(2):
        np.testing.assert_array_equal(operator(np.array(0.5))(f, step=0.1), wanted)
