"""``method="auto"``: selection of a method, with the reason."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.method import Method, find_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult

if TYPE_CHECKING:
    from hpfracc.solvers.ode.stiffness import StiffnessGuard

__all__ = ["solve_auto", "solve_with"]

#: Below this order L1 on a graded mesh is far more accurate for the same number of steps.
_SMALL_ORDER = 0.25


def solve_with(method: Method, problem: Problem, options: Options) -> FODEResult:
    """Solve by one method; raises an error if it does not support the problem."""
    if problem.library not in method.libraries:
        raise InvalidInputError(
            f"method={method.name!r} takes arrays of {' and '.join(sorted(method.libraries))}, and y0 is of "
            f"{problem.library}; convert y0, or use method='auto'"
        )
    refusal = method.refuses(problem, options)
    if refusal is not None:
        raise InvalidInputError(refusal)
    if method.fixed and options.limits_steps is not None:
        raise InvalidInputError(
            f"{options.limits_steps} is for methods with adaptive steps, and method={method.name!r} takes equal steps; "
            "give step, or use method='adaptive'"
        )
    if method.fixed and options.step is None:
        if problem.library != "numpy":
            raise InvalidInputError(f"method={method.name!r} takes equal steps; give step=")
        from hpfracc.solvers.ode.tolerance import solve_to_tolerance

        return solve_to_tolerance(method, problem, options)
    return method.solve(problem, options)


def solve_auto(problem: Problem, options: Options) -> FODEResult:
    """Select a method for the problem, and switch to implicit steps if it is stiff."""
    name, reason = _special(problem, options)
    if name is None and options.step is not None:
        return _solve_stepped(problem, options)
    if name is None:
        method = find_method("adaptive")
        if method.refuses(problem, options) is None:
            return _because(method.solve(problem, options), "no step was given")
    if name is None:
        name, reason = "implicit_trapezoid", "no step was given; it is halved until two solutions agree"
    return _because(solve_with(find_method(name, problem.library), problem, options), reason)


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
    from hpfracc.solvers.ode.stiffness import StiffError, StiffnessGuard

    assert options.step is not None
    graded = find_method("l1", problem.library) if _orders_below(problem, _SMALL_ORDER) else None
    if graded is not None and graded.refuses(problem, options) is None:
        times = make_grid(problem.t0, problem.t1, options.step, options.max_steps).times()
        even = options if options.t_eval is not None else dataclasses.replace(options, t_eval=times)
        reason = f"orders below {_SMALL_ORDER}: equal steps are inaccurate at the start, so the mesh is graded"
        return _because(graded.solve(problem, even), reason)
    pece = PECE()
    if problem.library != "numpy":
        refusal = pece.refuses(problem, options)
        if refusal is not None:
            raise InvalidInputError(refusal)
        from hpfracc.solvers.ode.tensors.stability import solve_checked

        return solve_checked(problem, options, pece, find_method("implicit_trapezoid", problem.library))
    guard = StiffnessGuard(problem, make_grid(problem.t0, problem.t1, options.step).step, pece.name, pece.scheme)
    explicit: FODEResult | None = None
    try:
        guard.look_ahead(problem.t0, problem.y0)
        explicit = pece.solve(problem, options, guard=guard, reason="a step was given, and the equation is not stiff")
        explicit.nfev += guard.evaluations
        most = min(make_grid(problem.t0, problem.t1, options.step).steps, options.max_steps)
        overflowed = 0 < explicit.stats["steps"] < most and not explicit.stats["interrupted"]
        if explicit.success or not overflowed or not explicit.t.size:
            return explicit
        why = explicit.message
    except StiffError as error:
        why = str(error)
    implicit = _implicit(problem, options)
    result = _because(implicit.solve(problem, options), f"the equation is stiff for this step: {why}")
    if explicit is not None and not _is_stiff(guard, result, float(explicit.t[-1])):
        return explicit  # the solution ends there
    result.nfev += guard.evaluations
    return result


def _implicit(problem: Problem, options: Options) -> Method:
    """The method for stiff equations: above order 1 the product trapezoid is stable up to a limit only."""
    damped = find_method("bdf2")
    if not _orders_below(problem, 1.0 + 1e-12) and damped.refuses(problem, options) is None:
        return damped
    return find_method("implicit_trapezoid")


def _orders_below(problem: Problem, bound: float) -> bool:
    return problem.orders.known is not None and float(problem.orders.known.max()) < bound


def _is_stiff(guard: StiffnessGuard, result: FODEResult, until: float) -> bool:
    """Whether an implicit solution is stiff before the time at which explicit steps failed."""
    from hpfracc.solvers.ode.stiffness import LIMIT

    before = np.flatnonzero(result.t <= until)[1:]
    for index in before[np.unique(np.linspace(0, before.size - 1, 8).astype(int))] if before.size else ():
        if guard.number(float(result.t[index]), np.ascontiguousarray(result.y[..., index])) > LIMIT:
            return True
    return False


def _because(result: FODEResult, reason: str) -> FODEResult:
    if result.decision is not None:
        result.decision = dataclasses.replace(result.decision, reason=reason)
    return result
