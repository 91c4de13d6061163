"""Numba as a backend: NumPy arrays, with loops compiled for this processor, on the engine's threads."""

from __future__ import annotations

from collections.abc import Callable

from hpfracc.engine.backends.base import Declaration, KernelSpec, MemoryModel
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call, several_axes

__all__ = ["BACKEND"]


def _reads_columns(call: Call) -> str | None:
    if call.facts["trailing"]:
        return None
    return "the reduced axes are not the last ones; NumPy reads such data in place, this kernel would copy it"


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


#: Without FFT and matrix product, because no compiled version was faster than NumPy's.
BACKEND = Declaration(
    "numba",
    (
        _compiled("causal_convolution", "direct", INEXACT, 1.0),
        _compiled("elementwise", "fused", INEXACT),
        _compiled("reduction", "default", FLOATS, refuses=_reads_columns),
        _compiled("bitwise_xor", "default", INTEGERS),
        _compiled("history_sum", "direct", INEXACT, 1.8),
        _compiled("exponential_recurrence", "direct", INEXACT, 1.3),
        _compiled("mittag_leffler", "contour", INEXACT, 1.0, _is_derivative),
        _compiled("toeplitz_apply", "direct", INEXACT, 1.0, several_axes),
        _compiled("stencil_relax", "dijkstra", FLOATS, 1.2),
        _compiled("random", "compiled", FLOATS, 1.0),
        _compiled("tridiagonal_solve", "thomas", INEXACT, 0.6),
    ),
    import_seconds=0.3,
    import_bytes=95 << 20,
    host_arrays=True,
    shields_compilation=True,
)
