"""Operators on Dask arrays: lazy input, lazy output. Nothing is computed while the graph is built."""

from __future__ import annotations

import contextvars
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked
from hpfracc._optional import import_optional
from hpfracc.distributed.chunked.blocks import blocks, run_plan
from hpfracc.distributed.chunked.history import apply_history, history_ways
from hpfracc.distributed.chunked.planning import (
    COPIES,
    ChunkedWay,
    Resources,
    block_bytes,
    blockwise_way,
    check_chunks,
    choose,
    quickest,
    rechunk,
    rechunk_method,
    rechunk_way,
    result_dtype,
    rows_of,
)
from hpfracc.engine.execution.api import fft
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._fractional_laplacian import FractionalLaplacian
from hpfracc.operators.core.base import FractionalOperator
from hpfracc.operators.core.grids import read_grid

__all__ = ["apply", "apply_function", "apply_operator", "call_operator", "sample_axes"]

#: Number of points with which an operator is tested before its graph is built.
_TRIED = 32


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
    full_output: bool = False,
    way: str = "auto",
) -> Any:
    """Apply an operator to a Dask array of samples; ``axis`` may be several."""
    name = type(operator).__name__
    if is_chunked(t) or any(map(is_chunked, t if isinstance(t, list | tuple) else ())):
        raise InvalidInputError(f"{name}: the points t are a Dask array; load them with t.compute(), or give step=")
    if not is_chunked(f):
        raise InvalidInputError(f"{name}: f is not a Dask array; load the other operands with .compute()")
    if full_output:
        raise InvalidInputError(f"{name}: full_output=True describes computed values; use it on computed samples")
    if factor is not None:
        raise InvalidInputError(f"factor={factor!r} is for callables; samples do not use it")
    several = isinstance(axis, Sequence)
    along = sample_axes(f, axis)
    _check_points(f, t, step, along, several)
    options = {"step": step, "axis": axis, "origin": origin, "rtol": rtol, "backend": backend}
    given = {key: value for key, value in options.items() if value is not None}
    call = functools.partial(call_operator, operator, t, given)
    check_chunks(f, "f")
    if not _has_values_at_points(operator, f, along):
        few = None if t is None else [each[:_TRIED] for each in t] if several else t[:_TRIED]
        _try_out(operator, f, along, few, **given)
    if isinstance(operator, FractionalLaplacian) and operator.method == "periodic" and _is_plain(operator.alpha):
        if way == "auto":
            return _periodic(operator, call, f, t, step, along, backend)
    elif len(along) == 1 and origin is None and rtol is None:
        return _causal(operator, call, f, t, step, along, backend, way)
    if way != "auto":
        raise InvalidInputError(f"way={way!r}: {name} along these axes has no choice of ways; leave it out")
    return apply_along(name, call, f, along)


def _has_values_at_points(operator: Any, f: Any, along: tuple[int, ...]) -> bool:
    """Whether a parameter has one value per point, as a variable order may have."""
    wanted = {(f.shape[axis],) for axis in along}
    return any(np.shape(getattr(operator, each.name)) in wanted for each in fields(operator))


def _try_out(call: Callable[..., Any], f: Any, along: tuple[int, ...], *points: Any, **options: Any) -> None:
    """Call it with a few zeros, so that a bad order, step or backend is refused here and not by the workers."""
    shape = tuple(min(length, _TRIED) if axis in along else 1 for axis, length in enumerate(f.shape))
    like = import_optional("dask.array.utils").meta_from_array(f)
    # In its own context, so that the caller's last decision does not change.
    contextvars.copy_context().run(call, np.zeros_like(like, shape=shape), *points, **options)


def _causal(operator: Any, call: Any, f: Any, t: Any, step: Any, along: tuple[int, ...], backend: Any, way: str) -> Any:
    """An operator along one axis, whose memory may cross the boundaries of chunks."""
    check_chunks(f, "f")
    name, (axis,), resources = type(operator).__name__, along, Resources.known()
    array = import_optional("dask.array")
    whole = f.numblocks[axis] == 1
    ways = [blockwise_way(f) if whole else rechunk_way(f, along, resources, predict=True)]
    distance = None if whole else _uniform_step(f, t, step, axis)
    turned = array.moveaxis(f, axis, -1)
    if distance is not None:
        ways += history_ways(operator, turned, resources)
    plan = choose(name, f, along, ways, quickest(ways), way)
    if plan.chosen in ("spectrum", "carry"):
        assert distance is not None
        return array.moveaxis(apply_history(plan.chosen, operator, turned, distance, backend, resources), -1, axis)
    return run_plan(plan, call, f, along, resources, result_dtype(f))


def _uniform_step(f: Any, t: Any, step: Any, axis: int) -> float | None:
    """The spacing of the points, or None if they are not uniform."""
    if t is None:
        return float(step) if isinstance(step, int | float) and not isinstance(step, bool) and step > 0.0 else None
    grid = read_grid(np.asarray(t), None, None, f.shape[axis])
    return float(grid.step) if grid.uniform and isinstance(grid.step, float) else None


def apply(
    operator: Any, f: Any, t: Any = None, *, step: Any = None, axis: int = -1, way: str = "auto", backend: Any = None
) -> Any:
    """Apply a fractional operator to a Dask array, by a chosen way over the chunks of time.

    Parameters
    ----------
    operator : FractionalOperator
        The operator, such as ``hf.Caputo(0.5)``.
    f : Dask array
        The samples.
    t, step, axis
        Their points or spacing, and the axis of the points.
    way : {"auto", "blockwise", "rechunk", "spectrum", "carry"}
        ``"blockwise"``: the axis is one chunk. ``"rechunk"``: time to rows and back, which needs a whole row in a
        worker. For a left-sided Caputo, Riemann-Liouville or Grünwald-Letnikov operator on a uniform grid, in chunks of
        more than some 200 points: ``"spectrum"``, which moves the data four times, and ``"carry"``, which moves some
        800 numbers per chunk and row, for slow networks. Both agree with a single call to a few eps of the sum of the
        absolute weights times the largest input. ``"auto"`` takes the one predicted to be fastest; ``hf.explain`` shows
        the predictions.
    backend : str, optional
        Backend of the engine for each task.

    Returns
    -------
    Dask array
        With the chunks of the samples. Nothing is computed yet.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> samples = da.from_array(np.sin(np.linspace(0.0, 9.0, 2000)), chunks=500)
    >>> carried = hf.distributed.apply(hf.Caputo(0.5), samples, step=0.0045, way="carry").compute()
    >>> bool(np.allclose(carried, hf.caputo(samples.compute(), step=0.0045, alpha=0.5), rtol=0.0, atol=1e-11))
    True
    """
    if not isinstance(operator, FractionalOperator):
        raise InvalidInputError(f"operator={operator!r} is not a fractional operator; give hf.Caputo(0.5), say")
    return apply_operator(
        operator, f, t, step=step, axis=axis, origin=None, factor=None, rtol=None, backend=backend, way=way
    )


def _is_plain(alpha: Any) -> bool:
    return isinstance(alpha, int | float) and not isinstance(alpha, bool)


def _periodic(operator: Any, call: Any, f: Any, t: Any, step: Any, along: tuple[int, ...], backend: Any) -> Any:
    """The periodic Laplacian, which can also be transformed axis by axis."""
    check_chunks(f, "f")
    resources = Resources.known()
    if all(f.numblocks[axis] == 1 for axis in along):
        return apply_along(type(operator).__name__, call, f, along)
    ways = [rechunk_way(f, along, resources), _slabs_way(f, along, resources)]
    enough = rows_of(f, along) >= resources.workers
    plan = choose(type(operator).__name__, f, along, ways, "rechunk" if enough else "slabs")
    if plan.chosen == "slabs":
        steps = _steps(f, t, step, along)
        return _periodic_slabs(f, along, steps, float(operator.alpha), backend, resources)
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


def call_operator(operator: Any, t: Any, options: dict[str, Any], block: Any) -> Any:
    """Apply an operator to the samples of one block or device."""
    return operator(block, t, **options)


def apply_function(
    name: str, call: Callable[[Any], Any], x: Any, axis: Any, *, dtype: Any = None, points: int | None = None
) -> Any:
    """Apply a function of samples along an axis that returns their shape, or ``points`` values along the axis."""
    along = sample_axes(x, -1 if axis is None else axis)
    if points is None:
        check_chunks(x, "x")
        _try_out(call, x, along)
    if points is None or points == x.shape[along[0]]:
        return apply_along(name, call, x, along, dtype)
    check_chunks(x, "x")
    resources = Resources.known()
    way = blockwise_way(x) if x.numblocks[along[0]] == 1 else rechunk_way(x, along, resources)
    choose(name, x, along, [way], way.name)
    whole = x if way.name == "blockwise" else rechunk(x, along, resources)
    chunks = tuple((points,) if at == along[0] else sizes for at, sizes in enumerate(whole.chunks))
    return blocks(name, call, whole, dtype=result_dtype(x) if dtype is None else dtype, chunks=chunks)


def sample_axes(f: Any, axis: Any) -> tuple[int, ...]:
    """Checked, non-negative axes."""
    given = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    if not f.ndim:
        raise ShapeError("the samples are a single number; give an array of them")
    for each in given:
        if isinstance(each, bool) or not isinstance(each, int | np.integer) or not -f.ndim <= each < f.ndim:
            raise ShapeError(
                f"axis={each!r} is not an axis of samples with {f.ndim} axes; use {-f.ndim} to {f.ndim - 1}"
            )
    return tuple(int(each) % f.ndim for each in given)


def _check_points(f: Any, t: Any, step: Any, along: tuple[int, ...], several: bool) -> None:
    """Refuse mistakes that would otherwise only show up in the workers."""
    if t is None and step is None:
        raise InvalidInputError("neither t nor step is given; give the points t, or their spacing step=")
    if t is None:
        return
    lengths = [np.shape(each) for each in t] if several else [np.shape(t)]
    wanted = [(f.shape[axis],) for axis in along]
    if lengths != wanted:
        raise ShapeError(
            f"t has shape {lengths if several else lengths[0]} for samples with {wanted} points; give one for each"
        )


def apply_along(name: str, call: Callable[[Any], Any], f: Any, along: tuple[int, ...], dtype: Any = None) -> Any:
    """Blockwise if the axes are whole, otherwise rechunked and back."""
    check_chunks(f, "f")
    resources = Resources.known()
    whole = all(f.numblocks[axis] == 1 for axis in along)
    way = blockwise_way(f) if whole else rechunk_way(f, along, resources)
    plan = choose(name, f, along, [way], way.name)
    return run_plan(plan, call, f, along, resources, result_dtype(f) if dtype is None else dtype)


def _slabs_way(f: Any, along: Sequence[int], resources: Resources) -> ChunkedWay:
    """Tasks and bytes of transforms along one axis after another."""
    longest = max(f.shape[axis] for axis in along) * 16
    block = max(longest, block_bytes(resources))
    refusal = resources.refusal(f"a line of {longest:,} bytes", COPIES * longest)
    moved = 2 * len(along) * 16 * math.prod(f.shape)
    tasks = 4 * len(along) * max(math.prod(f.numblocks), math.ceil(16 * math.prod(f.shape) / block))
    return ChunkedWay("slabs", "a few eps of the largest term", tasks, moved, COPIES * block, refusal)


def _periodic_slabs(
    f: Any, along: Sequence[int], steps: Sequence[float], alpha: float, backend: Any, resources: Resources
) -> Any:
    r"""Periodic fractional Laplacian of a field that is chunked along its own axes, slab by slab.

    .. math:: (-\Delta)^{\alpha/2} f = \mathcal{F}^{-1} |\kappa|^\alpha \mathcal{F} f

    Each axis is transformed while it is one chunk, and the array is rechunked in between, so no task holds more than a
    slab.
    """
    dtype = f.dtype if f.dtype.kind in "fc" else np.dtype(np.float64)
    wide = np.result_type(dtype, np.complex64)
    x = f.astype(wide)
    for kind in ("fft", "ifft"):
        for axis in along:
            x = _whole(x, axis, resources)
            x = blocks(kind, functools.partial(_transform, kind, axis, backend), x, dtype=wide)
        if kind == "fft":
            symbol = functools.partial(_times_symbol, tuple(along), f.shape, tuple(steps), alpha)
            x = blocks("symbol", symbol, x, dtype=wide, where=True)
    if dtype.kind == "f":
        x = x.real
    return x.astype(dtype).rechunk(f.chunks, method=rechunk_method(resources))


def _whole(x: Any, axis: int, resources: Resources) -> Any:
    if x.numblocks[axis] == 1:
        return x
    lines = max(1, block_bytes(resources) // (x.shape[axis] * x.dtype.itemsize))
    chunks: dict[int, Any] = {axis: -1}
    for other in reversed([each for each in range(x.ndim) if each != axis]):
        chunks[other] = max(1, min(x.shape[other], lines))
        lines = max(1, lines // x.shape[other])
    return x.rechunk(chunks, method=rechunk_method(resources))


def _transform(kind: str, axis: int, backend: Any, block: Any) -> Any:
    return fft(block, kind=kind, axis=axis, backend=backend)


def _times_symbol(
    along: tuple[int, ...], shape: tuple[int, ...], steps: tuple[float, ...], alpha: float, place: Any, block: Any
) -> Any:
    squares = np.zeros((1,) * block.ndim)
    for axis, step in zip(along, steps, strict=True):
        begin, end = place[axis]
        waves = np.round(np.fft.fftfreq(shape[axis]) * shape[axis])[begin:end] * (2.0 * math.pi / (shape[axis] * step))
        squares = squares + (waves**2).reshape([-1 if each == axis else 1 for each in range(block.ndim)])
    if alpha == 0.0:
        return block
    powers = np.where(squares > 0.0, np.where(squares > 0.0, squares, 1.0) ** (0.5 * alpha), 0.0)
    return (block * powers).astype(block.dtype, copy=False)
