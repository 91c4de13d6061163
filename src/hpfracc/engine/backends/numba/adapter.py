"""Numba as a backend: NumPy's arrays, loops compiled for this processor, spread over the engine's own threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, final

from hpfracc.engine.backends.base import Arm, HostAdapter, KernelSpec
from hpfracc.engine.backends.numba import workspace
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call
from hpfracc.engine.primitives.causal_convolution import around_bytes
from hpfracc.engine.primitives.toeplitz_apply import several_axes

__all__ = ["ADAPTER", "NumbaAdapter"]


def _reads_columns(call: Call) -> str | None:
    if call.facts["trailing"]:
        return None
    return "the reduced axes are not the last ones; NumPy reads such data where it lies, this kernel would copy it"


def _is_derivative(call: Call) -> str | None:
    return "it gives values only, no derivatives" if call.facts["order"] else None


def _no_workspace(call: Call, arm: Arm) -> int:
    return 0


def _around(call: Call, arm: Arm) -> int:
    """Differences, and where there are several rows of weights those one behind the other, and a repeated signal."""
    if call.facts["weight_rows"] == 1:
        return around_bytes(call)
    repeated = call.output_bytes if call.input_bytes < call.output_bytes else 0
    taps: int = call.facts["taps"]
    return around_bytes(call) + repeated + call.batch * taps * call.itemsize


def _repeated(call: Call, arm: Arm) -> int:
    """An operand that has fewer axes, or of one point, is repeated."""
    return max(0, 2 * call.output_bytes - call.input_bytes)


def _widened(call: Call, arm: Arm) -> int:
    """Single precision is computed, and kept until the end, in double."""
    return 4 * call.output_bytes if call.dtype in ("float32", "complex64") else 0


def _own(
    primitive: str,
    algorithm: str,
    dtypes: frozenset[str],
    needs: Callable[[Call, Arm], int],
    refuses: Callable[[Call], str | None] | None = None,
) -> KernelSpec:
    return KernelSpec(
        primitive, algorithm, dtypes, compiles="signature", threads=True, refuses=refuses, workspace=needs
    )


@final
class NumbaAdapter(HostAdapter):
    """There is no FFT and no matrix product here: nothing that Numba compiles was faster than NumPy's."""

    name = "numba"
    module = "numba"
    import_seconds = 0.3
    shields_compilation = True
    import_bytes = 90 << 20
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]] = {
        "causal_convolution": (
            KernelSpec(
                "causal_convolution",
                "direct",
                INEXACT,
                compiles="signature",
                threads=True,
                workspace=_around,
            ),
        ),
        "elementwise": (KernelSpec("elementwise", "fused", INEXACT, compiles="signature", threads=True),),
        "reduction": (
            KernelSpec(
                "reduction",
                "default",
                FLOATS,
                compiles="signature",
                threads=True,
                refuses=_reads_columns,
                workspace=_no_workspace,
            ),
        ),
        "bitwise_xor": (_own("bitwise_xor", "default", INTEGERS, _repeated),),
        "history_sum": (_own("history_sum", "direct", INEXACT, workspace.history_sum),),
        "exponential_recurrence": (
            _own("exponential_recurrence", "direct", INEXACT, workspace.exponential_recurrence),
        ),
        "mittag_leffler": (
            KernelSpec(
                "mittag_leffler",
                "contour",
                INEXACT,
                compiles="signature",
                threads=True,
                refuses=_is_derivative,
                workspace=_widened,
            ),
        ),
        "toeplitz_apply": (_own("toeplitz_apply", "direct", INEXACT, workspace.toeplitz_direct, several_axes),),
        "stencil_relax": (_own("stencil_relax", "dijkstra", FLOATS, workspace.stencil_relax),),
    }


ADAPTER = NumbaAdapter()
