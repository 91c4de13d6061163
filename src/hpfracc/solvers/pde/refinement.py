"""Refinement of the mesh in time until two solutions agree; on uniform meshes the start is refined separately."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from typing import Any

import numpy as np

from hpfracc.solvers.pde.changes import MOST_BREAKS, TimeData, breaks_of, mesh_breaks, note_jumps
from hpfracc.solvers.pde.driver import (
    FIRST_STEPS,
    StepProgress,
    check_memory,
    last_frame,
    run_mesh,
    sample_steps,
    seen_order,
    starts_badly,
)
from hpfracc.solvers.pde.grid_error import estimate_grid_error
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.recording import Run, frames_kept

Array = np.ndarray[Any, Any]

#: Largest number of doublings from one mesh to the next.
_MAX_AT_ONCE = 3
#: Doublings after a failed run, and the relative change of the failure time below which more steps do not help.
_AFTER_FAILURE = 2
_SAME_TIME = 0.1
#: Growth of the largest value over that of u0 that counts as a blow-up, and the relative change of its time that is
#: small enough.
_GROWS, _SHARP = 2.0, 0.03
#: Order that is assumed as long as only two solutions have been compared.
_UNSEEN = 1.0
#: The error in time need not fall below this share of the error of the grid, which is estimated once two solutions
#: agree to ``_CLOSE`` of their largest value; errors in time of up to ``_LOOSEST`` of it are accepted so.
GRID_SHARE, _CLOSE, _LOOSEST = 0.1, 0.1, 1e-2
#: Nested intervals in which the start of a uniform mesh is solved: by default, and at most if ``t_eval`` needs more.
_SHORTER, _SHORTER_ASKED = 2, 8


def run_refined(question: Question, data: TimeData, progress: StepProgress) -> tuple[Run, float, float]:
    """Refine the whole mesh until the error in time is within the tolerance.

    Two solutions are compared at the times of the first mesh, and after 1, 2, 4, ... steps of the coarser one before
    the first of these. The error of the finer one is estimated from their difference with the order of the method, or
    the observed order if that is lower. Steps of methods that can do so end where the data jump, and the mesh is graded
    anew behind. With ``estimate="auto"`` a tenth of the estimated error of the grid is enough. Returns the run, its
    estimated error, and the largest ratio of the error to the tolerance.

    On a uniform mesh a formula with memory is less accurate before the first of these times, i.e. in the first 32nd of
    the interval. If output is needed there, that 32nd is solved first, as an interval of its own with the same initial
    data, and then a 32nd of that, until the solution changes by less than the tolerance before the first time. The
    saved frames are joined.
    """
    problem, method, options, *_ = question
    length = problem.t1 - problem.t0
    if data.power < 0.0 and not (problem.singular is not None and method.meets_powers):
        problem.start_power = (problem.start_power or problem.alpha_value) + data.power
        if problem.integrated is not None:
            problem.start_power = min(problem.alpha_value, 1.0 + data.power)
    if method.meets_breaks:
        breaks = breaks_of(data, problem, options.breakpoints)
        breaks = breaks if len(breaks) <= MOST_BREAKS else options.breakpoints
        problem.breaks = mesh_breaks(breaks, problem)
    note_jumps(data, problem)
    count = _shorter_intervals(question)
    earlier: Run | None = None
    error, ratio, spent = 0.0, 0.0, 0
    for level in range(count, -1, -1):
        # Level 0 is the problem itself, with its exact end.
        part = question
        if level:
            end = problem.t0 + length / FIRST_STEPS**level
            part = question._replace(problem=dataclasses.replace(problem, t1=end))
        refinement = _Refinement(part, earlier, data, progress, starts=count > 0)
        run, own_error, own_ratio = refinement.refine()
        error, ratio = float(np.maximum(error, own_error)), float(np.maximum(ratio, own_ratio))  # nan if one is
        if not run.success or run.ended is not None:
            break
        if level:
            spent += run.steps
            problem.stats["start_steps"] = spent
            earlier = run
    if count:
        first = problem.t0 + length / FIRST_STEPS ** (count + 1)
        problem.notes.append(
            f"the start was solved {count} more time{'s' if count > 1 else ''}, each on a {FIRST_STEPS}nd of the "
            "interval before, because the first steps of a uniform mesh are less accurate. The tolerance holds from t "
            f"= {first:g} on, the first saved time"
        )
    if refinement.loose:
        problem.notes.append(
            f"the error of the grid is about {refinement.grid_error:.2g}, so the steps were refined until that in time "
            f"was below {GRID_SHARE:g} of it, and not to rtol = {options.rtol:g}; estimate=True refines to rtol"
        )
    if not run.success and data.jumps and not problem.breaks:
        run.message += (
            f" The data jump near t = {data.jumps[0]:g}, where all methods but L1 and L2-1sigma have a low order: use "
            "one of those, or solve up to the jump and after it separately."
        )
    return run, error, ratio


def _shorter_intervals(question: Question) -> int:
    """How many nested intervals are solved for the start."""
    problem, _, options, save, *_ = question
    if not starts_badly(question):
        return 0
    length = problem.t1 - problem.t0
    everything = bool(options.events) or options.dense_output
    if not everything and options.t_eval is not None:
        after = options.t_eval[options.t_eval > problem.t0] - problem.t0
        if not after.size:
            return 0
        needed = math.log(length / float(after.min()), FIRST_STEPS) - 1.0
        return min(_SHORTER_ASKED, max(0, math.ceil(needed - 1e-9)))
    if not everything and save == "last":
        return 0
    allowed = options.atol + options.rtol * problem.largest(problem.u0)
    for count in range(_SHORTER):
        first = length / FIRST_STEPS ** (count + 1)
        part = dataclasses.replace(problem, t1=problem.t0 + first, stats=defaultdict(int), notes=[])
        run = run_mesh(last_frame(question)._replace(problem=part), np.array([part.t0, part.t1]))
        if run.success and problem.largest(run.newest[1] - problem.u0) <= allowed:
            return count
    return _SHORTER


class _Refinement:
    """Refinement of one interval. If ``starts`` or ``earlier``, frames before its first sample time are dropped."""

    def __init__(
        self,
        question: Question,
        earlier: Run | None,
        data: TimeData,
        progress: StepProgress,
        *,
        starts: bool,
    ) -> None:
        self.question = question
        self.problem, self.method, self.options, *_ = question
        self.earlier, self.data, self.progress, self.starts = earlier, data, progress, starts
        self.pieces = 1 + len(self.problem.breaks)
        #: Steps of the first mesh, at whose times solutions are compared.
        self.first = FIRST_STEPS * self.pieces
        self.output = _first_output(question)
        #: The estimated error of the grid at the end, nan before it is known; the tolerance that it allows, relative to
        #: the largest value at the end; and that value.
        self.grid_error, self.loose, self.size = math.nan, 0.0, math.inf

    def refine(self) -> tuple[Run, float, float]:
        """The run that meets the tolerance, or the last one; its error, and the ratio of the error to the tolerance."""
        problem, options = self.problem, self.options
        order = self.method.convergence(problem)
        steps = self.first
        while float(np.diff(self.method.mesh(problem, steps)).max()) > options.max_step and steps < options.max_steps:
            steps *= 2
        previous, steps = self._start(steps)
        error = ratio = math.nan
        if not previous.success:
            return previous, error, ratio
        last: tuple[float, float] | None = None
        jump = 1
        while True:
            while jump > 1 and steps << jump > options.max_steps:
                jump -= 1
            finer = steps << jump
            if finer > options.max_steps:
                previous.success = False
                told = "" if math.isnan(ratio) else f", with an error of {ratio:.2g} times the tolerance"
                previous.message = (
                    f"Stopped at {steps:,} steps{told}: more than max_steps={options.max_steps:,} would be needed. "
                    "Give a larger max_steps, a larger tolerance, or a method of higher order."
                )
                return previous, error, ratio
            run = self._attempt(finer)
            if not run.success:  # what the solutions before it differ by says nothing about this one
                problem.notes.append("the error in time has no estimate: the solve stopped early")
                return run, math.nan, math.nan
            gaps = self._gaps(run, previous, steps, jump)
            biggest = max(float(gap.max()) for _, gap, _ in gaps)
            factor = 2.0**jump
            seen = min(order, _UNSEEN) if last is None else seen_order([biggest, last[0]], (factor, last[1]), order)
            share = 1.0 / (factor**seen - 1.0)
            error, ratio = biggest * share, share * self._ratio(gaps, run, previous)
            if ratio > 1.0 and self._accepts_grid_error(run, error):
                ratio = share * self._ratio(gaps, run, previous)
            run.errors = self._joined(gaps, share)
            if ratio <= 1.0:
                unseen = self.data.defect(problem, self.method.mesh(problem, finer))
                run.errors = self._joined(gaps, share, unseen)
                error, ratio = max(error, unseen), max(ratio, unseen / max(self._allowed(size) for *_, size in gaps))
            if ratio <= 1.0:
                return run, error, ratio
            if last is None:  # The next mesh is chosen with the order of the method: it will show whether that holds.
                seen, needed = order, ratio / (share * (factor**order - 1.0))
            else:
                needed = ratio
            previous, steps, last = run, finer, (biggest, factor)
            wanted = math.log2(needed) / seen if 1.0 < needed < math.inf else 1.0
            jump = min(_MAX_AT_ONCE, max(1, math.ceil(wanted)))
            self.progress.expect((steps << jump) * (2 if wanted > jump else 1))

    def _start(self, steps: int) -> tuple[Run, int]:
        """The first run that reaches the end, and its steps."""
        problem = self.problem
        self.progress.expect(7 * steps)
        run = self._attempt(steps)
        while not (run.success or self.options.clock.late) and steps << _AFTER_FAILURE <= self.options.max_steps:
            # The steps may be too long for the explicit part. If the solution blows up, it does so at the same time
            # again, and grows further on a finer mesh.
            reached, largest = self._reached(run)
            steps <<= _AFTER_FAILURE
            run = self._attempt(steps)
            now, grown = self._reached(run)
            change = abs(now - reached)
            if run.success or change > _SAME_TIME * now:
                continue
            before = problem.largest(problem.u0)
            if min(largest, grown) > _GROWS * before and not run.blames_data:
                if change > _SHARP * now and steps << _AFTER_FAILURE <= self.options.max_steps:
                    continue  # for the digits of the time
                run.message = (
                    f"The solution blows up near t = {problem.t0 + now:.3g}: with {steps >> _AFTER_FAILURE:,} and "
                    f"{steps:,} steps over the interval it ends there, and its largest value grows from {before:.3g} "
                    f"to {min(largest, grown):.3g} and more. This is the solution up to there."
                )
            break
        return run, steps

    def _reached(self, run: Run) -> tuple[float, float]:
        """The time that a run has reached, and the largest value there."""
        t, u = run.newest
        return t - self.problem.t0, self.problem.largest(u)

    def _accepts_grid_error(self, run: Run, error: float) -> bool:
        """Relax the tolerance to a share of the error of the grid, if that is wanted, known and larger."""
        t, u = run.newest
        size = self.problem.largest(u)
        if self.options.estimate != "auto" or not math.isnan(self.grid_error) or error > _CLOSE * size:
            return False
        found, why = estimate_grid_error(self.problem, self.method, t, u, run.steps, "auto")
        self.grid_error = 0.0 if why else found
        loose = min(GRID_SHARE * self.grid_error / size, _LOOSEST) if size else 0.0
        if loose > self.options.rtol:
            self.loose, self.size = loose, size
        return self.loose > 0.0

    def _allowed(self, size: float) -> float:
        """The tolerance at a time at which the scale of the relative error is ``size``."""
        plain = float(self.options.atol + self.options.rtol * size)
        return max(plain, self.loose * min(size, self.size)) if self.loose else plain

    def _joined(
        self, gaps: list[tuple[float, Array, float]], share: float, unseen: float = 0.0
    ) -> list[tuple[float, Any]]:
        """The errors at the times of the comparison, behind those of an earlier run."""
        before = [] if self.earlier is None else self.earlier.errors
        return [*before, *((t, np.maximum(share * gap, unseen)) for t, gap, _ in gaps)]

    def _ratio(self, gaps: list[tuple[float, Array, float]], run: Run, previous: Run) -> float:
        """The largest ratio of a difference between two runs to the tolerance, times of terminal events included."""
        ratio = max(float(gap.max()) / self._allowed(size) for _, gap, size in gaps)
        one, other = run.ended, previous.ended
        if one is None and other is None:
            return ratio
        if one is None or other is None:  # only one run has ended so
            return math.inf
        allowed = max(self.options.rtol, self.loose) * (one - self.problem.t0) + 4.0 * float(np.spacing(abs(one)))
        return max(ratio, abs(one - other) / allowed)

    def _gaps(self, run: Run, previous: Run, steps: int, jump: int) -> list[tuple[float, Array, float]]:
        """The times that are compared, the differences of each component there, and the scale of the relative error.

        The scale at a time t of the first mesh is the largest ``|u(s)| (s - t0) / (t - t0)`` over times s up to t;
        before the first one and behind a jump it is the largest ``|u|`` of all.
        """
        problem = self.problem
        times = self.method.mesh(problem, steps)
        regular = steps // self.first
        found: list[tuple[float, Array, float | None]] = []
        most = largest = 0.0
        for j in sorted(previous.samples):
            if j << jump not in run.samples:
                continue
            u = run.samples[j << jump]
            gap, size = problem.largest_each(u - previous.samples[j]), problem.largest(u)
            gone = float(times[j] - problem.t0)
            largest, most = max(largest, size), max(most, size * gone)
            if j % regular == 0:
                found.append((float(times[j]), gap, most / gone))
            elif times[j] >= self.output:
                found.append((float(times[j]), gap, None))
        ends = run.end_frame, previous.end_frame
        if ends[0] is not None and ends[1] is not None:
            found.append((float(run.ended or 0.0), problem.largest_each(ends[0] - ends[1]), problem.largest(ends[0])))
        return [(t, gap, largest if scale is None else scale) for t, gap, scale in found] or [
            (problem.t0, np.zeros(()), problem.largest(problem.u0))
        ]

    def _attempt(self, steps: int) -> Run:
        problem, method, options, save, *_ = self.question
        earlier = self.earlier
        frame = problem.itemsize * math.prod(problem.state_shape)
        kept = 0 if earlier is None or callable(save) else len(earlier.times)
        # Joining the frames of the start with the others needs a second copy of them.
        joined = kept + frames_kept(options, save, steps) if kept and problem.xp.library == "numpy" else 0
        problem.stats["forecast_bytes"] = check_memory(self.question, steps, held=(kept + joined) * frame)
        begin = -math.inf
        if self.starts:
            begin = problem.t0 + (problem.t1 - problem.t0) * (1.0 / FIRST_STEPS - 0.5 / steps)
        started = time.perf_counter()
        marks = sample_steps(steps, steps // self.first, self.pieces, early=not self.starts)
        mesh = method.mesh(problem, steps)
        run = run_mesh(self.question, mesh, marks, begin, earlier, progress=self.progress)
        problem.stats["last_run_seconds"] = time.perf_counter() - started
        problem.stats["steps_in_all"] += run.steps
        return run


def _first_output(question: Question) -> float:
    """The earliest time after t0 at which the solution is returned or looked at."""
    problem, _, options, save, *_ = question
    if options.events or options.dense_output:
        return problem.t0
    if options.t_eval is not None:
        after = options.t_eval[options.t_eval > problem.t0]
        return float(after.min()) if after.size else problem.t1
    return problem.t1 if save == "last" else problem.t0
