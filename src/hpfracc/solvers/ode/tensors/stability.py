"""Stability of fixed steps on tensors and JAX arrays: Jacobians in their own library, eigenvalues on the host.

The limits are those of :mod:`hpfracc.solvers.ode.stiffness`. For JAX a solve may be traced: then the eigenvalues are
computed by a callback when the program runs, ``method="auto"`` has a branch for each of its two methods, and a solution
that is not stable becomes NaN.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, to_host
from hpfracc._torch_transforms import is_inside, is_wrapped, without_gradients
from hpfracc._xp import Namespace, array_namespace, convert_like, namespace_of
from hpfracc.solvers.ode.fixed.grid import UniformGrid
from hpfracc.solvers.ode.fixed.walk import Guard
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.stiffness import GROWTH, GROWTH_POINTS, LIMIT, StiffnessGuard, rotation, unstable_growth
from hpfracc.solvers.ode.tensors.blocks import TensorFunctions
from hpfracc.solvers.ode.tensors.solve import order_of, solve_tensors, torch_functions
from hpfracc.solvers.stepping.jacobian import DENSE_BELOW
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.tensors.newton import slopes_of

Array = np.ndarray[Any, Any]

#: Points of an explicit solution at which ``method="auto"`` checks the stability of its steps.
_POINTS = 8


class TensorGuard(StiffnessGuard):
    """Compares the Jacobian of a problem on tensors or JAX arrays with the region of stability of a fixed step."""

    def __init__(self, problem: Problem, step: float, rule: Any) -> None:
        self.problem, self.step, self.rule = problem, step, rule
        self._calls = [0]
        self._fun = torch_functions(problem, self._calls)[0] if problem.library == "torch" else problem.fun
        order, xp = order_of(problem), namespace_of(problem.orders.value)
        with xp.scope():
            alpha = xp.array(order)
            scale = xp.exp(alpha * math.log(step))
            self._scale = convert_like(scale, problem.y0)
            self._ahead = convert_like(scale * xp.rgamma(alpha + 1.0), problem.y0)

    @property
    def evaluations(self) -> int:
        """Evaluations of the right-hand side so far, of PyTorch."""
        return self._calls[0]

    def number(self, t: float, y: Any, above: float = 0.0) -> float:
        """The stability number at a point; 0 if the values are not known (``torch.func.vmap``)."""
        if self.problem.orders.known is None or 0 in y.shape:
            return 0.0
        try:
            matrices = to_host(self.matrices(t, y))
        except RuntimeError:
            if self.problem.library != "torch" or not is_inside():
                raise
            return 0.0
        wide = matrices.astype(np.result_type(matrices, np.float64))
        return self.limits(self.problem.orders.known).number(wide, above)

    def ahead(self) -> tuple[float, Any]:
        """The end of an explicit step from the start, where new rates may appear."""
        problem = self.problem
        args = () if problem.library == "torch" else problem.args
        return problem.t0 + self.step, problem.y0 + self._ahead * self._fun(problem.t0, problem.y0, *args)

    def look_ahead(self) -> None:
        """Check the start and the end of an explicit step from it."""
        self(self.problem.t0, self.problem.y0)
        self(*self.ahead())

    def matrices(self, t: Any, y: Any) -> Any:
        """``h^alpha`` times the Jacobian of each member, (..., d, d); of large ones the largest eigenvalues only."""
        if self.problem.library == "jax":
            from hpfracc.solvers.tensors.programs import run_program

            given = (t, y, self._scale, self.problem.args)
            return run_program(_slopes, (self._fun, self.problem.jac), (array_namespace(y), False), given)
        with sys.modules["torch"].no_grad():
            functions = torch_functions(self.problem, self._calls)
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
            to_host(sizes), lambda n: self.problem.t0 + n * self.step,
            lambda n: self.number(self.problem.t0 + n * self.step, known[n]), self.rule.name,
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
        return rotation(xp.module, fun, y, scale)
    slopes = slopes_of(fun, None, wrapped)(y) if jacobian is None else jacobian(at, y, *args)
    return xp.module.broadcast_to(scale, y.shape)[..., None] * slopes


def _growth(xp: Any, states: Any) -> Any:
    """Size of the solution at each step, of the member that has grown most, over its first two; 0 if not finite."""
    sizes = xp.amax(abs(states), -1).reshape(states.shape[0], -1)
    sizes = xp.where(xp.isfinite(sizes), sizes, 0.0 * xp.ones_like(sizes))
    first = xp.amax(sizes[:2], 0)
    tiny = float(xp.finfo(sizes.dtype).tiny) ** 0.5
    return xp.amax(sizes / xp.maximum(first, tiny + 0.0 * first), 1)


def solve_explicit(problem: Problem, options: Options, rule: Any, reason: str, guard: Guard | None) -> FODEResult:
    """Solve with the step of ``options``; a solution that grows by more than the equation can is a failure.

    ``guard(t, y)``, if given, is called at some of the points.
    """

    def judge(grid: UniformGrid, states: Any) -> tuple[Any, str | None]:
        return TensorGuard(problem, grid.step, rule).judge(states)

    result = solve_tensors(problem, options, rule, reason, judge)
    last = result.t.size - 1
    if guard is not None and last > 0 and 0 not in problem.shape and not result.stats["interrupted"]:
        for k in np.unique(np.linspace(1, last, _POINTS).astype(int)).tolist():
            guard(float(result.t[k]), result.y[..., k])
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
    jax, jnp, problem = sys.modules["jax"], sys.modules["jax"].numpy, guard.problem
    known = jax.lax.stop_gradient(states)
    grown = _growth(jnp, known) > GROWTH
    first, last = jnp.argmax(grown), grown.shape[0] - 1 - jnp.argmax(grown[::-1])
    places = first + (last - first) * jnp.arange(GROWTH_POINTS) // (GROWTH_POINTS - 1)

    def check(places: Any) -> Any:
        found = [guard.matrices(problem.t0 + places[k] * guard.step, known[places[k]]) for k in range(GROWTH_POINTS)]
        return jnp.median(_numbers(guard, jnp.stack(found))) > 1.0

    bad = jax.lax.cond(grown.any(), check, lambda places: jnp.asarray(False), places)
    return jnp.where(bad, jnp.nan, states)


def solve_traced(guard: TensorGuard, options: Options, explicit: Method, implicit: Method) -> FODEResult | None:
    """A traced solve of JAX has a branch for each method, and the start decides when the program runs; else None."""
    found, problem = list[FODEResult](), guard.problem
    if problem.library != "jax" or 0 in problem.shape:
        return None
    jax: Any = sys.modules["jax"]
    start = [guard.matrices(problem.t0, problem.y0), guard.matrices(*guard.ahead())]
    if problem.orders.known is not None and not any(map(is_tracer, start)):
        return None

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
