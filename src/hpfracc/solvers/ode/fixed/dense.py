"""The solution between the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gamma, rgamma

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.fixed.grid import initial_part, row_orders
from hpfracc.solvers.ode.fixed.scheme import Tableau
from hpfracc.solvers.ode.fixed.starting import starting_powers

__all__ = ["FixedSolution"]

Array = np.ndarray[Any, Any]

#: Number of steps after which ``t^alpha`` is smooth over four points: the relative error of the cubic is about
#: 0.02 / n^4.
_NEAR = 24


class FixedSolution:
    r"""``sol(t)`` of a solve with a fixed step. It agrees with the solution at the steps.

    Near the origin the solution is not smooth: :math:`f(t, y(t))` is a sum of fractional powers of
    :math:`\tau = t - t_0`, the lowest of which are known. Their coefficients are fitted to the first steps, and

    .. math:: P(\tau) = T(\tau) + \sum_\nu c_\nu \frac{\Gamma(\nu+1)}{\Gamma(\nu+\alpha+1)} \tau^{\nu+\alpha}

    is the corresponding part of the solution. Over the first 24 intervals it is subtracted, and the smoother remainder
    is interpolated by the cubic through the four nearest steps; later the solution itself is.

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
        grid = table.grid
        y, f = table.y[:, :known], table.f[:, :known]
        self.problem = table.problem
        self.grid = grid
        self.y = y
        self.f = f
        self._most = table.powers
        self._begins = table.begins
        self.t_min = grid.t0
        last = y.shape[1] - 1
        if end is None:  # the last step is exactly t1, which t0 + (t1 - t0) may not be
            end = grid.t1 if last == grid.steps else grid.time(last)
        self.t_max = end
        self._slack = 1e-12 * max(abs(self.t_min), abs(self.t_max))
        self._powers: tuple[float, ...] = ()
        self._first = 0
        self._fitted: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without functions; what depends on them is computed first."""
        if self.problem.orders.known is not None and self.y.shape[1] > 1:
            self._coefficients()
        return self.__dict__ | {"problem": self.problem.without_functions()}

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``, of shape (..., d) + t.shape."""
        times = np.asarray(t, dtype=np.float64)
        flat = times.reshape(-1)
        if np.any(flat < self.t_min - self._slack) or np.any(flat > self.t_max + self._slack) or np.any(np.isnan(flat)):
            raise InvalidInputError(
                f"the solution is known from {self.t_min:g} to {self.t_max:g}, not at {float(flat.min()):g} to "
                f"{float(flat.max()):g}; give times in that range"
            )
        tau = np.clip(flat - self.grid.t0, 0.0, None)
        found = self._at(tau)
        return found.reshape(*self.problem.shape, *times.shape)

    def _at(self, tau: Array) -> Array:
        last = self.y.shape[1] - 1
        found = np.empty((self.y.shape[0], len(tau)), self.y.dtype)
        if last < 1:
            found[...] = self.y[:, :1]
            return found
        interval = np.clip((tau / self.grid.step).astype(np.int64), 0, last - 1)
        # A variable order has no such powers.
        near = (interval < _NEAR) & (self.problem.orders.known is not None)
        if np.any(near):
            nodes = min(_NEAR + 3, last + 1)
            with np.errstate(divide="ignore", invalid="ignore"):  # the origin of a Riemann-Liouville problem
                begin = self._beginning(self.grid.elapsed(0, nodes))
                rest = self.y[:, :nodes] - begin
                rest[~np.isfinite(rest)] = 0.0
                part = self._cubic(rest, tau[near], interval[near])
                found[:, near] = part + self._beginning(tau[near])
            found[:, tau == 0.0] = self.y[:, :1]
        if not np.all(near):
            found[:, ~near] = self._cubic(self.y, tau[~near], interval[~near])
        return found

    def _beginning(self, tau: Array) -> Array:
        """``P(tau)``."""
        total = initial_part(self.problem, tau)
        orders = row_orders(self.problem)
        coefficients = self._coefficients()
        for alpha in np.unique(orders):
            mine = orders == alpha
            for number, power in enumerate(self._powers):
                size = gamma(power + 1.0) * rgamma(power + alpha + 1.0)
                total[mine] += coefficients[mine, number, None] * (size * (tau / self.grid.step) ** (power + alpha))
        return total

    def _coefficients(self) -> Array:
        """``c h^(nu+alpha)`` of each row and power."""
        if self._fitted is None:
            powers = self._begins or starting_powers(self.problem)
            count = min(len(powers.exponents), self._most, self.f.shape[1] - powers.first)
            self._powers, self._first = powers.exponents[:count], powers.first
            nodes = np.arange(powers.first, powers.first + count, dtype=np.float64)
            table = nodes[:, None] ** np.array(self._powers)[None, :]
            values = self.f[:, powers.first : powers.first + count]
            fitted = np.linalg.solve(table, values.T).T if count else values
            self._fitted = fitted * self.grid.step ** row_orders(self.problem)[:, None]
        return self._fitted

    def _cubic(self, values: Array, tau: Array, interval: Array) -> Array:
        """Interpolate through the four nearest of ``values``, or as many as there are."""
        last = values.shape[1] - 1
        x = tau / self.grid.step
        if last < 3:
            share = x - interval
            return np.asarray((1.0 - share) * values[:, interval] + share * values[:, interval + 1])
        first = np.clip(interval - 1, 0, last - 3)
        x = x - first
        a, b, c, d = (values[:, first + k] for k in range(4))
        u, v, w = x - 1.0, x - 2.0, x - 3.0
        return np.asarray(
            -a * (u * v * w) / 6.0 + b * (x * v * w) / 2.0 - c * (x * u * w) / 2.0 + d * (x * u * v) / 6.0
        )
