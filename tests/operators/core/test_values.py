"""Samples in the caller's own library: the few operations on them that operators need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpfracc._arrays import dtype_name, library_of, to_host
from hpfracc.operators.core.values import (
    as_values,
    constant,
    flip,
    join,
    largest,
    move_axis,
    points_like,
    zeros,
)

X = np.array([[1.0, -2.0, 3.0], [0.0, 4.0, -1.0]])
LIBRARIES = ("numpy", "torch", "jax")


def make(library: str, values: Any) -> Any:
    """Values in a library, in their own precision; skips the test without the library."""
    if library == "numpy":
        return np.array(values)
    if library == "torch":
        return pytest.importorskip("torch").tensor(values)
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return jax.numpy.asarray(values)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_pieces_keep_library_and_dtype(library: str, dtype: str):
    """Zeros, joined parts, reversed points and a moved axis, also of JAX in double precision without x64."""
    x, expected = make(library, X.astype(dtype)), X.astype(dtype)
    pairs = [
        (zeros(x, 2), np.zeros((2, 2), dtype)),
        (join([x, x[..., :1]]), np.concatenate([expected, expected[..., :1]], -1)),
        (flip(x), expected[..., ::-1]),
        (move_axis(x, 0, -1), expected.T),
    ]
    for found, right in pairs:
        assert library_of(found) == library
        assert dtype_name(found) == dtype
        assert np.array_equal(to_host(found), right)
    assert move_axis(x, -1, -1) is x


@pytest.mark.parametrize("library", LIBRARIES)
def test_largest_leaves_out_what_is_not_finite(library: str):
    """The largest absolute value of each row, without a warning."""
    x = make(library, np.array([[1.0, -5.0, np.nan], [np.inf, 0.0, -np.inf]], np.float32))
    assert to_host(largest(x)).tolist() == [[5.0], [0.0]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_integers_become_floats(library: str):
    """Of the widest kind that the library has: float32 in JAX without x64."""
    values = as_values(make(library, np.array([1, 2], np.int32)))
    assert library_of(values) == library
    assert dtype_name(values) == ("float32" if library == "jax" else "float64")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_samples_come_to_the_library_of_the_order(library: str, dtype: str):
    """In their own precision, also in JAX without x64."""
    values = as_values(X.astype(dtype), make(library, np.array(0.5, np.float32)))
    assert library_of(values) == library
    assert dtype_name(values) == dtype
    assert np.array_equal(to_host(values), X.astype(dtype))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_points_for_a_callable_have_the_callers_precision(library: str):
    """That of the caller's points."""
    given = X[0]
    points = points_like(given, make(library, given.astype(np.float32)))
    assert (library_of(points), dtype_name(points)) == (library, "float32")
    assert points_like(given, given) is given


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_named_coefficients_are_copied_once(library: str):
    """The copy for one dtype is found again; without a name, and for another dtype, there is another."""
    like, single = make(library, X), make(library, X.astype(np.float32))
    first = constant(X[0], like, "test-values")
    assert library_of(first) == library
    assert dtype_name(first) == "float64"
    assert constant(X[0], like, "test-values") is first
    assert constant(X[0], like) is not first
    assert dtype_name(constant(X[0], single, "test-values")) == "float32"


def test_coefficients_are_not_cached_inside_a_transform_of_torch():
    """What was made in one call of vmap is not used after it."""
    torch = pytest.importorskip("torch")
    seen = []

    def function(x: Any) -> Any:
        seen.append(constant(X[0], x, "test-vmap"))
        return x * seen[-1]

    rows = torch.as_tensor(X)
    torch.func.vmap(function)(rows)
    assert torch.equal(torch.func.vmap(function)(rows), rows * torch.as_tensor(X[0]))
    assert seen[0] is not seen[1]


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_coefficients_of_another_library_get_the_real_dtype(library: str):
    """That of the precision of the samples; the derivative is kept."""
    found = constant(make(library, X[0]), make(library, X.astype(np.complex64)))
    assert (library_of(found), dtype_name(found)) == (library, "float32")
    if library == "torch":
        import torch

        weights = torch.tensor(X[0], requires_grad=True)
        constant(weights, torch.ones(3)).sum().backward()
        assert weights.grad.tolist() == [1.0, 1.0, 1.0]
