"""Solutions of nonlinear equations by a method of its own, for references that have no closed form.

Collocation of the Volterra equation y = T + I^alpha f by piecewise polynomials: f is a polynomial of degree p - 1 on
each interval of a mesh that is geometric towards 0 and uniform later, and the equation holds at p Gauss points of each.
All integrals are by Gauss-Jacobi (own interval) and Gauss-Legendre in the logarithm of the distance (earlier ones), to
rounding. The error falls exponentially with p, also for solutions like t^alpha; two values of p give the uncertainty.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special

from testset.data import Problem
from testset.expressions import function

Array = np.ndarray[Any, Any]
LOGARITHMIC_POINTS = 48


def mesh(t_end: float, widest: float, first: float) -> Array:
    """Geometric from ``first`` with ratio 2, until the intervals are as wide as ``widest``; then uniform."""
    edges = [0.0, first]
    while edges[-1] < min(2.0 * widest, t_end) / 2.0:
        edges.append(edges[-1] * 2.0)
    count = math.ceil((t_end - edges[-1]) / widest)
    return np.concatenate([edges, np.linspace(edges[-1], t_end, count + 1)[1:]])


def barycentric(nodes: Array) -> Array:
    """Weights of barycentric interpolation."""
    scaled = 4.0 * nodes
    return np.array([1.0 / np.prod(np.delete(scaled[i] - scaled, i)) for i in range(nodes.size)])


def interpolation(nodes: Array, x: Array) -> Array:
    """Matrix that maps values at ``nodes`` to values of the interpolating polynomial at ``x``."""
    weights = barycentric(nodes)
    difference = x[:, None] - nodes
    exact = np.abs(difference) < 1e-300
    difference[exact] = 1.0
    terms = weights / difference
    matrix = terms / terms.sum(axis=1, keepdims=True)
    rows = exact.any(axis=1)
    matrix[rows] = exact[rows]
    return matrix


class Collocation:
    """Matrices that map values of f to values of I^alpha f, for one order, mesh and degree."""

    def __init__(self, alpha: float, edges: Array, degree: int) -> None:
        self.alpha, self.edges = alpha, edges
        points, _ = special.roots_legendre(degree)
        self.nodes = (points + 1.0) / 2.0
        jacobi, weights = special.roots_jacobi(degree, alpha - 1.0, 0.0)
        jacobi, weights = (jacobi + 1.0) / 2.0, weights / 2.0**alpha
        # Own interval, from its left edge to a point c (in units of its width): c^alpha sum w p(c x).
        self.local = np.stack([self._row(c, jacobi, weights) for c in self.nodes]) / math.gamma(alpha)
        self.end = self._row(1.0, jacobi, weights) / math.gamma(alpha)
        self.log_points, self.log_weights = special.roots_legendre(LOGARITHMIC_POINTS)
        self.uniform = edges[-1] - edges[-2]
        self.known: dict[float, Array] = {}

    def _row(self, c: float, x: Array, weights: Array) -> Array:
        return c**self.alpha * (weights @ interpolation(self.nodes, c * x))

    def history(self, t: float, interval: int) -> Array:
        """Weights of the values on an earlier interval in I^alpha f(t)."""
        left, right = self.edges[interval], self.edges[interval + 1]
        near, far = t - right, t - left
        if near <= 0.0:  # t is the right edge itself
            return self.end * (right - left) ** self.alpha
        # On the uniform part the weights depend on the distance only.
        alike = abs(right - left - self.uniform) < 1e-9 * self.uniform
        key = round(near / self.uniform, 7)
        if alike and key in self.known:
            return self.known[key]
        low, high = math.log(near), math.log(far)
        distance = np.exp(0.5 * (high - low) * self.log_points + 0.5 * (high + low))
        weights = 0.5 * (high - low) * self.log_weights * distance**self.alpha / math.gamma(self.alpha)
        row = weights @ interpolation(self.nodes, (far - distance) / (right - left))
        if alike:
            self.known[key] = row
        return row


def solve(problem: Any, t_out: Array, widest: float, degree: int) -> Array:
    """The solution at ``t_out``, shape (d, n)."""
    y0 = problem.y0
    orders = problem.alpha if isinstance(problem.alpha, tuple) else (problem.alpha,) * y0.size
    # On the first interval f is c + O(t^alpha), which is not a polynomial: the error is then of order t^(2 alpha).
    edges = mesh(problem.t_span[1], widest, first=10.0 ** (-8.0 / min(orders)))
    rules = {order: Collocation(order, edges, degree) for order in set(orders)}
    nodes = rules[orders[0]].nodes
    values: list[Array] = []  # of f, shape (p, d), for each interval

    def memory(t: float, until: int) -> Array:
        total = y0.astype(float).copy()
        for order, rule in rules.items():
            mine = [i for i, other in enumerate(orders) if other == order]
            for interval in range(until):
                total[mine] += rule.history(t, interval) @ values[interval][:, mine]
        return total

    for m in range(edges.size - 1):
        width = edges[m + 1] - edges[m]
        times = edges[m] + width * nodes
        base = np.stack([memory(t, m) for t in times])
        local = np.stack([rules[order].local * width**order for order in orders])  # (d, p, p)
        y = base.copy() if m == 0 else np.repeat((base + 0.0)[-1:], degree, axis=0)
        for _ in range(60):
            f = np.stack([problem.fun(t, row) for t, row in zip(times, y, strict=True)])
            jacobians = np.stack([problem.jac(t, row) for t, row in zip(times, y, strict=True)])
            residual = y - base - np.einsum("dij,jd->id", local, f)
            system = np.eye(y.size).reshape(degree, y0.size, degree, y0.size).copy()
            system -= np.einsum("dij,jde->idje", local, jacobians)
            change = np.linalg.solve(system.reshape(y.size, y.size), residual.ravel()).reshape(y.shape)
            y = y - change
            if np.abs(change).max() <= 3e-15 * max(1.0, np.abs(y).max()):
                break
        else:
            # At rounding level Newton's iterates vary by a few units; anything more is a failure.
            assert np.abs(change).max() <= 1e-12 * np.abs(y).max(), f"{problem.name}: Newton failed at t = {times[0]}"
        values.append(np.stack([problem.fun(t, row) for t, row in zip(times, y, strict=True)]))

    results = []
    for t in t_out:
        m = int(np.searchsorted(edges, t, side="left")) - 1
        total = memory(t, m)
        share = (t - edges[m]) / (edges[m + 1] - edges[m])
        for i, order in enumerate(orders):
            rule = rules[order]
            x, w = special.roots_jacobi(degree, order - 1.0, 0.0)
            row = rule._row(share, (x + 1.0) / 2.0, w / 2.0**order) / math.gamma(order)
            total[i] += row @ values[m][:, i] * (edges[m + 1] - edges[m]) ** order
        results.append(total)
    return np.stack(results, axis=1)


def stated(problem: Problem) -> Any:
    """An equation of the test set, as ``solve`` takes it, with a Jacobian by central differences."""
    rhs = function(problem.given["rhs"], "t, y", problem.parameters)
    orders = problem.numbers(problem.given["order"])
    y0 = np.array(problem.numbers(problem.given["start"][0]))

    def fun(t: float, y: Array) -> Array:
        return np.array(rhs(t, y), dtype=float)

    def jac(t: float, y: Array) -> Array:
        step = 1e-6 * np.maximum(1.0, np.abs(y))
        return np.stack([(fun(t, y + d) - fun(t, y - d)) / (2.0 * d.max()) for d in np.diag(step)], axis=1)

    alpha = orders[0] if len(set(orders)) == 1 else tuple(orders)
    return SimpleNamespace(name=problem.name, fun=fun, jac=jac, y0=y0, alpha=alpha, t_span=(0.0, problem.number("end")))
