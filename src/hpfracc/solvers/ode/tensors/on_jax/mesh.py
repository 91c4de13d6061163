"""Programs of steps over a mesh on JAX arrays, and of the choice of a mesh, all traceable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hpfracc._xp import namespace
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.blocks import Loop
from hpfracc.solvers.ode.tensors.exponentials import Memory
from hpfracc.solvers.ode.tensors.on_jax.programs import run_program
from hpfracc.solvers.ode.tensors.replay import repeat_steps, solve_differences
from hpfracc.solvers.ode.tensors.search import Equation, Mesh, choose_mesh
from hpfracc.solvers.ode.tensors.tolerance import Tolerance

__all__ = ["repeat_program", "search_program", "solve_differences_program"]

Function = Callable[..., Any]


def solve_differences_program(name: str, functions: tuple[Function, Function | None], *given: Any) -> Any:
    """All states of L1 or L2-1sigma; given t0, y0, the kernel, the tables and the arguments."""
    return run_program(_differences, functions, (name,), given)


def _differences(
    functions: tuple[Function, Function | None], name: str, t0: Any, y0: Any, memory: Memory, tables: Any, args: Any
) -> Any:
    fun, jacobian = functions
    bound = lambda t, y: fun(t, y, *args), None if jacobian is None else lambda t, y: jacobian(t, y, *args)
    return solve_differences(namespace("jax"), name, bound, t0, None, y0, memory, tables, True, Loop())


def search_program(
    fun: Function, tolerance: Tolerance, most: int, t0: float, initial: tuple[Any, ...], order: Any, rgamma: Any,
    memory: Memory, stops: Any, outputs: Any, args: tuple[Any, ...],
) -> Mesh:  # fmt: skip
    """The chosen mesh, without derivatives."""
    static = (
        tolerance.rtol, tolerance.first_step, tolerance.max_step, tolerance.shortest, tolerance.rounding,
        tolerance.globally, most,
    )  # fmt: skip
    given = (t0, initial, order, rgamma, memory, stops, outputs, jnp.asarray(tolerance.atol, memory.rates.dtype), args)
    found: Mesh = run_program(_search, (fun, None), (static,), given)
    return found


def _search(functions: tuple[Function, None], static: tuple[Any, ...], *given: Any) -> Mesh:
    # A loop of unknown length has no reverse-mode derivative. None is needed here: captured values are passed as
    # arguments, and all arguments enter without a derivative.
    _, initial, _, _, memory, _, _, _, args = given
    real = memory.rates.dtype
    bare, captured = jax.closure_convert(
        lambda t, y, *args: functions[0](t, y, *args), jnp.zeros((), real), initial[0], *args
    )
    given, captured = jax.lax.stop_gradient((given, tuple(captured)))
    t0, initial, order, rgamma, memory, stops, outputs, atol, args = given

    def fun(tau: Any, y: Any) -> Any:
        return bare(jnp.asarray(t0 + tau, real), y, *args, *captured)

    rtol, first_step, max_step, shortest, rounding, globally, most = static
    tolerance = Tolerance(rtol, atol, first_step, max_step, most, shortest, rounding, globally)
    equation = Equation(namespace("jax"), fun, initial, order, rgamma, memory)
    return choose_mesh(equation, stops, outputs, tolerance, most)[0]


def repeat_program(
    fun: Function, t0: float, initial: tuple[Any, ...], order: Any, rgamma: Any, memory: Memory, mesh: Mesh,
    outputs: Any, args: tuple[Any, ...],
) -> tuple[Any, Any]:  # fmt: skip
    """The states after each step and at the outputs, with derivatives, also in the outputs; NaN where there is none."""
    given = (t0, initial, order, rgamma, memory, mesh, outputs, args)
    found: tuple[Any, Any] = run_program(_repeat, (fun, None), (), given)
    return found


def _repeat(
    functions: tuple[Function, None], t0: Any, initial: Any, order: Any, rgamma: Any, memory: Memory, mesh: Mesh,
    outputs: Any, args: Any,
) -> tuple[Any, Any]:  # fmt: skip
    real = memory.rates.dtype
    mesh = jax.lax.stop_gradient(mesh)

    def fun(tau: Any, y: Any) -> Any:
        return functions[0](jnp.asarray(t0 + tau, real), y, *args)

    def weights_of(coefficients: Any, lengths: Any) -> Any:
        return adams.weigh(jnp, coefficients, lengths, order, rgamma)

    equation = Equation(namespace("jax"), fun, initial, order, rgamma, memory)
    known = jax.lax.stop_gradient(outputs)
    return repeat_steps(equation, weights_of, mesh, known, outputs, Loop())
