"""Exclusive or in Numba: byte by byte for any width, so that one compilation covers all dtypes."""

from __future__ import annotations

import numpy as np
from numba import njit, uintp

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, flat, spread
from hpfracc.engine.workers import even_blocks, run_blocks

__all__ = ["KERNELS"]


@njit(nogil=True, cache=True)
def _xor(a, b, out, begin, stop):  # type: ignore[no-untyped-def]
    for i in range(uintp(begin), uintp(stop)):
        out[i] = a[i] ^ b[i]


def bitwise_xor(a: Array, b: Array, *, workers: int = 1) -> Array:
    """``a ^ b``; the bytes are divided among threads."""
    if a.shape != b.shape:
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = spread(a, shape), spread(b, shape)
    result = np.empty(a.shape, a.dtype)
    left, right, out = (flat(array).view(np.uint8) for array in (a, b, result))
    if workers <= 1:
        _xor(left, right, out, 0, out.size)
    else:
        run_blocks(lambda block: _xor(left, right, out, *block), even_blocks(out.size, workers), workers)
    return result


KERNELS: dict[str, Kernel] = {"default": Kernel(bitwise_xor)}
