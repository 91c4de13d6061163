"""Fourier transforms of the library: pocketfft (NumPy by SciPy), MKL, DUCC (JAX) on the host, cuFFT on CUDA devices."""

from __future__ import annotations

from typing import Any

from hpfracc._arrays import dtype_name
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.lengths import transformed_shape
from hpfracc.engine.primitives.base import complex_of, real_of


def make_kernels(library: Library) -> dict[str, Kernel]:
    """One transform along ``axis``, truncated or zero-padded to ``n`` points."""
    xp = library.xp

    def transform(
        x: Any, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward", **options: Any
    ) -> Any:
        if 0 in x.shape:  # which libraries do not support
            dtype = dtype_name(x)
            shape = transformed_shape(tuple(x.shape), kind, n, axis)
            return xp.zeros(shape, real_of(dtype) if kind == "irfft" else complex_of(dtype), x)
        return getattr(xp.fft, kind)(x, n=n, axis=axis, norm=norm, **options)

    return {"default": Kernel(library.finished(xp.jit(transform, static=("kind", "n", "axis", "norm")), threads=True))}
