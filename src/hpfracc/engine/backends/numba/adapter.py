"""Numba as a backend: NumPy arrays, with loops compiled for this processor, on the engine's threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, final

from hpfracc.engine.backends.base import HostAdapter, KernelSpec, MemoryModel
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call, several_axes

__all__ = ["ADAPTER", "NumbaAdapter"]


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


@final
class NumbaAdapter(HostAdapter):
    """Numba. Without FFT and matrix product, because no compiled version was faster than NumPy's."""

    name = "numba"
    module = "numba"
    import_seconds = 0.3
    shields_compilation = True
    import_bytes = 95 << 20
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]] = {
        "causal_convolution": (_compiled("causal_convolution", "direct", INEXACT, 1.0),),
        "elementwise": (_compiled("elementwise", "fused", INEXACT),),
        "reduction": (_compiled("reduction", "default", FLOATS, refuses=_reads_columns),),
        "bitwise_xor": (_compiled("bitwise_xor", "default", INTEGERS),),
        "history_sum": (_compiled("history_sum", "direct", INEXACT, 1.8),),
        "exponential_recurrence": (_compiled("exponential_recurrence", "direct", INEXACT, 1.3),),
        "mittag_leffler": (_compiled("mittag_leffler", "contour", INEXACT, 1.0, _is_derivative),),
        "toeplitz_apply": (_compiled("toeplitz_apply", "direct", INEXACT, 1.0, several_axes),),
        "stencil_relax": (_compiled("stencil_relax", "dijkstra", FLOATS, 1.2),),
        "random": (_compiled("random", "compiled", FLOATS, 1.0),),
        "tridiagonal_solve": (_compiled("tridiagonal_solve", "thomas", INEXACT, 0.6),),
    }


ADAPTER = NumbaAdapter()
