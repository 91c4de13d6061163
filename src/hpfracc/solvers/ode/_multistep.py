"""Solving with a fractional linear multistep method: what its three kinds share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hpfracc.solvers.ode._evaluation import Jacobian
from hpfracc.solvers.ode._first_value import evaluate_first
from hpfracc.solvers.ode._fixed import StartError, solve_fixed
from hpfracc.solvers.ode._newton import MOST_ITERATIONS, TOLERANCE, difference_jacobian
from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._refusals import refuse_plain, starts_infinite
from hpfracc.solvers.ode._result import FODEResult
from hpfracc.solvers.ode._scheme import Scheme, Tableau
from hpfracc.solvers.ode._singular import GrowthError
from hpfracc.solvers.ode._starting import MOST_POWERS, Multistep, Powers, starting_powers, starting_weights
from hpfracc.solvers.ode._uniform import make_grid, row_orders
from hpfracc.solvers.ode._weights import kept

__all__ = ["refuse_multistep", "refuse_start", "series_power", "solve_multistep"]

Array = np.ndarray[Any, Any]

#: The lowest order for which the starting weights can be found in double precision.
LEAST_ORDER = 0.2


def refuse_multistep(method: Multistep, problem: Problem, options: Options) -> str | None:
    """Why a multistep method cannot take ``problem``."""
    plain = refuse_plain(problem, method.name, infinite=True)
    if plain is not None or problem.orders.known is None:
        return plain
    lowest = float(problem.orders.known.min())
    if lowest < LEAST_ORDER:
        return (
            f"method={method.name!r} needs orders of {LEAST_ORDER} or more, and the lowest is {lowest:g}: its starting "
            "weights would have no digits; use method='implicit_trapezoid'"
        )
    return refuse_start(method.name, problem, options)


def refuse_start(name: str, problem: Problem, options: Options, bound: float = 1.0) -> str | None:
    """Why no starting weights can be had for powers up to ``bound``."""
    advice = "'adaptive', without a step" if starts_infinite(problem) else "'implicit_trapezoid'"
    try:
        powers = starting_powers(problem, bound)
    except GrowthError as error:
        return f"method={name!r}: {error}"
    if len(powers.exponents) > MOST_POWERS:
        return (
            f"method={name!r} would need starting weights for {len(powers.exponents)} powers of t, and more "
            f"than {MOST_POWERS} have no digits; use method={advice}"
        )
    if options.step is not None and make_grid(problem.t0, problem.t1, options.step).steps <= powers.last:
        return f"method={name!r} finds its first {powers.last} steps together: take a smaller step"
    return None


def solve_multistep(method: Multistep, problem: Problem, options: Options, bound: float = 1.0) -> FODEResult:
    """One sum over the past and one system of equations for each step, after the first, which are found together."""
    powers = starting_powers(problem, bound)

    def weights(alpha: float, n: int) -> tuple[Array, ...]:
        return kept(method.name, alpha, n, lambda alpha, n: (method.weights(alpha, n),))

    scheme = Scheme("implicit", weights, partial(_start, method=method, powers=powers), powers=MOST_POWERS)
    return solve_fixed(problem, options, scheme, method.name, "asked for")


def _start(table: Tableau, evaluate: Callable[[float, Array], Array], *, method: Multistep, powers: Powers) -> None:
    """The values that the starting weights belong to, and what these contribute to all later sums."""
    problem, grid = table.problem, table.grid
    table.begins = powers
    orders, n = row_orders(problem), grid.count
    if powers.first == 0:
        evaluate_first(table, evaluate)
    distinct = [float(alpha) for alpha in np.unique(orders)]
    starts = {
        alpha: kept(
            ("starts", method.name, powers), alpha, n, lambda alpha, n: (starting_weights(method, alpha, n, powers),)
        )[0]
        * grid.step**alpha
        for alpha in distinct
    }
    _solve_first(table, evaluate, powers, starts)
    first, last = powers.first, powers.last
    for alpha in distinct:
        mine = orders == alpha
        table.sums[0, mine] += table.f[mine, first : last + 1] @ starts[alpha]
    table.known = last + 1


def _solve_first(
    table: Tableau, evaluate: Callable[[float, Array], Array], powers: Powers, starts: dict[float, Array]
) -> None:
    """Steps 1 .. last at once, by Newton's method on all of them."""
    problem, grid, last = table.problem, table.grid, powers.last
    shape, d = problem.shape, problem.shape[-1]
    orders = row_orders(problem)
    jacobian = Jacobian(problem) if problem.jac is not None else None
    times = [float(t) for t in grid.t0 + grid.elapsed(0, last + 1)]
    # matrix[row, n-1, j-1]: what the value at step j weighs at step n.
    matrix = np.zeros((len(orders), last, last))
    known = np.array(table.sums[0, :, 1 : last + 1])
    for row, alpha in enumerate(orders):
        omega = table.weights[0, 0 if table.which is None else table.which[row], : last + 1]
        start = starts[float(alpha)]
        for n in range(1, last + 1):
            for j in range(powers.first, last + 1):
                weight = start[j - powers.first, n] + (omega[n - j] if j <= n else 0.0)
                if j == 0:
                    known[row, n - 1] += weight * table.f[row, 0]
                else:
                    matrix[row, n - 1, j - 1] = weight
    finite = table.y[:, :1] if powers.first == 0 else table.sums[0, :, 1:2]
    y = np.repeat(finite, last, axis=1)
    identity = np.eye(last * d)
    for turn in range(MOST_ITERATIONS):
        points = [np.ascontiguousarray(y[:, n]).reshape(shape) for n in range(last)]
        values = [evaluate(times[n + 1], points[n]) for n in range(last)]
        f = np.stack([value.reshape(-1) for value in values], axis=1)
        residual = y - known - np.einsum("rnj,rj->rn", matrix, f)
        size = float(np.max(np.abs(residual)))
        if size <= 8.0 * TOLERANCE * float(np.max(np.abs(y)) + np.max(np.abs(known))):
            table.y[:, 1 : last + 1], table.f[:, 1 : last + 1] = y, f
            return
        if not math.isfinite(size):
            break
        slopes = np.stack(
            [
                jacobian(times[n + 1], points[n])
                if jacobian is not None
                else difference_jacobian(evaluate, times[n + 1], points[n], values[n])
                for n in range(last)
            ]
        )  # (last, ..., d, d)
        weights = matrix.reshape(-1, d, last, last)
        slopes = slopes.reshape(last, -1, d, d)
        system = identity - np.einsum("banj,jbac->bnajc", weights, slopes).reshape(-1, last * d, last * d)
        right = residual.reshape(-1, d, last).transpose(0, 2, 1).reshape(-1, last * d, 1)
        try:
            change = np.linalg.solve(system, right)
        except np.linalg.LinAlgError:
            break
        change = change.reshape(-1, last, d).transpose(0, 2, 1).reshape(-1, last)
        y = y - change
        if turn and np.max(np.abs(change)) <= 4e-16 * np.max(np.abs(y)):
            break
    else:
        turn = MOST_ITERATIONS
    final = [evaluate(times[n + 1], np.ascontiguousarray(y[:, n]).reshape(shape)) for n in range(last)]
    f = np.stack([value.reshape(-1) for value in final], axis=1)
    residual = y - known - np.einsum("rnj,rj->rn", matrix, f)
    if not float(np.max(np.abs(residual))) <= 1e-9 * float(np.max(np.abs(y)) + np.max(np.abs(known))):
        raise StartError(
            f"Newton's method did not converge for the first {last} steps, up to t = {times[last]:g}: take a smaller "
            "step, give jac, or use method='implicit_trapezoid'."
        )
    table.y[:, 1 : last + 1], table.f[:, 1 : last + 1] = y, f


def series_power(series: Array, exponent: float) -> Array:
    """Coefficients of ``(a_0 + a_1 z + ...)^exponent`` for a_0 > 0, as many as there are in ``series``."""
    found = np.zeros(len(series))
    found[0] = series[0] ** exponent
    for m in range(1, len(series)):
        terms = [(exponent * j - (m - j)) * series[j] * found[m - j] for j in range(1, m + 1)]
        found[m] = sum(terms) / (m * series[0])
    return found
