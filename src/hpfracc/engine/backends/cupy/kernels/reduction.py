"""Sums, means, products, extrema and 2-norms along axes, in CuPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cupy

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]


def _norm(x: cupy.ndarray, axes: tuple[int, ...], keepdims: bool) -> cupy.ndarray:
    squares = x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
    return cupy.sqrt(cupy.sum(squares, axis=axes, keepdims=keepdims))


def reduce(
    x: cupy.ndarray, kind: str = "sum", axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> cupy.ndarray:
    """Reduce along ``axis``: an axis, several, or all of them."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if not axes:  # nothing is reduced; the norm of one number is its absolute value
        return cupy.abs(x) if kind == "norm" else x.copy()
    if kind == "norm":
        return _norm(x, axes, keepdims)
    if kind == "mean":  # explicit: nan for no elements, without a warning
        return cupy.sum(x, axis=axes, keepdims=keepdims) / float(math.prod(x.shape[i] for i in axes))
    if kind in ("max", "min") and not x.size:  # no rows, so no results; CuPy would read a first element
        gone = {i % x.ndim for i in axes}
        shape = [1 if i in gone else size for i, size in enumerate(x.shape) if keepdims or i not in gone]
        return cupy.empty(shape, x.dtype)
    return getattr(cupy, kind)(x, axis=axes, keepdims=keepdims)


KERNELS: dict[str, Kernel] = {"default": Kernel(reduce)}
