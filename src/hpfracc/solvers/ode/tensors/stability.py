"""Stability of fixed steps on tensors and JAX arrays: Jacobians in their own library, eigenvalues on the host.

The limits are those of :mod:`hpfracc.solvers.ode.stiffness`. For JAX a solve may be traced: then the eigenvalues are
computed by a callback when the program runs, ``method="auto"`` has a branch for each of its two methods, and a solution
that is not stable becomes NaN.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, to_host
from hpfracc._torch_transforms import is_inside, is_wrapped, without_gradients
from hpfracc._xp import Namespace, array_namespace, convert_like, namespace_of
from hpfracc.solvers.ode.fixed.grid import UniformGrid, make_grid
from hpfracc.solvers.ode.fixed.scheme import Scheme
from hpfracc.solvers.ode.jacobian import DENSE_BELOW
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.stiffness import GROWTH, GROWTH_POINTS, LIMIT, StabilityLimits, stiff_at, unstable_growth
from hpfracc.solvers.ode.tensors.blocks import TensorFunctions
from hpfracc.solvers.ode.tensors.newton import slopes_of
from hpfracc.solvers.ode.tensors.solve import order_of, solve_tensors, torch_functions

__all__ = ["TensorGuard", "solve_checked", "solve_explicit"]

Array = np.ndarray[Any, Any]

#: Points of an explicit solution at which ``method="auto"`` checks the stability of its steps.
_POINTS = 8
#: Iterations to find the largest eigenvalue of a large system.
_ITERATIONS = 12


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
            return _without_unstable(self, states), None
        torch = self.problem.library == "torch"
        known = without_gradients(states.detach()) if torch else states
        if self.problem.orders.known is None or (torch and is_wrapped(known)):
            return states, None
        sizes = _growth(array_namespace(known).module, known)
        message = unstable_growth(
            to_host(sizes), lambda n: self.problem.t0 + n * self.grid.step,
            lambda n: self.number(self.problem.t0 + n * self.grid.step, known[n]), self.name,
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
        return _rotation(xp.module, fun, y, scale, float(xp.module.finfo(y.dtype).eps))
    slopes = slopes_of(fun, None, wrapped)(y) if jacobian is None else jacobian(at, y, *args)
    return xp.module.broadcast_to(scale, y.shape)[..., None] * slopes


def _rotation(xp: Any, fun: Callable[[Any], Any], y: Any, scale: Any, eps: float) -> Any:
    """A matrix (..., 2, 2) for each member, with about the largest eigenvalues of ``scale df/dy``.

    By power iteration on differences of ``fun``; the angle by which a vector is turned is that of the eigenvalues.
    """

    def norm(value: Any) -> Any:
        return xp.sqrt((abs(value) ** 2).sum(-1))[..., None]

    value = fun(y)
    reach = xp.maximum(norm(y), norm(scale * value))
    width = eps ** (1.0 / 3.0) * xp.where(reach > 0.0, reach, 1.0 + 0.0 * reach)
    direction = xp.where(value == 0.0, 1.0 + 0.0 * value, value)
    along = size = norm(0.0 * y)
    for _ in range(_ITERATIONS):
        length = norm(direction)
        unit = direction / xp.where(length > 0.0, length, 1.0 + 0.0 * length)
        moved = scale * (fun(y + width * unit) - value) / width
        along, size, direction = (unit.conj() * moved).real.sum(-1)[..., None], norm(moved), moved
    across = xp.sqrt(xp.maximum(size**2 - along**2, 0.0 * size))
    return xp.stack([xp.concatenate([along, -across], -1), xp.concatenate([across, along], -1)], -2)


def _growth(xp: Any, states: Any) -> Any:
    """Size of the solution at each step, of the member that has grown most, over its first two; 0 if not finite."""
    sizes = xp.amax(abs(states), -1).reshape(states.shape[0], -1)
    sizes = xp.where(xp.isfinite(sizes), sizes, 0.0 * xp.ones_like(sizes))
    first = xp.amax(sizes[:2], 0)
    tiny = float(xp.finfo(sizes.dtype).tiny) ** 0.5
    return xp.amax(sizes / xp.maximum(first, tiny + 0.0 * first), 1)


def solve_explicit(problem: Problem, options: Options, rule: Any, scheme: Scheme) -> FODEResult:
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
        start = [guard.matrices(problem.t0, problem.y0), guard.matrices(*guard.ahead())]
        if problem.orders.known is None or any(map(is_tracer, start)):
            return _solve_either(guard, start, problem, options, explicit, implicit)
    if (why := _stiff_at(guard, [(problem.t0, problem.y0), guard.ahead()])) is None:
        result = explicit.solve(problem, options)
        result = _because(result, f"a step was given, and the equation is not stiff (y0 is of {problem.library})")
        if result.stats.get("interrupted"):
            return result
        last = result.t.size - 1
        places = np.unique(np.linspace(1, last, _POINTS).astype(int)) if last > 0 else ()
        why = _stiff_at(guard, ((float(result.t[k]), result.y[..., int(k)]) for k in places))
        result.nfev = None if result.nfev is None else result.nfev + guard.calls[0]
        if why is None:
            return result
    return _because(implicit.solve(problem, options), f"the equation is stiff for this step: {why}")


def _stiff_at(guard: TensorGuard, points: Iterable[tuple[float, Any]]) -> str | None:
    """Where explicit steps are not stable, at the first of some points of a solution."""
    for t, y in points:
        found = guard.number(t, y)
        if found > LIMIT:
            return stiff_at(found, t)
    return None


def _because(result: FODEResult, reason: str) -> FODEResult:
    if result.decision is not None:
        result.decision = dataclasses.replace(result.decision, reason=reason)
    return result


# -- traced solves of JAX: eigenvalues are computed on the host by a callback ------------------------------------------


def _numbers(guard: TensorGuard, matrices: Any) -> Any:
    """The stability number of each of several points, by a callback; ``matrices`` is (points, ..., d, d)."""

    def on_host(matrices: Any, orders: Any) -> Array:
        limits, values = guard.limits(orders), np.asarray(matrices)
        return np.array([limits.number(each.astype(np.result_type(each, np.float64))) for each in values], np.float32)

    jax, jnp = sys.modules["jax"], sys.modules["jax"].numpy
    given = jax.lax.stop_gradient((matrices, jnp.asarray(order_of(guard.problem))))
    shape = jax.ShapeDtypeStruct(matrices.shape[:1], jnp.float32)
    return jax.pure_callback(on_host, shape, *given, vmap_method="sequential")


def _without_unstable(guard: TensorGuard, states: Any) -> Any:
    """The states; NaN if they have grown where the equation does not let them."""
    jax, jnp, problem, grid = sys.modules["jax"], sys.modules["jax"].numpy, guard.problem, guard.grid
    known = jax.lax.stop_gradient(states)
    grown = _growth(jnp, known) > GROWTH
    first, last = jnp.argmax(grown), grown.shape[0] - 1 - jnp.argmax(grown[::-1])
    places = first + (last - first) * jnp.arange(GROWTH_POINTS) // (GROWTH_POINTS - 1)

    def check(places: Any) -> Any:
        found = [guard.matrices(problem.t0 + places[k] * grid.step, known[places[k]]) for k in range(GROWTH_POINTS)]
        return jnp.median(_numbers(guard, jnp.stack(found))) > 1.0

    bad = jax.lax.cond(grown.any(), check, lambda places: jnp.asarray(False), places)
    return jnp.where(bad, jnp.nan, states)


def _solve_either(
    guard: TensorGuard, start: list[Any], problem: Problem, options: Options, explicit: Method, implicit: Method
) -> FODEResult:
    """A traced solve: a branch for each method, and the start decides when the program runs."""
    jax, found = sys.modules["jax"], list[FODEResult]()

    def by(method: Method) -> Callable[[], Any]:
        def solve() -> Any:
            found.append(method.solve(problem, options))
            return found[-1].y

        return solve

    stiff = (_numbers(guard, jax.numpy.stack(start)) > LIMIT).any()
    y = jax.lax.cond(stiff, by(implicit), by(explicit))
    result = found[-1]
    result.y, result.nfev = y, None
    return result
