"""Sums, means, products, extrema and 2-norms along axes, by the library's own reductions."""

from __future__ import annotations

import math
from typing import Any

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.primitives.reduction import reduced_axes


def make_kernels(library: Library) -> dict[str, Kernel]:
    """Reduce along ``axis``: an axis, several, or all of them."""
    xp = library.xp

    def of_axes(x: Any, kind: str, axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        if not axes:  # nothing is reduced; the norm of one number is its absolute value
            return xp.abs(x) if kind == "norm" else xp.copy(x)
        if kind in ("max", "min") and 0 in shape:  # no rows, so no results; some libraries would read a first element
            return xp.zeros(shape, x.dtype, x)
        return _reduce(xp, x, kind, axes).reshape(shape)

    compiled = xp.jit(of_axes, static=("kind", "axes", "shape"))

    def reduce(x: Any, kind: str = "sum", axis: Any = None, keepdims: bool = False) -> Any:
        axes = reduced_axes(axis, x.ndim)
        shape = tuple(1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes)
        return compiled(x, kind=kind, axes=axes, shape=shape)

    return {"default": Kernel(reduce)}


def _reduce(xp: Namespace, x: Any, kind: str, axes: tuple[int, ...]) -> Any:
    if kind == "prod":  # PyTorch multiplies along one axis at a time
        for axis in axes:
            x = xp.module.prod(x, axis, keepdims=True)
        return x
    if kind in ("max", "min"):
        return (xp.amax if kind == "max" else xp.module.amin)(x, axes)
    if kind == "norm":
        # The gradient at 0, which does not exist, is set to 0.
        squares = xp.module.sum(xp.real(x) ** 2 + xp.imag(x) ** 2 if xp.is_complex(x) else x * x, axes)
        return xp.where(squares == 0, 0.0, xp.sqrt(xp.where(squares == 0, 1.0, squares)))
    total = xp.module.sum(x, axes)
    # Explicit: nan for no elements, without a warning.
    return total / float(math.prod(x.shape[i] for i in axes)) if kind == "mean" else total
