"""Memory of a solve: a check before its arrays are allocated, and the error if memory runs out."""

from __future__ import annotations

import math

import numpy as np

from hpfracc.engine.backends import registry
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.selection.call_memory import NEGLIGIBLE_BYTES
from hpfracc.errors import OutOfMemoryError
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem

__all__ = ["check_room", "is_shortage", "out_of_memory"]

#: Number of arrays of a fixed-step solve with an element for every step and component: the solution, the right-hand
#: side, the history sums, and the contribution of the initial data.
_FULL_ARRAYS = 4

_REMEDY = "use a larger step or tolerance, a shorter interval, or fewer members of the batch; or free memory"


def check_room(problem: Problem, count: int, orders: int, *, arrays: int = _FULL_ARRAYS) -> None:
    """Refuse a solve at ``count`` points whose arrays alone are larger than what is free.

    Parameters
    ----------
    problem : Problem
        The problem to solve.
    count : int
        Points of the grid.
    orders : int
        Distinct orders, each of which has weights of its own.
    arrays : int
        With every component at every point.

    Raises
    ------
    OutOfMemoryError
        With the required and the free memory.
    """
    need = _least_bytes(problem, count, orders, arrays)
    if need < NEGLIGIBLE_BYTES:
        return
    free = get_budget().free(HOST)
    if free is not None and need > free:
        raise OutOfMemoryError(
            f"solve_fode: {count:,} points of {_rows(problem):,} components need at least {_mib(need)} for the "
            f"solution and its history, and {_mib(free)} are free; {_REMEDY}"
        )


def is_shortage(problem: Problem, error: BaseException) -> bool:
    """Whether the host or the device of the problem's arrays ran out of memory."""
    return isinstance(error, MemoryError) or registry.adapter(problem.library).is_out_of_memory(error)


def out_of_memory(problem: Problem, options: Options, error: BaseException) -> OutOfMemoryError:
    """The error to raise when memory ran out, with the known figures."""
    get_budget().invalidate()
    free = get_budget().read(HOST)
    have = "" if free is None else f", {_mib(free)} are free on the host now"
    need = ""
    if options.step is not None:
        points = 1 + min(math.ceil((problem.t1 - problem.t0) / options.step), options.max_steps)
        need = f" of at least {_mib(_least_bytes(problem, points, 1))} for {points:,} points"
    return OutOfMemoryError(
        f"solve_fode: memory ran out in a solve of {_rows(problem):,} components{need}{have} "
        f"({registry.describe_failure(error)}); {_REMEDY}"
    )


def _least_bytes(problem: Problem, points: int, orders: int, arrays: int = _FULL_ARRAYS) -> int:
    item = 16 if problem.library == "numpy" and np.iscomplexobj(problem.y0) else 8
    return points * (arrays * _rows(problem) * item + 8 * orders)


def _rows(problem: Problem) -> int:
    return math.prod(problem.shape)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
