"""The equation for adaptive steps: flat states, time relative to the start, checked values."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from time import perf_counter
from typing import Any, final

import numpy as np

from hpfracc.solvers.ode.fixed.grid import initial_part, initial_polynomial, order_groups
from hpfracc.solvers.ode.problem import Problem, check_jacobian, check_value, history_at
from hpfracc.solvers.stepping.jacobian import JacobianSource
from hpfracc.solvers.stepping.system import IteratedSystem, NotFiniteError

Array = np.ndarray[Any, Any]

#: Largest state that is checked one number at a time.
_FEW = 32


@final
class OrdinarySystem(IteratedSystem):
    """``fun`` and ``jac`` of a problem, on flat states.

    Parameters
    ----------
    problem : Problem
        The problem, with known orders.
    offset : float
        Origin of time, relative to t0; above 0 if the solution is infinite at t0. The earlier contribution of the
        right-hand side is neglected.
    """

    def __init__(self, problem: Problem, offset: float = 0.0) -> None:
        self.problem, self.offset = problem, offset
        self.shape, self.dtype = problem.shape, np.dtype(problem.dtype)
        initial = [np.asarray(value).reshape(-1) for value in (problem.y0, *problem.dy0)]
        super().__init__(initial, self.shape[-1])
        self.nfev = self.njev = 0
        #: The right-hand side, which may be replaced by a compiled one, and the seconds that were spent in it.
        self.fun, self.seconds = problem.fun, 0.0
        self.groups = order_groups(problem)
        self.fades = problem.memory is not None and problem.memory.fades
        #: For delays: the solution and its estimated error so far, and the break that steps approach from the left.
        self.past: Callable[[float], Array] = self.start
        self.past_error: Callable[[float], Array] = self._no_error
        self.break_ahead = math.inf
        #: First and last time between two breakpoints, beyond which rounding must not bring the right-hand side.
        self.segment: tuple[float, float] | None = None
        self._recent: dict[float, Array] = {}
        given = self._given if problem.jac is not None else None
        self._source = JacobianSource(self.shape, self.dtype, self._shaped, given, problem.jac_sparsity)

    def __getstate__(self) -> dict[str, Any]:
        """Without functions, which a solution does not need."""
        dropped = dict.fromkeys(("past", "past_error", "_source", "newton", "fun"))
        return self.__dict__ | dropped | {"problem": self.problem.without_functions(), "_recent": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.past, self.past_error = self.start, self._no_error

    def _shaped(self, tau: float, y: Array) -> Array:
        return self(tau, y.reshape(-1)).reshape(self.shape)

    def _no_error(self, then: float) -> Array:
        return np.zeros_like(self.initial[0])

    def time(self, tau: float) -> float:
        """The time that ``fun`` receives."""
        t = self.problem.t0 + (self.offset + tau)
        return t if self.segment is None else min(max(t, self.segment[0]), self.segment[1])

    def start(self, tau: float) -> Array:
        """The part of the initial values."""
        if self.problem.derivative == "riemann_liouville":
            return np.asarray(initial_part(self.problem, np.array([self.offset + tau]))[:, 0])
        total = self.initial[0] if len(self.initial) == 1 else initial_polynomial(self.offset + tau, self.initial)
        return total if self.problem.memory is None else total * self.problem.memory.fading(tau)

    def __call__(self, tau: float, y: Array, *, shifted: bool = False) -> Array:
        """The right-hand side at time ``tau`` after the start; ``shifted`` adds its error to the history too."""
        problem = self.problem
        self.nfev += 1
        t = problem.t0 + (self.offset + tau)
        if self.segment is not None:
            t = min(max(t, self.segment[0]), self.segment[1])
        more = self._delayed(tau, shifted) if problem.delays else ()
        # Copies, because the function may store or change its argument, and return the same array each time.
        state = y.copy() if len(self.shape) == 1 else y.reshape(self.shape).copy()
        started = perf_counter()
        value = self.fun(t, state, *more, *problem.args)
        self.seconds += perf_counter() - started
        if type(value) is not np.ndarray or value.shape != self.shape or value.dtype != self.dtype:
            value = check_value(value, self.shape, self.dtype, "fun")
        flat: Array = value.flatten()
        # For few numbers Python is faster than NumPy.
        if not (all(map(cmath.isfinite, flat.tolist())) if flat.size <= _FEW else np.isfinite(flat).all()):
            raise NotFiniteError(f"fun(t, y) is not finite at t = {t:.6g}")
        return flat

    def first(self, y: Array) -> Array:
        """The right-hand side at the start; a division by zero there counts as a value that is not finite."""
        try:
            return self(0.0, y)
        except NotFiniteError:
            raise
        except ArithmeticError as error:
            raise NotFiniteError(f"fun(t, y) is not finite at t = {self.time(0.0):.6g} ({error})") from error

    def _delayed(self, tau: float, shifted: bool) -> tuple[tuple[Array, ...]]:
        """The states at the delayed times, for ``fun``."""
        states = []
        for lag in self.problem.delays:
            then = tau - lag
            if then < 0.0 or (tau >= self.break_ahead * (1.0 - 1e-12) and then <= 1e-12 * tau):
                state = history_at(self.problem, self.problem.t0 + min(then, 0.0))
            else:
                state = self._remembered(then)
                if shifted:
                    state = state + self.past_error(then)
            states.append(state.reshape(self.shape).copy())
        return (tuple(states),)

    def _remembered(self, then: float) -> Array:
        # A step evaluates its end several times.
        if then not in self._recent:
            if len(self._recent) > 8 * len(self.problem.delays):
                self._recent.clear()
            self._recent[then] = self.past(then)
        return self._recent[then]

    def _given(self, tau: float, state: Array) -> Any:
        assert self.problem.jac is not None
        more = self._delayed(tau, False) if self.problem.delays else ()
        given = self.problem.jac(self.time(tau), state, *more, *self.problem.args)
        return check_jacobian(given, self.shape, self.dtype)

    def jacobian(self, tau: float, y: Array, f: Array) -> Any:
        """The Jacobian, shape (batch, d, d) or sparse: given, or by forward differences."""
        self.njev += 1
        return self._source(tau, y, f)
