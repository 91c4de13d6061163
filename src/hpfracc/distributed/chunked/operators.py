"""Operators on Dask arrays: lazy input, lazy output. Nothing is computed while the graph is built."""

from __future__ import annotations

import contextvars
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_chunked
from hpfracc._optional import import_optional
from hpfracc.distributed.chunked import planning
from hpfracc.distributed.chunked.history import history_ways
from hpfracc.distributed.chunked.planning import ChunkedWay, Resources, blocks, check_chunks, result_dtype, whole_way
from hpfracc.distributed.devices import sample_axes
from hpfracc.engine.execution.api import fft
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators._fractional_laplacian import FractionalLaplacian
from hpfracc.operators.core.base import FractionalOperator
from hpfracc.operators.core.grids import read_grid

#: Number of points with which an operator is tested before its graph is built.
_TRIED = 32


def apply_operator(
    operator: Any, f: Any, t: Any, *, axis: Any, factor: Any = None, full_output: bool = False, way: str = "auto",
    **options: Any,
) -> Any:  # fmt: skip
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
    given = {key: value for key, value in {"axis": axis, **options}.items() if value is not None}
    step, backend = given.get("step"), given.get("backend")
    _check_points(f, t, step, along, several)
    check_chunks(f, "f")
    # A parameter may have one value per point, as a variable order.
    lengths = {(f.shape[axis],) for axis in along}
    if not any(np.shape(getattr(operator, each.name)) in lengths for each in fields(operator)):
        few = None if t is None else [each[:_TRIED] for each in t] if several else t[:_TRIED]
        _try_out(operator, f, along, few, **given)
    resources = Resources.known()
    periodic = isinstance(operator, FractionalLaplacian) and operator.method == "periodic"
    periodic = periodic and type(operator.alpha) in (int, float)
    causal = not periodic and len(along) == 1 and not given.keys() & {"origin", "rtol"}

    def call(block: Any) -> Any:
        return operator(block, t, **given)

    ways = whole_way(name, call, f, along, resources, result_dtype(f))
    if periodic and any(f.numblocks[each] > 1 for each in along):
        grids = t if several and t is not None else [t] * len(along)
        steps = step if isinstance(step, Sequence) else [step] * len(along)
        spaces = [_spacing(f, *each, "a periodic operator") for each in zip(grids, steps, along, strict=True)]
        slabs = functools.partial(_periodic_slabs, f, along, spaces, float(operator.alpha), backend, resources)
        enough = planning.rows_of(f, along) >= resources.workers
        more: dict[ChunkedWay, planning.Build] = {_slabs_way(f, along, resources): slabs}
        ways = {**ways, **more} if enough else {**more, **ways}
    elif causal and f.numblocks[along[0]] > 1:
        space = _spacing(f, t, step, along[0])
        if not math.isnan(space):
            across = history_ways(operator, f, along[0], space, backend, resources)
            ways = planning.with_chunks_of_time(ways, across, f, along, resources.workers)
    return planning.run_way(name, f, along, ways, way)


def _try_out(call: Callable[..., Any], f: Any, along: tuple[int, ...], *points: Any, **options: Any) -> None:
    """Call it with a few zeros, so that a bad order, step or backend is refused here and not by the workers."""
    shape = tuple(min(length, _TRIED) if axis in along else 1 for axis, length in enumerate(f.shape))
    like = import_optional("dask.array.utils").meta_from_array(f)
    # In its own context, so that the caller's last decision does not change.
    contextvars.copy_context().run(call, np.zeros_like(like, shape=shape), *points, **options)


def _spacing(f: Any, t: Any, step: Any, axis: int, uniform_for: str = "") -> float:
    """The spacing of the points, or nan if they are not uniform; with ``uniform_for`` that is an error."""
    if t is None:
        return _reading.number("step", step, above=0.0)
    grid = read_grid(np.asarray(t), None, None, f.shape[axis])
    if uniform_for:
        grid.require_uniform(uniform_for)
    return float(grid.step) if grid.uniform and isinstance(grid.step, float) else math.nan


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
    way : {"auto", "blockwise", "rechunk", "spectrum", "carry", "slabs"}
        ``"blockwise"``: the axis is one chunk. ``"rechunk"``: time to rows and back, which needs a whole row in a
        worker. For a left-sided Caputo, Riemann-Liouville or Grünwald-Letnikov operator on a uniform grid, in chunks of
        more than some 200 points: ``"spectrum"``, which moves the data four times, and ``"carry"``, which moves some
        800 numbers per chunk and row, for slow networks. Both agree with a single call to a few eps of the sum of the
        absolute weights times the largest input. ``"slabs"``: a periodic Laplacian by transforms along one axis after
        another. ``"auto"`` rechunks if possible, and carries rows of at least 2^20 points on two workers each;
        ``hf.explain`` shows tasks, bytes and memory.
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
    _reading.instance("operator", operator, FractionalOperator, "hf.Caputo(0.5)")
    return apply_operator(operator, f, t, step=step, axis=axis, backend=backend, way=way)


def apply_function(
    name: str, call: Callable[[Any], Any], x: Any, axis: Any, *, dtype: Any = None, points: int | None = None
) -> Any:
    """Apply a function of samples along an axis that returns their shape, or ``points`` values along the axis."""
    along = sample_axes(x, -1 if axis is None else axis)
    check_chunks(x, "x")
    if points is None:
        _try_out(call, x, along)
    dtype = result_dtype(x) if dtype is None else dtype
    points = None if points == x.shape[along[0]] else points
    ways = whole_way(name, call, x, along, Resources.known(), dtype, points=points)
    return planning.run_way(name, x, along, ways)


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


def _slabs_way(f: Any, along: Sequence[int], resources: Resources) -> ChunkedWay:
    """Tasks and bytes of transforms along one axis after another."""
    longest = max(f.shape[axis] for axis in along) * 16
    block = max(longest, planning.block_bytes(resources))
    refusal = resources.refusal(f"a line of {longest:,} bytes", planning.COPIES * longest)
    moved = 2 * len(along) * 16 * math.prod(f.shape)
    tasks = 4 * len(along) * max(math.prod(f.numblocks), math.ceil(16 * math.prod(f.shape) / block))
    return ChunkedWay("slabs", "a few eps of the largest term", tasks, moved, planning.COPIES * block, refusal)


def _periodic_slabs(
    f: Any, along: Sequence[int], steps: Sequence[float], alpha: float, backend: Any, resources: Resources
) -> Any:
    r"""Periodic fractional Laplacian of a field that is chunked along its own axes, slab by slab.

    .. math:: (-\Delta)^{\alpha/2} f = \mathcal{F}^{-1} |\kappa|^\alpha \mathcal{F} f

    Each axis is transformed while it is one chunk, and the array is rechunked in between, so no task holds more than a
    slab.
    """
    dtype = result_dtype(f)
    wide = np.result_type(dtype, np.complex64)

    def transform(kind: str, axis: int, block: Any) -> Any:
        return fft(block, kind=kind, axis=axis, backend=backend)

    def times_symbol(place: Any, block: Any) -> Any:
        squares = np.zeros((1,) * block.ndim)
        for axis, step in zip(along, steps, strict=True):
            n = shape[axis]
            waves = np.round(np.fft.fftfreq(n) * n)[slice(*place[axis])] * (2.0 * math.pi / (n * step))
            squares = squares + (waves**2).reshape([-1 if each == axis else 1 for each in range(block.ndim)])
        powers = np.where(squares > 0.0, np.where(squares > 0.0, squares, 1.0) ** (0.5 * alpha), 0.0)
        return block if alpha == 0.0 else (block * powers).astype(block.dtype, copy=False)

    x, shape = f.astype(wide), f.shape
    for kind in ("fft", "ifft"):
        for axis in along:
            x = x if x.numblocks[axis] == 1 else planning.rechunk(x, (axis,), resources)
            x = blocks(kind, functools.partial(transform, kind, axis), x, dtype=wide)
        if kind == "fft":
            x = blocks("symbol", times_symbol, x, dtype=wide, where=True)
    if dtype.kind == "f":
        x = x.real
    return x.astype(dtype).rechunk(f.chunks, method=planning.rechunk_method(resources))
