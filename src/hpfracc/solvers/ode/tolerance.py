"""Fixed-step methods without a given step: the step is halved until two solutions agree to the tolerance."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.special import rgamma

from hpfracc.solvers.ode.fixed.error_estimate import find_jumps
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.options import MAX_STEPS, Options
from hpfracc.solvers.ode.problem import Problem, RightHandSide
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["solve_to_tolerance"]

Array = np.ndarray[Any, Any]

#: Steps of the first attempt.
_FIRST = 64


def solve_to_tolerance(method: Method, problem: Problem, options: Options) -> FODEResult:
    r"""Solutions with 64, 128, 256, ... steps, until ``|y_h - y_2h| <= atol + rtol |y_h|`` at all common points.

    The difference of the last two solutions is the error estimate; it is at least the error of the finer one for every
    order of 1 or more. Where the right-hand side jumps, both may have the same error: the estimate is then at least the
    integral of the jump over its step, :math:`J h^\alpha/\Gamma(1+\alpha)`. If the tolerance would need more than
    ``max_steps`` steps at the observed rate of convergence, the finest solution is returned with ``success=False``.
    """
    # The search compares the steps only. Everything else is done once, with the final step.
    if options.max_steps == MAX_STEPS:
        options = dataclasses.replace(options, max_steps=method.search_limit)
    plain = dataclasses.replace(options, t_eval=None, events=(), dense_output=True, estimate=False)
    length = problem.t1 - problem.t0
    steps = min(_FIRST, options.max_steps)
    coarse = method.solve(problem, dataclasses.replace(plain, step=length / steps))
    counts = [coarse.nfev, coarse.njev]

    def finish(result: FODEResult) -> FODEResult:
        """The solution with ``steps`` steps in the requested form."""
        if options.events and not result.stats.get("interrupted"):
            second = method.solve(
                problem, dataclasses.replace(options, step=length / steps, progress=False, estimate=False)
            )
            counts[0], counts[1] = counts[0] + second.nfev, counts[1] + second.njev
            second.error_estimate = result.error_estimate
            if not result.success:
                second.success, second.message = False, result.message
            result = second
        else:
            _as_asked(result, problem, options)
        result.nfev, result.njev = counts
        result.stats["halvings"] = len(ratios)
        return result

    ratios: list[float] = []
    while True:
        if coarse.stats.get("interrupted") or (not coarse.success and steps >= 16 * _FIRST):
            return finish(coarse)
        if 2 * steps > options.max_steps:
            return finish(_give_up(coarse, ratios, steps, options))
        steps *= 2
        fine = method.solve(problem, dataclasses.replace(plain, step=length / steps))
        counts[0], counts[1] = counts[0] + fine.nfev, counts[1] + fine.njev
        if coarse.success and fine.success:
            distance, ratio = _distance(coarse, fine, options)
            fine.error_estimate = distance
            ratios.append(ratio)
            if ratio <= 1.0:
                jump = _bound_jumps(problem, fine, options)
                counts[0] += steps
                fine.error_estimate = max(distance, jump.error)
                if jump.ratio <= 1.0:
                    return finish(fine)
                if steps * jump.ratio ** (1.0 / jump.rate) > options.max_steps:
                    return finish(_give_up(fine, [jump.ratio], steps, options, jump.time))
                coarse = fine
                continue
            if _expected(ratios, steps) > options.max_steps:
                return finish(_give_up(fine, ratios, steps, options))
        coarse = fine


def _as_asked(result: FODEResult, problem: Problem, options: Options) -> None:
    """Interpolate a result to the requested times, with ``sol`` if requested."""
    solution: Any = result.sol
    assert solution is not None
    if options.t_eval is not None:
        result.t = options.t_eval[options.t_eval <= solution.t_max]
        result.y = solution(result.t)
    if options.events:
        result.t_events = [np.empty(0) for _ in options.events]
        result.y_events = [np.empty((0, *problem.shape), problem.dtype) for _ in options.events]
    if not options.dense_output:
        result.sol = None


def _distance(coarse: FODEResult, fine: FODEResult, options: Options) -> tuple[float, float]:
    """The maximum difference, absolute and relative to the tolerance."""
    common = fine.y[..., ::2]
    finite = np.isfinite(common)  # the origin of a Riemann-Liouville problem is not finite
    difference = np.abs(np.where(finite, common, 0.0) - np.where(finite, coarse.y, 0.0))
    bound = np.asarray(options.atol)[..., None] + options.rtol * np.abs(np.where(finite, common, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0.0, 0.0, difference / bound)
    return float(difference.max()), float(ratio.max())


def _expected(ratios: list[float], steps: int) -> float:
    """Number of steps that would reduce the last ratio to 1 at the observed rate."""
    if len(ratios) < 4:
        return 0.0
    rate = math.log2(ratios[-3] / ratios[-1]) / 2.0
    return float(steps * ratios[-1] ** (1.0 / max(rate, 0.05)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Jump:
    """Error that a jump of the right-hand side within a step may cause, and the power of the step with which it falls.

    ``ratio`` is relative to the tolerance, ``time`` that of the largest one.
    """

    error: float = 0.0
    ratio: float = 0.0
    rate: float = 1.0
    time: float = math.nan


def _bound_jumps(problem: Problem, result: FODEResult, options: Options) -> _Jump:
    """The integral of each jump of the right-hand side over the step in which it happens."""
    if problem.delays or problem.terms:  # whose right-hand side alone does not have the solution's jumps
        return _Jump()
    fun = RightHandSide(problem)
    y = result.y.reshape(-1, result.t.size)
    with np.errstate(all="ignore"):
        values = [fun(t, y[:, n + 1].reshape(problem.shape)).reshape(-1) for n, t in enumerate(result.t[1:].tolist())]
    steps = np.diff(result.t)[1:]
    jumps = find_jumps(np.stack(values, axis=1), steps)
    if not jumps.any():
        return _Jump()
    order = problem.orders
    rows = np.full(problem.shape, np.nan) if order.known is None else np.broadcast_to(order.known, problem.shape)
    if order.function is not None:
        rows = np.broadcast_to(np.asarray(order.function(result.t[1:][jumps.max(axis=0).argmax()])), problem.shape)
    alpha = rows.reshape(-1, 1).astype(np.float64)
    # Above order 1 it grows until the end.
    later = np.maximum(problem.t1 - result.t[1:-1], steps) ** np.maximum(alpha - 1.0, 0.0)
    errors = jumps * steps ** np.minimum(alpha, 1.0) * later * rgamma(1.0 + np.minimum(alpha, 1.0))
    bound = np.broadcast_to(options.atol, problem.shape).reshape(-1, 1) + options.rtol * np.abs(y[:, 2:])
    ratios = (errors / bound).max(axis=0)
    worst = int(ratios.argmax())
    return _Jump(float(errors.max()), float(ratios[worst]), float(min(alpha.min(), 1.0)), float(result.t[worst + 1]))


def _give_up(
    result: FODEResult, ratios: list[float], steps: int, options: Options, jump: float = math.nan
) -> FODEResult:
    off = f"two solutions differ by {ratios[-1]:.3g} times the tolerance" if ratios else "no second solution was made"
    result.success = False
    if not math.isnan(jump):
        off = (
            f"the right-hand side jumps near t = {jump:.6g}, where equal steps may be off by {ratios[-1]:.3g} times "
            f"the tolerance; method='adaptive' with breakpoints=[{jump:.6g}] meets it exactly"
        )
    result.message = (
        f"rtol={options.rtol:g}, atol={options.atol} was not reached with {steps} equal steps ({off}), and "
        f"would take more than max_steps={options.max_steps}: loosen it, raise max_steps, or use a method of higher "
        "order."
    )
    return result
