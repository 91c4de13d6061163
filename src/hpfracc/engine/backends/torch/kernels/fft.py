"""Fourier transforms in PyTorch: MKL or pocketfft on the host, cuFFT on CUDA devices."""

from __future__ import annotations

import torch
from torch import Tensor

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.lengths import transformed_shape

__all__ = ["KERNELS"]

_TRANSFORMS = {"fft": torch.fft.fft, "ifft": torch.fft.ifft, "rfft": torch.fft.rfft, "irfft": torch.fft.irfft}


def transform(x: Tensor, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """One transform along ``axis``, cut or zero-padded to ``n`` points."""
    if x.numel() == 0:
        shape = transformed_shape(tuple(x.shape), kind, n, axis)
        if 0 in shape:  # which MKL refuses to plan for
            return x.new_empty(shape, dtype=x.dtype.to_real() if kind == "irfft" else x.dtype.to_complex())
    result: Tensor = _TRANSFORMS[kind](x, n=n, dim=axis, norm=norm)
    return result


KERNELS: dict[str, Kernel] = {"default": Kernel(transform)}
