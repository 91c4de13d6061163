"""Matrix products in CuPy, by cuBLAS; float32 in full precision unless the user set ``CUPY_TF32=1``."""

from __future__ import annotations

import cupy

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]

KERNELS: dict[str, Kernel] = {"default": Kernel(cupy.matmul)}
