"""PECE over blocks of steps on JAX arrays: one program of scans and products, differentiable in O(N d) memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hpfracc.solvers.ode.tensors.weights import Weights

__all__ = ["solve_pece"]

#: Fewest steps of a block, and most blocks: each is a scan of its own in the program, which takes time to compile.
FEWEST = 64
MOST_BLOCKS = 32
#: Segments longer than this are transformed.
LONGEST_PRODUCT = 2048


def solve_pece(
    fun: Callable[..., Any],
    t0: float,
    step: float,
    steps: int,
    initial: list[Any],
    weights: Weights,
    corrections: int,
    args: tuple[Any, ...],
) -> Any:
    """All states, shape (steps + 1, ..., d); compiled once for a function, its shapes and the number of steps."""
    return _solve(fun, steps, corrections, t0, step, tuple(initial), tuple(weights), args)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _solve(
    fun: Callable[..., Any],
    steps: int,
    corrections: int,
    t0: Any,
    step: Any,
    initial: tuple[Any, ...],
    weights: tuple[Any, Any, Any],
    args: tuple[Any, ...],
) -> Any:
    block = max(FEWEST, -(-(steps + 1) // MOST_BLOCKS))
    count = -(-(steps + 1) // block)
    run = jax.checkpoint(partial(_block, fun, block, corrections))
    add = jax.checkpoint(_segment_sums)
    f0 = fun(jnp.asarray(t0, initial[0].real.dtype), initial[0], *args)
    shape = f0.shape
    pending: list[Any] = [jnp.zeros((2, block, *shape), f0.dtype)] * count
    states, values = [], []
    padded = tuple(_padded(each, count * block + 1) for each in weights)
    for number in range(count):
        y, f = run(number * block, pending[number], f0, t0, step, initial, padded, args)
        states.append(y)
        values.append(f)
        done = number + 1
        if done == count:
            break
        width = done & -done
        added = add(padded[:2], *values[done - width : done])
        for offset in range(min(width, count - done)):
            pending[done + offset] = pending[done + offset] + added[:, offset * block : (offset + 1) * block]
    return jnp.concatenate(states)[: steps + 1]


def _padded(weights: Any, length: int) -> Any:
    """Zeros after the end, so that the last block may go beyond it."""
    missing = max(length - weights.shape[0], 0)
    return jnp.concatenate([weights, jnp.zeros((missing, *weights.shape[1:]), weights.dtype)])


def _block(
    fun: Callable[..., Any],
    block: int,
    corrections: int,
    begin: Any,
    given: Any,
    f0: Any,
    t0: Any,
    step: Any,
    initial: tuple[Any, ...],
    weights: tuple[Any, Any, Any],
    args: tuple[Any, ...],
) -> tuple[Any, Any]:
    predictor, corrector, first = weights
    real = initial[0].real.dtype
    # w[index - j] for j = 0 .. block - 1, and 0 where that is not in the past: a window of the reversed weights.
    windows = [
        jnp.concatenate([jnp.zeros((block, *each.shape[1:]), each.dtype), each[1 : block + 1]])[::-1]
        for each in (predictor, corrector)
    ]

    def one(past: Any, inputs: tuple[Any, Any, Any]) -> tuple[Any, tuple[Any, Any]]:
        index, at, extra = inputs
        n = begin + index
        tau = jnp.asarray(n, real) * step
        base = sum(
            (value * (tau**number / math.factorial(number)) for number, value in enumerate(initial[1:], start=1)),
            initial[0],
        )
        rows = [jax.lax.dynamic_slice_in_dim(window, block - index, block) for window in windows]
        predicted = base + at[0] + _weighted(rows[0], past)
        known = base + at[1] + _weighted(rows[1], past) + extra * f0
        y = predicted
        for _ in range(corrections):
            y = known + corrector[0] * fun(t0 + tau, y, *args)
        f = fun(t0 + tau, y, *args)
        # At the origin there is nothing to step from.
        start = n == 0
        y, f = jnp.where(start, initial[0].astype(y.dtype), y), jnp.where(start, f0, f)
        return past.at[index].set(f), (y, f)

    extras = jax.lax.dynamic_slice_in_dim(first, begin, block)
    inputs = (jnp.arange(block), jnp.moveaxis(given, 1, 0), extras)
    _, (states, values) = jax.lax.scan(one, jnp.zeros((block, *f0.shape), f0.dtype), inputs)
    return states, values


def _weighted(row: Any, past: Any) -> Any:
    if row.ndim == 1:
        return jnp.tensordot(row.astype(past.dtype), past, axes=1, precision="highest")
    return (row.reshape(row.shape[0], *(1,) * (past.ndim - row.ndim), *row.shape[1:]) * past).sum(0)


def _segment_sums(weights: tuple[Any, Any], *segment: Any) -> Any:
    """``out[i] = sum_j w[L + i - j] f[j]`` for both sequences, shape (2, L, ...)."""
    values = jnp.concatenate(segment)
    length = values.shape[0]
    kernels = [_padded(each[1 : 2 * length], 2 * length - 1) for each in weights]
    if kernels[0].ndim == 1 and length <= LONGEST_PRODUCT:
        place = length - 1 + jnp.arange(length)[:, None] - jnp.arange(length)[None, :]
        matrix = jnp.concatenate([kernel[place] for kernel in kernels]).astype(values.dtype)
        product = jnp.matmul(matrix, values.reshape(length, -1), precision="highest")
        return product.reshape(2, length, *values.shape[1:])
    return jnp.stack([_transformed(kernel, values) for kernel in kernels])


def _transformed(kernel: Any, values: Any) -> Any:
    length = values.shape[0]
    kernel = kernel.reshape(kernel.shape[0], *(1,) * (values.ndim - kernel.ndim), *kernel.shape[1:])
    size = 1 << (3 * length - 2).bit_length()
    forward, back = (jnp.fft.fft, jnp.fft.ifft) if jnp.iscomplexobj(values) else (jnp.fft.rfft, jnp.fft.irfft)
    product = forward(kernel, size, axis=0) * forward(values, size, axis=0)
    return back(product, size, axis=0)[length - 1 : 2 * length - 1]
