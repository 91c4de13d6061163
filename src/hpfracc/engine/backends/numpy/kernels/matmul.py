"""Matrix products by NumPy's BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.workers import even_blocks, run_blocks

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]


def matmul(a: Array, b: Array) -> Array:
    """``a @ b``; by ``dot`` if the two are equivalent, because its calls are cheaper and never warn."""
    if a.ndim <= 2 and b.ndim <= 2:
        return np.asarray(np.dot(a, b))
    return _stacked(a, b)


@np.errstate(all="ignore")
def _stacked(a: Array, b: Array, out: Array | None = None) -> Array:
    return np.asarray(np.matmul(a, b, out=out))


def matmul_stacked(a: Array, b: Array, *, workers: int = 1) -> Array:
    """The same for a stack of products, divided among threads, because BLAS uses one thread for a small product."""
    rows = a.shape[-2:-1] if a.ndim > 1 else ()
    columns = b.shape[-1:] if b.ndim > 1 else ()
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if not batch:
        return matmul(a, b)
    result = np.empty(batch + rows + columns, a.dtype)
    axis = int(np.argmax(batch))
    # Counted from the last, the axis is the same for both operands and, except for a vector's missing axis, the result.
    back = axis - len(batch)

    def work(block: tuple[int, int]) -> None:
        part = result[(*(slice(None),) * axis, slice(*block))]
        _stacked(_some(a, back, block), _some(b, back, block), part)

    run_blocks(work, even_blocks(batch[axis], workers), workers)
    return result


def _some(matrices: Array, axis: int, block: tuple[int, int]) -> Array:
    """Part of a stack; all of it if it is broadcast along the axis."""
    axis += matrices.ndim - 2
    if axis < 0 or matrices.shape[axis] == 1:
        return matrices
    return matrices[(*(slice(None),) * axis, slice(*block))]


KERNELS: dict[str, Kernel] = {"default": Kernel(matmul), "stacked": Kernel(matmul_stacked)}
