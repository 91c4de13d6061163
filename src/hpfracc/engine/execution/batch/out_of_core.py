"""Arrays larger than memory: processed by the engine in chunks, from and to memory-mapped files."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import file_mapping, library_of, refuse_masked
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batch.chunks import run_plan
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError, Progress, progress_of
from hpfracc.engine.execution.batch.planning import Job, choose_plan, decision_in_chunks
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.memory.budget import HOST, get_budget, parse_bytes
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import shape_of
from hpfracc.errors import DiskFullError, InvalidInputError, OutOfMemoryError, ShapeError

Array = np.ndarray[Any, Any]

#: Fraction of free memory that a job takes if no budget is given: file pages need room too.
_SHARE = 0.5
#: Fraction of the budget that cached transforms of the weights may take.
_KEPT_SHARE = 0.25


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
    return _run_blocks("causal_convolution", {"weights": weights, "signal": signal}, {}, out, budget, backend, progress)


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
    params = {"expression": expression, "names": tuple(arrays)}
    return _run_blocks("elementwise", arrays, params, out, budget, backend, progress)


def _run_blocks(
    name: str,
    arrays: dict[str, Any],
    params: dict[str, Any],
    out: Array | None,
    budget: int | str | None,
    backend: str | None,
    progress: Progress,
) -> Array:
    """An operation in chunks within a budget, with its result in ``out``."""
    given = [_on_host(name, each, array) for each, array in arrays.items()]
    # Chunks of memory maps as plain arrays; plain numbers stay plain, because they adopt the dtype of the arrays.
    operands = tuple(np.asarray(array) if shape_of(array) else array for array in given)
    primitive = PRIMITIVES[name]
    request = make_request(primitive, operands, params, backend=backend)
    call = request.call
    target = _target_of(name, out, call.shape, str(call.facts.get("result", call.dtype)), call.output_bytes)
    in_place = [_same_place(name, target, operand) for operand in operands]
    if not target.size:
        return target
    free = get_budget().read(HOST)
    limit = int(_SHARE * (2**62 if free is None else free)) if budget is None else parse_bytes("budget", budget)
    share = 0.0 if primitive.prepared_operand is None else _KEPT_SHARE
    job = Job(primitive, params, request, int((1.0 - share) * limit))
    job.kept, job.in_place = share * limit, any(in_place)
    key = (job,)
    with progress_of(progress, target.size, name) as advance:

        def done(count: int) -> None:
            _forget_pages(*given, target)
            advance(count)

        job.advance = done
        try:
            plan = choose_plan(job, operands, allocated=True)
            if plan is None or run_plan(job, plan, operands, key if share else None, target) is None:
                raise ChunkTooLargeError(f"give a budget= above {limit / 2**20:,.1f} MiB")
        except ChunkTooLargeError as short:
            raise OutOfMemoryError(f"{name}: not even the smallest block fits into memory; {short}") from None
        finally:
            for owner in (job, key):  # of whole weights, and of parts of them
                prepared_operands.forget(owner)
    decision_log.record(decision_in_chunks(job, f"read in blocks within {limit / 2**20:,.0f} MiB"))
    return target


# Arrays in files.


def _on_host(operation: str, name: str, array: Any) -> Any:
    """An array in host memory or in a file, with its class, or a number; others are refused."""
    refuse_masked(array, name)
    if library_of(array) not in ("numpy", "python"):
        raise InvalidInputError(
            f"{operation}: {name} is an array of {library_of(array)}; blocks are read from NumPy arrays and "
            f"memmaps: use hpfracc.{operation}, which cuts calls that do not fit by itself"
        )
    return array if isinstance(array, np.ndarray) or not shape_of(array) else _reading.array(name, array)


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
    refuse_masked(out, "out")
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
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    folder = os.path.dirname(os.path.abspath(path))
    try:
        status = os.fstat(file)
        size, held = status.st_size, 512 * getattr(status, "st_blocks", 0)  # 0 if the system does not report them
        need, free = size - held, shutil.disk_usage(folder).free
        if need <= 0:
            return
        try:
            if need > free:  # checked first, because a disk that fills up midway keeps what was reserved
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.posix_fallocate(file, 0, size)
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
