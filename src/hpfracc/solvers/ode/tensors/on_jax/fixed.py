"""Fixed steps on JAX arrays: one program of scans and products, with the derivative that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._xp import namespace
from hpfracc.solvers.ode.tensors.blocks import (
    Loop,
    StepGrid,
    System,
    TensorFunctions,
    Trajectory,
    run_plainly,
    solve_forward,
)
from hpfracc.solvers.ode.tensors.on_jax.programs import run_program
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule
from hpfracc.solvers.ode.tensors.transpose import transpose

__all__ = ["solve_fixed_arrays"]


def solve_fixed_arrays(system: System, functions: TensorFunctions, args: tuple[Any, ...]) -> Any:
    """All states, shape (steps + 1, ..., d)."""
    _, rule, grid, initial, sums = system
    return run_program(_solve, functions, (grid.steps, rule), (grid.t0, grid.step, initial, sums, args))


def _solve(functions: TensorFunctions, steps: int, rule: TensorRule, *given: Any) -> Any:
    def forward(keep: bool, t0: Any, step: Any, initial: Any, sums: Sums, args: Any) -> Trajectory:
        bound, grid = _bound(functions, args), StepGrid(t0, step, steps)
        f0 = jnp.zeros_like(initial[0]) if rule.starts_blind else bound[0](grid.time(0, initial[0]), initial[0])
        record = _checkpointed if rule.adjoint in ("auto", "recomputed") else run_plainly
        system = System(namespace("jax"), rule, grid, initial, sums)
        return solve_forward(system, bound, f0, keep, True, Loop(record, graph=rule.adjoint == "direct"))

    def first(*given: Any) -> tuple[Any, Any]:
        found = forward(True, *given)
        return found.states, (given, found)

    def backward(saved: tuple[Any, Trajectory], grad: Any) -> tuple[Any, ...]:
        return _backward(functions, steps, rule, *saved, grad)

    if rule.adjoint != "stored":
        return forward(False, *given).states
    real = given[2][0].real.dtype
    solve = jax.custom_vjp(lambda *given: forward(False, *given).states)
    solve.defvjp(first, backward)
    return solve(jnp.asarray(given[0], real), jnp.asarray(given[1], real), *given[2:])


def _bound(functions: TensorFunctions, args: tuple[Any, ...]) -> TensorFunctions:
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
    functions: TensorFunctions, steps: int, rule: TensorRule, given: tuple[Any, ...], found: Trajectory, grad: Any
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
    system = System(namespace("jax"), rule, StepGrid(t0, step, steps), initial, sums)
    nothing = jax.tree.map(jnp.zeros_like, chosen)
    made = transpose(system, _bound(functions, args), _Pulls(evaluate, chosen), found, grad, nothing, True)
    whole: list[Any] = [np.zeros(np.shape(leaf), jax.dtypes.float0) for leaf in leaves]
    for k, each in zip(smooth, made.totals, strict=True):
        whole[k] = each
    return (
        jnp.zeros_like(t0), jnp.zeros_like(step), tuple(made.initial), made.sums,
        jax.tree_util.tree_unflatten(tree, whole),
    )  # fmt: skip
