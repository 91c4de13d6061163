"""What CuPy's kernels take beyond operands and result; imports no CuPy, for it is asked before that is loaded.

Measured on an H200 by what CuPy's pool held (``benchmarks/memory.py``).
"""

from __future__ import annotations

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives._lengths import fast_length
from hpfracc.engine.primitives._operands import dtype_bytes
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes

__all__ = [
    "convolution_direct",
    "convolution_fft",
    "fft",
    "mittag_leffler",
    "reduction",
    "stencil_frontier",
    "stencil_tiles",
]


#: Points of the longest row that cuFFT transforms in one pass, without a work area.
ONE_PASS = 4096


def _sizes(call: Call) -> tuple[int, int, int]:
    """Points, rows of weights, and weights of a convolution."""
    return call.length, call.facts["weight_rows"], call.facts["taps"]


def convolution_direct(call: Call, arm: Arm) -> int:
    """Rows of weights one behind the other, where there are several."""
    _, rows, taps = _sizes(call)
    return around_bytes(call) + (0 if rows == 1 else call.batch * taps * call.itemsize)


def convolution_fft(call: Call, arm: Arm) -> int:
    """Padded signal, its spectrum, the padded product, and the spectrum of the weights."""
    n, rows, taps = _sizes(call)
    if not call.batch * n * taps:
        return 0
    return around_bytes(call) + (3 * call.batch + rows) * fast_length(n + taps - 1) * call.itemsize


def fft(call: Call, arm: Arm) -> int:
    """A padded, cut or complex copy, one that ``irfft`` spoils, and the work area of plans that take several passes."""
    kind, given = call.facts["kind"], call.facts["given"]
    wanted: int = call.facts["frequencies"] if kind == "irfft" else call.length
    if kind in ("fft", "ifft") and not call.dtype.startswith("complex"):
        copy = call.batch * call.length * dtype_bytes(call.facts["result"])
    else:
        copy = 0 if given == wanted and kind != "irfft" else call.batch * wanted * call.itemsize
    return copy + (max(call.output_bytes, call.input_bytes) if call.length > ONE_PASS else 0)


def reduction(call: Call, arm: Arm) -> int:
    """The squares of a norm, and for complex numbers those of both parts."""
    if call.facts["kind"] != "norm":
        return 0
    parts = 3 if call.dtype.startswith("complex") else 1
    return parts * call.batch * call.length * dtype_bytes(call.facts["result"])


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Everything in double precision, sorted into bands, and the fractions of all points at once."""
    return 281 * call.length


def stencil_frontier(call: Call, arm: Arm) -> int:
    """Two lists of points, the round in which each was called last, and the costs one behind the other."""
    return 20 * call.batch * call.length + _stencil_costs(call)


def stencil_tiles(call: Call, arm: Arm) -> int:
    """The search for sources, and the costs one behind the other; lists of tiles are a thousandth of that."""
    return 10 * call.batch * call.length + _stencil_costs(call)


def _stencil_costs(call: Call) -> int:
    directions = call.facts["steps"] // 2 if call.facts["edges"] else 1
    return int(directions * call.length * call.itemsize)
