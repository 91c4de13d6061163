"""What JAX's kernels take beyond operands and result; imports no JAX, for it is asked before that is loaded.

The figures are those of XLA's own account of its compiled programs (``memory_analysis``).
"""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import recurrence, wide_bytes
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes, block_length
from hpfracc.engine.primitives.chirp_transform import transform_length
from hpfracc.engine.primitives.operands import dtype_bytes
from hpfracc.engine.primitives.toeplitz_apply import padded_sizes

__all__ = [
    "HISTORY_BLOCK",
    "RECURRENCE_PART",
    "chirp_transform",
    "convolution_blocked",
    "convolution_direct",
    "convolution_fft",
    "exponential_recurrence",
    "fft",
    "history_sum",
    "mittag_leffler",
    "reduction",
    "spectral_multiply",
    "stencil_relax",
    "toeplitz_direct",
    "toeplitz_fft",
]

#: Weights of a block of a history sum, 8 MiB of them.
HISTORY_BLOCK = 1 << 20
#: Steps of a part of a recurrence whose steps differ: its states are made again on the way back.
RECURRENCE_PART = 1 << 14


def _sizes(call: Call) -> tuple[int, int, int]:
    """Points, rows of weights, and weights of a convolution."""
    return call.length, call.facts["weight_rows"], call.facts["taps"]


def convolution_direct(call: Call, arm: Arm) -> int:
    """The signal without its bad samples, the n x n matrix and the indices it is gathered by."""
    n, rows, _ = _sizes(call)
    return around_bytes(call) + (call.batch * n + 2 * rows * n * n) * call.itemsize


def convolution_fft(call: Call, arm: Arm) -> int:
    """Padded spectra of both, and the padded product; on a GPU cuFFT's work area besides."""
    n, rows, taps = _sizes(call)
    if not call.batch * n * taps:
        return 0
    size = fast_length(n + taps - 1) * call.itemsize
    return around_bytes(call) + ((2 if arm.on_host else 3) * call.batch + rows) * size


def convolution_blocked(call: Call, arm: Arm) -> int:
    """Two sets of blocks; on a GPU cuFFT's work area besides."""
    _, rows, taps = _sizes(call)
    if not call.batch * call.length * taps:
        return 0
    size = block_length(taps)
    blocks = -(-call.length // (size - taps + 1))
    return around_bytes(call) + ((2 if arm.on_host else 3) * call.batch * blocks + rows) * size * call.itemsize


def fft(call: Call, arm: Arm) -> int:
    """A padded or cut copy, and a complex one of real numbers that are transformed as complex ones."""
    kind, given = call.facts["kind"], call.facts["given"]
    if kind in ("fft", "ifft") and not call.dtype.startswith("complex"):
        copy = call.batch * call.length * dtype_bytes(call.facts["result"])
    else:
        wanted = call.facts["frequencies"] if kind == "irfft" else call.length
        copy = 0 if given == wanted else call.batch * wanted * call.itemsize
    return copy if arm.on_host else copy + max(call.output_bytes, call.input_bytes)


def reduction(call: Call, arm: Arm) -> int:
    """The squared sizes of complex numbers."""
    if call.facts["kind"] == "norm" and call.dtype.startswith("complex"):
        return call.batch * call.length * dtype_bytes(call.facts["result"])
    return 0


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Every band evaluated for every element, in double precision."""
    each = {"float32": 108, "float64": 104, "complex64": 173, "complex128": 165}[call.dtype]
    return call.length * each


def history_sum(call: Call, arm: Arm) -> int:
    """The signal without its bad samples and the sum, in double precision, and a block of weights."""
    narrow = call.dtype in ("float32", "complex64")
    weights = call.length * max(1, min(call.length, HISTORY_BLOCK // max(1, call.length)))
    return (3 if narrow else 2) * call.batch * call.length * wide_bytes(call) + 16 * weights


def exponential_recurrence(call: Call, arm: Arm) -> int:
    """Rows of stretches, their values and what earlier ones leave; and the states, with what they are made of."""
    steps = min(call.length, RECURRENCE_PART)
    parts = recurrence(call, math.isqrt(steps) if steps > 64 else 1)
    return 3 * (parts.values + parts.states)


def chirp_transform(call: Call, arm: Arm) -> int:
    """The chirp that is convolved with and the padded rows, both ways; on a GPU cuFFT's work area besides."""
    size = transform_length(call.length, call.facts["points"])
    rows = size * call.batch * dtype_bytes(call.facts["result"])
    return int(16 * size * max(1, call.facts["rate_rows"]) + (2 if arm.on_host else 3) * rows)


def toeplitz_direct(call: Call, arm: Arm) -> int:
    """The n x n matrix."""
    rows: int = call.facts["weight_rows"]
    return rows * call.length**2 * call.itemsize


def toeplitz_fft(call: Call, arm: Arm) -> int:
    """Padded spectra of both, and the padded product; on a GPU cuFFT's work area besides."""
    if not call.batch * call.length * call.facts["taps"]:
        return 0
    row = math.prod(padded_sizes(call.facts["points"], call.facts["used"])) * call.itemsize
    rows: int = (2 if arm.on_host else 3) * call.batch + call.facts["weight_rows"]
    # A bad sample that does not reach every output: the signal without it, the sum, and masks.
    repaired = 0 if call.facts["used"] == call.facts["points"] else 2 * call.output_bytes + call.batch * call.length
    return rows * row + repaired


def spectral_multiply(call: Call, arm: Arm) -> int:
    """The spectrum and its product where that is larger; cosines by permuted copies; on a GPU cuFFT's work area."""
    if not call.batch * call.length:
        return 0
    spectrum: int = call.facts["spectrum_bytes"]
    product = 0 if call.facts["fits"] else call.output_bytes
    # Type I by a period of twice the points and its spectrum, type II by one that is permuted.
    periods = {4 if kind.endswith("1") else 2 for _, kind in call.facts["waves"]}
    copies = max(periods, default=0) * call.output_bytes
    return int(product + max(spectrum if call.facts["turns"] else 0, copies) + (0 if arm.on_host else spectrum))


def stencil_relax(call: Call, arm: Arm) -> int:
    """Two maps and one with ghosts; costs, and those of edges with ghosts and as trials."""
    padded = math.prod(side + 2 for side in call.facts["lattice"]) if call.length else 0
    edges: bool = call.facts["edges"]
    costs = call.length * (3 * call.facts["steps"] // 2 if edges else 1)
    return int((call.batch * (2 * call.length + padded) + costs) * call.itemsize)
