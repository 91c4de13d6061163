"""Stability of fixed steps on JAX arrays, also traced: eigenvalues are then computed on the host by a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.stiffness import GROWTH, GROWTH_POINTS, LIMIT
from hpfracc.solvers.ode.tensors.solve import order_of
from hpfracc.solvers.ode.tensors.spectra import growth

__all__ = ["solve_either", "without_unstable"]

Array = np.ndarray[Any, Any]


def _numbers(guard: Any, matrices: Any) -> Any:
    """The stability number of each of several points, by a callback; ``matrices`` is (points, ..., d, d)."""

    def on_host(matrices: Any, orders: Any) -> Array:
        limits, values = guard.limits(orders), np.asarray(matrices)
        return np.array([limits.number(each.astype(np.result_type(each, np.float64))) for each in values], np.float32)

    given = jax.lax.stop_gradient((matrices, jnp.asarray(order_of(guard.problem))))
    shape = jax.ShapeDtypeStruct(matrices.shape[:1], jnp.float32)
    return jax.pure_callback(on_host, shape, *given, vmap_method="sequential")


def without_unstable(guard: Any, states: Any) -> Any:
    """The states; NaN if they have grown where the equation does not let them."""
    problem, grid = guard.problem, guard.grid
    known = jax.lax.stop_gradient(states)
    grown = growth(jnp, known) > GROWTH
    first, last = jnp.argmax(grown), grown.shape[0] - 1 - jnp.argmax(grown[::-1])
    places = first + (last - first) * jnp.arange(GROWTH_POINTS) // (GROWTH_POINTS - 1)

    def check(places: Any) -> Any:
        found = [guard.matrices(problem.t0 + places[k] * grid.step, known[places[k]]) for k in range(GROWTH_POINTS)]
        return jnp.median(_numbers(guard, jnp.stack(found))) > 1.0

    bad = jax.lax.cond(grown.any(), check, lambda places: jnp.asarray(False), places)
    return jnp.where(bad, jnp.nan, states)


def solve_either(
    guard: Any, start: list[Any], problem: Problem, options: Options, explicit: Method, implicit: Method
) -> FODEResult:
    """A traced solve: a branch for each method, and the start decides when the program runs."""
    found: list[FODEResult] = []

    def by(method: Method) -> Callable[[], Any]:
        def solve() -> Any:
            found.append(method.solve(problem, options))
            return found[-1].y

        return solve

    stiff = (_numbers(guard, jnp.stack(start)) > LIMIT).any()
    y = jax.lax.cond(stiff, by(implicit), by(explicit))
    result = found[-1]
    result.y, result.nfev = y, None
    return result
