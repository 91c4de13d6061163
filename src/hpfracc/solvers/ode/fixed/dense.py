"""The solution between equal steps: ``sol(t)``, and delayed states while it is computed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gamma, rgamma

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.fixed.grid import initial_part, order_groups, row_orders, times_within
from hpfracc.solvers.ode.fixed.scheme import Tableau
from hpfracc.solvers.ode.problem import Problem, history_at
from hpfracc.solvers.ode.singular import starting_powers
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

#: Number of steps after which ``t^alpha`` is smooth over four points: the relative error of the cubic is about
#: 0.02 / n^4.
_NEAR = 24
#: Times closer to a step than this, in steps, count as that step.
_ON_STEP = 1e-9


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
        self._near = math.inf if table.beginning is not None else _NEAR if table.powers else 0
        self.t_min = self.grid.t0
        if end is None:  # the last step is exactly t1, which t0 + (t1 - t0) may not be
            end = self.grid.t1 if known == self.grid.steps + 1 else self.grid.time(known - 1)
        self.t_max = end

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``, of shape (..., d) + t.shape."""
        times = times_within(t, self.t_min, self.t_max)
        tau = np.clip(times.reshape(-1) - self.t_min, 0.0, None)
        place = self.grid.place(tau)
        found = np.empty((self.y.shape[0], tau.size), self.y.dtype)
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
        weights = _lagrange_weights(np.arange(width), place - first)
        return np.asarray(np.einsum("rjn,jn->rn", values, weights))


def _lagrange_weights(nodes: Array, places: Any) -> Array:
    """Weights of the values at ``nodes``, for the value at each place; of shape (nodes,) + places.shape."""
    points, found = nodes.tolist(), []
    for node in points:
        factors = ((places - other) / (node - other) for other in points if other != node)
        found.append(math.prod(factors, start=np.ones_like(places)))
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
        #: Some methods do not evaluate the right-hand side at t0.
        self.blind = table.rule is not None and table.rule.starts_blind

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without functions."""
        return self.__dict__ | {"problem": self.problem.without_functions()}

    @cached_property
    def fitted(self) -> tuple[tuple[float, ...], Array]:
        """The powers, and ``c h^(nu+alpha)`` of each row and power."""
        powers = self.begins or starting_powers(self.problem)
        first = max(powers.first, int(self.blind))
        count = min(len(powers.exponents), self.most, self.f.shape[1] - first)
        exponents = powers.exponents[:count]
        nodes = np.arange(first, first + count, dtype=np.float64)
        values = self.f[:, first : first + count]
        fitted = np.linalg.solve(nodes[:, None] ** np.array(exponents), values.T).T if count else values
        return exponents, fitted * self.step ** row_orders(self.problem)[:, None]

    def __call__(self, tau: Array) -> Array:
        """``P(tau)``, shape (rows, times)."""
        total, (powers, coefficients) = initial_part(self.problem, tau), self.fitted
        for alpha, mine in order_groups(self.problem):
            for number, power in enumerate(powers):
                size = gamma(power + 1.0) * rgamma(power + alpha + 1.0)
                total[mine] += coefficients[mine, number, None] * (size * (tau / self.step) ** (power + alpha))
        return total


def without_delays(problem: Problem, options: Options, name: str) -> tuple[Problem, DelayedStates]:
    """The same equation with ``fun(t, y, *args)`` and ``jac(t, y, *args)`` that look up the delayed states themselves.

    They read the table of the solve, which must be passed to the second result before the first step and filled step by
    step.
    """
    refusal = refuse_compiled(options, f"{name} with delays")
    if refusal is not None:
        raise InvalidInputError(refusal)
    states = DelayedStates(problem)

    def given_states(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(t: float, y: Array, *args: Any) -> Any:
            return function(t, y, states(t, y), *args)

        return called

    jac = None if problem.jac is None else given_states(problem.jac)
    plain = dataclasses.replace(problem, fun=given_states(problem.fun), jac=jac, delays=(), history=None)
    return plain, states


class DelayedStates:
    r"""``(y(t - delay_1), ...)`` while the solution is stepped over a uniform grid.

    Between the steps the solution is interpolated by the cubic through the four nearest steps, which preserves the
    order of every fixed-step method. Near t0 the solution is a sum of powers of :math:`\tau^\alpha`; there the
    polynomial of the initial values is subtracted and the cubic is in :math:`\tau^\alpha`. With a delay shorter than
    the step, the time lies within the current step, and the newest iterate at its end is one of the four states. If a
    delayed time is exactly t0 and the history does not end with ``y0``, the mean of both is used, as rules that
    integrate over the jump require.
    """

    table: Tableau  # of the solve, given before its first step

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.error: Callable[[float], Array] | None = None

    def __call__(self, t: float, y: Array) -> tuple[Array, ...]:
        """The states at ``t`` minus each delay; ``y`` is the state at ``t``."""
        states = []
        for then in (t - self.problem.t0 - lag for lag in self.problem.delays):
            state = self._state(then, y)
            if self.error is not None and then >= 0.0:
                state = state + self.error(then)
            states.append(state.reshape(self.problem.shape))
        return tuple(states)

    def _state(self, then: float, y: Array) -> Array:
        table, problem = self.table, self.problem
        place = then / table.grid.step
        nearest = round(place)
        on_step = abs(place - nearest) <= _ON_STEP * max(1.0, abs(place))
        if on_step and nearest == 0:
            return 0.5 * (history_at(problem, problem.t0) + table.y[:, 0])
        if place < 0.0:
            return history_at(problem, problem.t0 + then)
        known = table.known
        if on_step and nearest <= known:
            return np.array(table.y[:, nearest] if nearest < known else y.reshape(-1))
        within = place > known - 1
        last = known if within else known - 1
        width = min(4, last + 1)
        first = min(max(int(place) - 1, 0), last + 1 - width)
        nodes = np.arange(first, first + width)
        values = np.array(table.y[:, first : first + width])
        if within:  # the state at the end of this step is not in the table yet
            values = np.concatenate([values[:, : width - 1], y.reshape(-1, 1)], axis=1)
        if place >= _NEAR:
            return np.asarray(values @ _lagrange_weights(nodes, place))
        begin = initial_part(problem, table.grid.step * np.append(nodes, place))
        values = values - begin[:, :-1]
        found = np.array(begin[:, -1])
        for alpha, mine in order_groups(problem):
            found[mine] += values[mine] @ _lagrange_weights(nodes.astype(float) ** alpha, place**alpha)
        return found
