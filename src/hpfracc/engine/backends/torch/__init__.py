"""PyTorch as a backend, on the host and on CUDA devices."""

from __future__ import annotations

from typing import Any

from hpfracc.engine.backends.base import (
    MAX_MATRIX_ELEMENTS,
    Declaration,
    KernelSpec,
    MemoryModel,
    too_long_for_matrix,
    too_long_or_wide_for_matrix,
    too_many_taps,
)
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS

__all__ = ["BACKEND"]

#: The integers that PyTorch can reduce; wider unsigned ones are only stored.
_NARROW = INTEGERS - {"uint16", "uint32", "uint64"}


def _kernel(
    primitive: str,
    algorithm: str,
    host: MemoryModel,
    gpu: MemoryModel,
    dtypes: frozenset[str] = INEXACT,
    **more: Any,
) -> KernelSpec:
    options = {"differentiable": True, **more}
    return KernelSpec(primitive, algorithm, dtypes, memory=host, gpu_memory=gpu, **options)


BACKEND = Declaration(
    "torch",
    (
        _kernel(
            "causal_convolution",
            "direct",
            MemoryModel(1.1, MAX_MATRIX_ELEMENTS, 8),
            MemoryModel(3.0, MAX_MATRIX_ELEMENTS, 8),
            refuses=too_long_for_matrix,
        ),
        _kernel("causal_convolution", "fft", MemoryModel(2.0), MemoryModel(2.5)),
        _kernel("causal_convolution", "blocked", MemoryModel(2.6), MemoryModel(3.1), refuses=too_many_taps),
        _kernel("matmul", "default", MemoryModel(0.0), MemoryModel(0.0)),
        _kernel("fft", "default", MemoryModel(1.0), MemoryModel(1.0)),
        _kernel("elementwise", "default", MemoryModel(0.8), MemoryModel(0.5)),
        _kernel("reduction", "default", MemoryModel(0.0), MemoryModel(2.0), dtypes=INEXACT | _NARROW),
        _kernel("bitwise_xor", "default", MemoryModel(0.0), MemoryModel(0.0), dtypes=INTEGERS, differentiable=False),
        _kernel("mittag_leffler", "contour", MemoryModel(0.4, 1 << 17, 90), MemoryModel(5.0, 6 << 18, 242)),
        _kernel("spectral_multiply", "fft", MemoryModel(2.0), MemoryModel(2.0)),
        _kernel(
            "toeplitz_apply",
            "direct",
            MemoryModel(0.3, MAX_MATRIX_ELEMENTS, 16),
            MemoryModel(1.7, MAX_MATRIX_ELEMENTS, 16),
            refuses=too_long_or_wide_for_matrix,
        ),
        _kernel("toeplitz_apply", "fft", MemoryModel(2.3), MemoryModel(2.2)),
        _kernel("stencil_relax", "relax", MemoryModel(3.1), MemoryModel(2.6), dtypes=FLOATS, differentiable=False),
        _kernel("history_sum", "direct", MemoryModel(4.2, 1 << 17, 58), MemoryModel(3.9, 1 << 24, 58)),
        _kernel("exponential_recurrence", "blocked", MemoryModel(4.0), MemoryModel(3.5)),
        _kernel("chirp_transform", "fft", MemoryModel(2.9), MemoryModel(1.9)),
        _kernel("tridiagonal_solve", "reduction", MemoryModel(2.5), MemoryModel(2.5)),
        # Its operands are integers, so derivatives are not affected.
        _kernel(
            "random",
            "arithmetic",
            MemoryModel(1.0, 1 << 15, 160),
            MemoryModel(1.0, 1 << 20, 160),
            dtypes=FLOATS,
            own_arrays=True,
        ),
    ),
    import_seconds=2.0,
    import_bytes=185 << 20,
)
