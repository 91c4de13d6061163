"""What CuPy's kernels take beyond operands and result; imports no CuPy, for it is asked before that is loaded.

Checked on an H200 against what CuPy's pool handed out and the blocks alive at each peak (``benchmarks/memory.py``).

What is told is what a call allocates whose plans of cuFFT exist, as they do from the second call of a shape on: CuPy
keeps up to 16 plans a thread and device, and with each its work area, taken from the pool when the plan was made. So a
first call takes that area, too (``backends/cufft.py`` tells its size: between nothing and five times the transform),
and it stays taken, in what the pool counts as used, until the plan is dropped.
"""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import Stage, chirp_stages, footprint, made_weights, recurrence, wide_bytes
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.numerics.mittag_leffler_sum import values_together
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes
from hpfracc.engine.primitives.operands import dtype_bytes
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

#: Weights of a block of a history sum, 128 MiB of them: enough to fill a GPU.
HISTORY_BLOCK = 1 << 24
#: States of a recurrence that go side by side: enough to fill a GPU, few enough that the passes over them stay small.
STATES_TOGETHER = 1 << 19
#: Bytes of the fractions of one value of the Mittag-Leffler function.
_FRACTIONS = 1430


def _sizes(call: Call) -> tuple[int, int, int]:
    """Points, rows of weights, and weights of a convolution."""
    return call.length, call.facts["weight_rows"], call.facts["taps"]


def convolution_direct(call: Call, arm: Arm) -> int:
    """Rows of weights one behind the other, where there are several; those of the signal where each is met again."""
    n, rows, taps = _sizes(call)
    repeated = 0 if call.facts["signal_rows"] in (1, call.batch) else call.batch * n
    return around_bytes(call) + (repeated + (0 if rows == 1 else call.batch * taps)) * call.itemsize


def convolution_fft(call: Call, arm: Arm) -> int:
    """Padded signal, its spectrum, the padded product (of complex numbers in its place), counts of bad samples."""
    n, rows, taps = _sizes(call)
    points = call.facts["signal_rows"] * n
    if not call.batch * n * taps:
        return 0
    size = fast_length(n + taps - 1) * call.itemsize
    weights, signal, padded = (1, rows * size), call.facts["signal_rows"] * size, call.batch * size
    kept: Stage = (weights, (1, signal), (1 if call.dtype.startswith("complex") else 2, padded))
    stages: list[Stage] = [
        ((2, rows * size),),
        (weights, (2, signal), (int(rows > 1), padded)),
        (*kept, (1, call.output_bytes), (int(taps < n), points)),
    ]
    if taps < n:
        # Which samples are bad, counted, and counted so far before.
        stages.append((*kept, (2, 4 * points)))
    return around_bytes(call) + footprint(stages, False) - call.output_bytes


def fft(call: Call, arm: Arm) -> int:
    """A padded, cut or complex copy, and one that ``irfft`` spoils."""
    kind, given = call.facts["kind"], call.facts["given"]
    wanted: int = call.facts["frequencies"] if kind == "irfft" else call.length
    if kind in ("fft", "ifft") and not call.dtype.startswith("complex"):
        return call.batch * call.length * dtype_bytes(call.facts["result"])
    return 0 if given == wanted and kind != "irfft" else call.batch * wanted * call.itemsize


def reduction(call: Call, arm: Arm) -> int:
    """The squares of a norm, and for complex numbers those of both parts."""
    if call.facts["kind"] != "norm":
        return 0
    parts = 3 if call.dtype.startswith("complex") else 1
    return parts * call.batch * call.length * dtype_bytes(call.facts["result"])


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Everything in double precision, sorted into bands, and the fractions of a block."""
    each = {"float32": 60, "float64": 44, "complex64": 108, "complex128": 76}[call.dtype]
    return each * call.length + _FRACTIONS * min(call.length, values_together(call.length))


def _sums(call: Call) -> int:
    """Arrays of a cumulative sum: of one row, which is scanned in blocks, another one beside the result."""
    return 2 if call.batch == 1 else 1


def history_sum(call: Call, arm: Arm) -> int:
    """The signal in double precision, with and without its bad samples, and a block of weights."""
    wide, size = wide_bytes(call), call.batch * call.length
    rows = max(1, min(call.length, HISTORY_BLOCK // max(1, call.length)))
    weights = rows * call.length
    kept: Stage = ((2, size * wide), (1, call.output_bytes))
    # The kernels of intervals leave out the first sample, so that a product copies the others together.
    copied = 0 if call.facts["kernel"] == "tabulated" else call.batch * max(0, call.length - 1) * wide
    product: Stage = ((1, 8 * weights), (int(wide == 16), 16 * weights), (1, call.batch * rows * wide), (1, copied))
    stages: list[Stage] = [
        (*kept, *made_weights(call, weights)),
        (*kept, *product),
        (*kept, (2, size), (_sums(call), 8 * size)),
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
    stages += [(kept, (1, values), (3, size), (_sums(call), 8 * size)), (kept, (2, values), (3, size))]
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
    """Rows of weights one behind the other, where there are several; where the axis is not the last, turned copies."""
    weights = 0 if call.facts["weight_rows"] == 1 else call.batch * call.facts["taps"] * call.itemsize
    return weights + (0 if call.facts["axes"] == (-1,) else 2 * call.output_bytes)


def toeplitz_fft(call: Call, arm: Arm) -> int:
    """The weights continued and their spectrum; then rows padded, transformed and transformed back, and cut to length.

    Where a bad sample does not reach everything: the rows without them, and counts of them up to each point, and at
    both ends of its window.
    """
    if not call.batch * call.length * call.facts["taps"]:
        return 0
    used, rows = call.facts["used"], call.facts["weight_rows"]
    sizes = padded_sizes(call.facts["points"], used)
    row, real = math.prod(sizes) * call.itemsize, not call.dtype.startswith("complex")
    weights, signals, points = rows * row, call.batch * row, call.batch * call.length
    kept = (1, weights // 2 if real else weights)
    # Of several axes, what the weights are before the last is continued; along another than the last, copies in order.
    before = (1, weights * used[-1] // sizes[-1] if len(sizes) > 1 else 0)
    turned = int(call.facts["axes"][-1] != -1)
    repaired: Stage = () if used == call.facts["points"] else ((1, call.output_bytes), (1, points))
    full = 2 if real or turned else 1  # complex numbers are transformed back in place, or in that of their copy
    copied = int(bool(repaired) or call.batch > 1 or len(sizes) > 1)  # the beginning of one row is a view of it
    stages: list[Stage] = [
        ((2 + turned, weights), before, kept),
        (kept, *repaired, (2 + turned, signals)),
        (kept, *repaired, (full + int(turned and real), signals)),
        (kept, *repaired, (full, signals), (copied, call.output_bytes)),
    ]
    if repaired:
        stages.append((kept, *repaired, (full, signals), (4, 4 * points), (2, 8 * max(call.facts["points"]))))
    return footprint(stages, False) - call.output_bytes


def spectral_multiply(call: Call, arm: Arm) -> int:
    """The spectrum and its product; cosines by copies."""
    if not call.batch * call.length:
        return 0
    spectrum, out = call.facts["spectrum_bytes"], call.output_bytes
    product = spectrum if call.facts["fits"] else max(spectrum, out)
    stages: list[Stage] = []
    if call.facts["turns"] or not call.facts["waves"]:
        stages += [((1, spectrum), (1, product)), ((1, product), (int(call.facts["real"]), out))]
    parts = 0 if call.facts["real"] else 1  # real and imaginary part one behind the other
    held = parts
    for _, kind in call.facts["waves"]:
        # Continued to twice the length and transformed; or permuted, transformed, turned, joined and doubled, and back
        # half of it backwards, joined, turned and, with a copy that is spoilt, transformed.
        stages += [((4 + held, out),)]
        held = 2 if kind == "dct1" else 1 + parts  # what is real of a transform is a view, which keeps the rest
        stages += [((5 + parts, out),) if kind in ("dct1", "dst1") else ((4 + parts, out), (1, out // 2))]
    return max(0, footprint(stages, False) - out)


def stencil_frontier(call: Call, arm: Arm) -> int:
    """Two lists of points, and the round in which each was called last."""
    return 20 * call.batch * call.length


def stencil_tiles(call: Call, arm: Arm) -> int:
    """The start without what is not finite, before it is copied in order; lists of tiles are a thousandth of that."""
    return call.output_bytes
