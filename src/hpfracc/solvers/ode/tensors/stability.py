"""Stability of fixed steps on tensors and JAX arrays: Jacobians in their own library, eigenvalues on the host.

The limits are those of :mod:`hpfracc.solvers.ode.stiffness`. For JAX a solve may be traced: then the eigenvalues are
computed by a callback when the program runs, ``method="auto"`` has a branch for each of its two methods, and a solution
that is not stable becomes NaN.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, to_host
from hpfracc._torch_transforms import is_inside, is_wrapped, without_gradients
from hpfracc._xp import Namespace, array_namespace, namespace_of
from hpfracc.solvers.ode.fixed.grid import UniformGrid, make_grid
from hpfracc.solvers.ode.fixed.scheme import Scheme
from hpfracc.solvers.ode.jacobian import DENSE_BELOW
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.stiffness import LIMIT, StabilityLimits, stiff_at, unstable_growth
from hpfracc.solvers.ode.tensors.blocks import TensorFunctions
from hpfracc.solvers.ode.tensors.newton import slopes_of
from hpfracc.solvers.ode.tensors.rule import TensorRule, convert_like
from hpfracc.solvers.ode.tensors.solve import order_of, solve_tensors, torch_functions
from hpfracc.solvers.ode.tensors.spectra import growth, rotation

__all__ = ["TensorGuard", "solve_checked", "solve_explicit"]

Array = np.ndarray[Any, Any]

#: Points of an explicit solution at which ``method="auto"`` checks the stability of its steps.
_POINTS = 8


class TensorGuard:
    """Compares the Jacobian of a problem on tensors or JAX arrays with the region of stability of a fixed step.

    Parameters
    ----------
    problem : Problem
        The equation.
    grid : UniformGrid
        The steps.
    name, scheme : str, Scheme
        The method.
    """

    def __init__(self, problem: Problem, grid: UniformGrid, name: str, scheme: Scheme) -> None:
        self.problem, self.grid, self.name, self.scheme = problem, grid, name, scheme
        self.calls = [0]
        self._fun = torch_functions(problem, self.calls)[0] if problem.library == "torch" else problem.fun
        order, xp = order_of(problem), namespace_of(problem.orders.value)
        with xp.scope():
            alpha = xp.array(order)
            scale = xp.exp(alpha * math.log(grid.step))
            self._scale = convert_like(scale, problem.y0)
            self._ahead = convert_like(scale * xp.rgamma(alpha + 1.0), problem.y0)

    def limits(self, orders: Any) -> StabilityLimits:
        """For known orders."""
        whole = np.broadcast_to(np.asarray(orders, dtype=np.float64), self.problem.shape)
        return StabilityLimits(whole, self.grid.step, self.name, self.scheme)

    def number(self, t: float, y: Any) -> float:
        """The stability number at a point; 0 if the values are not known (``torch.func.vmap``)."""
        if self.problem.orders.known is None or 0 in y.shape:
            return 0.0
        try:
            matrices = to_host(self.matrices(t, y))
        except RuntimeError:
            if self.problem.library != "torch" or not is_inside():
                raise
            return 0.0
        return self.limits(self.problem.orders.known).number(matrices.astype(np.result_type(matrices, np.float64)))

    def ahead(self) -> tuple[float, Any]:
        """The end of an explicit step from the start, where new rates may appear."""
        problem = self.problem
        args = () if problem.library == "torch" else problem.args
        return problem.t0 + self.grid.step, problem.y0 + self._ahead * self._fun(problem.t0, problem.y0, *args)

    def matrices(self, t: Any, y: Any) -> Any:
        """``h^alpha`` times the Jacobian of each member, (..., d, d); of large ones the largest eigenvalues only."""
        if self.problem.library == "jax":
            from hpfracc.solvers.ode.tensors.on_jax.programs import run_program

            given = (t, y, self._scale, self.problem.args)
            return run_program(_slopes, (self._fun, self.problem.jac), (array_namespace(y), False), given)
        with sys.modules["torch"].no_grad():
            functions = torch_functions(self.problem, self.calls)
            wrapped = is_wrapped(y) or is_wrapped(functions[0](t, y))
            return _slopes(functions, array_namespace(y), wrapped, t, y.detach(), self._scale.detach(), ())

    def judge(self, states: Any) -> tuple[Any, str | None]:
        """The states, and why they are not stable; traced ones are NaN instead."""
        if is_tracer(states):
            from hpfracc.solvers.ode.tensors.on_jax.stability import without_unstable

            return without_unstable(self, states), None
        if self.problem.library == "torch":
            states_known = without_gradients(states.detach())
            if is_wrapped(states_known) or self.problem.orders.known is None:
                return states, None
        else:
            states_known = states
        sizes = growth(array_namespace(states_known).module, states_known)
        message = unstable_growth(
            to_host(sizes), lambda n: self.problem.t0 + n * self.grid.step,
            lambda n: self.number(self.problem.t0 + n * self.grid.step, states_known[n]), self.name,
        )  # fmt: skip
        return states, message


def _slopes(
    functions: TensorFunctions, xp: Namespace, wrapped: bool, t: Any, y: Any, scale: Any, args: tuple[Any, ...]
) -> Any:
    """``scale`` times the Jacobian of each member, (..., d, d), or the largest eigenvalues as matrices (..., 2, 2)."""
    own, jacobian = functions
    at = t if xp.library == "torch" else xp.module.asarray(t, y.real.dtype)

    def fun(y: Any) -> Any:
        return own(at, y, *args)

    if y.shape[-1] > DENSE_BELOW:
        return rotation(xp.module, fun, y, scale, float(xp.module.finfo(y.dtype).eps))
    slopes = slopes_of(fun, None, wrapped)(y) if jacobian is None else jacobian(at, y, *args)
    return xp.module.broadcast_to(scale, y.shape)[..., None] * slopes


def solve_explicit(problem: Problem, options: Options, rule: TensorRule, scheme: Scheme) -> FODEResult:
    """Solve with the step of ``options``; a solution that grows by more than the equation can is a failure."""

    def judge(grid: UniformGrid, states: Any) -> tuple[Any, str | None]:
        return TensorGuard(problem, grid, rule.name, scheme).judge(states)

    return solve_tensors(problem, options, rule, judge)


def solve_checked(problem: Problem, options: Options, explicit: Any, implicit: Method) -> FODEResult:
    """Solve by explicit steps, or by implicit ones where those would not be stable."""
    assert options.step is not None
    grid = make_grid(problem.t0, problem.t1, options.step)
    guard = TensorGuard(problem, grid, explicit.name, explicit.scheme)
    if 0 in problem.shape or grid.steps > options.max_steps:
        return _because(explicit.solve(problem, options), f"y0 is an array of {problem.library}")
    if problem.library == "jax":
        from hpfracc.solvers.ode.tensors.on_jax.stability import solve_either

        start = [guard.matrices(problem.t0, problem.y0), guard.matrices(*guard.ahead())]
        if problem.orders.known is None or any(map(is_tracer, start)):
            return solve_either(guard, start, problem, options, explicit, implicit)
    why = None
    for t, y in ((problem.t0, problem.y0), guard.ahead()):
        why = why or _stiff(guard, t, y)
    if why is None:
        result = explicit.solve(problem, options)
        result = _because(result, f"a step was given, and the equation is not stiff (y0 is of {problem.library})")
        if result.stats.get("interrupted"):
            return result
        why = _stiff_along(guard, result)
        result.nfev = None if result.nfev is None else result.nfev + guard.calls[0]
        if why is None:
            return result
    return _because(implicit.solve(problem, options), f"the equation is stiff for this step: {why}")


def _stiff(guard: TensorGuard, t: float, y: Any) -> str | None:
    found = guard.number(t, y)
    return stiff_at(found, t) if found > LIMIT else None


def _stiff_along(guard: TensorGuard, result: FODEResult) -> str | None:
    """Where an explicit solution is stiff, at a few of its points."""
    known = np.arange(1, result.t.size)
    for index in known[np.unique(np.linspace(0, known.size - 1, _POINTS).astype(int))] if known.size else ():
        why = _stiff(guard, float(result.t[index]), result.y[..., int(index)])
        if why is not None:
            return why
    return None


def _because(result: FODEResult, reason: str) -> FODEResult:
    if result.decision is not None:
        result.decision = dataclasses.replace(result.decision, reason=reason)
    return result
