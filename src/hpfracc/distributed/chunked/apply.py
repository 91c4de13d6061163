"""Operators on Dask arrays: lazy in, lazy out. Nothing is computed while the graph is built."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked
from hpfracc.distributed.chunked.blocks import blocks
from hpfracc.distributed.chunked.laplacian import periodic_slabs, slabs_way
from hpfracc.distributed.chunked.planning import (
    ChunkedPlan,
    Resources,
    blockwise_way,
    check_chunks,
    choose,
    rechunk,
    rechunk_method,
    rechunk_way,
    result_dtype,
)
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._fractional_laplacian import FractionalLaplacian
from hpfracc.operators.core.grids import read_grid

__all__ = ["apply_function", "apply_operator", "read_axes", "rows_of", "run_plan"]


def apply_operator(
    operator: Any,
    f: Any,
    t: Any,
    *,
    step: Any,
    axis: Any,
    origin: Any,
    factor: Any,
    rtol: Any,
    backend: Any,
    full_output: bool,
) -> Any:
    """An operator of samples that are a Dask array; ``axis`` may be several."""
    name = type(operator).__name__
    if is_chunked(t) or any(map(is_chunked, t if isinstance(t, list | tuple) else ())):
        raise InvalidInputError(f"{name}: the points t are a Dask array; load them with t.compute(), or give step=")
    if not is_chunked(f):
        raise InvalidInputError(f"{name}: f is not a Dask array; load the other operands with .compute()")
    if full_output:
        raise InvalidInputError(f"{name}: full_output=True describes values that are there; use it on computed samples")
    if factor is not None:
        raise InvalidInputError(f"factor={factor!r} is for callables; samples have no use for it")
    several = isinstance(axis, Sequence)
    along = read_axes(f, axis)
    _check_points(f, t, step, along, several)
    options = {"step": step, "axis": axis, "origin": origin, "rtol": rtol, "backend": backend}
    given = {key: value for key, value in options.items() if value is not None}
    call = functools.partial(_call_operator, operator, t, given)
    if isinstance(operator, FractionalLaplacian) and operator.method == "periodic" and _is_plain(operator.alpha):
        return _periodic(operator, call, f, t, step, along, backend)
    return apply_along(name, call, f, along)


def _is_plain(alpha: Any) -> bool:
    return isinstance(alpha, int | float) and not isinstance(alpha, bool)


def _periodic(operator: Any, call: Any, f: Any, t: Any, step: Any, along: tuple[int, ...], backend: Any) -> Any:
    """The periodic Laplacian, whose transforms can also go axis by axis."""
    check_chunks(f, "f")
    resources = Resources.known()
    if all(f.numblocks[axis] == 1 for axis in along):
        return apply_along(type(operator).__name__, call, f, along)
    ways = [rechunk_way(f, along, resources), slabs_way(f, along, resources)]
    enough = rows_of(f, along) >= resources.workers
    plan = choose(type(operator).__name__, f, along, ways, "rechunk" if enough else "slabs")
    if plan.chosen == "slabs":
        steps = _steps(f, t, step, along)
        return periodic_slabs(f, along, steps, float(operator.alpha), backend, resources)
    return run_plan(plan, call, f, along, resources, result_dtype(f))


def _steps(f: Any, t: Any, step: Any, along: tuple[int, ...]) -> list[float]:
    if step is not None:
        given = step if isinstance(step, Sequence) else [step] * len(along)
        return [float(each) for each in given]
    found = []
    for points, axis in zip(t if len(along) > 1 or isinstance(t, list | tuple) else [t], along, strict=True):
        grid = read_grid(np.asarray(points), None, None, f.shape[axis])
        grid.require_uniform("an operator over several axes")
        found.append(float(grid.step))
    return found


def _call_operator(operator: Any, t: Any, options: dict[str, Any], block: Any) -> Any:
    return operator(block, t, **options)


def apply_function(
    name: str, call: Callable[[Any], Any], x: Any, axis: Any, *, dtype: Any = None, points: int | None = None
) -> Any:
    """A function of samples along an axis, which gives an array of their shape, or ``points`` values along the axis."""
    along = read_axes(x, -1 if axis is None else axis)
    if points is None or points == x.shape[along[0]]:
        return apply_along(name, call, x, along, dtype)
    check_chunks(x, "x")
    resources = Resources.known()
    way = blockwise_way(x) if x.numblocks[along[0]] == 1 else rechunk_way(x, along, resources)
    choose(name, x, along, [way], way.name)
    whole = x if way.name == "blockwise" else rechunk(x, along, resources)
    chunks = tuple((points,) if at == along[0] else sizes for at, sizes in enumerate(whole.chunks))
    return blocks(name, call, whole, dtype=result_dtype(x) if dtype is None else dtype, chunks=chunks)


def read_axes(f: Any, axis: Any) -> tuple[int, ...]:
    """Axes from 0 on, checked."""
    given = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    for each in given:
        if isinstance(each, bool) or not isinstance(each, int | np.integer) or not -f.ndim <= each < f.ndim:
            raise ShapeError(
                f"axis={each!r} is not an axis of samples with {f.ndim} axes; use {-f.ndim} to {f.ndim - 1}"
            )
    return tuple(int(each) % f.ndim for each in given)


def _check_points(f: Any, t: Any, step: Any, along: tuple[int, ...], several: bool) -> None:
    """The mistakes that would otherwise show up only in the workers."""
    if t is None and step is None:
        raise InvalidInputError("neither t nor step is given; give the points t, or their distance step=")
    if t is None:
        return
    lengths = [np.shape(each) for each in t] if several else [np.shape(t)]
    wanted = [(f.shape[axis],) for axis in along]
    if lengths != wanted:
        raise ShapeError(
            f"t has shape {lengths if several else lengths[0]} for samples with {wanted} points; give one each"
        )


def apply_along(name: str, call: Callable[[Any], Any], f: Any, along: tuple[int, ...], dtype: Any = None) -> Any:
    """Blockwise if the axes are whole, otherwise rechunked and back."""
    check_chunks(f, "f")
    resources = Resources.known()
    whole = all(f.numblocks[axis] == 1 for axis in along)
    way = blockwise_way(f) if whole else rechunk_way(f, along, resources)
    plan = choose(name, f, along, [way], way.name)
    return run_plan(plan, call, f, along, resources, result_dtype(f) if dtype is None else dtype)


def run_plan(
    plan: ChunkedPlan,
    call: Callable[..., Any],
    f: Any,
    along: Sequence[int],
    resources: Resources,
    dtype: Any,
    *more: Any,
) -> Any:
    """The graph of a plan that is blockwise, after rechunking perhaps. ``more`` are operands that all blocks share."""
    if plan.chosen == "blockwise":
        return blocks(plan.operation, call, f, *more, dtype=dtype)
    found = blocks(plan.operation, call, rechunk(f, along, resources), *more, dtype=dtype)
    return found.rechunk(f.chunks, method=rechunk_method(resources))


def rows_of(f: Any, along: Sequence[int]) -> int:
    """Number of independent series."""
    return math.prod(f.shape[axis] for axis in range(f.ndim) if axis not in along)
