"""JAX as a backend, on the host and on CUDA devices."""

from __future__ import annotations

from typing import Any

from hpfracc.engine.backends.base import (
    IN_PLACE,
    MAX_MATRIX_ELEMENTS,
    Declaration,
    KernelSpec,
    MemoryModel,
    too_long_for_causal_matrix,
    too_long_or_wide_for_matrix,
    too_many_taps,
)
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS

__all__ = ["BACKEND"]


def _kernel(
    primitive: str, algorithm: str, memory: MemoryModel = IN_PLACE, dtypes: frozenset[str] = INEXACT, **more: Any
) -> KernelSpec:
    return KernelSpec(primitive, algorithm, dtypes, compiles="shape", memory=memory, **{"differentiable": True, **more})


BACKEND = Declaration(
    "jax",
    (
        _kernel(
            "causal_convolution",
            "direct",
            MemoryModel(1.0, MAX_MATRIX_ELEMENTS, 16),
            refuses=too_long_for_causal_matrix,
        ),
        _kernel("causal_convolution", "fft", MemoryModel(2.0)),
        _kernel("causal_convolution", "blocked", MemoryModel(2.0), refuses=too_many_taps),
        _kernel("matmul", "default"),
        _kernel("fft", "default", MemoryModel(1.0)),
        _kernel("elementwise", "default"),
        _kernel("reduction", "default", MemoryModel(0.3), INEXACT | INTEGERS),
        _kernel("bitwise_xor", "default", dtypes=INTEGERS, differentiable=False),
        _kernel("mittag_leffler", "contour", MemoryModel(12.0)),
        _kernel("spectral_multiply", "fft", MemoryModel(1.2)),
        _kernel(
            "toeplitz_apply", "direct", MemoryModel(0.0, MAX_MATRIX_ELEMENTS, 8), refuses=too_long_or_wide_for_matrix
        ),
        _kernel("toeplitz_apply", "fft", MemoryModel(2.3)),
        _kernel("stencil_relax", "relax", MemoryModel(2.5), FLOATS, differentiable=False),
        _kernel("history_sum", "direct", MemoryModel(2.2, 1 << 20, 16)),
        _kernel("exponential_recurrence", "blocked", MemoryModel(3.0)),
        _kernel("chirp_transform", "fft", MemoryModel(1.8)),
        _kernel("tridiagonal_solve", "reduction", MemoryModel(2.0)),
        # Its operands are integers, so derivatives are not affected.
        _kernel("random", "arithmetic", MemoryModel(1.0, 1 << 62, 32), FLOATS, own_arrays=True),
    ),
    import_seconds=1.0,
    import_bytes=230 << 20,
)
