"""Functions on the blocks of Dask arrays, called with the caller's settings; rows through ``batch.run``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import is_chunked
from hpfracc._optional import import_optional
from hpfracc.distributed.chunked import planning
from hpfracc.distributed.dask_runner import prepare_workers, send_records
from hpfracc.distributed.tasks import Caller
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["apply_elementwise", "blocks", "run_block", "run_rows", "whole_way"]


def blocks(
    name: str,
    call: Callable[..., Any],
    *arrays: Any,
    dtype: Any,
    ndim: int | None = None,
    where: bool = False,
    **options: Any,
) -> Any:
    """``map_blocks`` with the caller's settings.

    With ``where`` the function gets the position of its block as first argument: the range of each axis of the first
    array, or of the result if there is no array.
    """
    array = import_optional("dask.array")
    prepare_workers()
    caller = Caller.here(away=False)
    run: Any = functools.partial(run_block, caller, call)
    if where:
        run = functools.partial(_run_placed, caller, call, bool(arrays))
    ndim = arrays[0].ndim if ndim is None else ndim
    return array.map_blocks(
        run, *arrays, dtype=dtype, meta=np.empty((0,) * ndim, dtype), name=None, token=f"hpfracc-{name.lower()}",
        **options,
    )  # fmt: skip


def run_block(caller: Caller, call: Callable[..., Any], *given: Any) -> Any:
    """Run one task with the caller's settings, within the limits of the worker."""
    with caller.adopted():
        found = call(*given)
    send_records()
    return found


def _run_placed(caller: Caller, call: Callable[..., Any], from_array: bool, *given: Any, block_info: Any = None) -> Any:
    return run_block(caller, call, block_info[0 if from_array else None]["array-location"], *given)


def apply_elementwise(function: Callable[..., Any], operands: tuple[Any, ...], options: Any) -> Any:
    """Apply a function elementwise to Dask arrays, with broadcasting; other operands may be plain arrays."""
    array = import_optional("dask.array")
    varying = {place: each for place, each in enumerate(operands) if is_chunked(each) or np.ndim(each)}
    for place, each in varying.items():
        if is_chunked(each):
            planning.check_chunks(each, f"operand {place + 1}")
    spread = array.broadcast_arrays(*map(array.asarray, varying.values()))
    fixed = tuple(None if place in varying else each for place, each in enumerate(operands))
    call = functools.partial(_call_elementwise, function, fixed, tuple(varying), dict(options))
    ones = [np.ones(1, each.dtype) for each in spread]
    return blocks(function.__name__, call, *spread, dtype=np.asarray(call(*ones)).dtype)


def _call_elementwise(
    function: Callable[..., Any], fixed: tuple[Any, ...], places: tuple[int, ...], options: dict[str, Any], *given: Any
) -> Any:
    operands = list(fixed)
    for place, each in zip(places, given, strict=True):
        operands[place] = each
    return function(*operands, **options)


def whole_way(
    name: str, call: Callable[..., Any], f: Any, along: Sequence[int], resources: planning.Resources, dtype: Any,
    *more: Any, predict: bool = False, points: int | None = None,
) -> dict[planning.ChunkedWay, planning.Build]:  # fmt: skip
    """The way with the axes ``along`` in one chunk each: blockwise if they are, otherwise rechunked and back.

    ``more`` are operands shared by all blocks. ``predict``: the work is a causal convolution. ``points`` is the number
    of values along the first of the axes, if it is another one than that of the samples.
    """
    whole = all(f.numblocks[axis] == 1 for axis in along)

    def build() -> Any:
        given = f if whole else planning.rechunk(f, along, resources)
        if points is not None:
            chunks = tuple((points,) if axis == along[0] else sizes for axis, sizes in enumerate(given.chunks))
            return blocks(name, call, given, *more, dtype=dtype, chunks=chunks)
        found = blocks(name, call, given, *more, dtype=dtype)
        return found if whole else found.rechunk(f.chunks, method=planning.rechunk_method(resources))

    return {planning.blockwise_way(f) if whole else planning.rechunk_way(f, along, resources, predict=predict): build}


def run_rows(run: Callable[..., list[Any]], rows: Any) -> Any:
    """Results of ``run(rows[a:b], a, count)`` for the chunks of the first axis, as a Dask array with the rows first.

    The shape and dtype of a result are found by calling it with a row of zeros; the rows themselves are not computed.
    """
    planning.check_chunks(rows, "items")
    if rows.ndim < 2:
        raise ShapeError(f"items of shape {rows.shape} have no rows; give a Dask array with items along the first axis")
    if max(rows.numblocks[1:]) > 1:
        rows = rows.rechunk(dict.fromkeys(range(1, rows.ndim), -1))
    (sample,) = run(np.zeros((1, *rows.shape[1:]), rows.dtype), 0, 1)
    like = np.asarray(sample)
    if like.dtype.kind not in "biufc":
        raise InvalidInputError(f"the function returns {type(sample).__name__} for a row; return an array or a number")
    build = functools.partial(
        blocks, "batch", functools.partial(_run_chunk, run, rows.shape[0]), rows, dtype=like.dtype, ndim=1 + like.ndim,
        where=True, chunks=(rows.chunks[0], *((length,) for length in like.shape)),
        drop_axis=list(range(1, rows.ndim)), new_axis=list(range(1, 1 + like.ndim)) or None,
    )  # fmt: skip
    return planning.run_way("batch", rows, (0,), {planning.blockwise_way(rows): build})


def _run_chunk(run: Callable[..., list[Any]], count: int, place: Any, block: Any) -> np.ndarray[Any, Any]:
    return np.stack([np.asarray(each) for each in run(block, place[0][0], count)])
