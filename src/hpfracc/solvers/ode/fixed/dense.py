"""The solution between the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gamma, rgamma

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.fixed.grid import initial_part, row_orders
from hpfracc.solvers.ode.singular import starting_powers

if TYPE_CHECKING:
    from hpfracc.solvers.ode.fixed.scheme import Tableau

__all__ = ["NEAR", "FixedSolution", "lagrange_weights"]

Array = np.ndarray[Any, Any]

#: Number of steps after which ``t^alpha`` is smooth over four points: the relative error of the cubic is about
#: 0.02 / n^4.
NEAR = 24


class FixedSolution:
    r"""``sol(t)`` of a solve with steps :math:`t_j = t_0 + T (j/N)^r`. It agrees with the solution at the steps.

    The solution is interpolated by the cubic in j through the four nearest steps. In j, with :math:`r \alpha \ge 1`, a
    solution that begins like :math:`t^\alpha` is smooth; with equal steps its non-smooth beginning is subtracted over
    the first 24 intervals.

    Parameters
    ----------
    table : Tableau
        The tableau of the solve.
    known : int
        Number of valid points.
    end : float, optional
        The last time at which the solution is available, if that is not the last step.
    """

    def __init__(self, table: Tableau, known: int, end: float | None = None) -> None:
        self.shape, self.grid, self.y = table.problem.shape, table.grid, table.y[:, :known]
        self._beginning = table.beginning or _StartingPowers(table, known)
        self._near = math.inf if table.beginning is not None else NEAR if table.powers else 0
        self.t_min = self.grid.t0
        if end is None:  # the last step is exactly t1, which t0 + (t1 - t0) may not be
            end = self.grid.t1 if known == self.grid.steps + 1 else self.grid.time(known - 1)
        self.t_max = end

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``, of shape (..., d) + t.shape."""
        times = np.asarray(t, dtype=np.float64)
        flat = times.reshape(-1)
        slack = 1e-12 * max(abs(self.t_min), abs(self.t_max))
        if flat.size and not (flat.min() >= self.t_min - slack and flat.max() <= self.t_max + slack):
            raise InvalidInputError(
                f"the solution is known from {self.t_min:g} to {self.t_max:g}, not at {float(flat.min()):g} to "
                f"{float(flat.max()):g}; give times in that range"
            )
        tau = np.clip(flat - self.t_min, 0.0, None)
        place = self.grid.place(tau)
        found = np.empty((self.y.shape[0], flat.size), self.y.dtype)
        near = (place < self._near) & (self.y.shape[1] > 1)
        if near.any():
            with np.errstate(divide="ignore", invalid="ignore"):  # the origin of a Riemann-Liouville problem
                found[:, near] = self._cubic(place[near], self._beginning) + self._beginning(tau[near])
        if not near.all():
            found[:, ~near] = self._cubic(place[~near], None)
        found[:, tau == 0.0] = self.y[:, :1]
        return found.reshape(*self.shape, *times.shape)

    def _cubic(self, place: Array, beginning: Callable[[Array], Array] | None) -> Array:
        """Interpolate through the four nearest steps, or as many as there are, without the ``beginning``."""
        known = self.y.shape[1]
        width = min(4, known)
        first = np.clip(np.floor(place).astype(np.int64) - 1, 0, known - width)
        index = first + np.arange(width)[:, None]
        if beginning is None:
            values = self.y[:, index]
        else:
            nodes, which = np.unique(index, return_inverse=True)
            rest = self.y[:, nodes] - beginning(self.grid.elapsed(0, known)[nodes])
            rest[~np.isfinite(rest)] = 0.0
            values = rest[:, which.reshape(index.shape)]
        weights = lagrange_weights(np.arange(width), place - first)
        return np.asarray(np.einsum("rjn,jn->rn", values, weights))


def lagrange_weights(nodes: Array, places: Any) -> Array:
    """Weights of the values at ``nodes``, for the value at each place; of shape (nodes,) + places.shape."""
    points = nodes.tolist()
    apart = [places - node for node in points]
    found = []
    for j, node in enumerate(points):
        weight = np.ones_like(apart[0]) / math.prod(node - other for i, other in enumerate(points) if i != j)
        for i, each in enumerate(apart):
            if i != j:
                weight = weight * each
        found.append(weight)
    return np.asarray(found)


class _StartingPowers:
    r"""The part of a solution that is not smooth at the start.

    Near the origin :math:`f(t, y(t))` is a sum of fractional powers of :math:`\tau = t - t_0`, the lowest of which are
    known. Their coefficients are fitted to the first steps, and

    .. math:: P(\tau) = T(\tau) + \sum_\nu c_\nu \frac{\Gamma(\nu+1)}{\Gamma(\nu+\alpha+1)} \tau^{\nu+\alpha}

    is the corresponding part of the solution.
    """

    def __init__(self, table: Tableau, known: int) -> None:
        self.problem, self.step = table.problem, table.grid.step
        self.f, self.begins, self.most = table.f[:, :known], table.begins, table.powers

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without functions."""
        return self.__dict__ | {"problem": self.problem.without_functions()}

    @cached_property
    def fitted(self) -> tuple[tuple[float, ...], Array]:
        """The powers, and ``c h^(nu+alpha)`` of each row and power."""
        powers = self.begins or starting_powers(self.problem)
        count = min(len(powers.exponents), self.most, self.f.shape[1] - powers.first)
        exponents = powers.exponents[:count]
        nodes = np.arange(powers.first, powers.first + count, dtype=np.float64)
        values = self.f[:, powers.first : powers.first + count]
        fitted = np.linalg.solve(nodes[:, None] ** np.array(exponents), values.T).T if count else values
        return exponents, fitted * self.step ** row_orders(self.problem)[:, None]

    def __call__(self, tau: Array) -> Array:
        """``P(tau)``, shape (rows, times)."""
        total, orders = initial_part(self.problem, tau), row_orders(self.problem)
        powers, coefficients = self.fitted
        for alpha in np.unique(orders):
            mine = orders == alpha
            for number, power in enumerate(powers):
                size = gamma(power + 1.0) * rgamma(power + alpha + 1.0)
                total[mine] += coefficients[mine, number, None] * (size * (tau / self.step) ** (power + alpha))
        return total
