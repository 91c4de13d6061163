"""Sums, means, products, extrema and 2-norms along axes, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]


def _product(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """PyTorch multiplies along one axis at a time."""
    for axis in axes:
        x = torch.prod(x, axis, keepdim=True)
    return x if keepdim else x.squeeze(axes)


def _norm(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return torch.linalg.vector_norm(x, 2, axes, keepdim)


_KINDS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": _product,
    "max": torch.amax,
    "min": torch.amin,
    "norm": _norm,
}


def reduce(x: Tensor, kind: str = "sum", axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Reduce along ``axis``: an axis, several, or all of them."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if not axes:  # PyTorch treats no axes as all axes; the norm of one number is its absolute value
        return x.abs() if kind == "norm" else x.clone()
    return _KINDS[kind](x, axes, keepdims)


KERNELS: dict[str, Kernel] = {"default": Kernel(reduce)}
