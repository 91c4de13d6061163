"""Reading the arguments of an operator: samples or a callable, with the points they are taken at."""

from __future__ import annotations

from typing import Any, Protocol

from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import FAST
from hpfracc.operators.core.function import Function, read_callable, read_reflected_function
from hpfracc.operators.core.grids import Grid, read_grid
from hpfracc.operators.core.values import Samples, as_values, check_axis, flip, move_axis

__all__ = ["Readable", "read_problem"]

#: Placeholder for the grid of samples if f is a callable.
_NO_GRID = Grid(0, 0.0, None)


class Readable(Protocol):
    """The part of an operator that reading its arguments needs."""

    @property
    def method(self) -> str:
        """The name of the method."""

    @property
    def usual_origin(self) -> float | None:
        """Where it starts if neither ``origin`` nor the points of samples say so; None for 0."""

    def _order_like(self) -> Any: ...

    def _start_of(self, t: Any, origin: Any) -> Any: ...

    def _tolerance(self, rtol: Any) -> float: ...

    def _own_grid(self, grid: Grid, t: Any) -> Grid: ...


def read_problem(
    operator: Readable,
    f: Any,
    t: Any,
    step: Any,
    axis: Any,
    origin: Any,
    factor: Any,
    rtol: Any,
    backend: Any,
    *,
    right: bool,
) -> tuple[Samples | Function, Grid, int]:
    """Samples, with their points along the last axis, or a callable; the grid of the samples; and their axis.

    With ``right``, for an operator with ``side="right"``, points are distances from the end.
    """
    if origin is None and (t is None or callable(f)):
        origin = operator.usual_origin
    if callable(f) and not hasattr(f, "dtype"):
        if step is not None:
            raise InvalidInputError("step= is for samples; give the points t at which to compute a callable's result")
        options = {"factor": factor, "rtol": rtol, "axis": axis, "backend": backend}
        if right:
            return read_reflected_function(f, t, origin=origin, **options), _NO_GRID, axis
        return read_callable(f, t, origin=operator._start_of(t, origin), **options), _NO_GRID, axis
    if factor is not None:
        raise InvalidInputError(f"factor={factor!r} is for callables; samples do not use it")
    tolerance = None if rtol is None else operator._tolerance(rtol)
    values = as_values(f, operator._order_like(), step)
    axis = check_axis(axis, values.ndim)
    values = move_axis(values, axis, -1)
    grid = read_grid(t, step, origin, values.shape[-1], from_end=right)
    own = grid
    if right:
        values, own = flip(values), grid.reflected()
    problem = Samples(values, operator._own_grid(own, t), backend, tolerance)
    if not problem.grid.uniform and operator.method not in FAST:
        from hpfracc.operators.core.fast_memory import hint_at_fast

        hint_at_fast(operator, problem)
    return problem, grid, axis
