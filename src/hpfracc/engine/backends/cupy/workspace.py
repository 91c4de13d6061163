"""What CuPy's kernels take beyond operands and result; imports no CuPy, for it is asked before that is loaded.

Measured on an H200 by what CuPy's pool held (``benchmarks/memory.py``), or counted from the kernels' own statements.
cuFFT's work areas stay with CuPy's plans.
"""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import Stage, chirp_stages, footprint, made_weights, recurrence, wide_bytes
from hpfracc.engine.primitives._lengths import fast_length
from hpfracc.engine.primitives._operands import dtype_bytes
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes
from hpfracc.engine.primitives.toeplitz_apply import padded_sizes

__all__ = [
    "HISTORY_BLOCK",
    "STATES_TOGETHER",
    "chirp_transform",
    "convolution_direct",
    "convolution_fft",
    "exponential_recurrence",
    "fft",
    "history_sum",
    "mittag_leffler",
    "reduction",
    "spectral_multiply",
    "stencil_frontier",
    "stencil_tiles",
    "toeplitz_direct",
    "toeplitz_fft",
]

#: Weights of a block of a history sum, 128 MiB of them: enough to fill a card.
HISTORY_BLOCK = 1 << 24
#: States of a recurrence that go side by side: enough to fill a card, few enough that the passes over them stay small.
STATES_TOGETHER = 1 << 19
#: Values of the Mittag-Leffler function that are taken at once, and bytes of the fractions of each.
_AT_ONCE, _FRACTIONS = 1 << 18, 1330


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
    """Everything in double precision, sorted into bands, and the fractions of a block."""
    each = {"float32": 60, "float64": 44, "complex64": 108, "complex128": 76}[call.dtype]
    return each * call.length + _FRACTIONS * min(call.length, _AT_ONCE)


def history_sum(call: Call, arm: Arm) -> int:
    """The signal in double precision, with and without its bad samples, and a block of weights."""
    wide, size = wide_bytes(call), call.batch * call.length
    rows = max(1, min(call.length, HISTORY_BLOCK // max(1, call.length)))
    weights = rows * call.length
    kept: Stage = ((2, size * wide), (1, call.output_bytes))
    stages: list[Stage] = [
        (*kept, *made_weights(call, weights)),
        (*kept, (1, 8 * weights), (int(wide == 16), 16 * weights), (1, call.batch * rows * wide)),
        (*kept, (2, size), (2, 8 * size)),
        (*kept, (1, size), (1, call.output_bytes)),
    ]
    return footprint(stages, False) - call.output_bytes


def exponential_recurrence(call: Call, arm: Arm) -> int:
    """The signal in double precision, with and without its bad samples, padded; values and states of all stretches."""
    terms, size = max(1, call.facts["terms"]), call.batch * call.length
    parts = recurrence(call, min(STATES_TOGETHER // (terms * max(1, call.batch)), math.isqrt(call.length)))
    kept, values = (2, parts.signal), parts.values
    stages: list[Stage]
    if call.facts["uniform"]:
        stages = [(kept, *parts.carried(3)), (kept, *parts.padded, (1, parts.states), (3, values))]
    else:
        stages = [(kept, *parts.padded, (1, values), (5, parts.states))]
    stages += [(kept, (1, values), (3, size), (2, 8 * size)), (kept, (2, values), (3, size))]
    return footprint([*stages, (kept, (1, values), (1, call.output_bytes))], False) - call.output_bytes


def chirp_transform(call: Call, arm: Arm) -> int:
    """Chirps while their phases are reduced; then those and the rows, multiplied, padded and transformed."""
    stages, kept, multiplied, padded = chirp_stages(call, 5, in_place=False)
    stages += [
        (*kept, (1, multiplied), (2, padded)),
        (*kept, (2, padded)),
        (*kept, (1, padded), (1, call.output_bytes)),
    ]
    return footprint(stages, False) - call.output_bytes


def toeplitz_direct(call: Call, arm: Arm) -> int:
    """Rows of weights one behind the other, where there are several; a second result where the axis is not the last."""
    weights = 0 if call.facts["weight_rows"] == 1 else call.batch * call.facts["taps"] * call.itemsize
    return weights + (0 if call.facts["axes"] == (-1,) else call.output_bytes)


def toeplitz_fft(call: Call, arm: Arm) -> int:
    """The weights continued and their spectrum; then rows padded, transformed and transformed back."""
    if not call.batch * call.length * call.facts["taps"]:
        return 0
    row = math.prod(padded_sizes(call.facts["points"], call.facts["used"])) * call.itemsize
    weights, signals = call.facts["weight_rows"] * row, call.batch * row
    kept = (1, weights if call.dtype.startswith("complex") else weights // 2)
    points = call.batch * call.length
    repaired: Stage = () if call.facts["used"] == call.facts["points"] else ((1, call.output_bytes), (1, points))
    stages: list[Stage] = [
        ((2, weights), kept),
        (kept, *repaired, (2, signals)),
        (kept, *repaired, (1, signals), (3 if repaired else 0, 4 * points), (1, call.output_bytes)),
    ]
    return footprint(stages, False) - call.output_bytes


def spectral_multiply(call: Call, arm: Arm) -> int:
    """The spectrum and its product; cosines by permuted copies."""
    if not call.batch * call.length:
        return 0
    spectrum, out = call.facts["spectrum_bytes"], call.output_bytes
    product = spectrum if call.facts["fits"] else max(spectrum, out)
    stages: list[Stage] = [((1, spectrum), (1, product)), ((1, product), (int(call.facts["real"]), out))]
    if call.facts["waves"]:
        stages.append(((5, out), (2, out // 2)))
    return max(0, footprint(stages, False) - out)


def stencil_frontier(call: Call, arm: Arm) -> int:
    """Two lists of points, the round in which each was called last, and the costs one behind the other."""
    return 20 * call.batch * call.length + _stencil_costs(call)


def stencil_tiles(call: Call, arm: Arm) -> int:
    """The search for sources, and the costs one behind the other; lists of tiles are a thousandth of that."""
    return 10 * call.batch * call.length + _stencil_costs(call)


def _stencil_costs(call: Call) -> int:
    directions = call.facts["steps"] // 2 if call.facts["edges"] else 1
    return int(directions * call.length * call.itemsize)
