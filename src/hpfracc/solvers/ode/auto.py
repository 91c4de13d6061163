"""``method="auto"``: selection of a method, with the reason; and the search for a step that meets the tolerance."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.special import rgamma

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.method import Method, find_method
from hpfracc.solvers.ode.problem import Problem, RightHandSide, starts_infinite
from hpfracc.solvers.ode.result import FODEResult, because, later_times
from hpfracc.solvers.stepping.events import EventWatch
from hpfracc.solvers.stepping.options import MAX_STEPS, Options

Array = np.ndarray[Any, Any]

#: Differences of two solutions below this share of them say nothing: Jacobians by differences have such errors.
_ROUNDING = 1e-10
#: Below this order L1 on a graded mesh is far more accurate for the same number of steps.
_SMALL_ORDER = 0.25
#: Parts of the first step at which dense output is compared.
_FRACTIONS = np.array([1e-4, 1e-2, 0.1, 0.5])
#: Steps of the first attempt of a search.
_FIRST = 64


def solve_with(method: Method, problem: Problem, options: Options) -> FODEResult:
    """Solve by one method; raises an error if it does not support the problem."""
    refusal = method.refuses(problem, options)
    if refusal is not None:
        raise InvalidInputError(refusal)
    if method.fixed and options.limits_steps is not None:
        limits = f"{options.limits_steps} is for methods with adaptive steps"
        raise InvalidInputError(f"{limits}, and method={method.name!r} takes equal steps; use method='adaptive'")
    if method.fixed and options.step is None:
        if problem.library != "numpy":
            raise InvalidInputError(f"method={method.name!r} takes equal steps; give step=")
        return solve_to_tolerance(method, problem, options)
    return method.solve(problem, options)


def solve_auto(problem: Problem, options: Options) -> FODEResult:
    """Select a method for the problem, and switch to implicit steps if it is stiff."""
    name, reason = _special(problem, options)
    if name is None and options.step is not None:
        return _solve_stepped(problem, options)
    if name is None:
        method = find_method("integer_order")
        if method.refuses(problem, options) is None:
            return because(method.solve(problem, options), "the order is whole, and no step was given")
        method = find_method("adaptive")
        if method.refuses(problem, options) is None:
            return because(method.solve(problem, options), "no step was given")
        name, reason = "implicit_trapezoid", "no step was given; it is halved until two solutions agree"
    return because(solve_with(find_method(name), problem, options), reason)


def _special(problem: Problem, options: Options) -> tuple[str | None, str]:
    """The method that a special kind of problem needs, or None."""
    if problem.delays:
        return ("adaptive" if options.step is None else "implicit_trapezoid"), "the equation has delays"
    if problem.orders.function is not None:
        graded = options.step is None and find_method("variable_order_l2").refuses(problem, options) is None
        return ("variable_order_l2" if graded else "variable_order"), "the order is a function of t"
    if problem.library != "numpy":
        return ("adaptive" if options.step is None else None), f"y0 is an array of {problem.library}"
    if starts_infinite(problem) and (options.step is not None or find_method("adaptive").refuses(problem, options)):
        fits = find_method("bdf2").refuses(problem, options) is None
        return ("bdf2" if fits else "implicit_rectangle"), "the solution is infinite at t0"
    return None, ""


def _solve_stepped(problem: Problem, options: Options) -> FODEResult:
    """Solve by PECE, or by implicit steps if PECE would not be stable."""
    from hpfracc.solvers.ode.methods.pece import PECE
    from hpfracc.solvers.ode.stiffness import LIMIT, StiffError, StiffnessGuard

    assert options.step is not None
    graded = find_method("l1") if _orders_below(problem, _SMALL_ORDER) else None
    if graded is not None and graded.refuses(problem, options) is None:
        times = make_grid(problem.t0, problem.t1, options.step, options.max_steps).times()
        even = options if options.t_eval is not None else dataclasses.replace(options, t_eval=times)
        reason = f"orders below {_SMALL_ORDER}: equal steps are inaccurate at the start, so the mesh is graded"
        return because(graded.solve(problem, even), reason)
    pece = PECE()
    grid = make_grid(problem.t0, problem.t1, options.step)
    if problem.library == "numpy":
        guard = StiffnessGuard(problem, grid.step, pece)
    else:
        if (refusal := pece.refuses(problem, options)) is not None:
            raise InvalidInputError(refusal)
        from hpfracc.solvers.ode.tensors.stability import TensorGuard, solve_traced

        guard = TensorGuard(problem, grid.step, pece)
        if (traced := solve_traced(guard, options, pece, find_method("implicit_trapezoid"))) is not None:
            return traced
    explicit: FODEResult | None = None
    try:
        guard.look_ahead()
        explicit = pece.solve(problem, options, guard=guard, reason="a step was given, and the equation is not stiff")
        explicit.nfev += guard.evaluations
        overflowed = 0 < explicit.stats["steps"] < min(grid.steps, options.max_steps)
        if explicit.success or not overflowed or explicit.stats["interrupted"] or not explicit.t.size:
            return explicit
        why = explicit.message
    except StiffError as error:
        why = str(error)
    # Above order 1 the product trapezoid is stable up to a limit only.
    implicit = find_method("implicit_trapezoid" if _orders_below(problem, 1.0 + 1e-12) else "bdf2")
    if implicit.refuses(problem, options) is not None:
        implicit = find_method("implicit_trapezoid")
    result = because(implicit.solve(problem, options), f"the equation is stiff for this step: {why}")
    if explicit is not None and not result.stats["interrupted"]:
        before = np.flatnonzero(result.t <= explicit.t[-1])[1:]
        points = before[np.unique(np.linspace(0, before.size - 1, 8).astype(int))] if before.size else before
        states = ((float(result.t[n]), np.ascontiguousarray(result.y[..., n])) for n in points)
        if not any(guard.number(t, y) > LIMIT for t, y in states):
            return explicit  # the solution ends there
    result.nfev = None if result.nfev is None else result.nfev + guard.evaluations
    return result


def _orders_below(problem: Problem, bound: float) -> bool:
    return problem.orders.known is not None and float(problem.orders.known.max()) < bound


def solve_to_tolerance(method: Method, problem: Problem, options: Options) -> FODEResult:
    r"""Solutions with 64, 128, 256, ... steps, until ``|y_h - y_2h| <= atol + rtol |y_h|`` at all common points.

    These are the steps and the times of output between them: within the first steps, where the solution is not smooth,
    interpolation may be less accurate than the steps.

    The difference of the last two solutions is the error estimate; it is at least the error of the finer one for every
    order of 1 or more. Where the right-hand side jumps, both may have the same error: the estimate is then at least the
    integral of the jump over its step, :math:`J h^\alpha/\Gamma(1+\alpha)`. If the tolerance would need more than
    ``max_steps`` steps at the observed rate of convergence, the finest solution is returned with ``success=False``.
    """
    if options.max_steps == MAX_STEPS:
        options = dataclasses.replace(options, max_steps=method.search_limit)
    # Everything else than the states is done once, with the final step.
    plain = dataclasses.replace(options, t_eval=None, events=(), dense_output=True, estimate=False)
    counts = [0, 0]

    def solve(steps: int, options: Options) -> FODEResult:
        found = method.solve(problem, dataclasses.replace(options, step=(problem.t1 - problem.t0) / steps))
        counts[0], counts[1] = counts[0] + found.nfev, counts[1] + found.njev
        return found

    adaptive = find_method("adaptive").refuses(problem, options) is None
    advice = ", or use method='adaptive', which chooses its steps" if adaptive else ", or use a method of higher order"
    ratios: list[float] = []
    over = jump = math.nan
    steps = min(_FIRST, options.max_steps)
    result = solve(steps, plain)
    while not (result.stats.get("interrupted") or options.clock.late) and (result.success or steps < 16 * _FIRST):
        if 2 * steps > options.max_steps:
            _give_up(result, over, steps, options, advice, jump)
            break
        steps *= 2
        coarse, result = result, solve(steps, plain)
        if not (coarse.success and result.success):
            continue
        result.error_estimate, ratio = _distance(coarse, result, options, _between(problem, result, options))
        ratios.append(ratio)
        if ratio > 1.0:
            expected, over, jump = _expected(ratios, steps), ratio, math.nan
        else:
            error, over, rate, jump = _bound_jumps(problem, result, options)
            counts[0] += steps
            result.error_estimate = max(result.error_estimate, error)
            if over <= 1.0:
                break
            expected = steps * over ** (1.0 / rate)
        if expected > options.max_steps:
            _give_up(result, over, steps, options, advice, jump)
            break
    else:
        if not result.stats.get("interrupted"):
            result.message += f" The search for a step ended with {steps} equal steps: give step={advice}."
    if options.events and not result.stats.get("interrupted"):
        found = solve(steps, dataclasses.replace(options, progress=False, estimate=False))
        found.error_estimate = result.error_estimate
        if not result.success:
            found.success, found.message = False, result.message
        result = found
    else:
        solution: Any = result.sol
        if options.t_eval is not None and solution is not None:
            result.t = options.t_eval[options.t_eval <= solution.t_max]
            result.y = solution(result.t)
        result.t_events, result.y_events = EventWatch(options.events, ()).collected(problem.shape, problem.dtype)
        result.sol = solution if options.dense_output else None
    result.nfev, result.njev = counts
    result.stats["halvings"] = len(ratios)
    return result


def _between(problem: Problem, fine: FODEResult, options: Options) -> Array:
    """Times of output at which two solutions are compared, besides their common steps."""
    if options.t_eval is not None:
        return np.asarray(options.t_eval[options.t_eval > problem.t0])
    if options.dense_output:
        return np.asarray(problem.t0 + (fine.t[1] - problem.t0) * _FRACTIONS)
    return np.empty(0)


def _distance(coarse: FODEResult, fine: FODEResult, options: Options, between: Array) -> tuple[float, float]:
    """The maximum difference, absolute and relative to the tolerance."""
    common, other = fine.y[..., ::2], coarse.y
    if between.size and coarse.sol is not None and fine.sol is not None:
        common = np.concatenate([common, fine.sol(between)], axis=-1)
        other = np.concatenate([other, coarse.sol(between)], axis=-1)
    finite = np.isfinite(common)  # the origin of a Riemann-Liouville problem is not finite
    difference = np.abs(np.where(finite, common, 0.0) - np.where(finite, other, 0.0))
    bound = np.asarray(options.atol)[..., None] + options.rtol * np.abs(np.where(finite, common, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0.0, 0.0, difference / bound)
    return max(float(difference.max()), _ROUNDING * float(np.abs(np.where(finite, common, 0.0)).max())), float(
        ratio.max()
    )


def _expected(ratios: list[float], steps: int) -> float:
    """Number of steps that would reduce the last ratio to 1 at the observed rate."""
    if len(ratios) < 4:
        return 0.0
    rate = math.log2(ratios[-3] / ratios[-1]) / 2.0
    return float(steps * ratios[-1] ** (1.0 / max(rate, 0.05)))


def _bound_jumps(problem: Problem, result: FODEResult, options: Options) -> tuple[float, float, float, float]:
    """Error that jumps of the right-hand side within a step may cause, from the integral of each over its step.

    Also its ratio to the tolerance, the power of the step with which it falls, and the time of the largest ratio.
    """
    if problem.delays:  # whose right-hand side alone does not have the solution's jumps
        return 0.0, 0.0, 1.0, math.nan
    fun, kept = RightHandSide(problem), later_times(result.t)
    t, y = result.t[kept], result.y.reshape(-1, result.t.size)[:, kept]
    with np.errstate(all="ignore"):
        values = [fun(each, y[:, n + 1].reshape(problem.shape)).reshape(-1) for n, each in enumerate(t[1:].tolist())]
    steps = np.diff(t)[1:]
    from hpfracc.solvers.ode.fixed.error_estimate import find_jumps  # which a solve without a step does not need

    jumps = find_jumps(np.stack(values, axis=1), steps)
    if not jumps.any():
        return 0.0, 0.0, 1.0, math.nan
    order = problem.orders
    orders = order.known if order.function is None else order.function(t[1:][jumps.max(axis=0).argmax()])
    alpha = np.broadcast_to(np.asarray(orders, np.float64), problem.shape).reshape(-1, 1)
    # Above order 1 it grows until the end.
    later = np.maximum(problem.t1 - t[1:-1], steps) ** np.maximum(alpha - 1.0, 0.0)
    errors = jumps * steps ** np.minimum(alpha, 1.0) * later * rgamma(1.0 + np.minimum(alpha, 1.0))
    bound = np.broadcast_to(options.atol, problem.shape).reshape(-1, 1) + options.rtol * np.abs(y[:, 2:])
    ratios = (errors / bound).max(axis=0)
    worst = int(ratios.argmax())
    return float(errors.max()), float(ratios[worst]), float(min(alpha.min(), 1.0)), float(t[worst + 1])


def _give_up(result: FODEResult, over: float, steps: int, options: Options, advice: str, jump: float) -> None:
    off = f"two solutions differ by {over:.3g} times the tolerance" if over == over else "no second solution was made"
    if not math.isnan(jump):
        meets = f"; method='adaptive' with breakpoints=[{jump:.6g}] meets it exactly" if "'adaptive'" in advice else ""
        off = (
            f"the right-hand side jumps near t = {jump:.6g}, where equal steps may be off by {over:.3g} times "
            f"the tolerance{meets}"
        )
    result.success = False
    result.message = (
        f"rtol={options.rtol:g}, atol={options.atol} was not reached with {steps} equal steps ({off}), and "
        f"would take more than max_steps={options.max_steps}: loosen it, raise max_steps{advice}."
    )
