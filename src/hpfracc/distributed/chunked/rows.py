"""``batch.run`` over the rows of a Dask array."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._config import current_backend
from hpfracc._optional import import_optional
from hpfracc.distributed.chunked.planning import blockwise_way, check_chunks, choose
from hpfracc.distributed.sweeps import caller_settings
from hpfracc.distributed.tasks import Caller
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["run_rows"]


def run_rows(run: Callable[..., list[Any]], rows: Any) -> Any:
    """Results of ``run(rows[a:b], a, count)`` for the chunks of the first axis, as a Dask array with the rows first.

    Shape and dtype of a result are found from a row of zeros; the rows themselves are not computed.
    """
    array = import_optional("dask.array")
    check_chunks(rows, "items")
    if rows.ndim < 2:
        raise ShapeError(f"items of shape {rows.shape} have no rows; give a Dask array with items along the first axis")
    if max(rows.numblocks[1:]) > 1:
        rows = rows.rechunk(dict.fromkeys(range(1, rows.ndim), -1))
    (sample,) = run(np.zeros((1, *rows.shape[1:]), rows.dtype), 0, 1)
    like = np.asarray(sample)
    if like.dtype.kind not in "biufc":
        raise InvalidInputError(f"the function gives a {type(sample).__name__} for a row; return an array or a number")
    choose("batch", rows, (0,), [blockwise_way(rows)], "blockwise")
    found = functools.partial(_run_chunk, Caller(caller_settings(), current_backend()), run, rows.shape[0])
    more = range(1, rows.ndim)
    return array.map_blocks(
        found,
        rows,
        dtype=like.dtype,
        chunks=(rows.chunks[0], *((length,) for length in like.shape)),
        drop_axis=list(more),
        new_axis=list(range(1, 1 + like.ndim)) or None,
        meta=np.empty((0,) * (1 + like.ndim), like.dtype),
        token="hpfracc-batch",
    )


def _run_chunk(
    caller: Caller, run: Callable[..., list[Any]], count: int, block: Any, block_info: Any = None
) -> np.ndarray[Any, Any]:
    first = block_info[0]["array-location"][0][0]
    with caller.adopted():
        return np.stack([np.asarray(each) for each in run(block, first, count)])
