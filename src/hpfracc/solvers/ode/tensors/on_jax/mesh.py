"""Programs of steps over a mesh on JAX arrays, and of the choice of a mesh, all traceable."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc._xp import convert_like, namespace, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.history.states import Memory
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.blocks import PLAIN
from hpfracc.solvers.ode.tensors.on_jax.programs import run_program
from hpfracc.solvers.ode.tensors.replay import repeat_steps, solve_differences
from hpfracc.solvers.ode.tensors.search import (
    TOLERATED,
    Adapted,
    AdaptiveEquation,
    AdaptiveTask,
    Mesh,
    choose_mesh,
    why_stopped,
)
from hpfracc.solvers.ode.tensors.tolerance import Tolerance

__all__ = ["adapt_arrays", "solve_differences_program"]

#: Capacity of a traced program in steps, in addition to two for each requested time.
_TRACED_STEPS = 2048

Function = Callable[..., Any]


def solve_differences_program(name: str, functions: tuple[Function, Function | None], *given: Any) -> Any:
    """All states of L1 or L2-1sigma; given t0, y0, the kernel, the tables and the arguments."""
    return run_program(_differences, functions, (name,), given)


def _differences(
    functions: tuple[Function, Function | None], name: str, t0: Any, y0: Any, memory: Memory, tables: Any, args: Any
) -> Any:
    fun, jacobian = functions
    bound = lambda t, y: fun(t, y, *args), None if jacobian is None else lambda t, y: jacobian(t, y, *args)
    return solve_differences(namespace("jax"), name, bound, t0, None, y0, memory, tables, True, PLAIN)


def adapt_arrays(task: AdaptiveTask) -> Adapted:
    """Choose steps without derivatives, and repeat the same steps with them unless only values are asked for."""
    problem, options, tolerance, order, memory, stops, outputs, moving, _ = task
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
        static = (most, dataclasses.replace(tolerance, atol=None))
        mesh: Mesh = run_program(_search, (fun, None), static, (core, ends, asked, atol, args))
        full = not is_tracer(mesh.count) and bool((mesh.stop < len(stops)) & (mesh.count >= most))
        if not full or most == options.max_steps:
            break
        most = min(8 * most, options.max_steps)
    stats: dict[str, Any] = {"exponentials": int(memory.rates.shape[0]), "interrupted": False}
    times = asked if moving is None else moving
    if is_tracer(mesh.count):
        answers = run_program(_repeat, (fun, None), (), (core, mesh, times, args))[1]
        if tolerance.globally:  # failure can only be reported as NaN
            answers = jnp.where(mesh.ratio <= TOLERATED, answers, math.nan)
        return Adapted(None, answers, len(outputs), 0.0, mesh.error, None, None, stats)
    count, reached = int(mesh.count), int(mesh.out)
    stats |= {"steps": count, "rejected": int(mesh.rejected), "error_over_tolerance": float(mesh.ratio)}
    states = mesh.answers[:reached] if outputs.shape[0] else problem.y0[None]
    if (options.t_eval is None or traced or moving is not None) and count:
        # Rounded up to a few lengths, because each length is a separate program.
        room = min(most, 1 << max(6, (count - 1).bit_length()))
        kept = mesh._replace(lengths=mesh.lengths[:room], degrees=mesh.degrees[:room], taus=mesh.taus[: room + 1])
        states, answers = run_program(_repeat, (fun, None), (), (core, kept, times, args))
        states = states[: count + 1] if options.t_eval is None else answers[:reached]
    taus = np.array(mesh.taus[: count + 1], dtype=np.float64)
    message = why_stopped(task, mesh, most)
    return Adapted(taus, states, reached, float(mesh.ratio), float(mesh.error), message, None, stats)


def _equation(fun: Function, core: tuple[Any, ...], args: Any) -> AdaptiveEquation:
    t0, initial, order, rgamma, memory = core

    def after(tau: Any, y: Any) -> Any:
        return fun(jnp.asarray(t0 + tau, memory.rates.dtype), y, *args)

    return AdaptiveEquation(namespace("jax"), after, initial, order, rgamma, memory)


def _search(functions: tuple[Function, None], most: int, tolerance: Tolerance, *given: Any) -> Mesh:
    # A loop of unknown length has no reverse-mode derivative. None is needed here: captured values are passed as
    # arguments, and all arguments enter without a derivative.
    (_, initial, _, _, memory), _, _, _, args = given
    bare, captured = jax.closure_convert(
        lambda t, y, *args: functions[0](t, y, *args), jnp.zeros((), memory.rates.dtype), initial[0], *args
    )
    given, captured = jax.lax.stop_gradient((given, tuple(captured)))
    core, stops, outputs, atol, args = given
    equation = _equation(bare, core, (*args, *captured))
    return choose_mesh(equation, stops, outputs, dataclasses.replace(tolerance, atol=atol), most)[0]


def _repeat(functions: tuple[Function, None], core: tuple[Any, ...], mesh: Mesh, outputs: Any, args: Any) -> Any:
    """The states after each step and at the outputs, with derivatives, also in the outputs; NaN where there is none."""
    equation = _equation(functions[0], core, args)

    def weights_of(coefficients: Any, lengths: Any) -> Any:
        return adams.weigh(jnp, coefficients, lengths, equation.order, equation.rgamma)

    known = jax.lax.stop_gradient(outputs)
    return repeat_steps(equation, weights_of, jax.lax.stop_gradient(mesh), known, outputs, PLAIN)
