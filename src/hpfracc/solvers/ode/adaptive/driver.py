"""A whole adaptive solve: passes until the estimated global error is below the tolerance, and the result."""

from __future__ import annotations

import bisect
import functools
import math
import time
from typing import Any

import numpy as np

from hpfracc.history.states import ExponentialMemory
from hpfracc.solvers.ode.adaptive.solution import AdaptiveSolution
from hpfracc.solvers.ode.adaptive.system import OrdinarySystem
from hpfracc.solvers.ode.compilation import AdaptiveSwitch
from hpfracc.solvers.ode.fixed.grid import initial_part
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import TOLERATED, FODEResult, SolveDecision, inaccurate, later_times
from hpfracc.solvers.ode.singular import GrowthError, read_growth, source_start
from hpfracc.solvers.stepping.events import EventWatch, Report, progress_report
from hpfracc.solvers.stepping.options import MAX_STEPS, Options
from hpfracc.solvers.stepping.step import AdaptiveStep
from hpfracc.solvers.stepping.walk import HOPELESS, MAX_PASSES, AdaptiveWalk, smaller_share

Array = np.ndarray[Any, Any]

#: Number of breaking points of a delay at which a step ends. The solution gains alpha in smoothness at each.
_MAX_BREAKS = 64
#: Attempted steps between two checks of progress, and the most steps that the rest may take if max_steps is default.
_CRAWL_WINDOW = 2048
_MAX_AHEAD = 1_000_000
#: A solution that grows by this factor while steps shrink, to this share of the time where they fail, blows up.
_BLOW_UP, _SHRUNK = 10.0, 1e-9
#: Steps between two considerations whether to compile the right-hand side.
_EVERY = 16


def blow_up(t: float, size: float) -> str:
    """The reason to end a solve whose solution does not exist any longer."""
    return (
        f"The solution blows up at about t = {t:.6g}, where it has grown to {size:.2g}, and does not exist beyond. "
        "Shorten the interval, end it by a terminal event, or check the signs in the equation."
    )


class _Pass(AdaptiveWalk):
    """One pass over the interval with a fixed fraction of the tolerance for each step."""

    system: OrdinarySystem

    def __init__(
        self, problem: Problem, options: Options, share: float, start: float, speed: AdaptiveSwitch, report: Report
    ) -> None:
        super().__init__(OrdinarySystem(problem, start), options, problem.t1)
        self.problem, self._share, self._speed, self._report = problem, share, speed, report
        self.longest = min(problem.delays, default=math.inf)
        self.length = problem.t1 - problem.t0 - start
        self.events = EventWatch(options.events, problem.args)
        stored = options.dense_output or bool(problem.delays)
        self.solution = AdaptiveSolution(self.system) if stored else None
        self._error_times: list[float] = []
        self._errors: list[Array] = []
        self._before = self.system.start(0.0).astype(self.system.dtype)  # the state at the last check for events
        if problem.delays:
            assert self.solution is not None
            self.system.past, self.system.past_error = self.solution.state, self._error_then
        self.times: list[float] = []
        self.states: list[Array] = []
        self.wanted = None if options.t_eval is None else options.t_eval - problem.t0 - start
        self.next, self.largest_error, self._tau = 0, 0.0, 0.0
        self._fades = starts_infinite(problem)
        self.end: float | None = None
        # Steps so short that the end cannot be reached: steps and time at the last look, and the mean step before.
        self._window = _CRAWL_WINDOW // (4 if problem.delays else 1)
        self._crawled, self._pace, self._length = (0, 0.0), 0.0, math.inf
        self._size = self._first = max(float(np.abs(problem.y0).max()), float(np.min(options.atol)) / options.rtol)

    def run(self, most_ratio: float) -> None:
        """Step until the end, a terminal event, a failure or an interrupt."""
        try:
            super().run(most_ratio)
        except KeyboardInterrupt:
            self.interrupted = True
            reached = self.system.time(0.0 if self.step is None else self.step.tau)
            self.fail(f"Interrupted at t = {reached:g}: this is the solution up to then.")

    def explain(self, failure: str) -> str:
        """The solution may have blown up."""
        step = self.step
        assert step is not None
        size = float(np.abs(step.y).max())
        if self._length > _SHRUNK * step.tau or not size > _BLOW_UP * self._first:
            return failure
        return blow_up(self.system.time(step.tau), size)

    def begin(self) -> AdaptiveStep:
        """Record the values before the first step, and make the steps."""
        problem, options, early = self.problem, self.options, np.zeros(1)
        if self.wanted is not None:
            assert options.t_eval is not None
            self.next = int(np.searchsorted(self.wanted, 0.0, side="right"))
            early = np.clip(options.t_eval[: self.next] - problem.t0, 0.0, None)
        self.times.extend((early - self.system.offset).tolist())
        self.states.extend(initial_part(problem, early).T)
        self._speed.begin(self.system)
        between = self.solution is not None or self.wanted is not None or bool(options.events)
        memory: Any = ExponentialMemory
        if problem.memory is not None:
            memory = functools.partial(ExponentialMemory, make_kernel=problem.memory.kernel)
        return AdaptiveStep(self.system, self.length, options, self._share, between=between, memory=memory)

    def enter(self, number: int, stop: float) -> None:
        """Keep the times of the right-hand side between two breakpoints."""
        self.system.break_ahead = stop if stop < self.length else math.inf
        ends = self.options.breakpoints
        if ends:
            later = bisect.bisect_left([t - self.problem.t0 - self.system.offset for t in ends], stop)
            first = ends[later - 1] if later else self.problem.t0
            last = math.nextafter(ends[later], -math.inf) if later < len(ends) else self.problem.t1
            self.system.segment = first, last

    def stops(self) -> list[float]:
        """Breakpoints and their sums with delays, and the end."""
        breaks = [t - self.problem.t0 - self.system.offset for t in self.options.breakpoints]
        layer = [0.0, *breaks]  # sums of the same number of delays
        for _ in range(1, _MAX_BREAKS):
            sums = sorted(before + lag for before in layer for lag in self.problem.delays)
            layer = _distinct([total for total in sums if total < self.length * (1.0 - 1e-12)], [])
            breaks += _distinct(layer, breaks)
            if not layer or len(breaks) >= _MAX_BREAKS * len(self.problem.delays):
                break
        return [*sorted(breaks), self.length]

    def _error_then(self, then: float) -> Array:
        """The estimated error at a past time: that of the step that contains it."""
        index = bisect.bisect_left(self._error_times, then)
        return self._errors[min(index, len(self._errors) - 1)] if self._errors else np.zeros(self.system.size)

    def note(self, step: AdaptiveStep) -> bool:
        """Record the requested values of the newest step; returns whether to continue."""
        size, wanted = step.size, self.wanted
        asked = wanted is not None and self.next < wanted.size and wanted[self.next] < step.tau
        if asked or self.solution is not None:
            size = float(np.maximum(size, (np.abs(step.error) + step.inside).max()))  # nan stays
        if self._fades:  # where y starts like t^(alpha-1), the error counts as falling to 0 like t^(1-alpha)
            share = (step.tau + self.system.offset) / (self.problem.t1 - self.problem.t0)
            size *= float(min(share, 1.0) ** (1.0 - step.least))
        if size > self.largest_error or math.isnan(size):
            self.largest_error = size
        if self.problem.delays:
            self._error_times.append(step.tau)
            self._errors.append(step.error)
        if self.solution is not None:
            self.solution.add(step.pieces[-1], step.snapshots[-1])
        moved, self._length, self._tau = (
            step.tau > self._tau,
            step.tau - self._tau,
            step.tau,
        )  # behind a jump, times may not tell steps apart
        end = self._watch(step) if self.options.events and moved else None
        limit = step.tau if end is None else end
        if wanted is None and not moved:
            self.states[-1] = step.y
        elif wanted is None:
            self.times.append(limit)
            self.states.append(step.y if end is None else step.continuation()(np.array([limit]))[0])
        elif self.next < wanted.size and (wanted[self.next] <= limit or step.tau >= step.length):
            # The last requested time may exceed the last step by rounding.
            slack = 1e-14 * step.length if step.tau >= step.length else 0.0
            first, self.next = self.next, int(np.searchsorted(wanted, limit + slack, side="right"))
            if self.next > first:
                found = wanted[first : self.next]
                self.times.extend(found.tolist())
                self.states.extend(step.continuation()(np.minimum(found, limit)))
        if self.options.progress:
            self._report(self.system.time(limit), lambda: step.y.reshape(self.problem.shape))
        if step.accepted % _EVERY == 0:
            self._speed.look(step)
        if (
            end is None
            and step.accepted + step.rejected >= self._crawled[0] + self._window
            and (why := self._crawls(step))
        ):
            self.fail(why)
            return False
        return end is None

    def _crawls(self, step: AdaptiveStep) -> str | None:
        """The reason to end the solve if steps are so short that the end cannot be reached, with a remedy."""
        options, steps = self.options, step.accepted + step.rejected
        # A limit above the default is deliberate.
        most = _MAX_AHEAD if options.max_steps == MAX_STEPS else options.max_steps
        pace, before = (step.tau - self._crawled[1]) / (steps - self._crawled[0]), self._pace
        self._crawled, self._pace = (steps, step.tau), pace
        size, smaller = float(np.abs(step.y).max()), self._size
        self._size = size
        # Steps that still grow, as after the start, do not predict the rest.
        if not before or pace > 1.5 * before or pace * most >= self.length - step.tau:
            return None
        if size > _BLOW_UP * smaller:
            return blow_up(self.system.time(step.tau), size)
        ahead = (self.length - step.tau) / pace if pace > 0.0 else math.inf
        return (
            f"Steps have shrunk to {pace:.1e} at t = {self.system.time(step.tau):.6g}, and the rest would take "
            f"about {ahead:.1e} of them: the right-hand side jumps from step to step, as where a switching law slides "
            "along its surface (smooth it: tanh(y/width) for sign(y)), the shortest delay allows no longer steps, the "
            f"solution varies that quickly, or rtol={options.rtol:g} and atol are too tight. Use a fixed "
            "step, shorten the interval, or, to continue, set max_steps to that number."
        )

    def _watch(self, step: AdaptiveStep) -> float | None:
        """The time of a terminal event within the newest step."""
        problem, piece, shape = self.problem, step.pieces[-1], self.problem.shape
        continuation, before = step.continuation(), self._before

        def solution(t: float) -> Array:
            tau = min(max(t - problem.t0 - self.system.offset, piece.left), piece.right)
            if tau == piece.left:
                return before.reshape(shape)
            return np.asarray(continuation(np.array([tau]))[0].reshape(shape))

        states = np.stack([before.reshape(shape), step.y.reshape(shape)], axis=-1)
        times = np.array([self.system.time(piece.left), self.system.time(piece.right)])
        end = self.events.watch(times, states, solution)
        self._before = step.y
        if end is None:
            return None
        self.end, self.message = end, f"A terminal event happened at t = {end:g}."
        if self.solution is not None:
            self.solution.end = end
        return end - problem.t0 - self.system.offset

    def result(self, stats: dict[str, Any], notes: list[str], decision: tuple[str, str, str, bool]) -> FODEResult:
        """The result of this pass; evaluations are left to the caller, who knows those of all passes."""
        problem, options, step = self.problem, self.options, self.step
        stats |= dict.fromkeys(("steps", "rejected", "exponentials", "switches"), 0)
        stats |= {"error_over_tolerance": self.ratio, "terminated": self.end is not None}
        stats["interrupted"] = self.interrupted
        if step is not None:
            stats |= {"steps": step.accepted, "rejected": step.rejected, "switches": step.system.switches}
            stats["exponentials"] = max(memory.states.shape[1] for memory in step.memories)
        if stats["switches"]:
            notes.append(f"{stats['switches']} switches between iteration and Newton's method")
        known = min(len(self.times), len(self.states))  # an interrupt may occur between the two
        states = np.array(self.states[:known], self.system.dtype).reshape(known, self.system.size)
        times = problem.t0 + (np.array(self.times[:known]) + self.system.offset)
        if options.t_eval is not None:
            times = options.t_eval[: times.size]
        elif step is not None and known and self.times[known - 1] == step.length:
            times[-1] = problem.t1  # exactly, which t0 + (t1 - t0) may not be
        if options.t_eval is None:
            kept = later_times(times)
            times, states = times[kept], states[kept]
        y, chosen = states.T.reshape(*problem.shape, -1), SolveDecision(*decision, tuple(notes))
        found = FODEResult(times, y, self.success, self.message, 0, stats=stats, decision=chosen)
        found.error_estimate = self.largest_error
        found.sol = self.solution if options.dense_output else None
        found.t_events, found.y_events = self.events.collected(problem.shape, problem.dtype)
        return found


def beginning(problem: Problem, options: Options) -> float:
    """Time after t0 at which stepping starts: 0, or later if the solution is infinite at t0.

    Before that time the contribution of the right-hand side is below a thousandth of the tolerance.
    """
    if not starts_infinite(problem):
        return 0.0
    size = float(np.abs(problem.y0).max())
    return min(read_growth(problem).negligible(1e-3 * options.rtol, size), 1e-6 * (problem.t1 - problem.t0))


def _distinct(times: list[float], known: list[float]) -> list[float]:
    """Those of ``times`` that differ from ``known`` and from each other by more than rounding."""
    kept: list[float] = []
    for each in times:
        if all(abs(each - other) > 1e-12 * each for other in (*known, *kept[-1:])):
            kept.append(each)
    return kept


def solve_adaptive(problem: Problem, options: Options, *, name: str, reason: str, control: str) -> FODEResult:
    """Solve with adaptive steps; with ``control="global"`` repeatedly, until the global error is small enough."""
    started = time.perf_counter()
    share, nfev, njev, notes = 1.0, 0, 0, []
    speed, start = AdaptiveSwitch(problem, options), beginning(problem, options)
    with progress_report(options.progress, problem.t0, problem.t1, name) as report:
        for number in range(1, MAX_PASSES + 1):
            last = number == MAX_PASSES or control == "local"
            current = _Pass(problem, options, share, start, speed, report)
            current.run(math.inf if last else HOPELESS)
            if current.step is None and not (start or current.interrupted or problem.delays):
                try:
                    start = source_start(problem, options)
                except GrowthError as error:
                    current.message = f"{str(error).capitalize()}."
                else:
                    notes.append(f"the right-hand side is not finite at t0, so steps start {start:.2g} behind it")
                    current = _Pass(problem, options, share, start, speed, report)
                    current.run(math.inf if last else HOPELESS)
            nfev, njev = nfev + current.system.nfev, njev + current.system.njev
            if last or not current.success or current.ratio <= 1.0 or current.jump is not None:
                break
            notes.append(f"pass {number}: the global error was {current.ratio:.2g} times the tolerance")
            share = smaller_share(share, current.ratio)
    if current.success and control == "global" and current.ratio > TOLERATED:
        current.fail(inaccurate(current.ratio, options.rtol, current.jump))
    stats = {"passes": number, "seconds": time.perf_counter() - started, "compile_seconds": speed.compile_seconds}
    result = current.result(stats, [*notes, *speed.notes], (name, reason, "exponentials", speed.compiled))
    result.nfev, result.njev = nfev, njev
    return result
