"""Numba as a backend: NumPy's arrays, loops compiled for this processor, spread over the engine's own threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from hpfracc.engine.backends.base import HostAdapter, KernelSpec
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call
from hpfracc.engine.primitives.toeplitz_apply import several_axes

__all__ = ["ADAPTER", "NumbaAdapter"]


def _reads_columns(call: Call) -> str | None:
    if call.facts["trailing"]:
        return None
    return "the reduced axes are not the last ones; NumPy reads such data where it lies, this kernel would copy it"


def _is_derivative(call: Call) -> str | None:
    return "it gives values only, no derivatives" if call.facts["order"] else None


@final
class NumbaAdapter(HostAdapter):
    """There is no FFT and no matrix product here: nothing that Numba compiles was faster than NumPy's."""

    name = "numba"
    module = "numba"
    import_seconds = 0.3
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]] = {
        "causal_convolution": (
            KernelSpec("causal_convolution", "direct", INEXACT, compiles="signature", threads=True),
        ),
        "elementwise": (KernelSpec("elementwise", "fused", INEXACT, compiles="signature", threads=True),),
        "reduction": (
            KernelSpec("reduction", "default", FLOATS, compiles="signature", threads=True, refuses=_reads_columns),
        ),
        "bitwise_xor": (KernelSpec("bitwise_xor", "default", INTEGERS, compiles="signature", threads=True),),
        "history_sum": (KernelSpec("history_sum", "direct", INEXACT, compiles="signature", threads=True),),
        "exponential_recurrence": (
            KernelSpec("exponential_recurrence", "direct", INEXACT, compiles="signature", threads=True),
        ),
        "mittag_leffler": (
            KernelSpec(
                "mittag_leffler", "contour", INEXACT, compiles="signature", threads=True, refuses=_is_derivative
            ),
        ),
        "toeplitz_apply": (
            KernelSpec("toeplitz_apply", "direct", INEXACT, compiles="signature", threads=True, refuses=several_axes),
        ),
    }


ADAPTER = NumbaAdapter()
