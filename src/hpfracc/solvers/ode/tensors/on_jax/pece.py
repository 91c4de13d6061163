"""PECE over blocks of steps on JAX arrays: one program of scans and products, differentiable in O(N d) memory."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp

from hpfracc.solvers.ode._surroundings import same_surroundings, surroundings
from hpfracc.solvers.ode.tensors.weights import Weights

__all__ = ["solve_pece"]

#: Fewest steps of a block, and most blocks: each is a scan of its own in the program, which takes time to compile.
FEWEST = 64
MOST_BLOCKS = 16
#: Steps of a group within a block. The backward pass keeps the values of a block once for each of its groups.
GROUP = 16
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
    """All states, shape (steps + 1, ..., d).

    Compiled once for a function with what it sees around it, its shapes and the number of steps. A function that sees
    what may be changed in place, such as an object or a dictionary, is compiled for each call.
    """
    program = _program_of(fun)
    return program(steps, corrections, t0, step, tuple(initial), tuple(weights), args)


#: The newest program of each function and the surroundings it was made in; gone with the function.
_programs: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


def _program_of(fun: Callable[..., Any]) -> Callable[..., Any]:
    around = surroundings(fun)
    if around is None:
        return _compiled(partial(_solve, fun))
    try:
        found = _programs.get(fun)
        if found is not None and same_surroundings(found[0], around):
            return cast(Callable[..., Any], found[1])
        refer = weakref.ref(fun)
    except TypeError:  # neither to be hashed nor to be referred to
        return _compiled(partial(_solve, fun))

    def solve(*given: Any) -> Any:
        known = refer()
        assert known is not None  # the caller holds it
        return _solve(known, *given)

    program = _compiled(solve)
    _programs[fun] = (around, program)
    return program


def _compiled(solve: Callable[..., Any]) -> Callable[..., Any]:
    """The program of a function, for each number of steps and of corrections."""
    return cast(Callable[..., Any], jax.jit(solve, static_argnums=(0, 1)))


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
    block = GROUP * -(-max(FEWEST, -(-(steps + 1) // MOST_BLOCKS)) // GROUP)
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
    """The steps of a block, a scan over groups of steps, each of which is a scan over steps."""
    corrector = weights[1]
    real = initial[0].real.dtype
    short = [_window(each, GROUP) for each in weights[:2]]
    long = [_window(each, block) for each in weights[:2]]

    def one(carried: tuple[Any, Any], inputs: tuple[Any, Any]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        recent, n = carried
        at, extra = inputs
        index = (n - begin) % GROUP
        tau = jnp.asarray(n, real) * step
        base = sum(
            (value * (tau**number / math.factorial(number)) for number, value in enumerate(initial[1:], start=1)),
            initial[0],
        )
        rows = [jax.lax.dynamic_slice_in_dim(window, GROUP - index, GROUP) for window in short]
        predicted = base + at[0] + _weighted(rows[0], recent)
        known = base + at[1] + _weighted(rows[1], recent) + extra * f0
        y = predicted
        for _ in range(corrections):
            y = known + corrector[0] * fun(t0 + tau, y, *args)
        f = fun(t0 + tau, y, *args)
        # At the origin there is nothing to step from.
        start = n == 0
        y, f = jnp.where(start, initial[0].astype(y.dtype), y), jnp.where(start, f0, f)
        return (recent.at[index].set(f), n + 1), (y, f)

    def group(carried: tuple[Any, Any], inputs: tuple[Any, Any]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        past, first = carried
        at, extras = inputs
        # What the groups before add, for every step of this one at once.
        sums = jnp.stack([_rows(window, past, first, block) for window in long], axis=1)
        nothing = jnp.zeros((GROUP, *f0.shape), f0.dtype)
        (values, _), (y, f) = jax.lax.scan(one, (nothing, begin + first), (at + sums, extras))
        past = jax.lax.dynamic_update_slice_in_dim(past, values, first, 0)
        return (past, first + GROUP), (y, f)

    groups = block // GROUP
    extras = jax.lax.dynamic_slice_in_dim(weights[2], begin, block)
    inputs = (
        jnp.moveaxis(given, 1, 0).reshape(groups, GROUP, 2, *f0.shape),
        extras.reshape(groups, GROUP, *extras.shape[1:]),
    )
    _, (states, values) = jax.lax.scan(jax.checkpoint(group), (jnp.zeros((block, *f0.shape), f0.dtype), 0), inputs)
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
