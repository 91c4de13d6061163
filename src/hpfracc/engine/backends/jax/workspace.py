"""What JAX's kernels take beyond operands and result; imports no JAX, for it is asked before that is loaded.

The figures are those of XLA's own account of its compiled programs (``memory_analysis``).
"""

from __future__ import annotations

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives._lengths import fast_length
from hpfracc.engine.primitives._operands import dtype_bytes
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes, block_length

__all__ = ["convolution_blocked", "convolution_direct", "convolution_fft", "fft", "mittag_leffler", "reduction"]


def _sizes(call: Call) -> tuple[int, int, int]:
    """Points, rows of weights, and weights of a convolution."""
    return call.length, call.facts["weight_rows"], call.facts["taps"]


def convolution_direct(call: Call, arm: Arm) -> int:
    """The signal without its bad samples, the n x n matrix and the indices it is gathered by."""
    n, rows, _ = _sizes(call)
    return around_bytes(call) + (call.batch * n + 2 * rows * n * n) * call.itemsize


def convolution_fft(call: Call, arm: Arm) -> int:
    """Padded spectra of both, and the padded product; on a card cuFFT's work area besides."""
    n, rows, taps = _sizes(call)
    if not call.batch * n * taps:
        return 0
    size = fast_length(n + taps - 1) * call.itemsize
    return around_bytes(call) + ((2 if arm.on_host else 3) * call.batch + rows) * size


def convolution_blocked(call: Call, arm: Arm) -> int:
    """Two sets of blocks; on a card cuFFT's work area besides."""
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
