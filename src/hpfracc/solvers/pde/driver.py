"""Runs a method over a mesh and estimates its error from coarser meshes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, is_tracer
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.errors import OutOfMemoryError
from hpfracc.solvers.pde.changes import scan_data
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.problem import EvolutionProblem, FrameBlock
from hpfracc.solvers.pde.recording import Run, frames_kept
from hpfracc.solvers.stepping.events import Report
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

#: Steps of the first solution; solutions are compared at its times.
FIRST_STEPS = 32
#: Ratios of the steps to those of the finer comparison mesh, best first; and the fewest steps of the coarsest mesh.
_RATIOS = (8, 6, 5, 7, 4)
_COARSEST = (6, 4)
#: Number of comparison times, the lowest order that is assumed, and the fewest steps estimated by ``estimate="auto"``.
_SAMPLES = 8
MIN_ORDER = 0.25
_UNASKED = 32
#: Steps at the start of a uniform mesh after which the solution is compared with one of steps this much shorter.
_START, _FINER = np.array([1, 2, 4]), 8
#: Output times of a method without an error in time if neither a step nor times are given.
_OUTPUTS = 100
#: Share of the rest that a pass of adaptive steps is shown as; more may follow.
_PASS = 0.9
#: Forecasts below this are not checked against free memory.
_NEGLIGIBLE = 16 * 2**20


def forecast_memory(question: Question, steps: int) -> tuple[int, int]:
    """Bytes at the peak of a run, and the part of them that saved frames take."""
    problem, method, options, save, *_ = question
    frame = problem.itemsize * math.prod(axis.size for axis in problem.space.grid) * (problem.components or 1)
    # Tensors are kept one by one and joined at the end.
    saved = (1 if problem.xp.library == "numpy" else 2) * frames_kept(options, save, steps) * frame
    if options.dense_output:
        saved += 2 * (steps + 1) * frame
    size = problem.itemsize * math.prod(problem.state_shape)
    need = method.forecast(problem, steps)
    if options.step is None and not (method.exact or method.chooses_steps):
        # The sampled states of two runs, and the frames saved by the previous run.
        need += 2 * (FIRST_STEPS + steps.bit_length()) * size + saved // 2
    elif _estimates(question, steps):
        ratio, marks = _sampling(steps)
        samples = size * (1 + len(marks[0]))
        need = max(need + samples, method.forecast(problem, max(1, steps // (ratio or 4))) + 3 * samples)
    return int(need + saved), saved


def _estimates(question: Question, steps: int) -> bool:
    """Whether the error of a solution with given steps is estimated."""
    problem, method, options, *_ = question
    chosen = options.estimate
    if chosen == "auto":
        chosen = problem.xp.library == "numpy" and steps >= _UNASKED and not method.compiled(problem, steps)
    return bool(chosen) and not method.exact and steps >= 2 * _COARSEST[1] and not is_tracer(problem.u0)


def check_memory(question: Question, steps: int, held: int = 0) -> int:
    """The forecast in bytes, including ``held`` bytes of other frames; raises if it does not fit into free memory."""
    problem = question.problem
    need, saved = (part + held for part in forecast_memory(question, steps))
    if need < _NEGLIGIBLE:
        return need
    device = device_of(problem.u0)
    free = get_budget().read(HOST) if device == HOST else get_budget().read(device, problem.xp.library)
    if free is not None and need > free:
        raise OutOfMemoryError(
            f"solve_fpde: {steps:,} steps of {math.prod(problem.state_shape):,} unknowns need about {_mib(need)} ("
            f"{_mib(saved)} of it for saved frames), and {_mib(free)} are free on {device}; save every "
            "k-th step (save=k), a functional (save=function) or the last frame (save='last'), take fewer steps or a "
            "coarser grid, or a method with memory='exponentials'"
        )
    return need


def exact_mesh(problem: EvolutionProblem, options: Options) -> Array:
    """The times at which a method without an error in time computes values."""
    if options.t_eval is not None:
        return np.unique(np.concatenate([[problem.t0], options.t_eval, [problem.t1]]))
    count = _OUTPUTS if options.step is None else given_steps(problem, options)
    count = max(count, math.ceil((problem.t1 - problem.t0) / options.max_step))
    return np.linspace(problem.t0, problem.t1, count + 1)


def given_steps(problem: EvolutionProblem, options: Options) -> int:
    """The number of steps of a uniform mesh with the given step."""
    assert options.step is not None
    return max(1, math.ceil((problem.t1 - problem.t0) / options.step * (1.0 - 1e-12)))


class StepProgress:
    """Progress of all runs of a solve together: the share of the steps that are expected in all, which never falls.

    Parameters
    ----------
    report : callable
        As :func:`~hpfracc.solvers.stepping.events.progress_report` gives it.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        #: The newest run of the solve.
        self.run: Run | None = None
        self._spent = self._expected = 0
        self._shown = 0.0

    def expect(self, steps: int) -> None:
        """Set the number of steps still to come."""
        self._expected = self._spent + steps

    def of_run(self, run: Run, mesh: Array) -> Callable[[int, Callable[[], Any]], None]:
        """``report(done, u)`` for the steps of one run."""
        self.run = run
        before, self._expected = self._spent, max(self._expected, self._spent + len(mesh) - 1)

        def report(done: int, u: Callable[[], Any]) -> None:
            self._spent = before + done
            self._shown = max(self._shown, self._spent / self._expected)
            self._report(float(mesh[done]), u, self._shown)

        return report

    def of_times(self, run: Run) -> Callable[[float, Callable[[], Any]], None]:
        """``report(t, u)`` for one of several passes, the next of which go on where this one ends."""
        self.run, base, t0, t1 = run, self._shown, run.problem.t0, run.problem.t1

        def report(t: float, u: Callable[[], Any]) -> None:
            share = 1.0 if t >= t1 else _PASS * (t - t0) / (t1 - t0)
            self._shown = max(self._shown, base + (1.0 - base) * share)
            self._report(t, u, self._shown)

        return report


def run_mesh(
    question: Question,
    mesh: Array,
    sampled: Array | None = None,
    begin: float = -math.inf,
    earlier: Run | None = None,
    outputs: Array | None = None,
    progress: StepProgress | None = None,
) -> Run:
    """Advance over ``mesh``, keeping the states after the steps with the numbers ``sampled``, which increase.

    ``progress`` gets every step or block. ``begin``, ``earlier`` and ``outputs`` are passed to :class:`Run`.
    """
    problem, method, options, *_ = question
    total = len(mesh) - 1
    exact = method.solution(problem) if options.events else None
    run = Run(question, total, begin, earlier, None if exact is None else exact.frame, outputs)
    report = (lambda done, u: None) if progress is None else progress.of_run(run, mesh)
    shown = progress is not None and callable(options.progress)
    marks = np.empty(0, int) if sampled is None else sampled

    def steps() -> None:
        for made in method.steps(problem, mesh):
            done, block = run.steps, isinstance(made, FrameBlock)
            count = made.count if block else 1
            here = marks[slice(*np.searchsorted(marks, [done, done + count], side="right"))].tolist()
            times = mesh[done + 1 : done + 1 + count]
            if block and not (here or shown or run.needs(count, total, float(times[-1]))):
                run.steps += count
                report(done + count, lambda: None)
                if run.in_time():
                    continue
                break
            states = made.make() if block else made[None]
            goes_on = run.take(times, states, last=done + count == total)
            run.samples |= {mark: problem.xp.copy(states[mark - done - 1]) for mark in here if mark <= run.steps}
            if not goes_on:
                break
            report(done + count, lambda: problem.space.embed(*reversed(run.newest)))

    run.follow(steps)
    return run


def run_estimated(question: Question, steps: int, progress: StepProgress | None = None) -> tuple[Run, float]:
    """Advance over the mesh of a given number of steps; returns the run and its estimated error in time, or nan.

    The solution is compared with those of an eighth (at most a fourth) of the steps and of half that number, at up to
    eight common times, the end, and after 1, 2, 4, ... of the coarsest steps. The two differences give the observed
    order, limited by the order of the method. The first steps of a uniform mesh with memory are repeated with shorter
    ones. Data that change between the steps are looked for as well.
    """
    problem, method, *_ = question
    mesh = method.mesh(problem, steps)
    if not _estimates(question, steps):
        why = (
            "it was not asked for (estimate=True gives one)" if steps >= 2 * _COARSEST[1] else "there are too few steps"
        )
        if is_tracer(problem.u0):
            why = "the solve is traced"
        problem.notes.append(f"the error in time has no estimate: {why}")
        return run_mesh(question, mesh, progress=progress), math.nan
    ratio, marks = _sampling(steps)
    divisor = ratio or (2 if steps < _UNASKED else 4)
    counts = [steps // divisor, steps // (2 * divisor)]
    starts = _START if starts_badly(question) else _START[:0]
    run = run_mesh(question, mesh, np.union1d(ratio * marks[0], starts), progress=progress)
    if not run.success:
        problem.notes.append("the error in time has no estimate: the solve stopped early")
        return run, math.nan
    stats, spent = dict(problem.stats), 0
    plain = last_frame(question)
    coarse = []
    for count, wanted in zip(counts, (np.union1d(marks[0], 2 * marks[1]), marks[1]), strict=True):
        coarse.append(run_mesh(plain, method.mesh(problem, count), wanted))
        spent += coarse[-1].steps
    early = 0.0
    if starts.size:
        # Finer steps of the whole interval may have larger errors at the start, before they resolve its layer.
        part = dataclasses.replace(problem, t1=float(mesh[starts[-1]]))
        fine = run_mesh(
            plain._replace(problem=part), np.linspace(part.t0, part.t1, _FINER * starts[-1] + 1), _FINER * starts
        )
        spent += fine.steps
        pairs = [(k, run.samples[k], fine.samples[_FINER * k]) for k in starts.tolist() if _FINER * k in fine.samples]
        if run.ended is None:
            run.errors = [(float(mesh[k]), problem.largest_each(one - other)) for k, one, other in pairs]
        early = max((float(each.max()) for _, each in run.errors), default=0.0)
    data = scan_data(problem)
    problem.stats.clear()
    problem.stats.update(stats, estimate_steps=spent)
    gaps, compared = [], list[tuple[float, Array]]()
    for finer, coarser, factor, own in zip((run, coarse[0]), coarse, (ratio, 2), marks, strict=True):
        pairs = [
            (factor * k, finer.samples[factor * k], coarser.samples[k])
            for k in own.tolist()
            if factor * k in finer.samples and k in coarser.samples
        ]
        if finer.success and coarser.success and finer.ended is None:
            pairs.append((-1, finer.newest[1], coarser.newest[1]))
        if not pairs:
            problem.notes.append("the error in time has no estimate: solutions with fewer steps share no times with it")
            return run, math.nan
        found = [(k, problem.largest_each(one - other)) for k, one, other in pairs]
        compared = compared or [(float(mesh[k]), each) for k, each in found]
        gaps.append(max(float(each.max()) for _, each in found))
    factors = steps / counts[0], counts[0] / counts[1]
    order = seen_order(gaps, factors, method.convergence(problem))
    share, unseen = 1.0 / (factors[0] ** order - 1.0), data.defect(problem, mesh)
    error = max(gaps[0] * share, early, unseen)
    run.errors = [(t, np.maximum(each, unseen)) for t, each in run.errors]
    run.errors += [(t, np.maximum(share * each, unseen)) for t, each in compared]
    if not math.isfinite(error):
        problem.notes.append("the error in time has no estimate: solutions with fewer steps are not finite")
        return run, math.nan
    return run, error


def starts_badly(question: Question) -> bool:
    """Whether the mesh is uniform and the formula has a memory: then its first steps are the least accurate ones."""
    mesh = question.method.mesh(question.problem, FIRST_STEPS)
    uniform = bool(np.ptp(np.diff(mesh)) <= 1e-9 * (mesh[-1] - mesh[0]))
    return uniform and question.method.history(question.problem, FIRST_STEPS) != "none"


def last_frame(question: Question) -> Question:
    """The same without output but the last frame."""
    options = dataclasses.replace(question.options, t_eval=None, events=(), dense_output=False, progress=False)
    return question._replace(options=options, save="last")


def _sampling(steps: int) -> tuple[int, tuple[Array, Array]]:
    """The ratio of the steps to those of the finer coarse mesh, and the steps of the two coarse meshes to compare.

    The ratio is zero, and there are no such steps, if the meshes have no common times but the end.
    """
    fitting = ((k, least) for least in _COARSEST for k in _RATIOS if steps % (2 * k) == 0)
    ratio = next((k for k, least in fitting if steps >= 2 * k * least), 0)
    if not ratio:
        return 0, (np.empty(0, int), np.empty(0, int))
    fewest = steps // (2 * ratio)
    every = math.ceil(fewest / _SAMPLES)
    return ratio, (sample_steps(2 * fewest, 2 * every), sample_steps(fewest, every))


def sample_steps(steps: int, every: int, pieces: int = 1, early: bool = True) -> Array:
    """Steps after which solutions are compared: each ``every``-th, the last, and 1, 2, 4, ... in each piece."""
    regular = np.append(np.arange(every, steps + 1, every), steps)
    if not early:
        return np.unique(regular)
    powers = 2 ** np.arange(max(1, every).bit_length())
    starts = np.arange(pieces) * (steps // pieces)
    return np.unique(np.concatenate([regular, (starts[:, None] + powers[powers < every]).reshape(-1)]))


def seen_order(gaps: list[float], factors: tuple[float, float], most: float) -> float:
    """The p between 1/4 and ``most`` with ``gaps[1] / gaps[0] = (f1^p - 1) / (1 - f0^-p)``, by bisection."""
    if not gaps[0] > 0.0:
        return most
    low, high = MIN_ORDER, most
    for _ in range(40):
        p = 0.5 * (low + high)
        if gaps[1] / gaps[0] > (factors[1] ** p - 1.0) / (1.0 - factors[0] ** -p):
            low = p
        else:
            high = p
    return 0.5 * (low + high)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
