"""Runs a method over a mesh and estimates its error from coarser meshes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, is_tracer
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.errors import OutOfMemoryError
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.progress import progress_report
from hpfracc.solvers.pde.forms import FrameBlock
from hpfracc.solvers.pde.method import EvolutionMethod
from hpfracc.solvers.pde.problem import EvolutionProblem, StepFailedError
from hpfracc.solvers.pde.recording import FrameRecorder, Save, frames_kept

__all__ = [
    "FIRST_STEPS",
    "MIN_ORDER",
    "Run",
    "check_memory",
    "forecast_memory",
    "max_absolute",
    "run_estimated",
    "run_mesh",
]

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
#: Forecasts below this are not checked against free memory.
_NEGLIGIBLE = 16 * 2**20


@dataclass(slots=True)
class Run:
    """The outcome of a run over one mesh.

    Attributes
    ----------
    recorder : FrameRecorder
        The frames that were kept.
    success : bool
        Whether the end, or a terminal event, was reached.
    message : str
        Why the run ended.
    samples : list of arrays
        The unknowns at the times of the first mesh, for comparison.
    steps : int
        Number of steps made.
    interrupted : bool
        Whether the user interrupted the run.
    """

    recorder: FrameRecorder
    success: bool
    message: str
    samples: list[Any] = field(default_factory=list)
    steps: int = 0
    interrupted: bool = False


def forecast_memory(
    problem: EvolutionProblem, method: EvolutionMethod, options: Options, save: Save, steps: int
) -> tuple[int, int]:
    """Bytes at the peak of a run, and the part of them that saved frames take."""
    frame = problem.itemsize * math.prod(axis.size for axis in problem.space.grid) * (problem.components or 1)
    # Tensors are kept one by one and joined at the end.
    saved = (1 if problem.xp.library == "numpy" else 2) * frames_kept(options, save, steps) * frame
    if options.dense_output:
        saved += 2 * (steps + 1) * frame
    size = problem.itemsize * math.prod(problem.state_shape)
    need = method.forecast(problem, steps)
    if options.step is None and not method.exact:
        # The sampled states of two runs, and the frames saved by the previous run.
        need += 2 * (FIRST_STEPS + 1) * size + saved // 2
    elif _estimates(problem, method, options, steps):
        ratio, apart = _sampling(steps)
        samples = size * (1 + (steps // (2 * ratio * apart) if ratio else 0))
        need = max(need + samples, method.forecast(problem, max(1, steps // (ratio or 4))) + 3 * samples)
    return int(need + saved), saved


def _estimates(problem: EvolutionProblem, method: EvolutionMethod, options: Options, steps: int) -> bool:
    """Whether the error of a solution with given steps is estimated."""
    chosen = options.estimate
    if chosen == "auto":
        chosen = problem.xp.library == "numpy" and steps >= _UNASKED and not method.compiled(problem, steps)
    return bool(chosen) and not method.exact and steps >= 2 * _COARSEST[1] and not is_tracer(problem.u0)


def check_memory(
    problem: EvolutionProblem, method: EvolutionMethod, options: Options, save: Save, steps: int, held: int = 0
) -> int:
    """The forecast in bytes, including ``held`` bytes of other frames; raises if it does not fit into free memory."""
    need, saved = forecast_memory(problem, method, options, save, steps)
    need, saved = need + held, saved + held
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


def run_mesh(
    problem: EvolutionProblem,
    method: EvolutionMethod,
    options: Options,
    save: Save,
    mesh: Array,
    args: tuple[Any, ...],
    sample_every: int = 0,
    begin: float = -math.inf,
    earlier: FrameRecorder | None = None,
    outputs: Array | None = None,
) -> Run:
    """Advance over ``mesh``, keeping a sample every ``sample_every`` steps (0: none).

    ``begin``, ``earlier`` and ``outputs`` are passed to :class:`FrameRecorder`.
    """
    total = len(mesh) - 1
    exact = method.solution(problem) if options.events else None
    at = None if exact is None else exact.frame
    recorder = FrameRecorder(problem, options, save, args, total, begin, earlier, at, outputs)
    run = Run(recorder, True, "The end of the interval was reached.")
    if sample_every:
        run.samples.append(problem.u0)
    done = 0
    try:
        # An overflow ends the run with its own message.
        with (
            np.errstate(over="ignore", invalid="ignore"),
            progress_report(options.progress, problem.t0, problem.t1, f"solve_fpde ({method.name})") as report,
        ):
            for made in method.advance(problem, mesh):
                count = made.count if isinstance(made, FrameBlock) else 1
                wanted = sample_every and (done + count) // sample_every > done // sample_every
                if isinstance(made, FrameBlock):
                    ahead = done + 1, count, total, float(mesh[done + count])
                    if not wanted and not callable(options.progress) and not recorder.needs(*ahead):
                        recorder.skip(count)
                        done += count
                        report(float(mesh[done]), lambda: None)
                        continue
                    if recorder.takes_blocks():
                        times = mesh[done + 1 : done + 1 + count]
                        values = recorder.make_block(times, made)
                        bad = recorder.take_block(times, values)
                        if sample_every:
                            places = range(sample_every - done % sample_every - 1, count, sample_every)
                            run.samples += [np.array(values[place]) for place in places]
                        done += count
                        if bad is not None:
                            run.success, run.message = False, bad
                            return _ended(run, recorder.steps)
                        report(float(mesh[done]), lambda: recorder.problem.space.embed(*reversed(recorder.newest)))
                        continue
                    states = list(made.make())
                else:
                    states = [made]
                for state in states:
                    done += 1
                    t = float(mesh[done])
                    bad = recorder.take(t, state, last=done == total)
                    if bad is not None:
                        run.success, run.message = False, bad
                        return _ended(run, done - 1)
                    if sample_every and done % sample_every == 0:
                        run.samples.append(state)
                    if recorder.ended is not None:
                        run.message = f"A terminal event happened at t = {recorder.ended:g}."
                        return _ended(run, done)
                report(float(mesh[done]), lambda: recorder.problem.space.embed(*reversed(recorder.newest)))
    except KeyboardInterrupt:
        run.success, run.interrupted = False, True
        run.message = f"Interrupted at t = {float(mesh[done]):g}: this is the solution up to there."
    except StepFailedError as error:
        run.success, run.message = False, f"Stopped at t = {float(mesh[done]):g}: {error}."
    return _ended(run, done)


def run_estimated(
    problem: EvolutionProblem,
    method: EvolutionMethod,
    options: Options,
    save: Save,
    args: tuple[Any, ...],
    steps: int,
) -> tuple[Run, float]:
    """Advance over the mesh of a given number of steps; returns the run and its estimated error in time, or nan.

    The solution is compared with those of an eighth (at most a fourth) of the steps and of half that number, at up to
    eight common times and the end. The two differences give the observed order, limited by the order of the method.
    """
    mesh = method.mesh(problem, steps)
    if not _estimates(problem, method, options, steps):
        return run_mesh(problem, method, options, save, mesh, args), math.nan
    ratio, apart = _sampling(steps)
    run = run_mesh(problem, method, options, save, mesh, args, 2 * ratio * apart)
    if not run.success or run.recorder.ended is not None:
        return run, math.nan
    stats, spent = dict(problem.stats), 0
    plain = dataclasses.replace(options, t_eval=None, events=(), dense_output=False, progress=False)
    found = [[*run.samples[1:], run.recorder.newest[1]]]
    divisor = ratio or (2 if steps < _UNASKED else 4)
    counts = [steps // divisor, steps // (2 * divisor)]
    for count, every in zip(counts, (2 * apart, apart), strict=True):
        coarse = run_mesh(problem, method, plain, "last", method.mesh(problem, count), args, every)
        spent += coarse.steps
        if not coarse.success:
            break
        found.append([*coarse.samples[1:], coarse.recorder.newest[1]])
    problem.stats.clear()
    problem.stats.update(stats, estimate_steps=spent)
    if len(found) < 3:
        return run, math.nan
    gaps = [
        max(max_absolute(problem, a - b) for a, b in zip(finer, coarser, strict=True))
        for finer, coarser in itertools.pairwise(found)
    ]
    factors = steps / counts[0], counts[0] / counts[1]
    order = _seen_order(gaps, factors, method.convergence(problem))
    return run, gaps[0] / (factors[0] ** order - 1.0)


def _sampling(steps: int) -> tuple[int, int]:
    """The ratio of the steps to those of the finer coarse mesh, and the coarsest mesh's steps between samples.

    Zeros if the meshes have no common times but the end.
    """
    fitting = ((k, least) for least in _COARSEST for k in _RATIOS if steps % (2 * k) == 0)
    ratio = next((k for k, least in fitting if steps >= 2 * k * least), 0)
    return ratio, math.ceil(steps / (2 * ratio * _SAMPLES)) if ratio else 0


def _seen_order(gaps: list[float], factors: tuple[float, float], most: float) -> float:
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


def _ended(run: Run, done: int) -> Run:
    run.steps = done
    return run


def max_absolute(problem: EvolutionProblem, u: Any) -> float:
    """The largest absolute value of a state."""
    return float(problem.xp.abs(problem.xp.stop_gradient(u)).max())


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
