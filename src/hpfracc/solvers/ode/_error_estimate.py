r"""An estimate of the error of a fixed-step solution, from its own values.

A numerical solution with right-hand sides :math:`f_j` leaves a defect in the Volterra equation,
:math:`\delta = T + I^\alpha f - y`, and its error satisfies :math:`e = \delta + I^\alpha [f(t, y + e) - f(t, y)]`.
The integral is taken by the product trapezoid, mended by what that rule misses of the power :math:`t^\alpha` that
solutions begin with (known in closed form) and of the curvature of the rest (second differences). The equation for e is
solved on few of the steps, dense at the start: this takes one or two evaluations for each of at most 24 of them, and no
second solve. Step doubling would cost half as much again and, for small orders, see nothing: there the error hardly
depends on the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gamma, rgamma

from hpfracc.solvers.ode._evaluation import NotFiniteError, RightHandSide
from hpfracc.solvers.ode._jacobian import JacobianSource
from hpfracc.solvers.ode._newton import Newton, Norm
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._scheme import Tableau
from hpfracc.solvers.ode._uniform import initial_part, order_groups
from hpfracc.solvers.ode._weights import trapezoid_weights

__all__ = ["estimate_errors"]

Array = np.ndarray[Any, Any]

#: Of so many steps one is looked at, and how many of them at least and at most.
_EVERY, _FEWEST, _MOST = 32, 8, 24


def estimate_errors(table: Tableau, fun: RightHandSide) -> Array | None:
    """The largest estimated error of each component, of the problem's shape; None where none can be had."""
    problem, last = table.problem, table.known - 1
    if last < _FEWEST or not (np.isfinite(table.y[:, : last + 1]).all() and np.isfinite(table.f[:, : last + 1]).all()):
        return None
    nodes = _nodes(last)
    with np.errstate(over="ignore", invalid="ignore"):
        first = fun(problem.t0, problem.y0)  # which some methods do not ask for
        if not np.isfinite(first).all():
            return None
        defects = _defects(table, nodes, first)
        errors = _propagate(problem, table, nodes, defects, fun)
    if errors is None or not np.isfinite(errors).all():
        return None
    return np.asarray(np.abs(errors).max(axis=1).reshape(problem.shape))


def _nodes(last: int) -> Array:
    """Some of the steps 1 .. last: each of the first, then ever fewer, and equally many at the end."""
    count = min(max(last // _EVERY, _FEWEST), _MOST)
    even = np.linspace(0, last, count // 2 + 1)[1:]
    dense = np.geomspace(1.0, max(even[0], 2.0), count - count // 2)
    return np.unique(np.round(np.concatenate([dense, even])).astype(np.int64))


def _defects(table: Tableau, nodes: Array, first_value: Array) -> Array:
    """What the Volterra equation leaves at the nodes, shape (rows, nodes)."""
    problem, grid, last = table.problem, table.grid, table.known - 1
    h = grid.step
    elapsed = grid.elapsed(0, last + 1)
    start = initial_part(problem, elapsed[nodes])
    found = start - table.y[:, nodes]
    values = np.concatenate([first_value.reshape(-1, 1), table.f[:, 1 : last + 1]], axis=1)
    for alpha, mine in order_groups(problem):
        f = values[mine]
        weights, first = trapezoid_weights(alpha, last + 1)
        scale = h**alpha
        # f begins with powers of t, of which t^alpha is the first; what the rule misses of powers is known.
        exponents = _exponents(table, alpha)
        count = exponents.size
        powers = elapsed ** exponents[:, None]
        fitted = np.linalg.solve(np.arange(1.0, count + 1.0)[:, None] ** exponents, (f[:, 1 : count + 1] - f[:, :1]).T)
        slopes = fitted.T / h**exponents
        rest = f - slopes @ powers
        bend = np.zeros_like(f)
        bend[:, 1:-1] = rest[:, 2:] - 2.0 * rest[:, 1:-1] + rest[:, :-2]
        bend[:, 0], bend[:, -1] = bend[:, 1], bend[:, -2]
        exact = gamma(exponents + 1.0) * rgamma(exponents + alpha + 1.0) * elapsed[nodes, None] ** (exponents + alpha)
        part = np.empty((len(f), nodes.size), f.dtype)
        stacked = np.concatenate([f - bend / 12.0, powers])
        for k, n in enumerate(nodes):
            sums = scale * (stacked[:, : n + 1] @ weights[n::-1] + stacked[:, 0] * first[n])
            part[:, k] = sums[: len(f)] + slopes @ (exact[k] - sums[len(f) :])
        found[mine] += part
    return found


def _exponents(table: Tableau, alpha: float) -> Array:
    """The powers that the right-hand side begins with, as far as its first values are good enough to tell."""
    if table.begins is not None and table.begins.first == 0:
        return np.array([each for each in table.begins.exponents if each > 0.0][:-1])
    return np.array([alpha] if alpha < 1.0 else [])


def _propagate(problem: Problem, table: Tableau, nodes: Array, defects: Array, fun: RightHandSide) -> Array | None:
    """The errors at the nodes, by the implicit product trapezoid on these."""
    shape, d = problem.shape, problem.shape[-1]
    times = table.grid.elapsed(0, table.known)[nodes]
    at: list[Array] = [np.empty(0), np.empty(0)]

    def change(t: float, e: Array) -> Array:
        return fun(t, (at[0] + e).reshape(shape)).reshape(-1) - at[1]

    source = JacobianSource(
        shape, problem.dtype, lambda t, e: change(t, e.reshape(-1)).reshape(shape), None, problem.jac_sparsity
    )
    newton = Newton(change, source, d)
    groups = order_groups(problem)
    rows = len(defects)
    errors, moved = np.zeros_like(defects), np.zeros_like(defects)
    weight = np.empty(rows)
    for k, n in enumerate(nodes):
        known = defects[:, k].copy()
        for alpha, mine in groups:
            weights = _trapezoid(alpha, times, k)
            weight[mine] = weights[-1]
            known[mine] += moved[mine, :k] @ weights[:-1]
        at[0], at[1] = table.y[:, n], table.f[:, n]
        t = table.grid.time(int(n))
        guess = known if k == 0 else errors[:, k - 1]
        value = change(t, guess)
        size = float(max(np.abs(known).max(), np.abs(guess).max()))
        if float(np.abs(weight * value).max()) <= 0.3 * size:  # not stiff: one iteration is close enough
            errors[:, k] = known + weight * value
            moved[:, k] = value
            continue
        norm = Norm(np.full(rows, 0.05 * size + 1e-300), d)
        try:
            solved = None
            if newton.matrix is not None and (newton.fits(weight) or newton.refactor(weight)):
                solved = newton.keep(t, known, weight, guess, norm, 1.0, least_rate=0.1)
            if solved is None:
                solved = newton.solve_anew(t, known, weight, guess, norm, 1.0)
        except NotFiniteError:
            return None
        if solved is None:
            return None
        errors[:, k], moved[:, k] = solved
    return errors


def _trapezoid(alpha: float, times: Array, k: int) -> Array:
    """Weights of the values at ``times[0 .. k]`` in the fractional integral at the last; the value at 0 is 0."""
    grid = np.concatenate([[0.0], times[: k + 1]])
    far, near = grid[-1] - grid[:-1], grid[-1] - grid[1:]
    length = far - near
    whole = (far**alpha - near**alpha) / alpha
    right = (far * whole - (far ** (alpha + 1.0) - near ** (alpha + 1.0)) / (alpha + 1.0)) / length
    weights = right.copy()
    weights[:-1] += (whole - right)[1:]
    return np.asarray(weights * float(rgamma(alpha)))
