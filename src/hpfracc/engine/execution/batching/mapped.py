"""Arrays that lie in files: where results may go, and letting go of the pages that were used."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.errors import DiskFullError, InvalidInputError, OutOfMemoryError, ShapeError

__all__ = ["SHARE", "check_host", "forget_pages", "same_place", "target_of"]

Array = np.ndarray[Any, Any]

#: Share of what is free that a streamed job takes where no budget was given: pages of files need room too.
SHARE = 0.5
#: The smallest blocks in which disks are given out.
_BLOCK = 512


def check_host(operation: str, name: str, array: Any) -> None:
    """Refuse arrays that are not in host memory or in a file."""
    if library_of(array) not in ("numpy", "python"):
        raise InvalidInputError(
            f"{operation}: {name} is an array of {library_of(array)}; blocks are read from NumPy arrays and "
            f"memmaps: use hpfracc.{operation}, which cuts calls that do not fit by itself"
        )


def target_of(operation: str, out: Any, shape: tuple[int, ...], dtype: str, size: int) -> Array:
    """``out`` if it can take the result, or a new array if memory can."""
    if out is None:
        free = get_budget().read(HOST)
        if free is not None and size > SHARE * free:
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
    """Reserve the room of a mapped file before anything is computed.

    A new memmap is a file of holes. On a full disk, writing to a hole of a mapped file raises no error: the system ends
    the process. A file without a path, or that is gone, cannot be reserved.
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
            if need > free:  # asked first: a disk that becomes full on the way keeps what was reserved so far
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
    """Bytes of a file that have room on the disk; 0 where the system does not tell."""
    return 512 * getattr(os.fstat(file), "st_blocks", 0)


def _allocate(file: int, size: int) -> None:
    """Give every byte of a file room on the disk; what is in it stays."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    # Writing a byte of each block where it is makes the block, and changes nothing.
    with os.fdopen(os.dup(file), "r+b", buffering=0) as stream:
        for place in range(0, size, _BLOCK):
            stream.seek(place)
            byte = stream.read(1)
            stream.seek(place)
            stream.write(byte)
        os.fsync(file)


def same_place(operation: str, out: Array, array: Any) -> bool:
    """Whether results go where this operand is, element upon element; any other overlap is refused."""
    if not isinstance(array, np.ndarray) or not np.may_share_memory(out, array):
        return False
    exactly = (
        shape_of(array) == out.shape
        and array.dtype == out.dtype
        and array.strides == out.strides
        and array.__array_interface__["data"][0] == out.__array_interface__["data"][0]
    )
    if not exactly and np.shares_memory(out, array):
        raise InvalidInputError(f"{operation}: out overlaps an operand; use the operand itself, or other memory")
    return exactly


def forget_pages(*arrays: Any) -> None:
    """Take mapped pages out of this process's memory: the file, and what was written to it, keep them."""
    for array in arrays:
        mapped = getattr(array, "_mmap", None)
        # Of a private copy ("c") the pages are all there is.
        if isinstance(array, np.memmap) and array.mode != "c" and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]
