"""Reductions of rows in Numba: sums in blocks of blocks, extremes in lanes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, uintp

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, flat
from hpfracc.engine.primitives.reduction import reduced_axes
from hpfracc.engine.workers import even_blocks, run_blocks

__all__ = ["KERNELS"]

#: Elements summed plainly, in vector lanes; these sums are added with compensation for rounding, so that the error does
#: not grow with the length.
_BLOCK = 256
#: Independent running extremes, so that none waits for the last: four vector registers of doubles.
_LANES = 32
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}}


@njit(**_OPTIONS)
def _block_sum(x, begin, stop, squared):  # type: ignore[no-untyped-def]
    total = x.dtype.type(0)
    if squared:
        for i in range(begin, stop):
            total += x[i] * x[i]
    else:
        for i in range(begin, stop):
            total += x[i]
    return total


@njit(nogil=True, cache=True)
def _carried(total, lost, new):  # type: ignore[no-untyped-def]
    """The sum, and its accumulated rounding error (two-sum)."""
    grown = total + new
    back = grown - total
    return grown, lost + ((total - (grown - back)) + (new - back))


@njit(nogil=True, cache=True)
def _sums(x, out, length, first, last, squared):  # type: ignore[no-untyped-def]
    """Sums of the rows ``first`` to ``last``, or of their squares."""
    length, block = uintp(length), uintp(_BLOCK)
    for row in range(uintp(first), uintp(last)):
        begin, end = row * length, (row + uintp(1)) * length
        total = lost = x.dtype.type(0)
        while begin < end:
            stop = min(begin + block, end)
            total, lost = _carried(total, lost, _block_sum(x, begin, stop, squared))
            begin = stop
        # If the sum is not finite, the error is nan, and the sum is correct.
        out[row] = total + lost if lost == lost else total


@njit(**_OPTIONS)
def _products(x, out, length, first, last, _):  # type: ignore[no-untyped-def]
    """Products of the rows ``first`` to ``last``."""
    length = uintp(length)
    for row in range(uintp(first), uintp(last)):
        total = x.dtype.type(1)
        for i in range(row * length, (row + uintp(1)) * length):
            total *= x[i]
        out[row] = total


@njit(nogil=True, cache=True)
def _larger(value, best):  # type: ignore[no-untyped-def]
    """The larger of two numbers; nan is larger than all."""
    return value if (value > best) | (value != value) else best


@njit(nogil=True, cache=True)
def _extremes(x, out, length, first, last, smallest):  # type: ignore[no-untyped-def]
    """Largest elements of the rows ``first`` to ``last``, or smallest."""
    length, wide = uintp(length), uintp(_LANES)
    sign = x.dtype.type(-1 if smallest else 1)
    lanes = np.empty(_LANES, x.dtype)
    for row in range(uintp(first), uintp(last)):
        begin, end = row * length, (row + uintp(1)) * length
        best = sign * x[begin]
        if length >= wide:
            lanes[:] = best
            while begin + wide <= end:
                for lane in range(wide):
                    lanes[lane] = _larger(sign * x[begin + lane], lanes[lane])
                begin += wide
            for lane in range(wide):
                best = _larger(lanes[lane], best)
        for i in range(begin, end):
            best = _larger(sign * x[i], best)
        out[row] = sign * best


#: Per kind: the loop, its last argument, and the function that combines parts of one row.
_LOOPS: dict[str, tuple[Callable[..., None], bool, np.ufunc]] = {
    "sum": (_sums, False, np.add),
    "mean": (_sums, False, np.add),
    "norm": (_sums, True, np.add),
    "prod": (_products, False, np.multiply),
    "max": (_extremes, False, np.maximum),
    "min": (_extremes, True, np.minimum),
}


def reduce(x: Array, *, kind: str = "sum", axis: Any = None, keepdims: bool = False, workers: int = 1) -> Array:
    """``kind`` of ``x`` along ``axis``; the rows, or a single row, are divided among threads."""
    if x.ndim == 1 and (axis is None or axis in (0, -1)):
        shape: tuple[int, ...] = (1,) if keepdims else ()
        length, rows = x.shape[0], 1
    else:
        axes = reduced_axes(axis, x.ndim)
        kept = [i for i in range(x.ndim) if i not in axes]
        shape = tuple(1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes)
        length, rows = math.prod(x.shape[i] for i in axes), math.prod(x.shape[i] for i in kept)
        x = x.transpose([*kept, *axes])
    loop, option, combine = _LOOPS[kind]
    data = flat(x)
    if rows == 1 and workers > 1:
        blocks = even_blocks(length, workers, least=_BLOCK) or [(0, 0)]
        parts = np.empty(len(blocks), x.dtype)
        pieces = [(data[low:high], parts[index : index + 1]) for index, (low, high) in enumerate(blocks)]
        run_blocks(lambda piece: loop(*piece, piece[0].size, 0, 1, option), pieces, workers)
        result = _together(combine, parts)
    else:
        result = np.empty(rows, x.dtype)
        if workers <= 1 or rows == 0:
            loop(data, result, length, 0, rows, option)
        else:
            run_blocks(lambda block: loop(data, result, length, *block, option), even_blocks(rows, workers), workers)
    if kind == "mean":
        result = np.divide(result, x.dtype.type(length)) if length else np.full_like(result, np.nan)
    elif kind == "norm":
        result = np.sqrt(result)
    return result.reshape(shape)


@np.errstate(all="ignore")
def _together(combine: np.ufunc, parts: Array) -> Array:
    """Combine the parts of one row; opposite infinities give nan, as without parts."""
    return np.asarray(combine.reduce(parts)).reshape(1)


KERNELS: dict[str, Kernel] = {"default": Kernel(reduce)}
