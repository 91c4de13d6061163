"""Matrix products by the library's BLAS, cuBLAS on CUDA devices.

Float32 on a GPU has full precision in JAX. PyTorch and CuPy follow the user's settings: full precision by default, TF32
(about three digits) if ``torch.backends.cuda.matmul.allow_tf32``,
``torch.set_float32_matmul_precision`` or ``CUPY_TF32=1`` was used.
"""

from __future__ import annotations

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library


def make_kernels(library: Library) -> dict[str, Kernel]:
    """``a @ b``, batched."""
    return {"default": Kernel(library.finished(library.xp.jit(library.xp.matmul)))}
