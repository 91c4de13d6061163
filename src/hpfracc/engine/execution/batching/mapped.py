"""Arrays that lie in files: where results may go, and letting go of the pages that were used."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.primitives._operands import shape_of
from hpfracc.errors import InvalidInputError, OutOfMemoryError, ShapeError

__all__ = ["SHARE", "check_host", "forget_pages", "same_place", "target_of"]

Array = np.ndarray[Any, Any]

#: Share of what is free that a streamed job takes where no budget was given: pages of files need room too.
SHARE = 0.5


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
    return out


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
