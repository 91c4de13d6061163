"""NumPy as a backend: always available, never compiled, and the last fallback of every automatic choice."""

from __future__ import annotations

from hpfracc.engine.backends.base import Declaration, KernelSpec, MemoryModel
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call, fills_one_block, several_axes

__all__ = ["BACKEND"]


def _one_matrix(call: Call) -> str | None:
    if call.facts["matrices"] > 1:
        return None
    return "there is one matrix for all rows, which LAPACK eliminates once"


def _no_polynomials(call: Call) -> str | None:
    if call.facts["kernel"] == "tabulated":
        return "a piecewise linear kernel is not a polynomial at long distances"
    return None


#: Arrays are used in place, and the engine manages host memory.
BACKEND = Declaration(
    "numpy",
    (
        KernelSpec("causal_convolution", "direct", INEXACT, memory=MemoryModel(0.3)),
        KernelSpec("causal_convolution", "fft", INEXACT, threads=True, memory=MemoryModel(0.8)),
        KernelSpec(
            "causal_convolution",
            "blocked",
            INEXACT,
            threads=True,
            refuses=fills_one_block,
            memory=MemoryModel(0.3, block=1 << 17, each=32),
        ),
        KernelSpec("matmul", "default", INEXACT | INTEGERS),
        KernelSpec("fft", "default", INEXACT, threads=True, memory=MemoryModel(0.8)),
        KernelSpec("elementwise", "default", INEXACT, memory=MemoryModel(0.4)),
        KernelSpec("reduction", "default", INEXACT | INTEGERS),
        KernelSpec("bitwise_xor", "default", INTEGERS),
        KernelSpec("mittag_leffler", "contour", INEXACT, memory=MemoryModel(0.0, block=1 << 17, each=48)),
        KernelSpec("spectral_multiply", "fft", INEXACT, threads=True, memory=MemoryModel(2.0)),
        KernelSpec("toeplitz_apply", "direct", INEXACT, refuses=several_axes, memory=MemoryModel(0.3)),
        KernelSpec("toeplitz_apply", "fft", INEXACT, threads=True, memory=MemoryModel(1.8)),
        KernelSpec("stencil_relax", "csgraph", FLOATS),
        KernelSpec("history_sum", "direct", INEXACT, threads=True, memory=MemoryModel(2.0, block=1 << 16, each=58)),
        KernelSpec(
            "history_sum", "tree", INEXACT, refuses=_no_polynomials, memory=MemoryModel(5.0, block=2048, each=2300)
        ),
        KernelSpec("exponential_recurrence", "blocked", INEXACT, memory=MemoryModel(2.5)),
        KernelSpec("random", "streams", FLOATS, memory=MemoryModel(1.0, 1 << 14, 160)),
        KernelSpec("chirp_transform", "fft", INEXACT, threads=True, memory=MemoryModel(1.8)),
        KernelSpec("tridiagonal_solve", "lapack", INEXACT, memory=MemoryModel(1.0)),
        KernelSpec("tridiagonal_solve", "reduction", INEXACT, refuses=_one_matrix, memory=MemoryModel(2.5)),
    ),
    host_arrays=True,
)
