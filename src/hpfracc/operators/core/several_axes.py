"""Calling an operator over several axes of space at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked, library_of, tracks_gradient
from hpfracc._clusters import cluster_support
from hpfracc._xp import namespace_of, user_scope
from hpfracc.engine.execution.api import composite
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators.core.applying import order_beside
from hpfracc.operators.core.grids import Grid, read_grid
from hpfracc.operators.core.reporting import OperatorResult
from hpfracc.operators.core.values import Samples, as_values, check_axis, points_like

__all__ = ["call_over_axes"]


def call_over_axes(
    operator: Any, f: Any, t: Any, *, step: Any, axes: Sequence[int], backend: Any, full_output: bool
) -> Any:
    """Read the grids of all axes, apply the operator's method over them, and put the axes back."""
    if not axes:
        raise InvalidInputError("axis=() names no axis; give one, or several")
    if is_chunked(f):
        options = {"step": step, "axis": tuple(axes), "origin": None, "factor": None, "rtol": None}
        return cluster_support().apply_operator(operator, f, t, **options, backend=backend, full_output=full_output)
    steps = _each("step", step, len(axes))
    if callable(f) and not hasattr(f, "dtype"):
        if t is None:
            raise InvalidInputError("f is a callable, so give t, the points along each of the axes")
        f = _sampled(f, _each("t", t, len(axes)))
    values = as_values(f, operator._order_like(), *(one for one in steps if one is not None))
    chosen = [check_axis(axis, values.ndim) for axis in axes]
    if len(set(chosen)) < len(chosen):
        raise ShapeError(f"axis={tuple(axes)!r} names an axis twice; name each once")
    lengths = [values.shape[axis] for axis in chosen]
    grids = [
        read_grid(points, one, None, n) for points, one, n in zip(_each("t", t, len(axes)), steps, lengths, strict=True)
    ]
    for grid in grids:
        grid.require_uniform("an operator over several axes")
    # One step for all axes may carry a gradient: the ratio of steps is always 1.
    ratios = _ratios(grids) if t is not None or isinstance(step, Sequence) else (1.0,) * len(grids)
    # Move the axes of space behind all others, in the caller's order.
    values = _moved(values, chosen, list(range(-len(chosen), 0)))
    with namespace_of(operator._order_like()).scope(), composite() as decisions:
        rule, order = operator._chosen()
        order = order_beside(order, values)
        with np.errstate(invalid="ignore"):
            value = rule.over(Samples(values, grids[0], backend), ratios, order)
        made = list(decisions)
    value = _moved(value, list(range(-len(chosen), 0)), chosen)
    if not full_output:
        return value
    decision = made[0] if len(made) == 1 else made or None
    notes = "; ".join(grid.note for grid in grids if grid.note)
    return OperatorResult(value, rule.name, math.nan, decision, grids[0].origin, message=notes)


def _each(name: str, given: Any, count: int) -> list[Any]:
    """One entry per axis: the given ones, or the same for all (steps only)."""
    if given is None:
        return [None] * count
    if isinstance(given, Sequence):
        if len(given) != count:
            raise ShapeError(f"{name} has {len(given)} entries for {count} axes; give one for each")
        return list(given)
    if name == "t":
        raise ShapeError(f"t is one array for {count} axes; give a sequence with the points along each")
    return [given] * count


def _ratios(grids: Sequence[Grid]) -> tuple[float, ...]:
    """The squared first step divided by the squared step of each axis."""
    first = grids[0].step
    ratios = []
    for grid in grids:
        if any(library_of(one) in ("torch", "jax") and tracks_gradient(one) for one in (first, grid.step)):
            raise InvalidInputError("several steps that carry gradients; give one step for all axes, or plain numbers")
        ratio = (float(first) / float(grid.step)) ** 2
        ratios.append(1.0 if abs(ratio - 1.0) < 1e-12 else ratio)
    return tuple(ratios)


def _moved(values: Any, source: Sequence[int], target: Sequence[int]) -> Any:
    """``numpy.moveaxis`` with several axes, counted from the end, for every library."""
    if list(source) == list(target):
        return values
    rest = [axis for axis in range(-values.ndim, 0) if axis not in source]
    places: dict[int, int] = dict(zip(target, source, strict=True))
    free = iter(rest)
    order = [places[axis] if axis in places else next(free) for axis in range(-values.ndim, 0)]
    order = [axis + values.ndim for axis in order]
    if library_of(values) == "torch":
        return values.permute(order)
    return values.transpose(order)


def _sampled(f: Any, grids: Sequence[Any]) -> Any:
    """The values of a callable at all points of the grid."""
    points = [np.asarray(read_grid(grid, None, None, len(grid)).times()) for grid in grids]
    like = next((grid for grid in grids if library_of(grid) in ("torch", "jax", "cupy")), points[0])
    mesh = [points_like(np.ascontiguousarray(part), like) for part in np.meshgrid(*points, indexing="ij")]
    with user_scope()():
        values = f(*mesh)
    shape = tuple(len(part) for part in points)
    if tuple(getattr(values, "shape", ())) != shape:
        raise ShapeError(
            f"f returned shape {tuple(getattr(values, 'shape', ()))} for a grid of {shape}; it is called with an array "
            "for each axis, shaped like the grid, and must return one value per point"
        )
    return values
