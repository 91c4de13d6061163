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
from hpfracc.solvers.ode.tensors.on_jax.stored import Recorded, transposed
from hpfracc.solvers.ode.tensors.on_jax.sums import GROUP, padded, past_rows, segment_sums, weighted, window
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule

__all__ = ["solve_blocks"]

#: Minimum steps of a block, and maximum number of blocks. Each block is a separate scan, which takes time to compile.
FEWEST = 64
MAX_BLOCKS = 16


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
    if rule.adjoint != "stored":
        return _forward(functions, steps, rule, t0, step, initial, sums, args)[0]
    fun, jacobian = functions

    def plain(t0: Any, step: Any, initial: tuple[Any, ...], sums: Sums, args: tuple[Any, ...]) -> Any:
        return _forward(functions, steps, rule, t0, step, initial, sums, args)[0]

    def forward(
        t0: Any, step: Any, initial: tuple[Any, ...], sums: Sums, args: tuple[Any, ...]
    ) -> tuple[Any, Recorded]:
        states, points = _forward(functions, steps, rule, t0, step, initial, sums, args, keep=True)
        return states, Recorded(t0, step, initial, sums, args, states, points)

    def backward(recorded: Recorded, grad: Any) -> tuple[Any, ...]:
        return transposed(fun, jacobian, rule, steps, _block_length(steps), recorded, grad)

    solve = jax.custom_vjp(plain)
    solve.defvjp(forward, backward)
    real = initial[0].real.dtype
    return solve(jnp.asarray(t0, real), jnp.asarray(step, real), initial, sums, args)


def _block_length(steps: int) -> int:
    return GROUP * -(-max(FEWEST, -(-(steps + 1) // MAX_BLOCKS)) // GROUP)


def _forward(
    functions: tuple[Callable[..., Any], Callable[..., Any] | None],
    steps: int,
    rule: TensorRule,
    t0: Any,
    step: Any,
    initial: tuple[Any, ...],
    sums: Sums,
    args: tuple[Any, ...],
    keep: bool = False,
) -> tuple[Any, tuple[Any, ...]]:
    """All states; with ``keep`` also the points at which corrections are evaluated."""
    fun, jacobian = functions
    block = _block_length(steps)
    count = -(-(steps + 1) // block)
    remember = jax.checkpoint if rule.adjoint == "recomputed" else _plain
    run = remember(partial(_block, fun, jacobian, rule, block, keep))
    if rule.starts_blind:
        f0 = jnp.zeros_like(initial[0])
    else:
        f0 = fun(jnp.asarray(t0, initial[0].real.dtype), initial[0], *args)
    shape, kinds = f0.shape, len(sums.sequences)
    pending: list[Any] = [jnp.zeros((kinds, block, *shape), f0.dtype)] * count
    states, values, points = [], [], []
    sequences = tuple(padded(each, count * block + 1) for each in sums.sequences)
    first = None if sums.first is None else padded(sums.first, count * block + 1)
    longer = Sums(sequences, first, sums.newest)
    before = initial[0].astype(f0.dtype)
    for number in range(count):
        y, f, z = run(number * block, pending[number], f0, before, t0, step, initial, longer, args)
        states.append(y)
        values.append(f)
        points.append(z)
        before = y[-1]
        done = number + 1
        if done == count:
            break
        width = done & -done
        reach = min(width, count - done)
        add = remember(partial(segment_sums, reach * block))
        added = add(sequences, *values[done - width : done])
        for offset in range(reach):
            pending[done + offset] = pending[done + offset] + added[:, offset * block : (offset + 1) * block]
    kept = tuple(jnp.concatenate(each)[: steps + 1] for each in zip(*points, strict=True))
    return jnp.concatenate(states)[: steps + 1], kept


def _block(
    fun: Callable[..., Any],
    jacobian: Callable[..., Any] | None,
    rule: TensorRule,
    block: int,
    keep: bool,
    begin: Any,
    given: Any,
    f0: Any,
    before: Any,
    t0: Any,
    step: Any,
    initial: tuple[Any, ...],
    sums: Sums,
    args: tuple[Any, ...],
) -> tuple[Any, Any, tuple[Any, ...]]:
    """The steps of a block, a scan over groups of steps, each of which is a scan over steps."""
    real = initial[0].real.dtype
    short = [window(each, GROUP) for each in sums.sequences]
    long = [window(each, block) for each in sums.sequences]

    def one(carried: tuple[Any, Any, Any], inputs: tuple[Any, Any]) -> tuple[tuple[Any, Any, Any], tuple[Any, ...]]:
        recent, n, last = carried
        at, extra = inputs
        index = (n - begin) % GROUP
        tau = jnp.asarray(n, real) * step
        base = sum(
            (value * (tau**number / math.factorial(number)) for number, value in enumerate(initial[1:], start=1)),
            initial[0],
        )
        rows = [jax.lax.dynamic_slice_in_dim(window, GROUP - index, GROUP) for window in short]
        known = [base + at[k] + weighted(row, recent) for k, row in enumerate(rows)]
        if extra is not None:
            known[-1] = known[-1] + extra * f0
        start = n == 0  # no previous step
        y = known[0]
        kept: list[Any] = []
        if rule.implicit:
            slopes = None if jacobian is None else lambda y: jacobian(t0 + tau, y, *args)
            # At the origin a trivial equation, so that no iteration runs there.
            weight = jnp.where(start, 0.0, sums.newest)
            y = solve_step(lambda y: fun(t0 + tau, y, *args), slopes, y, weight, jnp.where(start, y, last))
        elif sums.newest is not None:
            for _ in range(rule.corrections):
                kept.append(y)
                y = known[-1] + sums.newest * fun(t0 + tau, y, *args)
        f = fun(t0 + tau, y, *args)
        y, f = jnp.where(start, initial[0].astype(y.dtype), y), jnp.where(start, f0, f)
        return (recent.at[index].set(f), n + 1, y), (y, f, tuple(kept) if keep else ())

    def group(carried: tuple[Any, Any, Any], inputs: tuple[Any, Any]) -> tuple[tuple[Any, Any, Any], tuple[Any, ...]]:
        past, first, last = carried
        at, extras = inputs
        # Contribution of previous groups to all steps of this one at once.
        added = jnp.stack([past_rows(window, past, first, block) for window in long], axis=1)
        nothing = jnp.zeros((GROUP, *f0.shape), f0.dtype)
        (values, _, last), found = jax.lax.scan(one, (nothing, begin + first, last), (at + added, extras))
        past = jax.lax.dynamic_update_slice_in_dim(past, values, first, 0)
        return (past, first + GROUP, last), found

    groups, kinds = block // GROUP, len(sums.sequences)
    extras = None
    if sums.first is not None:
        extras = jax.lax.dynamic_slice_in_dim(sums.first, begin, block)
        extras = extras.reshape(groups, GROUP, *extras.shape[1:])
    inputs = (jnp.moveaxis(given, 1, 0).reshape(groups, GROUP, kinds, *f0.shape), extras)
    nothing = jnp.zeros((block, *f0.shape), f0.dtype)
    remember = jax.checkpoint if rule.adjoint == "recomputed" else _plain
    _, found = jax.lax.scan(remember(group), (nothing, 0, before), inputs)
    whole: tuple[Any, Any, tuple[Any, ...]] = jax.tree.map(lambda each: each.reshape(block, *f0.shape), found)
    return whole


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """No recomputation in the backward pass."""
    return function
