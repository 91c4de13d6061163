"""Blocks of steps on JAX arrays: one program of scans and products, differentiable in O(N d) memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hpfracc.solvers.ode.tensors.on_jax.newton import solve_step
from hpfracc.solvers.ode.tensors.on_jax.programs import run_program
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule

__all__ = ["solve_blocks"]

#: Fewest steps of a block, and most blocks: each is a scan of its own in the program, which takes time to compile.
FEWEST = 64
MOST_BLOCKS = 16
#: Steps of a group within a block. The backward pass keeps the values of a block once for each of its groups.
GROUP = 16
#: Segments longer than this are transformed.
LONGEST_PRODUCT = 2048


def solve_blocks(
    fun: Callable[..., Any],
    jacobian: Callable[..., Any] | None,
    rule: TensorRule,
    t0: float,
    step: float,
    steps: int,
    initial: list[Any],
    sums: Sums,
    args: tuple[Any, ...],
) -> Any:
    """All states, shape (steps + 1, ..., d)."""
    return run_program(_solve, (fun, jacobian), (steps, rule), (t0, step, tuple(initial), sums, args))


def _solve(
    functions: tuple[Callable[..., Any], Callable[..., Any] | None],
    steps: int,
    rule: TensorRule,
    t0: Any,
    step: Any,
    initial: tuple[Any, ...],
    sums: Sums,
    args: tuple[Any, ...],
) -> Any:
    fun, jacobian = functions
    block = GROUP * -(-max(FEWEST, -(-(steps + 1) // MOST_BLOCKS)) // GROUP)
    count = -(-(steps + 1) // block)
    run = jax.checkpoint(partial(_block, fun, jacobian, rule, block))
    if rule.starts_blind:
        f0 = jnp.zeros_like(initial[0])
    else:
        f0 = fun(jnp.asarray(t0, initial[0].real.dtype), initial[0], *args)
    shape, kinds = f0.shape, len(sums.sequences)
    pending: list[Any] = [jnp.zeros((kinds, block, *shape), f0.dtype)] * count
    states, values = [], []
    sequences = tuple(_padded(each, count * block + 1) for each in sums.sequences)
    first = None if sums.first is None else _padded(sums.first, count * block + 1)
    padded = Sums(sequences, first, sums.newest)
    before = initial[0].astype(f0.dtype)
    for number in range(count):
        y, f = run(number * block, pending[number], f0, before, t0, step, initial, padded, args)
        states.append(y)
        values.append(f)
        before = y[-1]
        done = number + 1
        if done == count:
            break
        width = done & -done
        reach = min(width, count - done)
        add = jax.checkpoint(partial(_segment_sums, reach * block))
        added = add(sequences, *values[done - width : done])
        for offset in range(reach):
            pending[done + offset] = pending[done + offset] + added[:, offset * block : (offset + 1) * block]
    return jnp.concatenate(states)[: steps + 1]


def _padded(weights: Any, length: int) -> Any:
    """Zeros after the end, so that the last block may go beyond it."""
    missing = max(length - weights.shape[0], 0)
    return jnp.concatenate([weights, jnp.zeros((missing, *weights.shape[1:]), weights.dtype)])


def _block(
    fun: Callable[..., Any],
    jacobian: Callable[..., Any] | None,
    rule: TensorRule,
    block: int,
    begin: Any,
    given: Any,
    f0: Any,
    before: Any,
    t0: Any,
    step: Any,
    initial: tuple[Any, ...],
    sums: Sums,
    args: tuple[Any, ...],
) -> tuple[Any, Any]:
    """The steps of a block, a scan over groups of steps, each of which is a scan over steps."""
    real = initial[0].real.dtype
    short = [_window(each, GROUP) for each in sums.sequences]
    long = [_window(each, block) for each in sums.sequences]

    def one(carried: tuple[Any, Any, Any], inputs: tuple[Any, Any]) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
        recent, n, last = carried
        at, extra = inputs
        index = (n - begin) % GROUP
        tau = jnp.asarray(n, real) * step
        base = sum(
            (value * (tau**number / math.factorial(number)) for number, value in enumerate(initial[1:], start=1)),
            initial[0],
        )
        rows = [jax.lax.dynamic_slice_in_dim(window, GROUP - index, GROUP) for window in short]
        known = [base + at[k] + _weighted(row, recent) for k, row in enumerate(rows)]
        if extra is not None:
            known[-1] = known[-1] + extra * f0
        start = n == 0  # nothing to step from
        y = known[0]
        if rule.implicit:
            slopes = None if jacobian is None else lambda y: jacobian(t0 + tau, y, *args)
            # At the origin an equation that is solved already, so that no iteration runs there.
            weight = jnp.where(start, 0.0, sums.newest)
            y = solve_step(lambda y: fun(t0 + tau, y, *args), slopes, y, weight, jnp.where(start, y, last))
        elif sums.newest is not None:
            for _ in range(rule.corrections):
                y = known[-1] + sums.newest * fun(t0 + tau, y, *args)
        f = fun(t0 + tau, y, *args)
        y, f = jnp.where(start, initial[0].astype(y.dtype), y), jnp.where(start, f0, f)
        return (recent.at[index].set(f), n + 1, y), (y, f)

    def group(carried: tuple[Any, Any, Any], inputs: tuple[Any, Any]) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
        past, first, last = carried
        at, extras = inputs
        # What the groups before add, for every step of this one at once.
        added = jnp.stack([_rows(window, past, first, block) for window in long], axis=1)
        nothing = jnp.zeros((GROUP, *f0.shape), f0.dtype)
        (values, _, last), (y, f) = jax.lax.scan(one, (nothing, begin + first, last), (at + added, extras))
        past = jax.lax.dynamic_update_slice_in_dim(past, values, first, 0)
        return (past, first + GROUP, last), (y, f)

    groups, kinds = block // GROUP, len(sums.sequences)
    extras = None
    if sums.first is not None:
        extras = jax.lax.dynamic_slice_in_dim(sums.first, begin, block)
        extras = extras.reshape(groups, GROUP, *extras.shape[1:])
    inputs = (jnp.moveaxis(given, 1, 0).reshape(groups, GROUP, kinds, *f0.shape), extras)
    nothing = jnp.zeros((block, *f0.shape), f0.dtype)
    _, (states, values) = jax.lax.scan(jax.checkpoint(group), (nothing, 0, before), inputs)
    return states.reshape(block, *f0.shape), values.reshape(block, *f0.shape)


def _window(weights: Any, length: int) -> Any:
    """Weights reversed, after zeros: a slice is ``w[index - j]`` for j = 0 .. length - 1, and 0 from j = index on."""
    zeros = jnp.zeros((length, *weights.shape[1:]), weights.dtype)
    return jnp.concatenate([zeros, weights[1 : length + 1]])[::-1]


def _rows(window: Any, past: Any, first: Any, block: int) -> Any:
    """``sum_j w[first + i - j] past[j]`` for the steps i of a group; ``past`` is zero from ``first`` on."""
    if window.ndim == 1:
        place = block - first - jnp.arange(GROUP)[:, None] + jnp.arange(block)[None, :]
        return jnp.tensordot(window[place].astype(past.dtype), past, axes=1, precision="highest")
    # One step after the other: all weights of a group at once would take GROUP times the memory of the past.
    return jax.lax.map(
        lambda i: _weighted(jax.lax.dynamic_slice_in_dim(window, block - first - i, block), past), jnp.arange(GROUP)
    )


def _weighted(row: Any, past: Any) -> Any:
    if row.ndim == 1:
        return jnp.tensordot(row.astype(past.dtype), past, axes=1, precision="highest")
    return (row.reshape(row.shape[0], *(1,) * (past.ndim - row.ndim), *row.shape[1:]) * past).sum(0)


def _segment_sums(reach: int, weights: tuple[Any, ...], *segment: Any) -> Any:
    """``out[i] = sum_j w[L + i - j] f[j]`` for each of K sequences and the next ``reach`` sums, (K, reach, ...)."""
    values = jnp.concatenate(segment)
    length = values.shape[0]
    kernels = [_padded(each[1 : length + reach], length + reach - 1) for each in weights]
    if kernels[0].ndim == 1 and min(length, reach) <= LONGEST_PRODUCT and length * reach <= LONGEST_PRODUCT**2:
        place = length - 1 + jnp.arange(reach)[:, None] - jnp.arange(length)[None, :]
        matrix = jnp.concatenate([kernel[place] for kernel in kernels]).astype(values.dtype)
        product = jnp.matmul(matrix, values.reshape(length, -1), precision="highest")
        return product.reshape(len(kernels), reach, *values.shape[1:])
    return jnp.stack([_transformed(kernel, values, reach) for kernel in kernels])


def _transformed(kernel: Any, values: Any, reach: int) -> Any:
    length = values.shape[0]
    kernel = kernel.reshape(kernel.shape[0], *(1,) * (values.ndim - kernel.ndim), *kernel.shape[1:])
    size = 1 << (length + reach - 2).bit_length()  # what wraps around falls on sums that are not asked for
    forward, back = (jnp.fft.fft, jnp.fft.ifft) if jnp.iscomplexobj(values) else (jnp.fft.rfft, jnp.fft.irfft)
    product = forward(kernel, size, axis=0) * forward(values, size, axis=0)
    return back(product, size, axis=0)[length - 1 : length - 1 + reach]
