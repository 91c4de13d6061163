"""One solve with a fixed step, from the first block to the result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from hpfracc._interrupts import raise_if_nested
from hpfracc.history.blocks import BLOCK, DIRECT_BELOW
from hpfracc.solvers.ode import compiled
from hpfracc.solvers.ode.compiled import on_cuda
from hpfracc.solvers.ode.compiled.on_cuda.choice import MovedError, make_offer
from hpfracc.solvers.ode.delays import DelayedStates, without_delays
from hpfracc.solvers.ode.events import EventWatch
from hpfracc.solvers.ode.fixed.dense import FixedSolution
from hpfracc.solvers.ode.fixed.error_estimate import Estimate, estimate_errors
from hpfracc.solvers.ode.fixed.grid import make_grid, row_orders
from hpfracc.solvers.ode.fixed.scheme import Scheme, StartError, Tableau, make_tableau
from hpfracc.solvers.ode.fixed.switching import SwitchingStepper
from hpfracc.solvers.ode.newton import Newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, RightHandSide, starts_infinite
from hpfracc.solvers.ode.progress import Report, note_steps, progress_report
from hpfracc.solvers.ode.result import FODEResult, SolveDecision
from hpfracc.solvers.ode.stiffness import GROWTH, StiffnessGuard, unstable_growth

__all__ = ["BlockStepper", "Guard", "solve_fixed", "walk_grid"]

Array = np.ndarray[Any, Any]

#: Estimated errors above this fraction of a component's maximum are reported in the message.
DOUBTFUL = 0.1

#: Number of first steps that may skip a boundary layer.
_FIRST_STEPS = 8

REACHED = "The end of the interval was reached."


#: Approximate number of calls of a guard in a solve.
_GUARDED = 32

#: Steps between two checks for events, progress and non-finite values: initial number, maximum, and growth factor.
_CHECK_EVERY = (16, BLOCK, 64)
#: Target seconds between two checks.
_BLOCK_SECONDS = 0.025

#: ``guard(t, y)`` raises ``StiffError`` if a method should stop.
Guard = Callable[[float, Array], None]


class BlockStepper(Protocol):
    """Fills a tableau block by block."""

    notes: list[str]
    compile_seconds: float
    newton: Newton | None

    @property
    def compiled(self) -> bool:
        """Whether the right-hand side runs compiled."""

    @property
    def evaluations(self) -> int:
        """Evaluations of the right-hand side."""

    def start(self) -> None:
        """Compute the first points."""

    def run(self, begin: int, first: int, stop: int, last: int) -> int:
        """Compute points ``first .. stop-1`` of the block from ``begin``; returns the number of known points."""


class _Walk:
    """A running solve."""

    def __init__(
        self, table: Tableau, options: Options, stepper: BlockStepper, block: int, guard: Guard | None
    ) -> None:
        self.problem = table.problem
        self.options = options
        self.grid = table.grid
        self.table = table
        self.block = block
        self.stepper = stepper
        self.guard = guard
        self.guarded = 0
        self.events = EventWatch(options.events, table.problem.args)
        self.message = REACHED
        self.success = True
        self.end: float | None = None
        self.watched = 1
        self.check_every = 1 if table.stepwise else _CHECK_EVERY[0]
        self.interrupted = False
        self._beyond = 0

    def fail(self, message: str) -> bool:
        self.success, self.message = False, message
        return False

    def run(self, title: str) -> None:
        """Run all blocks until the end, a terminal event, a failure or an interrupt."""
        options, table = self.options, self.table
        last = min(self.grid.steps, options.max_steps) + 1
        with progress_report(options.progress, self.grid.t0, self.grid.t1, title) as report:
            try:
                self.stepper.start()
                if not self._look(table.known, report):
                    return
                while table.known < last:
                    begin = table.known // self.block * self.block
                    stop = min(begin + self.block, table.known + self.check_every, last)
                    started = time.perf_counter()
                    reached = self.stepper.run(begin, table.known, stop, last)
                    self._pace(time.perf_counter() - started)
                    if not self._look(reached, report) or (reached < stop and not self._unsettled(reached)):
                        return
            except KeyboardInterrupt:
                raise_if_nested()
                self.interrupted = True
                self.fail(f"Interrupted at t = {self.grid.time(table.known - 1):g}: here is the solution up to then.")
                return
            except StartError as error:
                self.fail(str(error))
                return
        if table.known <= self.grid.steps:
            self.fail(
                f"max_steps={options.max_steps} steps reach t = {self.grid.time(table.known - 1):g} of "
                f"{self.grid.t1:g} with step {self.grid.step:g}: raise max_steps, or take a larger step."
            )

    def _pace(self, seconds: float) -> None:
        """Adjust the number of steps between two checks: few enough to report progress, at negligible cost."""
        if self.table.stepwise:
            return
        # Compiled steps take less time than their call, and interrupts are handled between calls.
        factor = min(_BLOCK_SECONDS / max(seconds, 1e-9), _CHECK_EVERY[2])
        if factor > 1.0 or seconds > 2.0 * _BLOCK_SECONDS:
            self.check_every = max(1, min(int(factor * self.check_every), _CHECK_EVERY[1]))

    def _look(self, reached: int, report: Report) -> bool:
        """Check new points for non-finite values and events, and report progress; returns whether to continue."""
        table = self.table
        good = table.finite_until(self.watched, reached)
        finite = good == reached
        if not finite:
            reached = table.known = good
        if self.options.events and not self._watch(reached):
            return False
        self.watched = reached
        if not finite:
            return self._infinite(reached)
        if self.guard is not None and reached - self.guarded >= self.grid.steps // _GUARDED:
            self.guarded = reached
            self.guard(self.grid.time(reached - 1), np.array(table.y[:, reached - 1]).reshape(self.problem.shape))
        report(self.grid.time(reached - 1), lambda: table.y[:, reached - 1].reshape(self.problem.shape))
        return True

    def _watch(self, reached: int) -> bool:
        table, first = self.table, self.watched - 1
        if first == 0 and not np.all(np.isfinite(table.y[:, 0])):
            first = 1
        if reached - first < 2:
            return True
        solution = FixedSolution(table, reached)
        times = self.grid.t0 + self.grid.elapsed(first, reached)
        states = table.y[:, first:reached].reshape(*self.problem.shape, -1)
        end = self.events.watch(times, states, solution)
        if end is None:
            return True
        known = int(np.searchsorted(self.grid.t0 + self.grid.elapsed(0, reached), end))
        self._beyond, table.known, self.end = reached, known, end
        self.message = f"A terminal event happened at t = {self.end:g}."
        return False

    def _infinite(self, reached: int) -> bool:
        return self.fail(
            f"The solution is not finite at t = {self.grid.time(reached):g}: it or the right-hand side overflowed or "
            "left its domain there. A smaller step or an implicit method helps if the cause is numerical."
        )

    def _unsettled(self, reached: int) -> bool:
        newton = self.stepper.newton
        before = np.array(self.table.y[:, reached - 1]).reshape(self.problem.shape)
        if not np.all(np.isfinite(self.problem.evaluate(self.grid.time(reached), before))):
            return self._infinite(reached)
        left = "" if newton is None or not newton.residual else f" (residual {newton.residual:.3g})"
        return self.fail(
            f"Newton's method did not converge at t = {self.grid.time(reached):g}{left}: take a smaller step, give "
            "jac, or check that the right-hand side is smooth there."
        )

    def solution(self) -> FixedSolution:
        if self.end is not None:
            return FixedSolution(self.table, self._beyond, self.end)
        return FixedSolution(self.table, self.table.known)

    def points(self, solution: FixedSolution) -> tuple[Array, Array]:
        """Requested times and the flat solution there."""
        known, shape = self.table.known, self.problem.shape
        if self.options.t_eval is not None:
            times = self.options.t_eval[self.options.t_eval <= solution.t_max]
            return times, solution(times)
        times, values = self.grid.times()[:known], self.table.y[:, :known]
        if self.end is not None:
            times = np.append(times, self.end)
            at_end = solution(self.end).reshape(-1, 1)
            values = np.concatenate([values, at_end], axis=1)
        return times, values.reshape(*shape, -1)


def solve_fixed(
    problem: Problem, options: Options, scheme: Scheme, name: str, reason: str, *, guard: Guard | None = None
) -> FODEResult:
    """Solve ``problem`` with ``scheme`` and the step of ``options``.

    ``guard(t, y)`` is called from time to time, and may raise ``StiffError`` to end the solve.
    """
    if on_cuda.is_asked(options):
        from hpfracc.solvers.ode.compiled.on_cuda.device import load_cuda

        cuda = load_cuda()
        compiled.load("on_cuda.solve")
        from hpfracc.solvers.ode.compiled.on_cuda.solve import solve_members

        return solve_members(cuda, problem, options, scheme, (name, reason))[0]
    started = time.perf_counter()
    assert options.step is not None
    grid = make_grid(problem.t0, problem.t1, options.step, options.max_steps)
    delayed: DelayedStates | None = None
    if problem.delays:
        problem, delayed = without_delays(problem, options, name)
        options = dataclasses.replace(options, compile=False, backend="numpy")
    table = make_tableau(problem, grid, scheme)
    if delayed is not None:
        table.stepwise, delayed.table = True, table
    history = "fft" if grid.count - 1 > DIRECT_BELOW else "direct"
    block = BLOCK if history == "fft" else grid.count
    offer = make_offer(table, options, scheme, (name, reason), guard)
    stepper = SwitchingStepper(table, scheme, block, options, RightHandSide(problem), offer)
    try:
        result = walk_grid(table, options, stepper, block, (name, reason, history), started, guard)
    except MovedError as moved:
        note_steps()
        moved.result.stats["seconds"] = time.perf_counter() - started
        return moved.result
    if result.success:
        _check_growth(result, table, scheme, name)
    _judge(result, table, options, delayed)
    return result


def _check_growth(result: FODEResult, table: Tableau, scheme: Scheme, name: str) -> None:
    r"""Fail if the solution has grown where the equation does not let it: the steps are not stable.

    Up to order 1, :math:`\tfrac12 D^\alpha |y|^2 \le \mathrm{Re}(\bar y f)` (A. Alikhanov, Differ. Equ. 46 (2010)
    660-666), so that a component cannot reach a new maximum of its magnitude where that product is negative. In general
    the eigenvalues of the Jacobian lie outside of the region of stability.
    """
    problem, y, f = table.problem, table.y[:, : table.known], table.f[:, : table.known]
    if problem.orders.known is None:
        return
    largest = np.abs(y).max()
    if largest <= GROWTH * np.abs(y[:, :2]).max():  # the usual case; false if a value is not finite
        return
    sizes = np.abs(np.where(np.isfinite(y), y, 0.0))
    highest = (sizes > GROWTH * sizes[:, :2].max()) & (sizes == np.maximum.accumulate(sizes, axis=1))
    highest &= row_orders(problem)[:, None] <= 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        turned = highest & (np.real(np.conj(y) * f) < 0.0)
    many = bool(np.any((highest.sum(axis=1) > 2) & (turned.sum(axis=1) > 0.5 * highest.sum(axis=1))))
    guard = StiffnessGuard(problem, table.grid.step, name, scheme)

    def number(n: int) -> float:
        return guard.number(table.grid.time(n), np.array(y[:, n]).reshape(problem.shape))

    message = unstable_growth(sizes.max(axis=0), table.grid.time, number, name, turned=many)
    result.nfev += guard.evaluations
    if message is not None:
        result.success, result.message = False, message


def _judge(result: FODEResult, table: Tableau, options: Options, delayed: DelayedStates | None) -> None:
    """Estimate the error, and report where the solution is inaccurate."""
    if not result.success or options.estimate is False or starts_infinite(table.problem):
        return
    result.message += _find_jump(table)
    if options.estimate == "auto" and result.decision is not None and result.decision.compiled:
        result.message += " No error estimate was computed for compiled steps; estimate=True requests one."
        return
    fun = RightHandSide(table.problem)
    started = time.perf_counter()
    found = estimate_errors(table, fun, delayed)
    result.stats["estimate_evaluations"] = fun.count
    result.stats["estimate_seconds"] = time.perf_counter() - started
    if found is None:
        result.message += " No error estimate could be computed."
        return
    errors = found.errors.max(axis=1)
    result.error_estimate = float(errors.max())
    result.stats["component_errors"] = errors.reshape(table.problem.shape)
    sizes = np.abs(table.y[:, : table.known]).max(axis=1)
    if np.any(errors > DOUBTFUL * sizes):
        result.message += _doubt(found, sizes, table)


def _find_jump(table: Tableau) -> str:
    """Message if a component crosses half of its range within one step, except for the first few.

    A step over the jump of a relaxation oscillator has no large defect, so the error estimate misses it.
    """
    y = table.y[:, _FIRST_STEPS : table.known]
    if y.shape[1] < 2 * _FIRST_STEPS:
        return ""
    changes = np.abs(np.diff(y, axis=1))
    crossed = changes.max(axis=1) > 0.5 * np.abs(y - y[:, :1]).max(axis=1)
    crossed &= changes.max(axis=1) > DOUBTFUL * np.abs(y).max(axis=1)
    if not crossed.any():
        return ""
    row = int(np.argmax(crossed))
    n = _FIRST_STEPS + 1 + int(np.argmax(changes[row]))
    return (
        f" Component {_name(row, table)} crosses more than half of its range within the step to "
        f"t = {table.grid.time(n):g}, which does not resolve that: compare with a smaller step, or with none."
    )


def _name(row: int, table: Tableau) -> str:
    """The index of a flat component as a user writes it."""
    index = np.unravel_index(row, table.problem.shape)
    return str(int(index[0])) if len(index) == 1 else str(tuple(int(each) for each in index))


def _doubt(found: Estimate, sizes: Array, table: Tableau) -> str:
    """Message with the inaccurate component, the times, and a remedy."""
    shares = found.errors / np.maximum(sizes, 1e-300)[:, None]
    row = int(shares.max(axis=1).argmax())
    when = found.times[shares[row] > DOUBTFUL]
    return (
        f" The solution cannot be trusted: the error of component {_name(row, table)} may be "
        f"{found.errors[row].max():.2g}, and its largest value is {sizes[row]:.2g}; this was found from "
        f"t = {when[0]:g} to t = {when[-1]:g}. Take a smaller step, a graded mesh (method='l1' or 'l2_1sigma'), or no "
        "step."
    )


def walk_grid(
    table: Tableau,
    options: Options,
    stepper: BlockStepper,
    block: int,
    decision: tuple[str, str, str],
    started: float,
    guard: Guard | None = None,
) -> FODEResult:
    """Let ``stepper`` fill ``table`` block by block, and return the result."""
    problem, name = table.problem, decision[0]
    walk = _Walk(table, options, stepper, block, guard)
    walk.run(name)
    note_steps()
    solution = walk.solution()
    t, y = walk.points(solution)
    newton = stepper.newton
    stats: dict[str, Any] = {
        "steps": walk.table.known - 1,
        "step": walk.grid.step,
        "seconds": time.perf_counter() - started,
        "compile_seconds": stepper.compile_seconds,
        "terminated": walk.end is not None,
        "interrupted": walk.interrupted,
    }
    if newton is not None:
        stats["newton_iterations"] = newton.iterations
    happened: tuple[Any, Any] = (None, None)
    if options.events:
        happened = walk.events.collected(problem.shape, problem.dtype)
    return FODEResult(
        t=t,
        y=y,
        success=walk.success,
        message=walk.message,
        nfev=stepper.evaluations,
        njev=newton.jacobians if newton is not None else 0,
        sol=solution if options.dense_output else None,
        stats=stats,
        decision=SolveDecision(*decision, stepper.compiled, tuple(stepper.notes)),
        t_events=happened[0],
        y_events=happened[1],
    )
