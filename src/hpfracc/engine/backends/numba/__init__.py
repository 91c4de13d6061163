"""Numba as a backend: NumPy arrays, with loops compiled for this processor, on the engine's threads."""

from __future__ import annotations

from collections.abc import Callable

from hpfracc.engine.backends.base import Declaration, KernelSpec, MemoryModel
from hpfracc.engine.primitives.base import FLOATS, INEXACT, Call

__all__ = ["BACKEND"]


def _is_derivative(call: Call) -> str | None:
    return "it computes values only, no derivatives" if call.facts["order"] else None


def _compiled(
    primitive: str,
    algorithm: str,
    dtypes: frozenset[str],
    copies: float = 0.0,
    refuses: Callable[[Call], str | None] | None = None,
) -> KernelSpec:
    memory = MemoryModel(copies)
    return KernelSpec(primitive, algorithm, dtypes, compiles="signature", threads=True, refuses=refuses, memory=memory)


#: Only what a compiled loop does faster than NumPy.
BACKEND = Declaration(
    "numba",
    (
        _compiled("causal_convolution", "direct", INEXACT, 1.0),
        _compiled("elementwise", "fused", INEXACT),
        _compiled("exponential_recurrence", "direct", INEXACT, 1.3),
        _compiled("mittag_leffler", "contour", INEXACT, 1.0, _is_derivative),
        _compiled("stencil_relax", "dijkstra", FLOATS, 1.2),
        _compiled("random", "compiled", FLOATS, 1.0),
        _compiled("tridiagonal_solve", "thomas", INEXACT, 0.6),
    ),
    import_seconds=0.3,
    import_bytes=95 << 20,
    host_arrays=True,
    shields_compilation=True,
)
