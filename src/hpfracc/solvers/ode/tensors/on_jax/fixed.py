"""Fixed steps on JAX arrays: one program of scans and products, with the derivative that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._xp import namespace
from hpfracc.solvers.ode.tensors.blocks import Grid, Loop, Trajectory, plain, solve_forward
from hpfracc.solvers.ode.tensors.on_jax.programs import run_program
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule
from hpfracc.solvers.ode.tensors.transpose import transpose

__all__ = ["solve_fixed_arrays"]

Functions = tuple[Callable[..., Any], Callable[..., Any] | None]


def solve_fixed_arrays(
    functions: Functions, rule: TensorRule, grid: Grid, initial: tuple[Any, ...], sums: Sums, args: tuple[Any, ...]
) -> Any:
    """All states, shape (steps + 1, ..., d)."""
    return run_program(_solve, functions, (grid.steps, rule), (grid.t0, grid.step, initial, sums, args))


def _solve(functions: Functions, steps: int, rule: TensorRule, *given: Any) -> Any:
    forward = partial(_forward, functions, steps, rule)
    if rule.adjoint != "stored":
        return forward(*given).states
    real = given[2][0].real.dtype
    solve = jax.custom_vjp(lambda *given: forward(*given).states)
    solve.defvjp(
        lambda *given: (lambda found: (found.states, (given, found)))(forward(*given, keep=True)),
        lambda saved, grad: _backward(functions, steps, rule, *saved, grad),
    )
    return solve(jnp.asarray(given[0], real), jnp.asarray(given[1], real), *given[2:])


def _forward(
    functions: Functions, steps: int, rule: TensorRule, t0: Any, step: Any, initial: tuple[Any, ...], sums: Sums,
    args: tuple[Any, ...], keep: bool = False,
) -> Trajectory:  # fmt: skip
    fun, _ = bound = _bound(functions, args)
    grid = Grid(t0, step, steps)
    f0 = jnp.zeros_like(initial[0]) if rule.starts_blind else fun(grid.time(0, initial[0]), initial[0])
    record = _checkpointed if rule.adjoint in ("auto", "recomputed") else plain
    loop = Loop(record, graph=rule.adjoint == "direct")
    return solve_forward(namespace("jax"), bound, rule, grid, initial, f0, sums, keep, True, loop)


def _bound(functions: Functions, args: tuple[Any, ...]) -> Functions:
    fun, jacobian = functions
    return lambda t, y: fun(t, y, *args), None if jacobian is None else lambda t, y: jacobian(t, y, *args)


def _checkpointed(function: Callable[[Any], Any], arrays: Any) -> Any:
    return jax.checkpoint(function)(arrays)


class _Pulls:
    """Products with transposed derivatives; ``totals`` are the gradients of the leaves of ``args``."""

    def __init__(self, evaluate: Callable[..., Any], chosen: tuple[Any, ...]) -> None:
        self.evaluate, self.chosen = evaluate, chosen

    def prepare(self, first: int, last: int) -> None:
        """Nothing: steps are compiled."""

    def pull(self, kind: int, n: Any, t: Any, y: Any, bar: Any, totals: Any) -> tuple[Any, Any, Any]:
        """The value and the gradients at a point."""
        value, back = jax.vjp(partial(self.evaluate, t), y, self.chosen)
        found, more = back(bar.astype(value.dtype))
        return value, found, jax.tree.map(jnp.add, totals, more)


def _backward(
    functions: Functions, steps: int, rule: TensorRule, given: tuple[Any, ...], found: Trajectory, grad: Any
) -> tuple[Any, ...]:
    """Gradients in t0 and step (zeros), the initial values, the weights and the arguments."""
    t0, step, initial, sums, args = given
    leaves, tree = jax.tree_util.tree_flatten(args)
    smooth = [k for k, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]

    def evaluate(t: Any, y: Any, some: tuple[Any, ...]) -> Any:
        whole = list(leaves)
        for k, leaf in zip(smooth, some, strict=True):
            whole[k] = leaf
        return functions[0](t, y, *jax.tree_util.tree_unflatten(tree, whole))

    chosen = tuple(jnp.asarray(leaves[k]) for k in smooth)
    made = transpose(
        namespace("jax"), _bound(functions, args), _Pulls(evaluate, chosen), rule, Grid(t0, step, steps), initial, sums,
        found, grad, jax.tree.map(jnp.zeros_like, chosen), True,
    )  # fmt: skip
    whole: list[Any] = [np.zeros(np.shape(leaf), jax.dtypes.float0) for leaf in leaves]
    for k, each in zip(smooth, made.totals, strict=True):
        whole[k] = each
    return (
        jnp.zeros_like(t0), jnp.zeros_like(step), tuple(made.initial), made.sums,
        jax.tree_util.tree_unflatten(tree, whole),
    )  # fmt: skip
