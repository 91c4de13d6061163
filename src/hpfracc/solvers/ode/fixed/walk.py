"""A walk by given steps: blocks of them, what is looked at between blocks, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc.history.blocks import BLOCK
from hpfracc.solvers.ode.fixed.dense import FixedSolution
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.fixed.scheme import Tableau, infinite_start
from hpfracc.solvers.ode.fixed.stepping import SwitchingStepper
from hpfracc.solvers.ode.problem import Problem, RightHandSide, make_newton
from hpfracc.solvers.ode.result import FODEResult, SolveDecision, finish
from hpfracc.solvers.stepping.events import progress_report
from hpfracc.solvers.stepping.newton import Newton
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.walk import Walk

Array = np.ndarray[Any, Any]

#: Approximate number of calls of a guard in a solve.
_GUARDED = 32
#: Steps between two checks for events, progress and non-finite values: initial number, maximum, and growth factor.
_CHECK_EVERY = (16, BLOCK, 64)
#: Target seconds between two checks.
_BLOCK_SECONDS = 0.025

#: ``guard(t, y)`` raises ``StiffError`` if a method should stop.
Guard = Callable[[float, Array], None]


#: Given Newton's method and the times after t0, yields the flat states at all points after the first. It ends early if
#: Newton's method fails, or raises :class:`StepFailedError`.
MeshSteps = Callable[[Newton, Array], Iterator[Array]]


class _MeshStepper:
    """Steps of a method that keeps its own history."""

    compiled, compile_seconds = False, 0.0

    def __init__(self, table: Tableau, options: Options, steps: MeshSteps, notes: list[str]) -> None:
        self.table, self.notes = table, notes
        self.fun = RightHandSide(table.problem)
        self.newton = make_newton(table.problem, options, self.fun)
        self._states = steps(self.newton, table.grid.elapsed())

    def run(self, begin: int, first: int, stop: int, last: int) -> int:
        for n in range(first, stop):
            state = next(self._states, None)
            if state is None:
                return n
            self.table.y[:, n], self.table.known = state, n + 1
        return stop


Stepper = SwitchingStepper | _MeshStepper


class FixedWalk(Walk):
    """A walk by blocks of given steps; ``guard(t, y)`` is called from time to time."""

    def __init__(self, table: Tableau, options: Options, stepper: Stepper, block: int, guard: Guard | None) -> None:
        super().__init__(options, table.grid.t1, table.problem.args)
        self.problem, self.grid, self.table = table.problem, table.grid, table
        self.block, self.stepper, self.guard = block, stepper, guard
        self.watched, self._finite, self.guarded, self._beyond = 1, 1, 0, 0
        self.check_every = 1 if table.stepwise else _CHECK_EVERY[0]

    def reached(self) -> float:
        """The time of the newest point."""
        return self.grid.time(self.table.known - 1)

    def _steps(self) -> str | None:
        """Take all blocks."""
        options, table = self.options, self.table
        last = min(self.grid.steps, options.max_steps) + 1
        if table.rule is not None:
            table.rule.start(table, self.stepper.fun, options)
        if not self._look(table.known, final=table.known >= last):
            return None
        while table.known < last:
            begin = table.known // self.block * self.block
            stop = min(begin + self.block, table.known + self.check_every, last)
            started = time.perf_counter()
            reached = self.stepper.run(begin, table.known, stop, last)
            self._pace(time.perf_counter() - started)
            final = reached < stop or stop == last
            if not self._look(reached, final) or (reached < stop and not self._unsettled(reached)):
                return None
        return None if last > self.grid.steps else self.too_many(f"take a larger step than {self.grid.step:g}")

    def _pace(self, seconds: float) -> None:
        """Adjust the number of steps between two checks: few enough to report progress, at negligible cost."""
        # Compiled steps take less time than their call, and interrupts are handled between calls.
        factor = min(_BLOCK_SECONDS / max(seconds, 1e-9), _CHECK_EVERY[2])
        if not self.table.stepwise and (factor > 1.0 or factor < 0.5):
            self.check_every = max(1, min(int(factor * self.check_every), _CHECK_EVERY[1]))

    def _look(self, reached: int, final: bool) -> bool:
        """Check new points for non-finite values and events, and report progress; returns whether to continue."""
        table, good = self.table, self.table.finite_until(self._finite, reached)
        if good < reached:
            table.known = good
        # An event before the newest point waits for the next one, through which is interpolated there.
        if self.options.events and not self._watch(good if final or good < reached else good - 1, good):
            return False
        self._finite = good
        if good < reached:
            return self._infinite(good)
        if self.guard is not None and reached - self.guarded >= self.grid.steps // _GUARDED:
            self.guarded = reached
            self.guard(self.grid.time(reached - 1), self._state(reached - 1))
        self.report(self.grid.time(reached - 1), lambda: self._state(reached - 1))
        return final or self.in_time()

    def _state(self, n: int) -> Array:
        return np.array(self.table.y[:, n]).reshape(self.problem.shape)

    def _watch(self, reached: int, known: int) -> bool:
        table = self.table
        first = self.watched - 1
        if first == 0 and not np.isfinite(table.y[:, 0]).all():
            first = 1
        if reached - first < 2:
            return True
        times = self.grid.t0 + self.grid.elapsed(0, reached)
        states = table.y[:, first:reached].reshape(*self.problem.shape, -1)
        end = self.events.watch(times[first:], states, FixedSolution(table, known))
        self.watched = reached
        if end is None:
            return True
        self.end_at(end)
        self._beyond, table.known = known, int(np.searchsorted(times, end))
        return False

    def _is_finite(self, n: int) -> bool:
        """Whether the right-hand side is finite at point n, with the newest state."""
        return bool(np.isfinite(self.problem.evaluate(self.grid.time(n), self._state(max(n - 1, 0)))).all())

    def _infinite(self, reached: int) -> bool:
        if reached == 1 and not self._is_finite(0):
            return self.fail(infinite_start(self.grid.t0))
        where = f"at t = {self.grid.time(reached):g}"
        what = f"The solution is not finite {where}: it, or the right-hand side, overflowed or left its domain."
        return self.fail(f"{what} A smaller step or an implicit method helps if the cause is numerical.")

    def _unsettled(self, reached: int) -> bool:
        if not self._is_finite(reached):
            return self._infinite(reached)
        newton = self.stepper.newton
        left = "" if newton is None or not newton.residual else f" (residual {newton.residual:.3g})"
        what = f"Newton's method did not converge at t = {self.grid.time(reached):g}{left}"
        return self.fail(f"{what}: take a smaller step, give jac, or check that the right-hand side is smooth there.")

    def result(self, name: str, reason: str, history: str, started: float) -> FODEResult:
        """Take all steps, and return the result of the method ``name``."""
        problem, options, grid = self.problem, self.options, self.grid
        with progress_report(options.progress, grid.t0, grid.t1, name) as self.report:
            self.follow(self._steps)
        stepper, newton, known = self.stepper, self.stepper.newton, self.table.known
        solution = FixedSolution(self.table, known if self.ended is None else self._beyond, self.ended)
        if options.t_eval is not None:
            t = options.t_eval[options.t_eval <= solution.t_max]
            y = solution(t)
        else:
            t, y = grid.times()[:known], self.table.y[:, :known].reshape(*problem.shape, -1)
            if self.ended is not None:
                t, y = np.append(t, self.ended), np.concatenate([y, solution(self.ended)[..., None]], axis=-1)
        seconds, compiling = time.perf_counter() - started, stepper.compile_seconds
        stats = {"steps": known - 1, "step": grid.longest, "seconds": seconds, "compile_seconds": compiling}
        decision = SolveDecision(name, reason, history, stepper.compiled, tuple(stepper.notes))
        found = finish(self, problem, t, y, stats, decision, solution)
        found.nfev = stepper.fun.count
        if newton is not None:
            found.njev, found.stats["newton_iterations"] = newton.jacobians, newton.iterations
        return found


def solve_on_mesh(
    problem: Problem,
    options: Options,
    name: str,
    steps: MeshSteps,
    *,
    grading: float = 1.0,
    history: str = "direct",
    beginning: Callable[[Array], Array] | None = None,
) -> FODEResult:
    r"""Solve by ``steps`` over :math:`t_j = t_0 + T (j/N)^r`, with as many steps as equal ones of ``options.step``.

    ``grading`` is r, and ``beginning`` as for :class:`Tableau`; it is not called before the first step.
    """
    started = time.perf_counter()
    assert options.step is not None
    grid = make_grid(problem.t0, problem.t1, options.step, options.max_steps, grading)
    y = np.empty((np.asarray(problem.y0).size, grid.count), problem.dtype)
    y[:, 0] = np.asarray(problem.y0).reshape(-1)
    none = np.empty((0, 1, 1))
    table = Tableau(problem, grid, none, None, y, y, none, powers=0, beginning=beginning)
    notes = [] if grading == 1.0 else [f"steps grow like those of t_j = T (j/{grid.steps})^{grading:.4g}"]
    stepper = _MeshStepper(table, options, steps, notes)
    result = FixedWalk(table, options, stepper, grid.count, None).result(name, "asked for", history, started)
    if result.success and not result.stats["terminated"] and options.estimate is not False:
        result.message += (
            f" method={name!r} estimates no error with a given step; without one it finds a sufficient step."
        )
    return result
