"""One array namespace: each library's functions have NumPy's names and give NumPy's values."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hpfracc._arrays import dtype_name, library_of, to_host
from hpfracc._xp import NUMPY, Namespace, array_namespace, namespace, namespace_of
from hpfracc._xp.base import CuPyNamespace

X = np.array([[1.0, -2.0, 3.0, 0.5], [0.0, 4.0, -1.0, 2.0]])


def make(library: str, values: Any) -> Any:
    """Values in a library, in their own precision; skips the test without the library."""
    if library == "numpy":
        return np.asarray(values)
    if library == "torch":
        return pytest.importorskip("torch").as_tensor(values)
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return jax.numpy.asarray(values)


@pytest.fixture(params=["numpy", "torch", "jax"])
def library(request: pytest.FixtureRequest) -> str:
    """The name of a library."""
    return str(request.param)


def test_the_namespace_of_an_array_is_that_of_its_library(library: str):
    """Also for a second array of the type, which is found in a table."""
    for _ in range(2):
        assert array_namespace(make(library, X)).library == library


def test_numbers_have_numpys_namespace():
    """Python's numbers, NumPy's scalars and lists."""
    for value in (1, 0.5, 1j, [1.0], np.float32(1.0)):
        assert array_namespace(value) is NUMPY


def test_the_namespace_of_a_tensor_knows_its_device():
    """New tensors are on the device of the one that the namespace is of."""
    torch = pytest.importorskip("torch")
    there, here = torch.empty(2, device="meta"), torch.empty(2)
    assert array_namespace(there).array([1.0]).device.type == "meta"
    assert array_namespace(here).array([1.0]).device.type == "cpu"


class OfCuPy:
    """As :func:`library_of` sees an array of CuPy."""

    dtype = np.dtype(np.float64)


OfCuPy.__module__ = "cupy"


def test_cupy_copies_coefficients_and_caches_the_copy(monkeypatch: pytest.MonkeyPatch):
    """In the dtype that is asked for. NumPy stands in for CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", np)
    xp = CuPyNamespace("cupy")
    assert xp.can_cache(X)
    assert xp.coefficients(X, "float32", X).dtype == xp.cacheable(X, "float32", X).dtype == np.float32


@pytest.mark.parametrize(
    "operation",
    [
        lambda xp, x: xp.concatenate([x, x[:, :1]], -1),
        lambda xp, x: xp.concatenate((x, x[:1])),
        lambda xp, x: xp.stack([x, x]),
        lambda xp, x: xp.cumsum(x, -1),
        lambda xp, x: xp.cumprod(x),
        lambda xp, x: xp.amax(x, -1, keepdims=True),
        lambda xp, x: xp.where(x < 0.0, x, x * 2.0),
        lambda xp, x: xp.moveaxis(x, 0, -1),
        lambda xp, x: xp.contiguous(xp.flip(x)),
        lambda xp, x: xp.copy(x),
        lambda xp, x: xp.from_pairs(x),
        lambda xp, x: xp.stop_gradient(x),
        lambda xp, x: xp.arange(1, 4, x.dtype, like=x),
        lambda xp, x: xp.zeros((2, 3), x.dtype, x),
        lambda xp, x: xp.zeros((2, 3), "complex64", like=x),
        lambda xp, x: xp.astype(x, "float32"),
        lambda xp, x: xp.astype(x, x.dtype, x),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_library_gives_numpys_values(library: str, dtype: str, operation: Callable[[Namespace, Any], Any]):
    """With the same shape and dtype, without a warning."""
    x = X.astype(dtype)
    with namespace_of(make(library, x)).scope():
        own = make(library, x)
        found, expected = operation(array_namespace(own), own), operation(NUMPY, x)
    assert library_of(found) == library
    assert dtype_name(found) == dtype_name(expected)
    assert np.array_equal(to_host(found), expected)


def test_float_is_the_widest_that_the_library_has(library: str):
    """Integers become float64; float32 in JAX without x64, as JAX itself does, and without its warning."""
    array = make(library, np.array([1, 2], np.int32))
    found = array_namespace(array).astype(array, float)
    assert dtype_name(found) == ("float32" if library == "jax" else "float64")


def test_zeros_of_jax_have_their_dtype_without_x64():
    """Also outside of a scope of double precision, and without a warning."""
    jax = pytest.importorskip("jax")
    assert not jax.config.jax_enable_x64
    assert namespace("jax").zeros((2,), "float64").dtype == np.float64


def test_cached_coefficients_of_jax_are_no_tracers():
    """A copy made while JAX traces can be used afterwards; for a tracer itself there is none."""
    jax = pytest.importorskip("jax")
    like, made, asked = make("jax", X), [], []

    def function(x: Any) -> Any:
        xp = array_namespace(x)
        asked.append(xp.can_cache(x))
        made.append(xp.cacheable(X, "float64", like))
        return x

    jax.jit(function)(like)
    assert asked == [False]
    assert array_namespace(like).can_cache(like)
    assert np.array_equal(to_host(made[0]), X)
    assert dtype_name(made[0]) == "float64"


def test_coefficients_of_torch_are_not_cached_inside_a_transform():
    """There they belong to the transform."""
    torch = pytest.importorskip("torch")
    asked = []

    def function(x: Any) -> Any:
        asked.append(array_namespace(x).can_cache(x))
        return x

    torch.func.vmap(function)(torch.ones(2, 3))
    assert asked == [False]
    assert array_namespace(torch.ones(2)).can_cache(torch.ones(2))


def test_coefficients_of_torch_outlive_inference_mode():
    """A tensor made in inference mode could not be used in a recorded product later."""
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        like = torch.ones(3)
        made = array_namespace(like).coefficients(np.arange(3.0), "float64", like)
    assert not made.is_inference()
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (x * made).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 2.0]


def test_namespaces_can_be_pickled():
    """NumPy's stays the one object that code compares with."""
    assert pickle.loads(pickle.dumps(NUMPY)) is NUMPY
