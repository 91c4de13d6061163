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
from hpfracc.solvers.ode._uniform import make_grid, order_groups
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
    if options.step is None:
        return None
    grid = make_grid(problem.t0, problem.t1, options.step)
    if grid.steps <= powers.last:
        return f"method={name!r} finds its first {powers.last} steps together: take a smaller step"
    shortest = min(problem.delays, default=math.inf)
    if shortest < powers.last * grid.step * (1.0 - 1e-9):
        return (
            f"method={name!r} finds its first {powers.last} steps together, and the delay {shortest:g} is shorter: "
            f"take a step of at most {shortest / powers.last:g}, or method='implicit_trapezoid'"
        )
    return None


def solve_multistep(method: Multistep, problem: Problem, options: Options, bound: float = 1.0) -> FODEResult:
    """One sum over the past and one system of equations for each step, after the first, which are found together."""
    powers = starting_powers(problem, bound)

    def weights(alpha: float, n: int) -> tuple[Array, ...]:
        return kept(method.name, alpha, n, lambda alpha, n: (method.weights(alpha, n),))

    def starts(alpha: float, n: int) -> Array:
        (found,) = kept(
            ("starts", method.name, powers),
            alpha,
            n,
            lambda alpha, n: (starting_weights(method, alpha, weights(alpha, n)[0], powers),),
        )
        return found

    scheme = Scheme("implicit", weights, partial(_start, starts=starts, powers=powers), powers=MOST_POWERS)
    return solve_fixed(problem, options, scheme, method.name, "asked for")


def _start(
    table: Tableau,
    evaluate: Callable[[float, Array], Array],
    *,
    starts: Callable[[float, int], Array],
    powers: Powers,
) -> None:
    """The values that the starting weights belong to, and what these contribute to all later sums."""
    grid, first, last = table.grid, powers.first, powers.last
    table.begins = powers
    if first == 0:
        evaluate_first(table, evaluate)
    groups = order_groups(table.problem)
    scaled = [starts(alpha, grid.count) * grid.step**alpha for alpha, _ in groups]
    _solve_first(table, evaluate, powers, scaled)
    for weights, (_, mine) in zip(scaled, groups, strict=True):
        table.sums[0, mine] += table.f[mine, first : last + 1] @ weights
    table.known = last + 1


def _first_weights(table: Tableau, powers: Powers, starts: list[Array]) -> tuple[Array, Array]:
    """What the values at steps 1 .. last weigh at each of these steps, for every row, and what is known there."""
    first, last = powers.first, powers.last
    rows = len(table.y)
    matrix = np.empty((rows, last, last))
    known = np.array(table.sums[0, :, 1 : last + 1])
    lags = np.arange(1, last + 1)[:, None] - np.arange(first, last + 1)
    for u, (_, mine) in enumerate(order_groups(table.problem)):
        omega = np.where(lags >= 0, table.weights[0, u, np.maximum(lags, 0)], 0.0)
        weights = starts[u][:, 1 : last + 1].T + omega
        if first == 0:
            known[mine] += table.f[mine, :1] * weights[:, 0]
        matrix[mine] = weights[:, 1 - first :]
    return matrix, known


def _solve_first(
    table: Tableau, evaluate: Callable[[float, Array], Array], powers: Powers, starts: list[Array]
) -> None:
    """Steps 1 .. last at once, by Newton's method on all of them."""
    problem, last = table.problem, powers.last
    shape, d = problem.shape, problem.shape[-1]
    jacobian = Jacobian(problem) if problem.jac is not None else None
    times = [table.grid.time(n) for n in range(1, last + 1)]
    matrix, known = _first_weights(table, powers, starts)
    finite = table.y[:, :1] if powers.first == 0 else table.sums[0, :, 1:2]
    y = np.repeat(finite, last, axis=1)
    identity = np.eye(last * d)
    known_size = float(np.abs(known).max())

    def look(y: Array) -> tuple[list[Array], list[Array], Array, Array]:
        """Points, values of the right-hand side there, those flat, and what is left of the equations."""
        points = [np.ascontiguousarray(y[:, n]).reshape(shape) for n in range(last)]
        values = [evaluate(t, point) for t, point in zip(times, points, strict=True)]
        f = np.stack([value.reshape(-1) for value in values], axis=1)
        return points, values, f, y - known - (matrix @ f[:, :, None])[:, :, 0]

    for turn in range(MOST_ITERATIONS):
        points, values, f, residual = look(y)
        size = float(np.abs(residual).max())
        if size <= 8.0 * TOLERANCE * (float(np.abs(y).max()) + known_size):
            table.y[:, 1 : last + 1], table.f[:, 1 : last + 1] = y, f
            return
        if not math.isfinite(size):
            break
        slopes = np.stack(
            [
                jacobian(t, point) if jacobian is not None else difference_jacobian(evaluate, t, point, value)
                for t, point, value in zip(times, points, values, strict=True)
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
        if turn and np.abs(change).max() <= 4e-16 * np.abs(y).max():
            break
    _, _, f, residual = look(y)
    if not float(np.abs(residual).max()) <= 1e-9 * (float(np.abs(y).max()) + known_size):
        raise StartError(
            f"Newton's method did not converge for the first {last} steps, up to t = {times[-1]:g}: take a smaller "
            "step, give jac, or use method='implicit_trapezoid'."
        )
    table.y[:, 1 : last + 1], table.f[:, 1 : last + 1] = y, f


def series_power(series: Array, exponent: float) -> Array:
    """Coefficients of ``(a_0 + a_1 z + ...)^exponent`` for a_0 > 0, as many as there are in ``series``."""
    given = series.tolist()  # few numbers, quicker outside of arrays
    found = [given[0] ** exponent]
    for m in range(1, len(given)):
        total = 0.0
        for j in range(1, m + 1):
            total += (exponent * j - (m - j)) * given[j] * found[m - j]
        found.append(total / (m * given[0]))
    return np.array(found)
