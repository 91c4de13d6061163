r"""Error estimate of a fixed-step solution, from its own values.

A numerical solution with right-hand sides :math:`f_j` has a defect in the Volterra equation,
:math:`\delta = T + I^\alpha f - y`, and its error satisfies :math:`e = \delta + I^\alpha [f(t, y + e) - f(t, y)]`.
The integral is computed by the product trapezoid, corrected for the error of that rule on the power :math:`t^\alpha`
with which solutions start (known in closed form) and on the curvature of the rest (second differences). The equation
for e is solved on a few of the steps, dense at the start: one or two evaluations for each of at most 24 steps, and no
second solve. Step doubling would cost 50 % more and fail for small orders, where the error hardly depends on the step.

If the equation is stiff, the equation for e is linearised. The defect of an unresolved boundary layer is much larger
than the fast components, and f at ``y + delta`` may be evaluated outside its domain (for example, at negative
concentrations). The defect is damped there, and the integrals between the nodes use the product rectangle, which does
not oscillate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gamma, rgamma

from hpfracc.solvers.ode.fixed.grid import initial_part, order_groups
from hpfracc.solvers.ode.fixed.scheme import Tableau, trapezoid_weights
from hpfracc.solvers.ode.jacobian import JacobianSource
from hpfracc.solvers.ode.newton import Newton, Norm
from hpfracc.solvers.ode.problem import Jacobian, Problem, RightHandSide

__all__ = ["Estimate", "estimate_errors"]

Array = np.ndarray[Any, Any]

#: Steps per node, and the minimum and maximum number of nodes.
_EVERY, _FEWEST, _MAX = 32, 8, 24
#: Relative change of the state by which the response of f to an error is linearised.
_SMALL = 1e-3


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated errors at some of the steps.

    Attributes
    ----------
    times : array, shape (nodes,)
        Times of these steps.
    errors : array, shape (rows, nodes)
        Magnitudes of the errors of the flat state.
    """

    times: Array
    errors: Array


def estimate_errors(table: Tableau, fun: RightHandSide) -> Estimate | None:
    """The estimated errors of the components; None if there is no estimate."""
    problem, last = table.problem, table.known - 1
    if last < _FEWEST or not (np.isfinite(table.y[:, : last + 1]).all() and np.isfinite(table.f[:, : last + 1]).all()):
        return None
    nodes = _nodes(last)
    with np.errstate(over="ignore", invalid="ignore"):
        first = fun(problem.t0, problem.y0)  # which some methods do not evaluate
        if not np.isfinite(first).all():
            return None
        defects = _defects(table, nodes, first)
        errors = _propagate(problem, table, nodes, defects, fun)
    if errors is None or not np.isfinite(errors).all():
        return None
    return Estimate(problem.t0 + table.grid.elapsed(0, last + 1)[nodes], np.abs(errors))


def _nodes(last: int) -> Array:
    """A subset of the steps 1 .. last: all of the first ones, then fewer and fewer, then equally spaced."""
    count = min(max(last // _EVERY, _FEWEST), _MAX)
    even = np.linspace(0, last, count // 2 + 1)[1:]
    dense = np.geomspace(1.0, max(even[0], 2.0), count - count // 2)
    return np.unique(np.round(np.concatenate([dense, even])).astype(np.int64))


def _defects(table: Tableau, nodes: Array, first_value: Array | None) -> Array:
    """The defect of the Volterra equation at the nodes, shape (rows, nodes).

    Without ``first_value`` the right-hand side is constant on the first step, as after a much shorter boundary layer,
    where it is unrelated to its value at t0 and to powers of t.
    """
    problem, grid, last = table.problem, table.grid, table.known - 1
    h = grid.step
    elapsed = grid.elapsed(0, last + 1)
    start = initial_part(problem, elapsed[nodes])
    found = start - table.y[:, nodes]
    first = table.f[:, 1:2] if first_value is None else first_value.reshape(-1, 1)
    values = np.concatenate([first, table.f[:, 1 : last + 1]], axis=1)
    for alpha, mine in order_groups(problem):
        f = values[mine]
        weights, first_weights = trapezoid_weights(alpha, last + 1)
        scale = h**alpha
        # f starts with powers of t, the first of which is t^alpha; the error of the rule on powers is known.
        exponents = np.empty(0) if first_value is None else _exponents(table, alpha)
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
            sums = scale * (stacked[:, : n + 1] @ weights[n::-1] + stacked[:, 0] * first_weights[n])
            part[:, k] = sums[: len(f)] + slopes @ (exact[k] - sums[len(f) :])
        found[mine] += part
    return found


def _exponents(table: Tableau, alpha: float) -> Array:
    """The powers with which the right-hand side starts, as far as its first values determine them."""
    if table.begins is not None and table.begins.first == 0:
        return np.array([each for each in table.begins.exponents if each > 0.0][:-1])
    return np.array([alpha] if alpha < 1.0 else [])


def _propagate(problem: Problem, table: Tableau, nodes: Array, defects: Array, fun: RightHandSide) -> Array | None:
    """Errors at the nodes, by the implicit product trapezoid, or by the product rectangle if it is stiff."""
    shape, d = problem.shape, problem.shape[-1]
    times = table.grid.elapsed(0, table.known)[nodes]
    largest = np.abs(table.y[:, : table.known]).max(axis=1)
    given = Jacobian(problem) if problem.jac is not None else None
    source = JacobianSource(shape, problem.dtype, fun, given, problem.jac_sparsity)
    y: Array = np.empty(0)
    sizes: Array = np.empty(0)
    value: Array = np.empty(0)  # f(t, y)
    f: Array = np.empty(0)  # as for the solution, whose states solve the equations of their steps

    def evaluate(t: float, state: Array) -> Array:
        return fun(t, state.reshape(shape)).reshape(-1)

    def linear(t: float, e: Array) -> Array:
        """Response of f to e, as if f were linear about y."""
        part = float(np.max(np.abs(e) / sizes))
        if part == 0.0:
            return value - f
        factor = min(_SMALL / part, 1.0)
        return np.asarray((evaluate(t, y + factor * e) - value) / factor + (value - f))

    newton = Newton(linear, lambda t, _e, _f: source(t, y, value), d)
    rules = [(mine, _ProductRule(alpha, times)) for alpha, mine in order_groups(problem)]
    errors, moved = np.zeros_like(defects), np.zeros_like(defects)
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
        y, f, t = table.y[:, n], table.f[:, n], table.grid.time(n)
        known = past(k)
        size = float(np.abs(known).max())
        if newton.matrix is None:
            change = evaluate(t, y + known) - f
            if float(np.abs(weight * change).max()) <= 0.3 * size:  # not stiff: one iteration is close enough
                errors[:, k] = known + weight * change
                moved[:, k] = change
                continue
        if k == 0:
            defects = _defects(table, nodes, None)
        else:  # the error starts at 0
            for _, rule in rules:
                rule.flatten(k)
        known, value = past(k), evaluate(t, y)
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
        left = np.concatenate([[0.0], times[:-1]])
        # Later values have weight 0, because their distances are 0.
        far, near = np.maximum(times[:, None] - left, 0.0), np.maximum(times[:, None] - times, 0.0)
        far_power, near_power = far**alpha, near**alpha
        whole = (far_power - near_power) * (float(rgamma(alpha)) / alpha)
        tilt = (far * far_power - near * near_power) * (float(rgamma(alpha)) / (alpha + 1.0))
        linear = (far * whole - tilt) / (times - left)
        self._excess = whole - linear
        self.weights = linear
        self.weights[:, :-1] += self._excess[:, 1:]

    def flatten(self, k: int) -> None:
        """Take the values as constant over the step to node k > 0."""
        self.weights[:, k] += self._excess[:, k]
        self.weights[:, k - 1] -= self._excess[:, k]
