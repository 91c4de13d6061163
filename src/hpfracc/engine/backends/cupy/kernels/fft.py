"""Fourier transforms in CuPy, by cuFFT; plans are kept in CuPy's own cache, one a thread and device."""

from __future__ import annotations

import cupy
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.lengths import transformed_shape

__all__ = ["KERNELS"]

_TRANSFORMS = {"fft": cupy.fft.fft, "ifft": cupy.fft.ifft, "rfft": cupy.fft.rfft, "irfft": cupy.fft.irfft}


def transform(
    x: cupy.ndarray, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward"
) -> cupy.ndarray:
    """One transform along ``axis``, cut or zero-padded to ``n`` points."""
    if not x.size:
        shape = transformed_shape(x.shape, kind, n, axis)
        wide = np.result_type(x.dtype, np.complex64)
        # Nothing at all, or points out of nothing: cuFFT has a plan for neither.
        return cupy.zeros(shape, np.finfo(wide).dtype if kind == "irfft" else wide)
    return _TRANSFORMS[kind](x, n=n, axis=axis, norm=norm)


KERNELS: dict[str, Kernel] = {"default": Kernel(transform)}
