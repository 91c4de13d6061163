"""CuPy as a backend, for CUDA devices only."""

from __future__ import annotations

from collections.abc import Callable

from hpfracc.engine.backends.base import (
    IN_PLACE,
    MAX_MATRIX_ELEMENTS,
    Declaration,
    KernelSpec,
    MemoryModel,
    too_long_for_matrix,
    too_long_or_wide_for_matrix,
)
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call

__all__ = ["BACKEND", "MAX_TILE_AXES"]

#: Maximum number of axes of a lattice that is relaxed in tiles.
MAX_TILE_AXES = 3


def _many_axes(call: Call) -> str | None:
    axes = len(call.facts["lattice"])
    if axes > MAX_TILE_AXES:
        return f"a lattice of {axes} axes: its tiles have at most {MAX_TILE_AXES}"
    return None


def _compiled(
    primitive: str,
    algorithm: str,
    memory: MemoryModel = IN_PLACE,
    refuses: Callable[[Call], str | None] | None = None,
    *,
    dtypes: frozenset[str] = INEXACT,
) -> KernelSpec:
    return KernelSpec(primitive, algorithm, dtypes, compiles="signature", refuses=refuses, memory=memory)


BACKEND = Declaration(
    "cupy",
    (
        _compiled("causal_convolution", "direct", MemoryModel(3.0, MAX_MATRIX_ELEMENTS, 8), too_long_for_matrix),
        _compiled("causal_convolution", "fft", MemoryModel(2.3)),
        KernelSpec("matmul", "default", INEXACT),
        KernelSpec("fft", "default", INEXACT),
        _compiled("elementwise", "fused"),
        _compiled("reduction", "default", MemoryModel(0.0, 1 << 62, 8), dtypes=INEXACT | INTEGERS),
        _compiled("bitwise_xor", "default", dtypes=INTEGERS),
        KernelSpec("spectral_multiply", "fft", INEXACT, memory=MemoryModel(1.5)),
        _compiled("toeplitz_apply", "direct", MemoryModel(1.7, MAX_MATRIX_ELEMENTS, 16), too_long_or_wide_for_matrix),
        KernelSpec("toeplitz_apply", "fft", INEXACT, memory=MemoryModel(2.2)),
        _compiled("history_sum", "direct", MemoryModel(3.5, 1 << 24, 80)),
        _compiled("exponential_recurrence", "blocked", MemoryModel(4.0)),
        _compiled("stencil_relax", "tiles", MemoryModel(0.5), _many_axes, dtypes=FLOATS),
        _compiled("stencil_relax", "relax", MemoryModel(2.6), dtypes=FLOATS),
        _compiled("mittag_leffler", "contour", MemoryModel(5.0, 6 << 18, 242)),
        _compiled("chirp_transform", "fft", MemoryModel(1.8)),
        _compiled("tridiagonal_solve", "reduction", MemoryModel(2.5)),
        KernelSpec("random", "fused", FLOATS, compiles="signature", own_arrays=True),
    ),
    # CuPy is packaged once for each version of CUDA.
    packages=("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
    import_seconds=1.0,
)
