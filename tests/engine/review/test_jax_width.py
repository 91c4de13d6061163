"""Double precision on JAX, whatever the user's own switch says now or said when the plan was made."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.own_operations import own_operation

X = np.random.default_rng(2).standard_normal(77)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: hf.causal_convolution(x, x, backend="jax"),
        lambda x: hf.causal_convolution(x, x, backend="jax", weights_key="x"),
        lambda x: hf.fft(x, backend="jax"),
        lambda x: hf.elementwise("x*x + 0.1", x=x, backend="jax"),
        lambda x: hf.reduction(x, backend="jax"),
    ],
    ids=["convolution", "prepared", "fft", "elementwise", "reduction"],
)
def test_a_plan_made_with_x64_on_keeps_its_digits_with_x64_off(call: object) -> None:
    """The switch belongs to the moment of the call, not to that of the first one."""
    call(X[:50])  # type: ignore[operator]
    with jax.enable_x64(True):
        wide = call(X)  # type: ignore[operator]
    for _ in range(2):
        again = call(X)  # type: ignore[operator]
        assert again.dtype == wide.dtype
        np.testing.assert_allclose(again, wide, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: hf.causal_convolution(np.ones(3), x),
        lambda x: hf.reduction(x),
        lambda x: hf.reduction(x, kind="mean"),
        lambda x: hf.fft(x),
        lambda x: hf.elementwise("x + 1", x=x),
    ],
    ids=["convolution", "sum", "mean", "fft", "elementwise"],
)
def test_traced_integers_warn_of_nothing(call: object) -> None:
    """Under jit integers become as wide as the user let JAX be, without a spurious warning."""
    x = jnp.arange(6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = jax.jit(call)(x)  # type: ignore[arg-type]
    np.testing.assert_allclose(traced, call(np.arange(6)), rtol=1e-6)  # type: ignore[operator]


def test_a_numpy_operand_beside_a_jax_one_may_be_changed_after_the_call() -> None:
    """JAX may share a NumPy array's memory and compute later; on return the array is its owner's again."""
    size = 200_000
    room = np.zeros(size + 16, np.float32)
    begin = (-room.ctypes.data // 4) % 16
    weights = room[begin : begin + size]  # aligned as JAX likes it
    weights[:] = 1.0
    with own_operation(lambda w, x: w) as op:
        op.kernel("jax")(lambda w, x: w)
        result = op(weights, jnp.ones(size, jnp.float32), backend="jax")
        weights[:] = 5.0
        assert float(result[0]) == 1.0
