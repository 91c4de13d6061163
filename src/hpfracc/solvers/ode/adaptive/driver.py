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
from hpfracc.solvers.ode.adaptive.stepper import Stepper
from hpfracc.solvers.ode.adaptive.system import FlatSystem
from hpfracc.solvers.ode.compilation import AdaptiveSwitch
from hpfracc.solvers.ode.fixed.grid import initial_part
from hpfracc.solvers.ode.options import MAX_STEPS, Options
from hpfracc.solvers.ode.problem import NotFiniteError, Problem, starts_infinite
from hpfracc.solvers.ode.progress import EventWatch, Report, progress_report
from hpfracc.solvers.ode.result import REACHED, TOLERATED, FODEResult, SolveDecision, inaccurate, later_times
from hpfracc.solvers.ode.singular import GrowthError, read_growth, source_start

Array = np.ndarray[Any, Any]

#: Maximum number of passes to bring the global error below the tolerance.
_MAX_PASSES = 6
#: A pass is abandoned when its global error exceeds this multiple of the tolerance.
_HOPELESS = 4.0
#: Number of breaking points of a delay at which a step ends. The solution gains alpha in smoothness at each.
_MAX_BREAKS = 64
#: Attempted steps between two checks of progress, and the most steps that the rest may take if max_steps is default.
_CRAWL_WINDOW = 2048
_MAX_AHEAD = 1_000_000
#: A solution that grows by this factor while steps shrink, to this share of the time where they fail, blows up.
_BLOW_UP, _SHRUNK = 10.0, 1e-9


def blow_up(t: float, size: float) -> str:
    """The reason to end a solve whose solution does not exist any longer."""
    return (
        f"The solution blows up at about t = {t:.6g}, where it has grown to {size:.2g}, and does not exist beyond. "
        "Shorten the interval, end it by a terminal event, or check the signs in the equation."
    )


class _CrawlWatch:
    """Detects steps so short that the end cannot be reached."""

    def __init__(self, problem: Problem, options: Options, length: float) -> None:
        self._rtol, self._length = options.rtol, length
        self._window = _CRAWL_WINDOW // (4 if problem.delays else 1)
        # A limit above the default is deliberate.
        self._most = _MAX_AHEAD if options.max_steps == MAX_STEPS else options.max_steps
        self._steps, self._tau, self._pace = 0, 0.0, 0.0
        self._size = self._first = max(float(np.abs(problem.y0).max()), float(np.min(options.atol)) / options.rtol)

    def blown(self, stepper: Stepper) -> str | None:
        """The reason of a failure if it is a blow-up."""
        size = float(np.abs(stepper.y).max())
        last = stepper.pieces[-1] if stepper.pieces else None
        if last is None or last.right - last.left > _SHRUNK * stepper.tau or not size > _BLOW_UP * self._first:
            return None
        return blow_up(stepper.system.time(stepper.tau), size)

    def look(self, stepper: Stepper) -> str | None:
        """Called after a step. Returns the reason to end the solve, with a remedy, or None to continue."""
        steps = stepper.accepted + stepper.rejected
        if steps - self._steps < self._window:
            return None
        pace, before = (stepper.tau - self._tau) / (steps - self._steps), self._pace
        self._steps, self._tau, self._pace = steps, stepper.tau, pace
        size, smaller = float(np.abs(stepper.y).max()), self._size
        self._size = size
        # Steps that still grow, as after the start, do not predict the rest.
        if not before or pace > 1.5 * before or pace * self._most >= self._length - stepper.tau:
            return None
        if size > _BLOW_UP * smaller:
            return blow_up(stepper.system.time(stepper.tau), size)
        ahead = (self._length - stepper.tau) / pace if pace > 0.0 else math.inf
        return (
            f"Steps have shrunk to {pace:.1e} at t = {stepper.system.time(stepper.tau):.6g}, and the rest would take "
            f"about {ahead:.1e} of them: the right-hand side jumps from step to step, as where a switching law slides "
            "along its surface (smooth it: tanh(y/width) for sign(y)), the shortest delay allows no longer steps, the "
            f"solution varies that quickly, or rtol={self._rtol:g} and atol are too tight. Use a fixed "
            "step, shorten the interval, or, to continue, set max_steps to that number."
        )


class _Pass:
    """One pass over the interval with a fixed fraction of the tolerance for each step."""

    def __init__(self, problem: Problem, options: Options, share: float, start: float) -> None:
        self.problem, self.options, self._share = problem, options, share
        self.system = FlatSystem(problem, start)
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
        self.wanted = None if options.t_eval is None else options.t_eval - problem.t0 - self.system.offset
        self.next, self.largest_error = 0, 0.0
        self.success, self.interrupted, self.message = True, False, REACHED
        self.end: float | None = None
        self.stepper: Stepper | None = None

    @property
    def jump(self) -> float | None:
        """Time of a jump of the right-hand side that was passed with longer steps than the tolerance allows."""
        if self.stepper is None or self.stepper.jumped is None:
            return None
        return self.system.time(self.stepper.jumped)

    @property
    def ratio(self) -> float:
        """The estimated global error over the tolerance."""
        return math.nan if self.stepper is None else self.stepper.ratio

    def run(self, report: Report, most_ratio: float, speed: AdaptiveSwitch) -> None:
        """Step until the end, a terminal event, a failure or an interrupt."""
        failure = None
        try:
            failure = self._steps(report, most_ratio, speed)
        except NotFiniteError as error:
            failure = f"{error}: check the right-hand side and the initial values."
        except KeyboardInterrupt:
            self.interrupted = True
            reached = 0.0 if self.stepper is None else self.stepper.tau
            failure = f"Interrupted at t = {self.system.time(reached):g}: this is the solution up to then."
        if failure is not None:
            self.success, self.message = False, failure

    def _steps(self, report: Report, most_ratio: float, speed: AdaptiveSwitch) -> str | None:
        """Take the steps; returns the reason if they fail."""
        problem, options = self.problem, self.options
        length, longest = problem.t1 - problem.t0 - self.system.offset, min(problem.delays, default=math.inf)
        self._note_start()
        between = self.solution is not None or self.wanted is not None or bool(options.events)
        memory: Any = ExponentialMemory
        if problem.memory is not None:
            memory = functools.partial(ExponentialMemory, make_kernel=problem.memory.kernel)
        self.stepper = stepper = Stepper(self.system, length, options, self._share, between=between, memory=memory)
        speed.begin(stepper)
        watch = _CrawlWatch(problem, options, length)
        for stop, is_break in self._stops(length):
            self.system.break_ahead = stop if is_break else math.inf
            self.system.segment = self._segment(stop)
            while stepper.tau < stop:
                if stepper.accepted >= options.max_steps:
                    return (
                        f"max_steps={options.max_steps} steps reach t = {self.system.time(stepper.tau):g} of "
                        f"{problem.t1:g}: raise max_steps, or loosen rtol={options.rtol:g}."
                    )
                if (stopped := stepper.advance(min(stop, stepper.tau + longest))) is not None:
                    return watch.blown(stepper) or stopped
                speed.look(stepper)
                if not self._note(report):
                    return None
                crawl = watch.look(stepper)
                if crawl is not None or (stepper.ratio > most_ratio and stepper.jumped is None):
                    return crawl
            if is_break:
                self.system.break_ahead = math.inf
                self.system.segment = self._segment(math.nextafter(stop, math.inf))
                stepper.restart()
        return None

    def _stops(self, length: float) -> list[tuple[float, bool]]:
        """Times at which steps must end: breakpoints and their sums with delays, and the end."""
        breaks = [t - self.problem.t0 - self.system.offset for t in self.options.breakpoints]
        layer = [0.0, *breaks]  # sums of the same number of delays
        for _ in range(1, _MAX_BREAKS):
            sums = sorted(before + lag for before in layer for lag in self.problem.delays)
            layer = _distinct([total for total in sums if total < length * (1.0 - 1e-12)], [])
            breaks += _distinct(layer, breaks)
            if not layer or len(breaks) >= _MAX_BREAKS * len(self.problem.delays):
                break
        return [*((stop, True) for stop in sorted(breaks)), (length, False)]

    def _segment(self, stop: float) -> tuple[float, float] | None:
        """First and last time of the right-hand side in the steps that end at ``stop``; None without breakpoints."""
        ends = self.options.breakpoints
        if not ends:
            return None
        taus = [t - self.problem.t0 - self.system.offset for t in ends]
        later = bisect.bisect_left(taus, stop)
        first = ends[later - 1] if later else self.problem.t0
        return first, math.nextafter(ends[later], -math.inf) if later < len(ends) else self.problem.t1

    def _error_then(self, then: float) -> Array:
        """The estimated error at a past time: that of the step that contains it."""
        index = bisect.bisect_left(self._error_times, then)
        return self._errors[min(index, len(self._errors) - 1)] if self._errors else np.zeros(self.system.size)

    def _note_start(self) -> None:
        """Record the values before the first step."""
        early = np.zeros(1)
        if self.wanted is not None:
            assert self.options.t_eval is not None
            self.next = int(np.searchsorted(self.wanted, 0.0, side="right"))
            early = np.clip(self.options.t_eval[: self.next] - self.problem.t0, 0.0, None)
        self.times.extend((early - self.system.offset).tolist())
        self.states.extend(initial_part(self.problem, early).T)

    def _note(self, report: Report) -> bool:
        """Record the requested values of the newest step; returns whether to continue."""
        stepper, problem = self.stepper, self.problem
        assert stepper is not None
        size, wanted = stepper.size, self.wanted
        asked = wanted is not None and self.next < wanted.size and wanted[self.next] < stepper.tau
        if asked or self.solution is not None:
            size = float(np.maximum(size, (np.abs(stepper.error) + stepper.inside).max()))  # nan stays
        size *= self._importance(stepper)
        if size > self.largest_error or math.isnan(size):
            self.largest_error = size
        if problem.delays:
            self._error_times.append(stepper.tau)
            self._errors.append(stepper.error)
        if self.solution is not None:
            self.solution.add(stepper.pieces[-1], stepper.snapshots[-1])
        moved = stepper.pieces[-1].right > stepper.pieces[-1].left  # behind a jump, times may not tell steps apart
        end = self._watch() if self.options.events and moved else None
        limit = stepper.tau if end is None else end
        if self.wanted is None and not moved:
            self.states[-1] = stepper.y
        elif self.wanted is None:
            self.times.append(limit)
            self.states.append(stepper.y if end is None else stepper.continuation()(np.array([limit]))[0])
        else:
            # The last requested time may exceed the last step by rounding.
            slack = 1e-14 * stepper.length if stepper.tau >= stepper.length else 0.0
            first, self.next = self.next, int(np.searchsorted(self.wanted, limit + slack, side="right"))
            if self.next > first:
                asked = self.wanted[first : self.next]
                self.times.extend(asked.tolist())
                self.states.extend(stepper.continuation()(np.minimum(asked, limit)))
        report(self.system.time(limit), lambda: stepper.y.reshape(problem.shape))
        return end is None

    def _importance(self, stepper: Stepper) -> float:
        """Weight of the error in the estimate: where y starts like t^(alpha-1), it falls to 0 like t^(1-alpha)."""
        if not starts_infinite(self.problem):
            return 1.0
        share = (stepper.tau + self.system.offset) / (self.problem.t1 - self.problem.t0)
        return float(min(share, 1.0) ** (1.0 - stepper.least))

    def _watch(self) -> float | None:
        stepper, problem = self.stepper, self.problem
        assert stepper is not None
        piece, shape = stepper.pieces[-1], problem.shape
        continuation, before = stepper.continuation(), self._before

        def solution(t: float) -> Array:
            tau = min(max(t - problem.t0 - self.system.offset, piece.left), piece.right)
            if tau == piece.left:
                return before.reshape(shape)
            return np.asarray(continuation(np.array([tau]))[0].reshape(shape))

        states = np.stack([before.reshape(shape), stepper.y.reshape(shape)], axis=-1)
        times = np.array([self.system.time(piece.left), self.system.time(piece.right)])
        end = self.events.watch(times, states, solution)
        self._before = stepper.y
        if end is None:
            return None
        self.end, self.message = end, f"A terminal event happened at t = {end:g}."
        if self.solution is not None:
            self.solution.end = end
        return end - problem.t0 - self.system.offset

    def result(self, stats: dict[str, Any], notes: list[str], decision: tuple[str, str, str, bool]) -> FODEResult:
        """The result of this pass; evaluations are left to the caller, who knows those of all passes."""
        problem, options, stepper = self.problem, self.options, self.stepper
        stats |= dict.fromkeys(("steps", "rejected", "exponentials", "switches"), 0)
        stats |= {"error_over_tolerance": self.ratio, "terminated": self.end is not None}
        stats["interrupted"] = self.interrupted
        if stepper is not None:
            stats |= {"steps": stepper.accepted, "rejected": stepper.rejected, "switches": stepper.corrector.switches}
            stats["exponentials"] = max(memory.states.shape[1] for memory in stepper.memories)
        if stats["switches"]:
            notes.append(f"{stats['switches']} switches between iteration and Newton's method")
        known = min(len(self.times), len(self.states))  # an interrupt may occur between the two
        states = np.array(self.states[:known], self.system.dtype).reshape(known, self.system.size)
        times = problem.t0 + (np.array(self.times[:known]) + self.system.offset)
        if options.t_eval is not None:
            times = options.t_eval[: times.size]
        elif stepper is not None and known and self.times[known - 1] == stepper.length:
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
        for number in range(1, _MAX_PASSES + 1):
            last = number == _MAX_PASSES or control == "local"
            current = _Pass(problem, options, share, start)
            current.run(report, math.inf if last else _HOPELESS, speed)
            if current.stepper is None and not (start or current.interrupted or problem.delays):
                try:
                    start = source_start(problem, options)
                except GrowthError as error:
                    current.message = f"{str(error).capitalize()}."
                else:
                    notes.append(f"the right-hand side is not finite at t0, so steps start {start:.2g} behind it")
                    current = _Pass(problem, options, share, start)
                    current.run(report, math.inf if last else _HOPELESS, speed)
            nfev, njev = nfev + current.system.nfev, njev + current.system.njev
            if last or not current.success or current.ratio <= 1.0 or current.jump is not None:
                break
            notes.append(f"pass {number}: the global error was {current.ratio:.2g} times the tolerance")
            share *= min(max(0.5 / current.ratio, 0.02), 0.7)
    if current.success and control == "global" and current.ratio > TOLERATED:
        current.success, current.message = False, inaccurate(current.ratio, options.rtol, current.jump)
    stats = {"passes": number, "seconds": time.perf_counter() - started, "compile_seconds": speed.compile_seconds}
    result = current.result(stats, [*notes, *speed.notes], (name, reason, "exponentials", speed.compiled))
    result.nfev, result.njev = nfev, njev
    return result
