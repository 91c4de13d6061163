"""Symmetric Toeplitz products in PyTorch: the generic kernels, with products in place where nothing tracks them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.toeplitz_apply import make_kernels
from hpfracc.engine.backends.torch.tracking import is_readable, multiply_over, untracked

__all__ = ["KERNELS"]


def _widen(tensor: Tensor) -> Tensor:
    """Single precision as double on a GPU, because the user may have enabled TF32 for matrix products."""
    if tensor.is_cpu:
        return tensor
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _all_finite(signal: Tensor, result: Tensor | None) -> bool:
    return is_readable(signal) and (result is None or bool(torch.isfinite(result.detach()).all()))


KERNELS: dict[str, Kernel] = {
    algorithm: replace(kernel, prepare=None if kernel.prepare is None else untracked(kernel.prepare))
    for algorithm, kernel in make_kernels(
        namespace("torch"), multiply=multiply_over, widen=_widen, all_finite=_all_finite
    ).items()
}
