"""The solution between the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import rgamma

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._uniform import UniformGrid, initial_part, row_orders

__all__ = ["FixedSolution"]

Array = np.ndarray[Any, Any]

#: Over the first intervals the equation itself is integrated; further on ``t^alpha`` is smooth over four points: the
#: cubic through them is off by about 0.02 / n^4 of it.
_NEAR = 24


class FixedSolution:
    r"""``sol(t)`` for a solve with a fixed step: agrees with the solution at the steps.

    Near the origin the solution is not smooth: it begins like :math:`T(\tau) + c \tau^\alpha`. There the right-hand
    side is interpolated instead and its fractional integral taken exactly,

    .. math:: y(t) = T(\tau) + I^\alpha \tilde f(\tau), \quad \tilde f = f_0 + (f_1 - f_0) (\tau/h)^{\min(\alpha, 1)}
        \text{ on the first interval, linear on the others.}

    From the 24th interval on it is the cubic through the four nearest steps.

    Parameters
    ----------
    problem, grid
        What was solved, and on which grid.
    y, f : array, shape (rows, known)
        Solution and right-hand side.
    end : float, optional
        The last time it may be asked for, where that is not the last step.
    """

    def __init__(self, problem: Problem, grid: UniformGrid, y: Array, f: Array, end: float | None = None) -> None:
        self.problem = problem
        self.grid = grid
        self.y = y
        self.f = f
        self.t_min = grid.t0
        self.t_max = float(grid.t0 + grid.elapsed(y.shape[1] - 1, y.shape[1])[0]) if end is None else end
        self._slack = 1e-12 * max(abs(self.t_min), abs(self.t_max))

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``, of shape (..., d) + t.shape."""
        times = np.asarray(t, dtype=np.float64)
        flat = times.reshape(-1)
        if np.any(flat < self.t_min - self._slack) or np.any(flat > self.t_max + self._slack) or np.any(np.isnan(flat)):
            raise InvalidInputError(
                f"the solution is known from {self.t_min:g} to {self.t_max:g}, and was asked for at "
                f"{float(flat.min()):g} to {float(flat.max()):g}"
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
        near = interval < min(_NEAR, last)
        if last < 4:
            near[...] = True
        if np.any(near):
            found[:, near] = self._near(tau[near], interval[near])
        if not np.all(near):
            found[:, ~near] = self._cubic(tau[~near], interval[~near], last)
        return found

    def _near(self, tau: Array, interval: Array) -> Array:
        """The equation integrated, and what that misses of the steps at both ends added along a line."""
        nodes = self.grid.elapsed(0, int(interval.max()) + 2)
        at_nodes = self._integrated(nodes)
        miss = self.y[:, : len(nodes)] - at_nodes
        miss[~np.isfinite(miss)] = 0.0  # at the origin of a Riemann-Liouville problem
        share = tau / self.grid.step - interval
        value: Array = self._integrated(tau) + (1.0 - share) * miss[:, interval] + share * miss[:, interval + 1]
        return value

    def _integrated(self, tau: Array) -> Array:
        h = self.grid.step
        count = min(int(np.ceil(tau.max() / h - 1e-9)) + 1, self.f.shape[1] - 1)
        slopes = np.diff(self.f[:, : count + 1]) / h
        total = initial_part(self.problem, tau)
        orders = row_orders(self.problem)
        for alpha in np.unique(orders):
            mine = orders == alpha
            bend = min(float(alpha), 1.0)
            f0 = self.f[mine, :1]
            rise = self.f[mine, 1:2] - f0
            part = f0 * (rgamma(alpha + 1.0) * tau**alpha)
            # (tau/h)^bend on the first interval, linear with its last value beyond: the first goes on as if it did not
            # end, less what it would have been.
            part = part + rise * self._first(tau, h, float(alpha), bend)
            for j in range(1, count):
                change = slopes[mine, j : j + 1] - (slopes[mine, j - 1 : j] if j > 1 else 0.0)
                part = part + change * (rgamma(alpha + 2.0) * np.clip(tau - j * h, 0.0, None) ** (alpha + 1.0))
            total[mine] += part
        return total

    @staticmethod
    def _first(tau: Array, h: float, alpha: float, bend: float) -> Array:
        """``I^alpha`` of ``(s/h)^bend`` for s below h and 1 beyond."""
        from scipy.special import betainc

        whole = rgamma(alpha + bend + 1.0) / rgamma(bend + 1.0) * tau ** (alpha + bend) * h**-bend
        beyond = tau > h
        x = np.where(beyond, h / np.where(beyond, tau, 1.0), 1.0)
        kept = whole * betainc(bend + 1.0, alpha, x)
        return np.asarray(kept + rgamma(alpha + 1.0) * np.clip(tau - h, 0.0, None) ** alpha)

    def _cubic(self, tau: Array, interval: Array, last: int) -> Array:
        first = np.clip(interval - 1, 0, last - 3)
        x = tau / self.grid.step - first
        a, b, c, d = (self.y[:, first + k] for k in range(4))
        u, v, w = x - 1.0, x - 2.0, x - 3.0
        return np.asarray(
            -a * (u * v * w) / 6.0 + b * (x * v * w) / 2.0 - c * (x * u * w) / 2.0 + d * (x * u * v) / 6.0
        )
