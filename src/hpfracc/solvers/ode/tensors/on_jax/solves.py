"""Solves on JAX arrays as programs of scans and products, with the derivatives that were asked for, all traceable."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._xp import convert_like, namespace, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.history.states import Memory
from hpfracc.solvers.ode.differences import DifferenceTables
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.tensors import adams, blocks
from hpfracc.solvers.ode.tensors.adams import AdaptiveEquation, Mesh
from hpfracc.solvers.ode.tensors.blocks import (
    StepGrid,
    System,
    TensorFunctions,
    Trajectory,
    march_differences,
    transpose,
)
from hpfracc.solvers.ode.tensors.search import Tolerance, choose_mesh
from hpfracc.solvers.ode.tensors.solve import Told
from hpfracc.solvers.ode.tensors.sums import Sums
from hpfracc.solvers.stepping.events import Report
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.walk import TOLERATED
from hpfracc.solvers.tensors.loops import PLAIN, Loop, run_plainly
from hpfracc.solvers.tensors.programs import run_program

Function = Callable[..., Any]

#: Capacity of a traced program in steps, in addition to two for each requested time.
_TRACED_STEPS = 2048


def solve_fixed(problem: Problem, system: System, calls: list[int], told: Told) -> Any:
    """All states, shape (steps + 1, ..., d)."""
    _, rule, grid, initial, sums = system
    given = (grid.t0, grid.step, initial, sums, problem.args)
    return run_program(_solve, (problem.fun, problem.jac), (grid.steps, rule), given)


def _solve(functions: TensorFunctions, steps: int, rule: Any, *given: Any) -> Any:
    def forward(keep: bool, t0: Any, step: Any, initial: Any, sums: Sums, args: Any) -> Trajectory:
        bound, grid = _bound(functions, args), StepGrid(t0, step, steps)
        f0 = jnp.zeros_like(initial[0]) if rule.starts_blind else bound[0](grid.time(0, initial[0]), initial[0])
        record = _checkpointed if rule.adjoint in ("auto", "recomputed") else run_plainly
        system = System(namespace("jax"), rule, grid, initial, sums)
        return blocks.solve_forward(system, bound, f0, keep, True, Loop(record, graph=rule.adjoint == "direct"))

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


def _backward(
    functions: TensorFunctions, steps: int, rule: Any, given: tuple[Any, ...], found: Trajectory, grad: Any
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

    def pull(kind: int, n: Any, t: Any, y: Any, bar: Any, totals: Any) -> tuple[Any, Any, Any]:
        value, back = jax.vjp(partial(evaluate, t), y, chosen)
        found, more = back(bar.astype(value.dtype))
        return value, found, jax.tree.map(jnp.add, totals, more)

    system = System(namespace("jax"), rule, StepGrid(t0, step, steps), initial, sums)
    nothing = jax.tree.map(jnp.zeros_like, chosen)
    starts, weights, totals = transpose(system, _bound(functions, args), pull, found, grad, nothing, True)
    whole: list[Any] = [np.zeros(np.shape(leaf), jax.dtypes.float0) for leaf in leaves]
    for k, each in zip(smooth, totals, strict=True):
        whole[k] = each
    rest = jax.tree_util.tree_unflatten(tree, whole)
    return jnp.zeros_like(t0), jnp.zeros_like(step), tuple(starts), weights, rest


def solve_differences(
    problem: Problem, name: str, memory: Memory, tables: DifferenceTables, calls: list[int], told: Told
) -> Any:
    """All states of L1 or L2-1sigma."""
    given = (problem.t0, problem.y0, memory, tables, problem.args)
    return run_program(_differences, (problem.fun, problem.jac), (name,), given)


def _differences(
    functions: TensorFunctions, name: str, t0: Any, y0: Any, memory: Memory, tables: Any, args: Any
) -> Any:
    tables = tables._replace(at=t0 + tables.at)
    return march_differences(namespace("jax"), name, _bound(functions, args), y0, memory, tables, Loop(graph=True))


def adapt(
    problem: Problem, options: Options, tolerance: Tolerance, order: Any, memory: Memory, stops: Any, outputs: Any,
    moving: Any, _: Report,
) -> tuple[Mesh, Any, int | None, Any, bool]:  # fmt: skip
    """Choose steps without derivatives, and repeat the same steps with them unless only values are asked for.

    Gives the mesh, the states after its steps or at the outputs, the number of evaluations if it is known, of passes,
    and whether the user interrupted it.

    Parameters
    ----------
    stops, outputs : arrays
        Increasing times after t0: those at which steps end, the last of them the end, and those of the output.
    moving : array or None
        The outputs with their gradient.
    """
    fun, args, initial, real = problem.fun, problem.args, (problem.y0, *problem.dy0), memory.rates.dtype
    xp = namespace_of(order)
    with xp.scope():
        alpha = xp.array(order)
        orders, rgamma = convert_like(alpha, problem.y0), convert_like(xp.rgamma(alpha), problem.y0)
    core = (problem.t0, initial, orders, rgamma, memory)
    ends, asked, atol = (jnp.asarray(each, real) for each in (stops, outputs, tolerance.atol))
    seen = (initial, order, args, fun(problem.t0, problem.y0, *args))
    traced = any(map(is_tracer, jax.tree_util.tree_leaves(seen)))
    if traced and options.t_eval is None and options.moving is None:
        raise InvalidInputError("traced adaptive steps have no fixed shape: give t_eval, the output times")
    most = min(options.max_steps, _TRACED_STEPS + 2 * len(outputs))
    while True:
        static = (most, tolerance._replace(atol=None))
        mesh, passes = run_program(_search, (fun, None), static, (core, ends, asked, atol, args))
        full = not is_tracer(mesh.count) and bool(
            (mesh.stop < len(stops)) & (jnp.maximum(mesh.count, mesh.rejected) >= most)
        )
        if not full or most == options.max_steps:
            break
        most = min(8 * most, options.max_steps)
    times = asked if moving is None else moving
    if is_tracer(mesh.count):
        answers = run_program(_repeat, (fun, None), (), (core, mesh, times, args))[1]
        if tolerance.globally:  # failure can only be reported as NaN
            answers = jnp.where(mesh.ratio <= TOLERATED, answers, math.nan)
        return mesh, answers, None, passes, False
    count, reached = int(mesh.count), int(mesh.out)
    states = mesh.answers[:reached] if outputs.shape[0] else problem.y0[None]
    if (options.t_eval is None or traced or moving is not None) and count:
        # Rounded up to a few lengths, because each length is a separate program.
        room = min(most, 1 << max(6, (count - 1).bit_length()))
        kept = mesh._replace(lengths=mesh.lengths[:room], degrees=mesh.degrees[:room], taus=mesh.taus[: room + 1])
        states, answers = run_program(_repeat, (fun, None), (), (core, kept, times, args))
        states = states[: count + 1] if options.t_eval is None else answers[:reached]
    return mesh, states, None, passes, False


def _equation(fun: Function, core: tuple[Any, ...], args: Any) -> AdaptiveEquation:
    t0, initial, order, rgamma, memory = core

    def after(tau: Any, y: Any) -> Any:
        return fun(jnp.asarray(t0 + tau, memory.rates.dtype), y, *args)

    return AdaptiveEquation(namespace("jax"), after, initial, order, rgamma, memory)


def _search(functions: tuple[Function, None], most: int, tolerance: Tolerance, *given: Any) -> tuple[Mesh, Any]:
    # A loop of unknown length has no reverse-mode derivative. None is needed here: captured values are passed as
    # arguments, and all arguments enter without a derivative.
    (_, initial, _, _, memory), _, _, _, args = given
    bare, captured = jax.closure_convert(
        lambda t, y, *args: functions[0](t, y, *args), jnp.zeros((), memory.rates.dtype), initial[0], *args
    )
    given, captured = jax.lax.stop_gradient((given, tuple(captured)))
    core, stops, outputs, atol, args = given
    equation = _equation(bare, core, (*args, *captured))
    return choose_mesh(equation, stops, outputs, tolerance._replace(atol=atol), most)[:2]


def _repeat(functions: tuple[Function, None], core: tuple[Any, ...], mesh: Mesh, outputs: Any, args: Any) -> Any:
    """The states after each step and at the outputs, with derivatives, also in the outputs; NaN where there is none."""
    equation = _equation(functions[0], core, args)

    def weights_of(coefficients: Any, lengths: Any) -> Any:
        return adams.weigh(jnp, coefficients, lengths, equation.order, equation.rgamma)

    known = jax.lax.stop_gradient(outputs)
    return adams.repeat_steps(equation, weights_of, jax.lax.stop_gradient(mesh), known, outputs, PLAIN)
