"""Matrix products in PyTorch: BLAS on the host, cuBLAS on CUDA devices.

In float32 on a GPU the product is rounded as the user set PyTorch: full precision by default, TF32 (about three digits)
where ``torch.backends.cuda.matmul.allow_tf32`` or ``torch.set_float32_matmul_precision`` was changed. Neither is
changed here.
"""

from __future__ import annotations

import torch

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]

KERNELS: dict[str, Kernel] = {"default": Kernel(torch.matmul)}
