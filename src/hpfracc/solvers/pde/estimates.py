"""The estimated errors of a solution at each of its times: of the steps, of the rule in the order, and of the grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc.solvers.pde.grid_error import estimate_grid_errors, sampled_times
from hpfracc.solvers.pde.method import Question
from hpfracc.solvers.pde.recording import Run
from hpfracc.solvers.pde.result import SpaceTimeError

Array = np.ndarray[Any, Any]


def errors_of_run(question: Question, run: Run, error: float, frames: Any) -> tuple[SpaceTimeError[Array], str]:
    """The errors at the times of a run, and why there is none of the grid.

    Parameters
    ----------
    error : float
        The largest error in time; nan if it is not known.
    frames : array or None
        The solution at the times of the run; None if something else was kept.
    """
    problem, times = question.problem, np.array(run.times)
    shape = times.shape if problem.components is None else (*times.shape, problem.components)
    if not times.size or is_tracer(problem.u0):
        none = np.full(shape, math.nan)
        return SpaceTimeError(none, none), "the solve is traced"
    in_time = np.full(shape, error)
    if run.errors and math.isfinite(error):
        at = np.array([t for t, _ in run.errors])
        in_time = _between(times, at, np.stack([np.broadcast_to(each, shape[1:]) for _, each in run.errors]), 1)
    later = times > problem.t0
    if problem.distribution is not None and frames is not None:
        # A wave that a wrong order shifts is damped before the shift is many periods.
        turn = abs(math.cos(math.pi / problem.alpha_value)) if problem.alpha_value > 1.0 else 1.0
        changes = [problem.largest_each(problem.space.restrict(one) - problem.u0) for one in frames]
        sizes = np.maximum.accumulate(changes)
        rule = problem.distribution.rule_error(times[later] - problem.t0) * max(1.0, 1.0 / (math.e * turn))
        in_time[later] += sizes[later] * rule.reshape(-1, *(1,) * (len(shape) - 1))
    in_time[~later] = 0.0 * in_time[~later]
    in_space, why = np.full(shape, math.nan), "the solve did not reach its end"
    if run.success:
        method, options = question.method.stand_in(problem), question.options
        chosen = np.array([len(times) - 1])
        outputs = [run.newest]
        if frames is not None:
            chosen = sampled_times(problem, times, asked=options.t_eval is not None, exact=method.exact)
            outputs = [(float(times[k]), problem.space.restrict(frames[k])) for k in chosen]
        replaced = method is not question.method
        found, why = estimate_grid_errors(problem, method, outputs, run.steps, options.estimate, replaced=replaced)
        if frames is None:
            in_space[-1] = found[0]
        elif len(chosen):
            in_space = _between(times, times[chosen], found, 0)
            in_space[~later] = 0.0 * in_space[~later]
    return SpaceTimeError(in_time, in_space), why


def _between(times: Array, at: Array, values: Array, reach: int) -> Array:
    """At each time the larger one of the neighbouring values; ``reach`` more on each side."""
    order = np.argsort(at, kind="stable")
    at, values = at[order], values[order]
    before, behind = np.searchsorted(at, times, side="right") - 1, np.searchsorted(at, times, side="left")
    # Equal times are several steps that floating-point times do not tell apart.
    low = np.clip(np.minimum(before, behind) - reach, 0, len(at) - 1)
    high = np.clip(np.maximum(before, behind) + reach, 0, len(at) - 1)
    return np.stack([values[a : b + 1].max(axis=0) for a, b in zip(low, high, strict=True)])
