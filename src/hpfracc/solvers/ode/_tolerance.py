"""A fixed-step method without a step: halve it until two solutions agree to the tolerance."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode._method import Method
from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._result import FODEResult

__all__ = ["solve_to_tolerance"]

Array = np.ndarray[Any, Any]

#: Steps of the first attempt.
_FIRST = 64


def solve_to_tolerance(method: Method, problem: Problem, options: Options) -> FODEResult:
    """Solutions with 64, 128, 256, ... steps, until ``|y_h - y_2h| <= atol + rtol |y_h|`` at all common points.

    The distance of the last two, which is at least the error of the finer for every order of 1 or more, becomes the
    error estimate. Where the steps that the tolerance would take, by the convergence seen so far, exceed
    ``max_steps``, the finest solution comes back with ``success=False``.
    """
    # The search looks at the steps alone; what else was asked for is done once, with the step that was found.
    plain = dataclasses.replace(options, t_eval=None, events=(), dense_output=False, progress=False)
    length = problem.t1 - problem.t0
    steps = min(_FIRST, options.max_steps)
    coarse = method.solve(problem, dataclasses.replace(plain, step=length / steps))
    evaluations, jacobians = coarse.nfev, coarse.njev
    ratios: list[float] = []
    while True:
        if not coarse.success and steps >= 16 * _FIRST:
            return coarse
        if 2 * steps > options.max_steps:
            return _give_up(coarse, ratios, steps, options)
        steps *= 2
        fine = method.solve(problem, dataclasses.replace(plain, step=length / steps))
        evaluations, jacobians = evaluations + fine.nfev, jacobians + fine.njev
        if coarse.success and fine.success:
            distance, ratio = _distance(coarse, fine, options)
            ratios.append(ratio)
            if ratio <= 1.0:
                break
            if _expected(ratios, steps) > options.max_steps:
                fine.error_estimate = distance
                return _give_up(fine, ratios, steps, options)
        coarse = fine
    final = fine
    if options.t_eval is not None or options.events or options.dense_output:
        final = method.solve(problem, dataclasses.replace(options, step=length / steps))
        evaluations, jacobians = evaluations + final.nfev, jacobians + final.njev
    final.error_estimate = distance
    final.nfev, final.njev = evaluations, jacobians
    final.stats["halvings"] = len(ratios)
    return final


def _distance(coarse: FODEResult, fine: FODEResult, options: Options) -> tuple[float, float]:
    """The largest difference, and the largest relative to the tolerance."""
    common = fine.y[..., ::2]
    finite = np.isfinite(common)  # the origin of a Riemann-Liouville problem is not
    difference = np.abs(np.where(finite, common, 0.0) - np.where(finite, coarse.y, 0.0))
    bound = np.asarray(options.atol)[..., None] + options.rtol * np.abs(np.where(finite, common, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0.0, 0.0, difference / bound)
    return float(difference.max()), float(ratio.max())


def _expected(ratios: list[float], steps: int) -> float:
    """Steps that would bring the last ratio down to 1 at the rate seen so far."""
    if len(ratios) < 4:
        return 0.0
    rate = math.log2(ratios[-3] / ratios[-1]) / 2.0
    return float(steps * ratios[-1] ** (1.0 / max(rate, 0.05)))


def _give_up(result: FODEResult, ratios: list[float], steps: int, options: Options) -> FODEResult:
    off = f"two solutions differ by {ratios[-1]:.3g} times the tolerance" if ratios else "no second solution was made"
    result.success = False
    result.message = (
        f"rtol={options.rtol:g}, atol={options.atol} was not reached with {steps} steps of one size ({off}), and "
        f"would take more than max_steps={options.max_steps}: loosen it, raise max_steps, or use method='auto'."
    )
    return result
