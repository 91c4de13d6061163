"""Delayed states: the given history before t0, and the solution on a fixed grid after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfracc._reading import broadcasts
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.fixed.dense import NEAR, lagrange_weights
from hpfracc.solvers.ode.fixed.grid import initial_part, order_groups
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, check_value

if TYPE_CHECKING:
    from hpfracc.solvers.ode.fixed.scheme import Tableau

__all__ = ["DelayedStates", "history_at", "without_delays"]

Array = np.ndarray[Any, Any]

#: Times closer to a step than this, in steps, count as that step.
_ON_STEP = 1e-9


def history_at(problem: Problem, t: float) -> Array:
    """``history(t)``, flat and checked."""
    assert problem.history is not None
    given = np.asarray(problem.history(t))
    if not broadcasts(given.shape, problem.shape):
        raise ShapeError(f"history(t) returned shape {given.shape}; return an array of the shape {problem.shape} of y0")
    given = np.broadcast_to(given, problem.shape)
    return check_value(given, problem.shape, problem.dtype, "history").reshape(-1)


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

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.table: Tableau | None = None
        #: The error of the solution at a time after t0, which is added to the states while errors are estimated.
        self.error: Callable[[float], Array] | None = None

    def __call__(self, t: float, y: Array) -> tuple[Array, ...]:
        """The states at ``t`` minus each delay; ``y`` is the state at ``t``."""
        assert self.table is not None
        elapsed = t - self.problem.t0
        states = [self._state(elapsed - lag, y) for lag in self.problem.delays]
        if self.error is not None:
            states = [
                state if elapsed < lag else state + self.error(elapsed - lag)
                for state, lag in zip(states, self.problem.delays, strict=True)
            ]
        return tuple(state.reshape(self.problem.shape) for state in states)

    def _state(self, then: float, y: Array) -> Array:
        table, problem = self.table, self.problem
        assert table is not None
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
        if place >= NEAR:
            return np.asarray(values @ lagrange_weights(nodes, place))
        begin = initial_part(problem, table.grid.step * np.append(nodes, place))
        values = values - begin[:, :-1]
        found = np.array(begin[:, -1])
        for alpha, mine in order_groups(problem):
            found[mine] += values[mine] @ lagrange_weights(nodes.astype(float) ** alpha, place**alpha)
        return found
