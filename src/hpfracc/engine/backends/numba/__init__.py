"""Numba as a backend: NumPy arrays, with loops compiled for this processor, on the engine's threads."""

from __future__ import annotations

from functools import partial

from hpfracc.engine.backends.base import IN_PLACE, Declaration, KernelSpec, MemoryModel
from hpfracc.engine.primitives.base import FLOATS, INEXACT, Call

__all__ = ["BACKEND"]


def _is_derivative(call: Call) -> str | None:
    return "it computes values only, no derivatives" if call.facts["order"] else None


_compiled = partial(KernelSpec, compiles="signature", threads=True)

#: Only what a compiled loop does faster than NumPy.
BACKEND = Declaration(
    "numba",
    (
        _compiled("causal_convolution", "direct", INEXACT, memory=MemoryModel(1.0)),
        _compiled("elementwise", "fused", INEXACT, memory=IN_PLACE),
        _compiled("exponential_recurrence", "direct", INEXACT, memory=MemoryModel(1.3)),
        _compiled("mittag_leffler", "contour", INEXACT, refuses=_is_derivative, memory=MemoryModel(1.0)),
        _compiled("stencil_relax", "dijkstra", FLOATS, memory=MemoryModel(1.2)),
        _compiled("random", "compiled", FLOATS, memory=MemoryModel(1.0)),
        _compiled("tridiagonal_solve", "thomas", INEXACT, memory=MemoryModel(0.6)),
    ),
    import_seconds=0.3,
    import_bytes=95 << 20,
    host_arrays=True,
    shields_compilation=True,
)
