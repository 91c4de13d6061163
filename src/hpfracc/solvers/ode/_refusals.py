"""What the fixed-step methods cannot take, said in words."""

from __future__ import annotations

import numpy as np

from hpfracc.solvers.ode._problem import Problem

__all__ = ["refuse_plain", "starts_infinite"]


def starts_infinite(problem: Problem) -> bool:
    """Whether the solution of a Riemann-Liouville problem is infinite at t0."""
    if problem.derivative != "riemann_liouville" or problem.orders.known is None:
        return False
    broken = np.broadcast_to(problem.orders.known != np.ceil(problem.orders.known), problem.shape)
    return bool(np.any(problem.y0[broken] != 0))


def refuse_plain(problem: Problem, name: str, *, infinite: bool = False) -> str | None:
    """Why a method for one plain equation with a finite start cannot take ``problem``."""
    if problem.terms:
        return f"method={name!r} takes one derivative, and the equation has {1 + len(problem.terms)} terms"
    if problem.orders.function is not None:
        return f"method={name!r} takes constant orders; use method='variable_order'"
    if problem.delays and starts_infinite(problem):
        return f"method={name!r} takes no delays where a Riemann-Liouville solution is infinite at t0; give y0 = 0"
    if not infinite and starts_infinite(problem):
        return (
            f"method={name!r} evaluates the right-hand side at t0, where a Riemann-Liouville solution with y0 != 0 is "
            "infinite; use method='adaptive' without a step, 'bdf2' or 'implicit_rectangle'"
        )
    return None
