"""Arrays larger than memory: processed by the engine in chunks, from and to memory-mapped files."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import file_mapping, library_of
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batch.chunk_plans import check_speed, time_plan
from hpfracc.engine.execution.batch.driver import (
    ChunkSizer,
    ChunkTooLargeError,
    Progress,
    largest_that_fits,
    progress_of,
    round_size,
    run_chunks,
)
from hpfracc.engine.execution.batch.in_memory import part_of
from hpfracc.engine.execution.batch.jobs import Job, decision_in_chunks
from hpfracc.engine.execution.batch.time_blocks import TimeBlocks, TimeSizer, run_block
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.memory.budget import HOST, get_budget, parse_bytes, relief
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import ArraySpec, Cut, dtype_of
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.decide import Selection
from hpfracc.errors import DiskFullError, InvalidInputError, OutOfMemoryError, ShapeError

__all__ = ["convolve_blocks", "evaluate_blocks"]

Array = np.ndarray[Any, Any]

#: Fraction of free memory that a job takes if no budget is given: file pages need room too.
_SHARE = 0.5
#: Fraction of the budget that cached transforms of the weights may take.
_KEPT_SHARE = 0.25
#: The smallest allocation unit of disks.
_DISK_BLOCK = 512


def _limit(budget: Any) -> int:
    if budget is not None:
        return parse_bytes("budget", budget)
    free = get_budget().read(HOST)
    return 2**62 if free is None else int(_SHARE * free * relief.chunk_scale())


def _no_room(operation: str, limit: int) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"{operation}: not even the smallest block fits into {limit / 2**20:,.1f} MiB; give a larger budget="
    )


def _stuck(operation: str) -> Callable[[int, int, ChunkTooLargeError], Any]:
    def give_up(begin: int, end: int, short: ChunkTooLargeError) -> Any:
        raise OutOfMemoryError(f"{operation}: {short}") from None

    return give_up


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

    The signal is read in blocks, each with the earlier samples that the weights reach back to (overlap-save), and long
    weights in parts: the same sum in another order, so the same result up to rounding. Each block is an engine call, on
    the fastest backend and device for it.

    Parameters
    ----------
    weights : array_like, shape (..., K)
        In memory or mapped.
    signal : array_like, shape (..., n)
        In memory, or a ``numpy.memmap``; leading axes broadcast with those of the weights.
    out : numpy.ndarray, optional
        Array for the result, such as a ``numpy.memmap`` of mode ``"w+"``; may be ``signal`` itself. A new array by
        default, if it fits into half of the free memory.
    budget : int or str, optional
        Bytes that a block may take for operands, result and workspace together, on the host and on a device; also text
        such as ``"2GiB"``. Half of the host's free memory by default.
    backend : str, optional
        Backend for the blocks.
    progress : bool or callable
        True shows a progress bar; a function is called with the number of points done and in total.

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
    _check_host(name, "weights", weights)
    _check_host(name, "signal", signal)
    weights, signal = _as_array("weights", weights), _as_array("signal", signal)
    request = make_request(PRIMITIVES[name], (weights, signal), {}, backend=backend)
    call = request.call
    target = _target_of(name, out, call.shape, call.dtype, call.output_bytes)
    backwards = _same_place(name, target, signal)
    _same_place(name, target, weights)
    if not target.size:
        return target
    limit = _limit(budget)
    job = Job(PRIMITIVES[name], {}, request, int((1.0 - _KEPT_SHARE) * limit))
    with progress_of(progress, target.size, name) as advance:

        def done(count: int) -> None:
            _forget_pages(weights, signal, target)
            advance(count)

        keys: list[tuple[Job, int]] = []
        try:
            ideal = job.select((weights, signal), ignore_memory=True)
            groups = list(_row_groups(job, weights, signal))
            for number, rows in enumerate(groups):
                operands = tuple(np.asarray(_rows_of(array, call.shape, rows)) for array in (weights, signal))
                if not keys or weights.ndim > 1:  # rows may share their weights
                    keys.append((job, number))
                plan = _time_blocks(job, operands, limit, ideal, len(groups))
                _convolve_rows(job, operands, target[rows], plan, keys[-1], limit, backwards, done)
        finally:
            for key in keys:
                prepared_operands.forget(key)
    decision_log.record(decision_in_chunks(job, f"read in blocks within {limit / 2**20:,.0f} MiB"))
    return target


def _row_groups(job: Job, weights: Array, signal: Array) -> Iterator[tuple[Any, ...]]:
    """Indices of rows that are processed together: several if whole rows fit, otherwise one at a time."""
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
    """The same rows of an operand that may be broadcast along some axes."""
    if array.ndim == 1 or not rows:
        return array
    own = rows[len(shape) - array.ndim :]
    picked = tuple(
        (slice(0, 1) if isinstance(index, slice) else 0) if size == 1 else index
        for index, size in zip(own, array.shape[:-1], strict=True)
    )
    part: Array = array[picked]
    return part


def _time_blocks(job: Job, operands: tuple[Array, ...], limit: int, ideal: Selection | None, groups: int) -> TimeBlocks:
    plan = time_plan(job, operands)
    if plan is None:
        raise _no_room("causal_convolution", limit)
    words = f"{plan.blocks:,} blocks and {plan.parts:,} parts of the weights"
    check_speed(job, ideal, plan.seconds * groups, words)
    return plan


def _convolve_rows(
    job: Job,
    operands: tuple[Array, ...],
    result: Array,
    plan: TimeBlocks,
    key: Any,
    limit: int,
    backwards: bool,
    done: Callable[[int], None],
) -> None:
    def replan() -> TimeBlocks | None:
        get_budget().invalidate()
        return time_plan(job, operands)

    def source(begin: int, end: int) -> Any:
        return run_block(job, (operands[0], operands[1]), sizer.plan, (begin, end), key, _KEPT_SHARE * limit)

    def sink(begin: int, end: int, found: Any) -> None:
        result[..., begin:end] = found
        done(found.size)

    sizer = TimeSizer(plan, replan)
    run_chunks(result.shape[-1], sizer, source, sink, stuck=_stuck("causal_convolution"), backwards=backwards)


def evaluate_blocks(
    expression: str,
    *,
    out: Array | None = None,
    budget: int | str | None = None,
    backend: str | None = None,
    progress: Progress = False,
    **arrays: Any,
) -> Array:
    """Evaluate an expression elementwise over arrays that need not fit into memory.

    Parameters
    ----------
    expression : str
        Such as ``"x*y + sin(x)"``, as for :func:`hpfracc.elementwise`.
    out : numpy.ndarray, optional
        Array for the result, such as a ``numpy.memmap`` of mode ``"w+"``; may be an operand with the shape of the
        result. A new array by default, if it fits into half of the free memory.
    budget : int or str, optional
        Bytes that a block may take for operands, result and workspace together; also text such as ``"2GiB"``. Half of
        the host's free memory by default.
    backend : str, optional
        Backend for the blocks.
    progress : bool or callable
        True shows a progress bar; a function is called with the number of elements done and in total.
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
        _check_host(name, each, array)
    # Plain numbers stay plain: they adopt the dtype of the arrays.
    operands = tuple(array if not shape_of(array) else np.asanyarray(array) for array in arrays.values())
    params = {"expression": expression, "names": tuple(arrays)}
    request = make_request(PRIMITIVES[name], operands, params, backend=backend)
    call = request.call
    target = _target_of(name, out, call.shape, call.facts["result"], call.output_bytes)
    for operand in operands:
        _same_place(name, target, operand)
    if not target.size:
        return target
    limit = _limit(budget)
    job = Job(PRIMITIVES[name], params, request, limit)
    with progress_of(progress, target.size, name) as advance:
        for cut in [*job.primitive.cuts(call, *operands, **params), None]:
            if _evaluate_along(job, cut, operands, target, advance):
                decision_log.record(decision_in_chunks(job, f"read in blocks within {limit / 2**20:,.0f} MiB"))
                return target
    raise _no_room(name, limit)


def _evaluate_along(
    job: Job, cut: Cut | None, operands: tuple[Any, ...], target: Array, advance: Callable[[int], None]
) -> bool:
    """Whether the expression was evaluated along this cut; False if not even one row fits."""
    if cut is None:  # nothing to cut: a single number, or only broadcast operands
        if not job.fits(operands, quick=False):
            return False
        target[...] = job.run(operands)
        advance(target.size)
        return True

    def chunk(begin: int, end: int) -> tuple[Any, ...]:
        found = (part_of(array, axis, begin, end) for array, axis in zip(operands, cut.operands, strict=True))
        return tuple(part if not shape_of(part) else np.asarray(part) for part in found)

    def sink(begin: int, end: int, result: Any) -> None:
        place = part_of(target, cut.axis, begin, end)
        place[...] = result
        _forget_pages(*operands, target)
        advance(place.size)

    most = largest_that_fits(lambda count: job.fits(chunk(0, count)), cut.length)
    most = most or largest_that_fits(lambda count: job.fits(chunk(0, count), quick=False), cut.length)
    if most < 1:
        return False
    sizer = ChunkSizer(most if most == cut.length else round_size(most), cut.length)
    return run_chunks(
        cut.length, sizer, lambda begin, end: job.run(chunk(begin, end)), sink, stuck=_stuck("elementwise")
    )


# Arrays in files.


def _as_array(name: str, value: Any) -> Any:
    """An array on the host, with its class: a memory map stays one."""
    return value if isinstance(value, np.ndarray) else _reading.array(name, value)


def _check_host(operation: str, name: str, array: Any) -> None:
    """Refuse arrays that are neither in host memory nor in a file."""
    if library_of(array) not in ("numpy", "python"):
        raise InvalidInputError(
            f"{operation}: {name} is an array of {library_of(array)}; blocks are read from NumPy arrays and "
            f"memmaps: use hpfracc.{operation}, which cuts calls that do not fit by itself"
        )


def _target_of(operation: str, out: Any, shape: tuple[int, ...], dtype: str, size: int) -> Array:
    """``out`` if it can hold the result, or a new array if memory suffices."""
    if out is None:
        free = get_budget().read(HOST)
        if free is not None and size > _SHARE * free:
            raise OutOfMemoryError(
                f"{operation}: the result takes {size / 2**20:,.0f} MiB and {free / 2**20:,.0f} MiB are free; "
                "give out=, such as a numpy.memmap of mode 'w+'"
            )
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise InvalidInputError(f"{operation}: out is a {type(out).__name__}; give a NumPy array or a memmap")
    if out.shape != shape:
        raise ShapeError(f"{operation}: out has shape {out.shape}, the result {shape}; make them equal")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise InvalidInputError(f"{operation}: a result of {dtype} does not go into {out.dtype}; use dtype {dtype}")
    if not out.flags.writeable:
        raise InvalidInputError(f"{operation}: out is read-only; open the memmap with mode 'r+' or 'w+'")
    _reserve_file(operation, out)
    return out


def _reserve_file(operation: str, out: Array) -> None:
    """Reserve the disk space of a mapped file before anything is computed.

    A new memmap is a sparse file. On a full disk, writing to a hole of a mapped file raises no error: the system kills
    the process. Space for a deleted file, or one without a path, cannot be reserved.
    """
    path = getattr(out, "filename", None)
    if not isinstance(out, np.memmap) or out.mode == "c" or not isinstance(path, str | os.PathLike):
        return
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    folder = os.path.dirname(os.path.abspath(path))
    try:
        size = os.fstat(file).st_size
        need, free = size - _held_bytes(file), shutil.disk_usage(folder).free
        if need <= 0:
            return
        try:
            if need > free:  # checked first, because a disk that fills up midway keeps what was reserved
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            _allocate(file, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise DiskFullError(
                error.errno,
                f"{operation}: the file of out needs {need / 2**20:,.1f} MiB more, and {free / 2**20:,.1f} MiB are "
                f"free in {folder}; free some, or make the memmap in another folder",
            ) from None
    finally:
        os.close(file)


def _held_bytes(file: int) -> int:
    """Bytes of a file that are allocated on the disk; 0 if the system does not report them."""
    return 512 * getattr(os.fstat(file), "st_blocks", 0)


def _allocate(file: int, size: int) -> None:
    """Allocate every byte of a file on the disk without changing its contents."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    # Rewriting one byte of each block allocates the block and changes nothing.
    with os.fdopen(os.dup(file), "r+b", buffering=0) as stream:
        for place in range(0, size, _DISK_BLOCK):
            stream.seek(place)
            byte = stream.read(1)
            stream.seek(place)
            stream.write(byte)
        os.fsync(file)


def _same_place(operation: str, out: Array, array: Any) -> bool:
    """Whether results replace this operand element by element; any other overlap is refused."""
    if not isinstance(array, np.ndarray) or not np.may_share_memory(out, array):
        return False
    exactly = (
        shape_of(array) == out.shape
        and array.dtype == out.dtype
        and array.strides == out.strides
        and np.lib.array_utils.byte_bounds(array) == np.lib.array_utils.byte_bounds(out)
    )
    if not exactly and np.shares_memory(out, array):
        raise InvalidInputError(f"{operation}: out overlaps an operand; use the operand itself, or other memory")
    return exactly


def _forget_pages(*arrays: Any) -> None:
    """Drop mapped pages from this process's memory: the file keeps the data, including what was written."""
    for array in arrays:
        # The pages of a private copy (mode "c") are not in the file.
        if not isinstance(array, np.memmap) or array.mode == "c":
            continue
        mapped = file_mapping(array)
        if mapped is not None and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)
