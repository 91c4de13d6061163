r"""Error estimate of a fixed-step solution, from its own values.

A numerical solution with right-hand sides :math:`f_j` has a defect in the Volterra equation,
:math:`\delta = T + I^\alpha f - y`, and its error satisfies :math:`e = \delta + I^\alpha [f(t, y + e) - f(t, y)]`.
The integral is computed by the product trapezoid, corrected for the error of that rule on the power :math:`t^\alpha`
with which solutions start (known in closed form) and on the curvature of the rest (second differences). The equation
for e is solved on a few of the steps, dense at the start: one or two evaluations for each of at most 24 steps, and no
second solve. Step doubling would cost 50 % more and fail for small orders, where the error hardly depends on the step.

Where f jumps between two steps, or bends as sharply as after a delay, the integral over that step is known only to lie
between those of its two values. This bound is a second defect, of unknown sign, with nodes behind the largest jumps.

If the equation is stiff, the equation for e is linearised. The defect of an unresolved boundary layer is much larger
than the fast components, and f at ``y + delta`` may be evaluated outside its domain (for example, at negative
concentrations). The defect is damped there, and the integrals between the nodes use the product rectangle, which does
not oscillate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gamma, rgamma

from hpfracc._xp import NUMPY
from hpfracc.history.intervals import interval_integrals
from hpfracc.solvers.ode.fixed.dense import DelayedStates
from hpfracc.solvers.ode.fixed.grid import initial_part, order_groups, row_orders
from hpfracc.solvers.ode.fixed.scheme import Tableau, rectangle_weights, trapezoid_weights
from hpfracc.solvers.ode.problem import Problem, RightHandSide, history_at, jacobian_source
from hpfracc.solvers.stepping.newton import Newton, Norm

Array = np.ndarray[Any, Any]
Defects = Callable[[], Array]

#: Steps per node, and the minimum and maximum number of nodes.
_EVERY, _FEWEST, _MAX = 32, 8, 24
#: Relative change of the state by which the response of f to an error is linearised.
_SMALL = 1e-3
#: A change of f by this multiple of the three before it is a jump, and the most jumps that get a node.
_JUMP, _JUMP_NODES = 4.0, 8
#: The most orders whose powers are fitted to the first values of f, the smallest ones.
_MAX_POWERS = 3
#: Nodes from one turning point of an oscillation to the next, the most of them, and the share of the largest value by
#: which the solution has to change.
_HALF_PERIOD, _MAX_OSCILLATING, _NOTABLE = 8, 256, 0.01


def estimate_errors(
    table: Tableau, fun: RightHandSide, delayed: DelayedStates | None = None
) -> tuple[Array, Array] | None:
    """Times of some of the steps, and magnitudes of the errors there, shape (rows, times); None if not estimated.

    ``delayed`` gives the delayed states to ``fun``; they have errors too.
    """
    problem, last = table.problem, table.known - 1
    if last < _FEWEST or not (np.isfinite(table.y[:, : last + 1]).all() and np.isfinite(table.f[:, : last + 1]).all()):
        return None
    jumps = find_jumps(table.f[:, : table.known])
    with np.errstate(over="ignore", invalid="ignore"):
        first = fun(problem.t0, problem.y0)  # which some methods do not evaluate
        if not np.isfinite(first).all():
            return None
        changes = np.diff(np.concatenate([first.reshape(-1, 1), table.f[:, 1:5]], axis=1))
        if delayed is not None:
            _add_first_jumps(jumps, np.abs(changes), table, delayed.problem)
        nodes = _nodes(table, jumps)
        # Above order 1 no powers are fitted to the start, but a source may have one.
        bends = np.abs(np.diff(changes[:, :3]))
        bent = (row_orders(problem) > 1.0) & (bends[:, 0] > 1.5 * bends[:, 1])
        jumps[:, 0] = np.where(bent, 0.3 * bends[:, 0], jumps[:, 0])

        def layer_defects() -> Array:
            found = _defects(table, nodes, None)
            change = np.abs(table.f[:, 2] - table.f[:, 1])
            if np.all(np.abs(found[:, 0]) <= 0.2 * table.grid.step ** row_orders(problem) * change):
                # The method takes f as constant there too: how far it is from that.
                jumps[:, 0] = 0.6 * np.minimum(4.0 * row_orders(problem), 1.0) * change
            return found

        errors = _propagate(table, nodes, _defects(table, nodes, first), fun, delayed, layer_defects)
        if errors is not None and jumps.any():
            unknown = _jump_defects(table, nodes, jumps)
            apart = _propagate(table, nodes, unknown, fun, delayed, lambda: unknown)
            errors = None if apart is None else np.abs(errors) + np.abs(apart)
    if errors is None or not np.isfinite(errors).all():
        return None
    return problem.t0 + table.grid.elapsed(0, last + 1)[nodes], np.abs(errors)


def find_jumps(f: Array, steps: Array | float = 1.0) -> Array:
    """How far f, of shape (rows, points), jumps over each of its steps; 0 where it changes smoothly."""
    changes = np.abs(np.diff(f, axis=1))
    rates = changes / steps
    sharp = rates[:, 3:] > _JUMP * np.maximum(np.maximum(rates[:, :-3], rates[:, 1:-2]), rates[:, 2:-1])
    notable = changes[:, 3:] > 1e-12 * np.abs(f).max(axis=1, keepdims=True)
    changes[:, :3], changes[:, 3:] = 0.0, np.where(sharp & notable, changes[:, 3:], 0.0)
    return changes


def _add_first_jumps(jumps: Array, changes: Array, table: Tableau, problem: Problem) -> None:
    """Add what delays cause within the first steps, which have too few before them to tell it from what is smooth.

    After a delay f jumps if the history does not end with y0, and otherwise bends like a power, up to order 1.
    """
    jumping = not np.array_equal(history_at(problem, problem.t0), problem.y0.reshape(-1))
    for place in (lag / table.grid.step for lag in problem.delays):
        ends = {math.floor(place * (1.0 - 1e-9)), math.floor(place * (1.0 + 1e-9))}
        bound = changes * (1.0 if jumping else (place - max(ends)) * (row_orders(table.problem)[:, None] <= 1.0))
        for n in ends.intersection(range(bound.shape[1])):
            jumps[:, n] = np.maximum(jumps[:, n], bound[:, n])


def _jump_defects(table: Tableau, nodes: Array, jumps: Array) -> Array:
    """Bound of the error of the integral at the nodes that jumps within a step cause, shape (rows, nodes)."""
    found = np.zeros((len(jumps), nodes.size), table.f.dtype)
    for alpha, mine in order_groups(table.problem):
        # The linear rule has 1/(1 + alpha) of the weight of the step at its end, and half of it far from it.
        share = max(1.0, alpha) / (1.0 + alpha)
        weights = share * table.grid.step**alpha * rectangle_weights(alpha, jumps.shape[1])
        for k, n in enumerate(nodes):
            found[mine, k] = jumps[mine, :n] @ weights[n - 1 :: -1]
    return found


def _nodes(table: Tableau, jumps: Array) -> Array:
    """A subset of the steps: the first ones, then fewer, then equally spaced; those about jumps, and of oscillations.

    An error oscillates as the solution does, so that it needs some nodes in each half of a period.
    """
    last = table.known - 1
    count = min(max(last // _EVERY, _FEWEST), _MAX)
    even = np.linspace(0, last, count // 2 + 1)[1:]
    dense = np.geomspace(1.0, max(even[0], 2.0), count - count // 2)
    sizes = jumps.max(axis=0)
    largest = np.argsort(sizes)[-_JUMP_NODES:]
    largest = largest[sizes[largest] > 0.0]
    turns = _turning_points(table)
    between = np.interp(np.arange(0.0, turns.size - 1.0, 1.0 / _HALF_PERIOD), np.arange(turns.size), turns)
    if between.size > _MAX_OSCILLATING:
        between = np.linspace(1, turns[-1], _MAX_OSCILLATING)
    found = np.unique(np.round(np.concatenate([dense, even, largest, largest + 1, between])).astype(np.int64))
    return found[found > 0]


def _turning_points(table: Tableau) -> Array:
    """Steps from one turning point of a component to the next, if it has several of notable size; starts with 0."""
    best = np.zeros(1)
    for y in np.abs(table.y[:, : table.known]) if np.iscomplexobj(table.y) else table.y[:, : table.known]:
        turns = np.flatnonzero(np.diff(np.sign(np.diff(y))) != 0.0) + 1
        at = np.concatenate([[0], turns])
        notable = np.abs(np.diff(y[at])) > _NOTABLE * np.abs(y).max()
        at = np.concatenate([[0], at[1:][notable]])
        if at.size > max(best.size, 2):
            best = at.astype(float)
    if best.size > 1:  # what follows the last one
        best = np.append(best, min(2.0 * best[-1] - best[-2], table.known - 1.0))
    return best


def _defects(table: Tableau, nodes: Array, first_value: Array | None) -> Array:
    """The defect of the Volterra equation at the nodes, shape (rows, nodes).

    Without ``first_value`` the right-hand side is constant on the first step, as after a much shorter boundary layer,
    where it is unrelated to its value at t0 and to powers of t.
    """
    problem, grid, last = table.problem, table.grid, table.known - 1
    h, elapsed = grid.step, grid.elapsed(0, last + 1)
    found = initial_part(problem, elapsed[nodes]) - table.y[:, nodes]
    first = table.f[:, 1:2] if first_value is None else first_value.reshape(-1, 1)
    values = np.concatenate([first, table.f[:, 1 : last + 1]], axis=1)
    # f starts with powers of t, the first of which is t^alpha; the error of the rule on powers is known.
    exponents = np.empty(0) if first_value is None else _exponents(table)
    count, powers = exponents.size, elapsed ** exponents[:, None]
    for alpha, mine in order_groups(problem):
        f = values[mine]
        weights, first_weights = trapezoid_weights(alpha, last + 1)
        fitted = np.linalg.solve(np.arange(1.0, count + 1.0)[:, None] ** exponents, (f[:, 1 : count + 1] - f[:, :1]).T)
        slopes = fitted.T / h**exponents
        rest = f - slopes @ powers
        bend = rest[:, 2:] - 2.0 * rest[:, 1:-1] + rest[:, :-2]
        bend = np.concatenate([bend[:, :1], bend, bend[:, -1:]], axis=1)
        exact = gamma(exponents + 1.0) * rgamma(exponents + alpha + 1.0) * elapsed[nodes, None] ** (exponents + alpha)
        stacked, part = np.concatenate([f - bend / 12.0, powers]), np.empty((len(f), nodes.size), f.dtype)
        for k, n in enumerate(nodes):
            sums = h**alpha * (stacked[:, : n + 1] @ weights[n::-1] + stacked[:, 0] * first_weights[n])
            part[:, k] = sums[: len(f)] + slopes @ (exact[k] - sums[len(f) :])
        found[mine] += part
    return found


def _exponents(table: Tableau) -> Array:
    """The powers with which the right-hand side starts, as far as its first values determine them."""
    if table.begins is not None and table.begins.first == 0:
        return np.array([each for each in table.begins.exponents if each > 0.0][:-1])
    # A component starts with the power of its own order, and f of any component may depend on all of them.
    orders = np.unique(row_orders(table.problem))
    return orders[orders < 1.0][:_MAX_POWERS]


def _propagate(
    table: Tableau, nodes: Array, defects: Array, fun: RightHandSide, delayed: DelayedStates | None, stiff: Defects
) -> Array | None:
    """Errors at the nodes, by the implicit product trapezoid, or by the product rectangle if it is stiff.

    ``stiff()`` replaces the defects if the first step is stiff.
    """
    problem = table.problem
    d = problem.shape[-1]
    times = table.grid.elapsed(0, table.known)[nodes]
    largest = np.abs(table.y[:, : table.known]).max(axis=1)
    source = jacobian_source(problem, fun)
    # f(t, y), and f of the solution, whose states solve the equations of their steps.
    y = sizes = value = f = np.empty(0)

    def linear(t: float, e: Array) -> Array:
        """Response of f to e, as if f were linear about y."""
        part = float(np.max(np.abs(e) / sizes))
        if part == 0.0:
            return value - f
        factor = min(_SMALL / part, 1.0)
        return np.asarray((fun.flat(t, y + factor * e) - value) / factor + (value - f))

    newton = Newton(linear, lambda t, _e, _f: source(t, y, value), d)
    rules = [(mine, _ProductRule(alpha, times)) for alpha, mine in order_groups(problem)]
    errors, moved = np.zeros_like(defects), np.zeros_like(defects)
    count = 0  # of known errors

    def error_then(then: float) -> Array:
        at = np.concatenate([[0.0], times[:count]])
        return np.array([np.interp(then, at, np.concatenate([[0.0], row[:count]])) for row in errors])

    if delayed is not None:
        delayed.error = error_then
    weight = np.empty(len(defects))

    def past(k: int) -> Array:
        """The known part of the equation at a node; sets the weight of the unknown part."""
        known = np.array(defects[:, k])
        for mine, rule in rules:
            weight[mine] = rule.weights[k, k]
            if k:
                known[mine] += moved[mine, :k] @ rule.weights[k, :k]
        return known

    for k, n in enumerate(nodes.tolist()):
        count = k
        y, f, t = table.y[:, n], table.f[:, n], table.grid.time(n)
        known = past(k)
        size = max(float(np.abs(known).max()), 1e-9 * float(largest.max()))  # not below the accuracy of the steps
        if newton.matrix is None:
            change = fun.flat(t, y + known) - f
            response = float(np.abs(weight * change).max())
            if response <= 0.3 * size:  # not stiff: one or two iterations are close enough
                if response > 0.05 * size:
                    change = fun.flat(t, y + known + weight * change) - f
                errors[:, k] = known + weight * change
                moved[:, k] = change
                continue
        if k == 0:
            defects = stiff()
        else:  # the error starts at 0
            for _, rule in rules:
                rule.flatten(k)
        known, value = past(k), fun.flat(t, y)
        sizes = np.abs(y) + 1e-4 * largest
        sizes[sizes == 0.0] = np.inf
        guess = errors[:, max(k - 1, 0)]
        norm = Norm(np.minimum(0.05 * size, 0.01 * largest) + (1e-9 * size + 1e-300), d)
        solved = None
        if newton.matrix is not None and (newton.fits(weight) or newton.refactor(weight)):
            solved = newton.keep(t, known, weight, guess, norm, 1.0, least_rate=0.1)
        if solved is None and newton.renew(t, y, value, weight):
            solved = newton.keep(t, known, weight, newton.apply(known), norm, 1.0, least_rate=0.1)
        if solved is None:
            return None
        errors[:, k], moved[:, k] = solved
    return errors


class _ProductRule:
    """Weights of values at ``times`` in the fractional integral at each of these times; the value at 0 is 0.

    Between two times the values are linear, or, after :meth:`flatten`, constant.
    """

    def __init__(self, alpha: float, times: Array) -> None:
        length = np.diff(times, prepend=0.0) + np.zeros((times.size, 1))
        near = np.maximum(times[:, None] - times, 0.0)
        mean, moment = interval_integrals(NUMPY, 1.0 - alpha, near, length, parabola=True)
        self._excess = np.tril((0.5 * mean - moment) * length)
        self.weights = np.tril((0.5 * mean + moment) * length)  # later values have no weight
        self.weights[:, :-1] += self._excess[:, 1:]

    def flatten(self, k: int) -> None:
        """Take the values as constant over the step to node k > 0."""
        self.weights[:, k] += self._excess[:, k]
        self.weights[:, k - 1] -= self._excess[:, k]
