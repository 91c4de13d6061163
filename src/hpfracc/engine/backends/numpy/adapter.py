"""NumPy as a backend: always there, never compiled, and the last resort of every automatic choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from hpfracc.engine.backends.base import HostAdapter, KernelSpec
from hpfracc.engine.backends.numpy import workspace
from hpfracc.engine.primitives.base import FLOATS, INEXACT, INTEGERS, Call
from hpfracc.engine.primitives.causal_convolution import fills_one_block
from hpfracc.engine.primitives.toeplitz_apply import several_axes

__all__ = ["ADAPTER", "NumpyAdapter"]

#: Points times the sum of the sides up to which rounds over a whole lattice are offered: a square of 300.
_MOST_STEPS = 1 << 26


def _is_single(call: Call) -> str | None:
    return None if call.batch > 1 else "a single product has no stack to share among threads"


def _many_rounds(call: Call) -> str | None:
    if call.length * call.facts["reach"] > _MOST_STEPS:
        return f"{call.length:,} points: a round over all of them takes one step, and paths are long"
    return None


def _no_polynomials(call: Call) -> str | None:
    if call.facts["kernel"] == "tabulated":
        return "a kernel with corners, as straight lines between knots have, is no polynomial far away"
    return None


@final
class NumpyAdapter(HostAdapter):
    """Arrays stay where they are; the host's memory is the engine's own affair."""

    name = "numpy"
    module = "numpy"
    specs: ClassVar[Mapping[str, tuple[KernelSpec, ...]]] = {
        "causal_convolution": (
            KernelSpec("causal_convolution", "direct", INEXACT),
            KernelSpec("causal_convolution", "fft", INEXACT, threads=True, workspace=workspace.convolution_fft),
            KernelSpec(
                "causal_convolution",
                "blocked",
                INEXACT,
                threads=True,
                refuses=fills_one_block,
                workspace=workspace.convolution_blocked,
            ),
        ),
        "matmul": (
            KernelSpec("matmul", "default", INEXACT | INTEGERS),
            KernelSpec("matmul", "stacked", INEXACT | INTEGERS, threads=True, refuses=_is_single),
        ),
        "fft": (
            KernelSpec("fft", "pocketfft", INEXACT),
            KernelSpec("fft", "scipy", INEXACT, threads=True, workspace=workspace.fft_scipy),
        ),
        "elementwise": (
            KernelSpec("elementwise", "default", INEXACT, workspace=workspace.elementwise),
            KernelSpec("elementwise", "blocked", INEXACT, threads=True),
        ),
        "reduction": (KernelSpec("reduction", "default", INEXACT | INTEGERS),),
        "bitwise_xor": (KernelSpec("bitwise_xor", "default", INTEGERS),),
        "mittag_leffler": (KernelSpec("mittag_leffler", "contour", INEXACT, workspace=workspace.mittag_leffler),),
        "spectral_multiply": (
            KernelSpec("spectral_multiply", "scipy", INEXACT, threads=True, workspace=workspace.spectral_multiply),
        ),
        "toeplitz_apply": (
            KernelSpec("toeplitz_apply", "direct", INEXACT, refuses=several_axes),
            KernelSpec("toeplitz_apply", "fft", INEXACT, threads=True, workspace=workspace.toeplitz_fft),
        ),
        "stencil_relax": (
            KernelSpec("stencil_relax", "csgraph", FLOATS),
            KernelSpec("stencil_relax", "relax", FLOATS, refuses=_many_rounds),
        ),
        "history_sum": (
            KernelSpec("history_sum", "direct", INEXACT, threads=True, workspace=workspace.history_sum),
            KernelSpec("history_sum", "tree", INEXACT, refuses=_no_polynomials, workspace=workspace.history_tree),
        ),
        "exponential_recurrence": (
            KernelSpec("exponential_recurrence", "blocked", INEXACT, workspace=workspace.exponential_recurrence),
        ),
        "random": (KernelSpec("random", "streams", FLOATS), KernelSpec("random", "arithmetic", FLOATS)),
        "chirp_transform": (
            KernelSpec("chirp_transform", "fft", INEXACT, threads=True, workspace=workspace.chirp_transform),
        ),
    }


ADAPTER = NumpyAdapter()
