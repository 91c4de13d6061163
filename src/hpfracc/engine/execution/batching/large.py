"""Arrays larger than memory: block after block through the engine, from and to memory-mapped files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batching.chunked import decision_in_pieces
from hpfracc.engine.execution.batching.mapped import SHARE, check_host, forget_pages, same_place, target_of
from hpfracc.engine.execution.batching.overlap import convolve_block
from hpfracc.engine.execution.batching.pieces import Job, PieceTooLargeError
from hpfracc.engine.execution.batching.progress import Progress, progress_of
from hpfracc.engine.execution.batching.sizes import ChunkSizer, largest_that_fits, round_size
from hpfracc.engine.execution.batching.ways import check_speed, ideal_verdict, time_plan
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.memory.relief import relief
from hpfracc.engine.memory.units import parse_bytes
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec, dtype_of
from hpfracc.engine.primitives.cuts import Cut
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.decide import Selection
from hpfracc.errors import OutOfMemoryError

__all__ = ["convolve_blocks", "evaluate_blocks"]

Array = np.ndarray[Any, Any]

#: Share of the budget that kept transforms of the weights may take.
_KEPT_SHARE = 0.25


def _limit(budget: Any) -> int:
    if budget is not None:
        return parse_bytes("budget", budget)
    free = get_budget().read(HOST)
    return 2**62 if free is None else int(SHARE * free * relief.chunk_scale())


def _no_room(operation: str, limit: int) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"{operation}: not even the smallest block fits into {limit / 2**20:,.1f} MiB; give a larger budget="
    )


def convolve_blocks(
    weights: Any,
    signal: Any,
    *,
    out: Array | None = None,
    budget: int | str | None = None,
    backend: str | None = None,
    progress: Progress = False,
) -> Array:
    """``y[..., n] = sum_{k <= n} weights[..., k] * signal[..., n - k]`` of arrays that need not fit into memory.

    The signal is read in blocks, each with the samples before it that the weights reach back to (overlap-save), and the
    weights in parts where they are long: the same sum in another order, and so the same result to rounding. Each block
    is an engine call, on whichever backend and device is quickest for it.

    Parameters
    ----------
    weights : array_like, shape (..., K)
        In memory or mapped.
    signal : array_like, shape (..., n)
        In memory, or a ``numpy.memmap``; leading axes broadcast with those of the weights.
    out : numpy.ndarray, optional
        Where the result goes, such as a ``numpy.memmap`` of mode ``"w+"``; may be ``signal`` itself. A new array by
        default, where half of what is free has room for it.
    budget : int or str, optional
        Bytes that a block may take, operands, result and workspace together, on the host and on a device; text such as
        ``"2GiB"`` is read. Half of what is free on the host by default.
    backend : str, optional
        Where to run the blocks.
    progress : bool or callable
        True shows a bar; a function is called with the points done and those in all.

    Returns
    -------
    numpy.ndarray
        ``out``, or the new array.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import batch
    >>> batch.causal_convolution(np.array([1.0, 0.5]), np.array([1.0, 0.0, 2.0]), budget="1MiB")
    array([1. , 0.5, 2. ])
    """
    name = "causal_convolution"
    check_host(name, "weights", weights)
    check_host(name, "signal", signal)
    weights, signal = np.asanyarray(weights), np.asanyarray(signal)
    request = make_request(PRIMITIVES[name], (weights, signal), {}, backend=backend)
    call = request.call
    target = target_of(name, out, call.shape, call.dtype, call.output_bytes)
    backwards = same_place(name, target, signal)
    same_place(name, target, weights)
    if not target.size:
        return target
    limit = _limit(budget)
    job = Job(PRIMITIVES[name], {}, request, limit)
    with progress_of(progress, target.size, name) as advance:
        try:
            ideal, groups = ideal_verdict(job, (weights, signal)), list(_row_groups(job, weights, signal))
            for rows in groups:
                _convolve_rows(job, weights, signal, target, rows, backwards, advance, ideal, len(groups))
        finally:
            prepared_operands.forget(job)
    forget_pages(weights, signal, target)
    decision_log.record(decision_in_pieces(job, f"read in blocks within {limit / 2**20:,.0f} MiB"))
    return target


def _row_groups(job: Job, weights: Array, signal: Array) -> Iterator[tuple[Any, ...]]:
    """Indices of rows that are done together: several where whole rows fit, otherwise one at a time."""
    shape = job.request.call.shape
    if len(shape) == 1:
        yield ()
        return
    together, points = 1, shape[-1]
    if weights.ndim == 1 and signal.shape == shape:
        kinds = ArraySpec(weights.shape, dtype_of(weights))
        most = largest_that_fits(lambda rows: job.fits((kinds, ArraySpec((rows, points), dtype_of(signal)))), shape[-2])
        together = round_size(max(1, most))
    for outer in np.ndindex(shape[:-2]):
        for begin in range(0, shape[-2], together):
            yield (*outer, slice(begin, min(begin + together, shape[-2])))


def _rows_of(array: Array, shape: tuple[int, ...], rows: tuple[Any, ...]) -> Array:
    """The same rows of an operand that may be repeated along some axes."""
    if array.ndim == 1 or not rows:
        return array
    own = rows[len(shape) - array.ndim :]
    picked = tuple(
        (slice(0, 1) if isinstance(index, slice) else 0) if size == 1 else index
        for index, size in zip(own, array.shape[:-1], strict=True)
    )
    part: Array = array[picked]
    return part


def _convolve_rows(
    job: Job,
    weights: Array,
    signal: Array,
    target: Array,
    rows: tuple[Any, ...],
    backwards: bool,
    advance: Callable[[int], None],
    ideal: Selection | None,
    groups: int,
) -> None:
    shape, taps = job.request.call.shape, job.request.call.facts["taps"]
    some, samples, result = _rows_of(weights, shape, rows), _rows_of(signal, shape, rows), target[rows]

    limit = job.limit
    assert limit is not None
    job.limit = int((1.0 - _KEPT_SHARE) * limit)
    plan = time_plan(job, (some, samples))
    if plan is None:
        raise _no_room("causal_convolution", limit)
    words = f"{plan.blocks:,} blocks and {plan.parts:,} parts of the weights"
    check_speed(job, ideal, plan.seconds * groups, words)
    block, part, quick = plan.block, plan.part, plan.quick
    position = shape[-1] if backwards else 0
    while position > 0 if backwards else position < shape[-1]:
        begin = max(0, position - block) if backwards else position
        end = position if backwards else min(shape[-1], position + block)
        try:
            _convolve_one(job, some, samples, result, (begin, end), part, int(_KEPT_SHARE * limit), quick)
        except PieceTooLargeError as short:
            if block <= 1:
                raise OutOfMemoryError(f"causal_convolution: {short}") from None
            # There is less room than there was: what is best now, but at most half of what did not go.
            get_budget().invalidate()
            again = time_plan(job, (some, samples))
            quick = again is not None and again.quick
            block = max(1, min(block // 2, block if again is None else again.block))
            part = min(part, taps if again is None else again.part)
            part = max(1, part // 2) if part > block else part
            continue
        forget_pages(weights, signal, target)
        advance(result[..., begin:end].size)
        position = begin if backwards else end
    job.limit = limit


def _convolve_one(
    job: Job,
    weights: Array,
    signal: Array,
    result: Array,
    block: tuple[int, int],
    part: int,
    kept: int,
    quick: bool,
) -> None:
    taps = min(weights.shape[-1], result.shape[-1])
    parts = -(-taps // part)

    def convolve(some: Array, samples: Array, first: int) -> Any:
        size = fast_length(samples.shape[-1] + some.shape[-1]) * job.request.call.itemsize
        rows = some.size // some.shape[-1]
        # Kept, where all parts fit: the next block's weights are the same.
        key = (job, weights.__array_interface__["data"][0], first, some.shape) if parts * rows * size <= kept else None
        return job.run((np.asarray(some), np.asarray(samples)), key, quick=quick)

    total: Any = None
    for start, piece in convolve_block(convolve, weights, signal, *block, part, taps):
        if total is None:
            total = piece
        else:
            total[..., start - block[0] :] += piece
    result[..., slice(*block)] = total


def evaluate_blocks(
    expression: str,
    *,
    out: Array | None = None,
    budget: int | str | None = None,
    backend: str | None = None,
    progress: Progress = False,
    **arrays: Any,
) -> Array:
    """Evaluate an expression element by element over arrays that need not fit into memory.

    Parameters
    ----------
    expression : str
        Such as ``"x*y + sin(x)"``, as for :func:`hpfracc.elementwise`.
    out : numpy.ndarray, optional
        Where the result goes, such as a ``numpy.memmap`` of mode ``"w+"``; may be one of the operands that has the
        shape of the result. A new array by default, where half of what is free has room for it.
    budget : int or str, optional
        Bytes that a block may take, operands, result and workspace together; text such as ``"2GiB"`` is read. Half of
        what is free on the host by default.
    backend : str, optional
        Where to run the blocks.
    progress : bool or callable
        True shows a bar; a function is called with the elements done and those in all.
    **arrays
        The variables by name, in memory or mapped; shapes broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import batch
    >>> batch.elementwise("2*x + 1", x=np.arange(3.0), budget="1MiB")
    array([1., 3., 5.])
    """
    name = "elementwise"
    for each, array in arrays.items():
        check_host(name, each, array)
    # Plain numbers stay so: they take the dtype of the arrays beside them.
    operands = tuple(array if not shape_of(array) else np.asanyarray(array) for array in arrays.values())
    params = {"expression": expression, "names": tuple(arrays)}
    request = make_request(PRIMITIVES[name], operands, params, backend=backend)
    call = request.call
    target = target_of(name, out, call.shape, call.facts["result"], call.output_bytes)
    for operand in operands:
        same_place(name, target, operand)
    if not target.size:
        return target
    limit = _limit(budget)
    job = Job(PRIMITIVES[name], params, request, limit)
    with progress_of(progress, target.size, name) as advance:
        for cut in [*job.primitive.cuts(call, *operands, **params), None]:
            if _evaluate_along(job, cut, operands, target, advance):
                decision_log.record(decision_in_pieces(job, f"read in blocks within {limit / 2**20:,.0f} MiB"))
                return target
    raise _no_room(name, limit)


def _evaluate_along(
    job: Job, cut: Cut | None, operands: tuple[Any, ...], target: Array, advance: Callable[[int], None]
) -> bool:
    if cut is None:  # nothing to cut: a single number, or operands that are all repeated
        if not job.fits(operands, quick=False):
            return False
        target[...] = job.run(operands)
        advance(target.size)
        return True

    def part(array: Any, axis: int | None, begin: int, end: int) -> Any:
        if axis is None:
            return array
        return array[(..., slice(begin, end), *(slice(None),) * (-axis - 1))]

    def pieces(begin: int, end: int) -> tuple[Any, ...]:
        found = (part(array, axis, begin, end) for array, axis in zip(operands, cut.operands, strict=True))
        return tuple(piece if not shape_of(piece) else np.asarray(piece) for piece in found)

    most = largest_that_fits(lambda count: job.fits(pieces(0, count)), cut.length)
    most = most or largest_that_fits(lambda count: job.fits(pieces(0, count), quick=False), cut.length)
    if most < 1:
        return False
    sizer = ChunkSizer(most if most == cut.length else round_size(most), cut.length)
    begin = 0
    while begin < cut.length:
        end = min(cut.length, begin + sizer.size)
        try:
            result = job.run(pieces(begin, end))
        except PieceTooLargeError as short:
            if sizer.failed(end - begin):
                continue
            raise OutOfMemoryError(f"elementwise: {short}") from None
        place = part(target, cut.axis, begin, end)
        place[...] = result
        sizer.succeeded(end - begin)
        forget_pages(*operands, target)
        advance(place.size)
        begin = end
    return True
