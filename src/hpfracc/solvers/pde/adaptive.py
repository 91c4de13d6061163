"""Refinement of the mesh in time until two solutions agree; on uniform meshes the start is refined separately."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np

from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.pde.driver import FIRST_STEPS, MIN_ORDER, Run, check_memory, max_absolute, run_mesh
from hpfracc.solvers.pde.method import EvolutionMethod
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.recording import FrameRecorder, Save, frames_kept

__all__ = ["run_adaptive"]

Array = np.ndarray[Any, Any]

#: Largest number of doublings from one mesh to the next.
_MAX_AT_ONCE = 3
#: Doublings after a failed run, and the relative change of the failure time below which more steps do not help.
_AFTER_FAILURE = 2
_SAME_TIME = 0.1
#: Nested intervals in which the start of a uniform mesh is solved: by default, and at most if ``t_eval`` needs more.
_SHORTER, _SHORTER_ASKED = 2, 8


def run_adaptive(
    problem: EvolutionProblem, method: EvolutionMethod, options: Options, save: Save, args: tuple[Any, ...]
) -> tuple[Run, float, float]:
    """Refine the whole mesh until the error in time is within the tolerance.

    Two solutions are compared at the times of the first mesh. The error of the finer one is estimated from their
    difference with the order of the method, or the observed order if that is lower. Returns the run, its estimated
    error, and the largest ratio of the error to the tolerance.

    On a uniform mesh a formula with memory is less accurate before the first of these times, i.e. in the first 32nd of
    the interval. If output is needed there, that 32nd is solved first, as an interval of its own with the same initial
    data, and then a 32nd of that, until the solution changes by less than the tolerance before the first time. The
    saved frames are joined.
    """
    length = problem.t1 - problem.t0
    count = _shorter_intervals(problem, method, options, save)
    earlier: FrameRecorder | None = None
    error, ratio, spent = 0.0, 0.0, 0
    for level in range(count, -1, -1):
        # Level 0 is the problem itself, with its exact end.
        part = problem
        if level:
            part = dataclasses.replace(problem, t1=problem.t0 + length / FIRST_STEPS**level)
        run, own_error, own_ratio = _refine(part, method, options, save, args, earlier, starts=count > 0)
        error, ratio = _larger(error, own_error), _larger(ratio, own_ratio)
        if not run.success or run.recorder.ended is not None:
            break
        if level:
            spent += run.steps
            problem.stats["start_steps"] = spent
            earlier = run.recorder
    if count:
        first = problem.t0 + length / FIRST_STEPS ** (count + 1)
        problem.notes.append(
            f"the start was solved {count} more time{'s' if count > 1 else ''}, each on a {FIRST_STEPS}nd of the "
            "interval before, because the first steps of a uniform mesh are less accurate. The tolerance holds from t "
            f"= {first:g} on, the first saved time"
        )
    return run, error, ratio


def _larger(one: float, other: float) -> float:
    """The larger number; nan if either is nan."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _shorter_intervals(problem: EvolutionProblem, method: EvolutionMethod, options: Options, save: Save) -> int:
    """How many nested intervals are solved for the start."""
    mesh = method.mesh(problem, FIRST_STEPS)
    uniform = np.ptp(np.diff(mesh)) <= 1e-9 * (mesh[-1] - mesh[0])
    if not uniform or method.history(problem, FIRST_STEPS) == "none":
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
    allowed = options.atol + options.rtol * max_absolute(problem, problem.u0)
    for count in range(_SHORTER):
        first = length / FIRST_STEPS ** (count + 1)
        part = dataclasses.replace(problem, t1=problem.t0 + first, stats={}, notes=[])
        plain = dataclasses.replace(options, t_eval=None, events=(), dense_output=False, progress=False)
        run = run_mesh(part, method, plain, "last", np.array([part.t0, part.t1]), ())
        if run.success and max_absolute(problem, run.recorder.newest[1] - problem.u0) <= allowed:
            return count
    return _SHORTER


def _refine(
    problem: EvolutionProblem,
    method: EvolutionMethod,
    options: Options,
    save: Save,
    args: tuple[Any, ...],
    earlier: FrameRecorder | None,
    *,
    starts: bool,
) -> tuple[Run, float, float]:
    """Refine one interval. If ``starts`` or ``earlier`` is given, frames before its first sample time are dropped."""
    steps = FIRST_STEPS
    previous = _attempt(problem, method, options, save, args, steps, earlier, starts)
    order = method.convergence(problem)
    spent = problem.stats.get("steps_in_all", 0) + previous.steps
    while not previous.success and not previous.interrupted and steps << _AFTER_FAILURE <= options.max_steps:
        # The steps may be too long for the explicit part. If the solution blows up, it does so at the same time again.
        reached = previous.recorder.newest[0] - problem.t0
        steps <<= _AFTER_FAILURE
        previous = _attempt(problem, method, options, save, args, steps, earlier, starts)
        spent += previous.steps
        problem.stats["steps_in_all"] = spent
        now = previous.recorder.newest[0] - problem.t0
        if not previous.success and abs(now - reached) <= _SAME_TIME * now:
            break
    error, ratio, seen = math.nan, math.nan, order
    if not previous.success or previous.recorder.ended is not None:
        return previous, error, ratio
    first = method.mesh(problem, FIRST_STEPS)
    last_gap, last_jump, jump = math.nan, 0, 1
    while True:
        while jump > 1 and steps << jump > options.max_steps:
            jump -= 1
        finer = steps << jump
        if finer > options.max_steps:
            previous.success = False
            told = "" if math.isnan(ratio) else f", with an error of {ratio:.2g} times the tolerance"
            previous.message = (
                f"Stopped at {steps:,} steps{told}: more than max_steps={options.max_steps:,} would be needed. Give a "
                "larger max_steps, a larger tolerance, or a method of higher order."
            )
            return previous, error, ratio
        run = _attempt(problem, method, options, save, args, finer, earlier, starts)
        spent += run.steps
        problem.stats["steps_in_all"] = spent
        if not run.success:
            return run, error, ratio
        gap = [max_absolute(problem, a - b) for a, b in zip(run.samples, previous.samples, strict=False)]
        sizes = _sizes(problem, run.samples, first)
        biggest = max(gap)
        if last_jump and biggest > 0.0 and last_gap > 0.0:
            seen = min(order, max(MIN_ORDER, math.log2(last_gap / biggest) / last_jump))
        share = 1.0 / (2.0 ** (seen * jump) - 1.0)
        error = biggest * share
        ratio = max(
            (one * share / (options.atol + options.rtol * size) for one, size in zip(gap, sizes, strict=False)),
            default=0.0,
        )
        if ratio <= 1.0 or run.recorder.ended is not None:
            return run, error, ratio
        previous, steps = run, finer
        last_gap, last_jump = biggest, jump
        jump = min(_MAX_AT_ONCE, max(1, math.ceil(math.log2(ratio) / seen)))


def _attempt(
    problem: EvolutionProblem,
    method: EvolutionMethod,
    options: Options,
    save: Save,
    args: tuple[Any, ...],
    steps: int,
    earlier: FrameRecorder | None,
    starts: bool,
) -> Run:
    frame = problem.itemsize * math.prod(problem.state_shape)
    kept = 0 if earlier is None or callable(save) else len(earlier.times)
    # Joining the frames of the start with the others needs a second copy of them.
    joined = kept + frames_kept(options, save, steps) if kept and problem.xp.library == "numpy" else 0
    need = check_memory(problem, method, options, save, steps, held=(kept + joined) * frame)
    problem.stats["forecast_bytes"] = need
    begin = -math.inf
    if starts:
        begin = problem.t0 + (problem.t1 - problem.t0) * (1.0 / FIRST_STEPS - 0.5 / steps)
    started = time.perf_counter()
    mesh = method.mesh(problem, steps)
    run = run_mesh(problem, method, options, save, mesh, args, steps // FIRST_STEPS, begin, earlier)
    problem.stats["last_run_seconds"] = time.perf_counter() - started
    return run


def _sizes(problem: EvolutionProblem, samples: list[Any], times: Array) -> list[float]:
    """The largest ``|u(s)| (s - t0) / (t - t0)`` over earlier times s, the scale of the relative error at each time."""
    found, most = [], 0.0
    for u, t in zip(samples, times, strict=False):
        gone = float(t - problem.t0)
        size = max_absolute(problem, u)
        most = max(most, size * gone)
        found.append(size if gone == 0.0 else most / gone)
    return found
