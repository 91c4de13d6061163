"""Fourier transforms of the library: MKL or pocketfft (PyTorch) and DUCC (JAX) on the host, cuFFT on CUDA devices."""

from __future__ import annotations

from typing import Any

from hpfracc._arrays import dtype_name
from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.lengths import transformed_shape
from hpfracc.engine.primitives.operands import complex_of, real_of

__all__ = ["make_kernels"]


def make_kernels(xp: Namespace) -> dict[str, Kernel]:
    """One transform along ``axis``, truncated or zero-padded to ``n`` points."""
    transforms = {kind: getattr(xp.fft, kind) for kind in ("fft", "ifft", "rfft", "irfft")}

    def transform(x: Any, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        if 0 in x.shape:  # which libraries do not support
            dtype = dtype_name(x)
            shape = transformed_shape(tuple(x.shape), kind, n, axis)
            return xp.zeros(shape, real_of(dtype) if kind == "irfft" else complex_of(dtype), x)
        return transforms[kind](x, n=n, axis=axis, norm=norm)

    return {"default": Kernel(xp.jit(transform, static=("kind", "n", "axis", "norm")))}
