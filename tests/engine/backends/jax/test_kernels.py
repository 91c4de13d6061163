"""The other kernels in JAX: derivatives, and what a compiled program may not depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.helpers.thinned import thinned

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from hpfracc.engine.backends import registry  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402
from tests.helpers.contracts import Case, cases  # noqa: E402


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def kernel(primitive: str) -> Callable[..., Any]:
    (only,) = registry.load_kernels(primitive, "jax").values()
    return only.run


def smooth_cases() -> list[object]:
    return [
        pytest.param(primitive, case, id=f"{primitive}: {case.name} {dtype}")
        for primitive, dtypes in (
            ("matmul", ("complex128",)),
            ("fft", ("float64",)),
            ("elementwise", ("float64",)),
            ("reduction", ("float64", "complex128")),
        )
        for dtype in dtypes
        for case in cases(PRIMITIVES[primitive], dtype)
        if case.differentiable
    ]


@pytest.mark.parametrize(("primitive", "case"), smooth_cases())
@thinned(one_in=16)
def test_gradients(primitive: str, case: Case):
    """What the contract calls differentiable is, in both modes."""
    run = kernel(primitive)
    operands = [jnp.asarray(array) for array in case.arrays]
    check_grads(lambda *x: run(*x, **case.params), operands, order=1, modes=("fwd", "rev"))


def test_norm_of_zero_has_a_gradient():
    """The 2-norm's derivative at 0, where it has none, is 0 rather than nan."""
    gradient = jax.grad(lambda x: kernel("reduction")(x, kind="norm"))(jnp.zeros(3))
    np.testing.assert_array_equal(gradient, np.zeros(3))


def test_axes_may_be_a_list():
    """A list of axes, which no compiled program can be kept under, is taken like a tuple."""
    x = jnp.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(kernel("reduction")(x, axis=[0, 2]), kernel("reduction")(x, axis=(0, 2)))
    np.testing.assert_array_equal(kernel("elementwise")(x, expression="x + 1", names=["x"]), x + 1)


def test_result_is_not_the_operand():
    """A formula that only names its array gives an array of its own."""
    x = jnp.arange(4.0)
    result = kernel("elementwise")(x, expression="x", names=("x",))
    assert result.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
