"""A whole adaptive solve: passes until the estimated error is below the tolerance, the result and its ``sol(t)``."""

from __future__ import annotations

import bisect
import functools
import math
import time
from typing import Any

import numpy as np

from hpfracc.history.states import ExponentialMemory
from hpfracc.solvers.ode.adaptive.system import OrdinarySystem
from hpfracc.solvers.ode.compilation import AdaptiveSwitch
from hpfracc.solvers.ode.fixed.grid import initial_part, times_within
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult, SolveDecision, finish, later_times
from hpfracc.solvers.ode.singular import GrowthError, read_growth, source_start
from hpfracc.solvers.stepping.events import Report, progress_report
from hpfracc.solvers.stepping.options import MAX_STEPS, Options
from hpfracc.solvers.stepping.solution import PieceStore
from hpfracc.solvers.stepping.step import AdaptiveStep
from hpfracc.solvers.stepping.walk import MAX_PASSES, TOLERATED, AdaptiveWalk, find_stops, inaccurate, run_passes

Array = np.ndarray[Any, Any]

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


class AdaptiveSolution(PieceStore):
    r"""The solution at any time, of shape (..., d) + t.shape.

    The right-hand side is a polynomial on each step; its fractional integral is exact over the steps before t
    and uses the sum of exponentials for older ones. So it behaves like :math:`t^\alpha` at the start, and agrees with
    the steps. Memory is O(steps).
    """

    _system: OrdinarySystem

    def __init__(self, system: OrdinarySystem) -> None:
        super().__init__(system)
        self.t_min = system.problem.t0
        #: The time of a terminal event.
        self.end: float | None = None

    @property
    def t_max(self) -> float:
        """The last time."""
        if self.end is not None:
            return self.end
        return float(self._system.time(self.rights[-1])) if self.rights else self.t_min

    def __call__(self, t: Any) -> Array:
        """The solution at ``t``."""
        times = times_within(t, self.t_min, self.t_max)
        flat = self.flat(np.clip(times.reshape(-1) - self.t_min, 0.0, None))
        return flat.T.reshape(*self._system.shape, *times.shape)

    def flat(self, elapsed: Array) -> Array:
        """Flat states, shape (len(elapsed), n), at times after t0."""
        tau = elapsed - self._system.offset
        result = np.empty((tau.size, self._system.size), self._system.dtype)
        early = tau < 0.0  # only the initial part
        if early.any():
            result[early] = initial_part(self._system.problem, elapsed[early]).T
        tau = np.minimum(tau, self.rights[-1] if self.rights else 0.0)
        indices = np.searchsorted(self.rights, tau)
        for index in np.unique(indices[~early]):
            which = (indices == index) & ~early
            result[which] = self.continuation(int(index))(tau[which]) if self.rights else self._system.start(0.0)
        return result


class _Pass(AdaptiveWalk):
    """One pass over the interval with a fixed fraction of the tolerance for each step, in the time of its system."""

    def __init__(
        self, problem: Problem, options: Options, share: float, start: float, speed: AdaptiveSwitch, report: Report
    ) -> None:
        wanted = None if options.t_eval is None else options.t_eval - problem.t0 - start
        super().__init__(options, problem.t1, problem.args, wanted)
        self.system = OrdinarySystem(problem, start)
        self.problem, self._share, self._speed, self._report = problem, share, speed, report
        self.longest = min(problem.delays, default=math.inf)
        self.length = problem.t1 - problem.t0 - start
        self._breaks = [t - problem.t0 - start for t in options.breakpoints]
        self.stops = find_stops(self._breaks, problem.delays, self.length)
        stored = options.dense_output or bool(problem.delays)
        self.solution = AdaptiveSolution(self.system) if stored else None
        self._errors: list[Array] = []
        self.point = 0.0, self.system.start(0.0).astype(self.system.dtype)
        if problem.delays:
            assert self.solution is not None
            self.system.past, self.system.past_error = self.solution.state, self._error_then
        self.largest_error = 0.0
        self._fades = starts_infinite(problem)
        # Steps so short that the end cannot be reached: steps and time at the last look, and the mean step before.
        self._window = _CRAWL_WINDOW // (4 if problem.delays else 1)
        self._crawled, self._pace, self._length = (0, 0.0), 0.0, math.inf
        self._size = self._first = max(float(np.abs(problem.y0).max()), float(np.min(options.atol)) / options.rtol)

    def reached(self) -> float:
        """The time of the newest step."""
        return self.time(0.0 if self.step is None else self.step.tau)

    def time(self, t: float) -> float:
        """The time that the right-hand side receives."""
        return self.system.time(t)

    def shown(self, state: Array) -> Array:
        """In the shape of the state."""
        return state.reshape(self.problem.shape)

    def between(self, times: Array) -> Any:
        """The flat states within the newest step."""
        assert self.step is not None
        piece = self.step.pieces[-1]
        return self.step.continuation()(np.clip(times, piece.left, piece.right))

    def explain(self, failure: str) -> str:
        """The solution may have blown up."""
        assert self.step is not None
        step, size = self.step, float(np.abs(self.step.y).max())
        if self._length > _SHRUNK * step.tau or not size > _BLOW_UP * self._first:
            return failure
        return blow_up(self.reached(), size)

    def begin(self) -> AdaptiveStep:
        """Record the values before the first step, and make the steps."""
        problem, options, early = self.problem, self.options, np.zeros(1)
        if self.wanted is not None:
            assert options.t_eval is not None
            self.next = int(np.searchsorted(self.wanted, 0.0, side="right"))
            early = np.clip(options.t_eval[: self.next] - problem.t0, 0.0, None)
        self.times.extend((early - self.system.offset).tolist())
        self.kept.extend(initial_part(problem, early).T)
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
            later = bisect.bisect_left(self._breaks, stop)
            first = ends[later - 1] if later else self.problem.t0
            last = math.nextafter(ends[later], -math.inf) if later < len(ends) else self.problem.t1
            self.system.segment = first, last

    def _error_then(self, then: float) -> Array:
        """The estimated error at a past time: that of the step that contains it."""
        if self.solution is None or not self._errors:
            return np.zeros(self.system.size)
        return self._errors[min(bisect.bisect_left(self.solution.rights, then), len(self._errors) - 1)]

    def note(self, step: AdaptiveStep) -> bool:
        """Record the requested values of the newest step; returns whether to continue."""
        size, wanted, tau, before = step.size, self.wanted, step.tau, self.point
        asked = wanted is not None and self.next < wanted.size and wanted[self.next] < tau
        if asked or self.solution is not None:
            size = float(np.maximum(size, (np.abs(step.error) + step.inside).max()))  # nan stays
        if self._fades:  # where y starts like t^(alpha-1), the error counts as falling to 0 like t^(1-alpha)
            share = (tau + self.system.offset) / (self.problem.t1 - self.problem.t0)
            size *= float(min(share, 1.0) ** (1.0 - step.least))
        if size > self.largest_error or math.isnan(size):
            self.largest_error = size
        if self.problem.delays:
            self._errors.append(step.error)
        if self.solution is not None:
            self.solution.add(step.pieces[-1], step.snapshots[-1])
        assert before is not None
        self._length, goes_on = tau - before[0], True
        if self._length > 0.0:
            goes_on = self.record(tau, step.y, last=tau >= step.length)
        elif wanted is None:  # behind a jump, times may not tell steps apart
            self.kept[-1] = step.y
        if self.options.progress:
            self._report(self.reached() if self.ended is None else self.ended, lambda: self.shown(step.y))
        if step.accepted % _EVERY == 0:
            self._speed.look(step)
        crawls = goes_on and step.accepted + step.rejected >= self._crawled[0] + self._window
        if crawls and (why := self._crawls(step)) is not None:
            return self.fail(why)
        return goes_on

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

    def result(self, stats: dict[str, Any], notes: list[str], decision: tuple[str, str, str, bool]) -> FODEResult:
        """The result of this pass; evaluations are left to the caller, who knows those of all passes."""
        problem, options, step = self.problem, self.options, self.step
        stats |= dict.fromkeys(("steps", "rejected", "exponentials", "switches"), 0)
        stats["error_over_tolerance"] = math.nan if step is None else step.ratio
        if step is not None:
            stats |= {"steps": step.accepted, "rejected": step.rejected, "switches": step.system.switches}
            stats["exponentials"] = max(memory.states.shape[1] for memory in step.memories)
        if stats["switches"]:
            notes.append(f"{stats['switches']} switches between iteration and Newton's method")
        known = min(len(self.times), len(self.kept))  # an interrupt may occur between the two
        states = np.array(self.kept[:known], self.system.dtype).reshape(known, self.system.size)
        times = problem.t0 + (np.array(self.times[:known]) + self.system.offset)
        if options.t_eval is not None:
            times = options.t_eval[: times.size]
        else:
            if step is not None and known and self.times[known - 1] == step.length:
                times[-1] = problem.t1  # exactly, which t0 + (t1 - t0) may not be
            kept = later_times(times)
            times, states = times[kept], states[kept]
        if self.solution is not None:
            self.solution.end = self.ended
        y, chosen = states.T.reshape(*problem.shape, -1), SolveDecision(*decision, tuple(notes))
        found = finish(self, problem, times, y, stats, chosen, self.solution)
        found.error_estimate = self.largest_error
        return found


def beginning(problem: Problem, options: Options) -> float:
    """Time after t0 at which stepping starts: 0, or later if the solution is infinite at t0.

    Before that time the contribution of the right-hand side is below a thousandth of the tolerance.
    """
    if not starts_infinite(problem):
        return 0.0
    size = float(np.abs(problem.y0).max())
    return min(read_growth(problem).negligible(1e-3 * options.rtol, size), 1e-6 * (problem.t1 - problem.t0))


def solve_adaptive(problem: Problem, options: Options, *, name: str, reason: str, control: str) -> FODEResult:
    """Solve with adaptive steps; with ``control="global"`` repeatedly, until the global error is small enough."""
    started, notes, systems = time.perf_counter(), list[str](), list[OrdinarySystem]()
    speed, start = AdaptiveSwitch(problem, options), beginning(problem, options)

    def attempt(share: float, most_ratio: float) -> _Pass:
        nonlocal start
        current = _Pass(problem, options, share, start, speed, report)
        current.run(most_ratio)
        systems.append(current.system)
        if current.step is None and not (start or current.interrupted or problem.delays):
            try:
                start = source_start(problem, options)
            except GrowthError as error:
                current.message = f"{str(error).capitalize()}."
            else:
                notes.append(f"the right-hand side is not finite at t0, so steps start {start:.2g} behind it")
                return attempt(share, most_ratio)
        return current

    with progress_report(options.progress, problem.t0, problem.t1, name) as report:
        current, number = run_passes(attempt, notes, most=MAX_PASSES if control == "global" else 1)
    step = current.step
    if current.success and control == "global" and step is not None and step.ratio > TOLERATED:
        jump = None if step.jumped is None else current.time(step.jumped)
        current.fail(inaccurate(step.ratio, options.rtol, jump))
    stats = {"passes": number, "seconds": time.perf_counter() - started, "compile_seconds": speed.compile_seconds}
    result = current.result(stats, [*notes, *speed.notes], (name, reason, "exponentials", speed.compiled))
    result.nfev, result.njev = sum(each.nfev for each in systems), sum(each.njev for each in systems)
    return result
