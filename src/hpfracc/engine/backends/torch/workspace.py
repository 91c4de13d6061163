"""What PyTorch's kernels take beyond operands and result; imports no PyTorch, for it is asked before that is loaded.

Measured by ``benchmarks/memory.py``: on the host by peak resident memory, on a card (an H200) by PyTorch's own counter.
There the transforms of long rows have scratch of their own, and non-finite samples are always repaired.
"""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import Stage, chirp_stages, footprint, made_weights, recurrence, wide_bytes
from hpfracc.engine.primitives._history_weights import largest_block
from hpfracc.engine.primitives._lengths import fast_length, power_of_two, row_scratch
from hpfracc.engine.primitives._mittag_leffler_numpy import STRETCH
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes, block_length
from hpfracc.engine.primitives.chirp_transform import transform_length
from hpfracc.engine.primitives.toeplitz_apply import padded_sizes

__all__ = [
    "HISTORY_BLOCK",
    "HISTORY_ROWS",
    "STATES_TOGETHER",
    "chirp_transform",
    "convolution_blocked",
    "convolution_direct",
    "convolution_fft",
    "exponential_recurrence",
    "fft",
    "history_sum",
    "mittag_leffler",
    "nothing",
    "reduction",
    "spectral_multiply",
    "stencil_tiles",
    "toeplitz_direct",
    "toeplitz_fft",
]


#: Points of the longest row that cuFFT transforms in one pass, without a work area.
ONE_PASS = 4096
#: Weights of a block of a history sum on the host, where they should stay in cache, and on a card; and its outputs.
HISTORY_BLOCK, HISTORY_ROWS = {True: 1 << 17, False: 1 << 24}, 2048
#: Values of the Mittag-Leffler function that are taken at once on the host and on a card, and bytes of their fractions.
_AT_ONCE, _FRACTIONS = {True: 2048, False: 1 << 18}, 1330
#: States of a recurrence that go side by side on the host, where they should stay in cache, and on a card.
STATES_TOGETHER = {True: 1 << 14, False: 1 << 19}


def _sizes(call: Call) -> tuple[int, int, int]:
    """Points, rows of weights, and weights of a convolution."""
    return call.length, call.facts["weight_rows"], call.facts["taps"]


def nothing(call: Call, arm: Arm) -> int:
    """A kernel that reads its operands and writes its result."""
    return 0


def convolution_direct(call: Call, arm: Arm) -> int:
    """The n x n matrix, the signal reversed; on a card in double precision, and twice each."""
    n, rows, _ = _sizes(call)
    if arm.on_host:
        return around_bytes(call) + (call.batch * n + rows * n * n) * call.itemsize
    wide = 16 if call.dtype.startswith("complex") else 8
    return around_bytes(call) + (2 * call.batch * n + 2 * rows * n * n) * wide


def convolution_fft(call: Call, arm: Arm) -> int:
    """Padded signal, spectra, padded product, and what the transforms copy."""
    n, rows, taps = _sizes(call)
    if not call.batch * n * taps:
        return 0
    size = fast_length(n + taps - 1) * call.itemsize
    if arm.on_host:
        # The result is a part of the padded product, and a transform has one row of scratch.
        # Where the weights are several rows, the product of the spectra is not written over one of them.
        spectra = 2 if rows == 1 else 3
        return around_bytes(call) + max(0, (spectra * call.batch + rows + 1) * size - call.output_bytes)
    # Padded, transformed, the copy that the way back destroys, its result, and cuFFT's own work area; the result of the
    # call comes after the last three are gone.
    return around_bytes(call) + max(0, (5 * call.batch + rows) * size - call.output_bytes)


def convolution_blocked(call: Call, arm: Arm) -> int:
    """Two sets of blocks; on a card as for one long transform."""
    _, rows, taps = _sizes(call)
    if not call.batch * call.length * taps:
        return 0
    size = block_length(taps)
    blocks = -(-call.length // (size - taps + 1))
    per_block = 2 if arm.on_host else 4
    return around_bytes(call) + (per_block * call.batch * blocks + rows) * size * call.itemsize


def fft(call: Call, arm: Arm) -> int:
    """A padded or cut copy; on a card one that ``irfft`` spoils, and cuFFT's own for rows that it takes in passes."""
    kind, given = call.facts["kind"], call.facts["given"]
    wanted: int = call.facts["frequencies"] if kind == "irfft" else call.length
    padded = 0 if given == wanted else call.batch * wanted * call.itemsize
    if arm.on_host:
        return padded + row_scratch(call.length, call.dtype)
    if kind == "irfft":
        padded += call.batch * wanted * call.itemsize
    return padded + (max(call.output_bytes, call.input_bytes) if call.length > ONE_PASS else 0)


def reduction(call: Call, arm: Arm) -> int:
    """On a card the absolute values of a norm, and their squares."""
    if arm.on_host or call.facts["kind"] != "norm":
        return 0
    return 2 * call.input_bytes


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Everything in double precision, sorted into bands, and the fractions of one block."""
    each = {"float32": 66, "float64": 44, "complex64": 92, "complex128": 76}[call.dtype]
    sorted_at_once = min(call.length, STRETCH) if arm.on_host else call.length
    return sorted_at_once * each + _FRACTIONS * min(call.length, _AT_ONCE[arm.on_host])


def _work_area(points: int, row: int, rows: int, arm: Arm) -> int:
    """Bytes that transforms of rows take of their own: on the host one row, in cuFFT all, if it passes twice."""
    if arm.on_host:
        return row
    return rows * row if points > ONE_PASS or points != power_of_two(points) else 0


def _copies(axes: int, rows: int, arm: Arm) -> int:
    """Copies of a spectrum that the way back to real numbers spoils.

    On a card always one; on the host one an axis after the first, and of several lattices one more.
    """
    return min(2, max(0, axes - 1 + (axes > 1 and rows > 1))) if arm.on_host else min(1, axes)


def history_sum(call: Call, arm: Arm) -> int:
    """The signal in double precision, with and without its bad samples; parts of the sum, then all of it, twice."""
    wide, size, narrow = wide_bytes(call), call.batch * call.length, call.dtype in ("float32", "complex64")
    double = size * wide
    weights, rows = largest_block(call.length, HISTORY_BLOCK[arm.on_host], HISTORY_ROWS)
    parts = -(-call.length // rows)
    kept: Stage = ((2, double), (parts, double // parts))
    product: Stage = ((1, 8 * weights), (int(wide == 16), 16 * weights))
    stages: list[Stage] = [
        ((3 if narrow else 2, double),),
        (*kept, *made_weights(call, weights)),
        (*kept, *product),
        (*kept, (2, size), (2, 8 * size)),
        (*kept, (1, size), (2, double)),
        (*kept, (1, size), (1, double), (int(narrow), call.output_bytes)),
    ]
    return footprint(stages, arm.on_host, trimmed=False) - call.output_bytes


def exponential_recurrence(call: Call, arm: Arm) -> int:
    """The signal in double precision, with and without its bad samples, padded; values and states of all stretches."""
    terms, size = max(1, call.facts["terms"]), call.batch * call.length
    together = min(STATES_TOGETHER[arm.on_host] // (terms * max(1, call.batch)), math.isqrt(call.length))
    parts = recurrence(call, together)
    narrow = call.dtype in ("float32", "complex64")
    kept, values = (2 if narrow else 1, parts.signal), parts.values
    stages: list[Stage]
    if call.facts["uniform"]:
        stages = [(kept, *parts.carried(3)), (kept, *parts.padded, (1, parts.states), (3, values))]
    else:
        stages = [(kept, *parts.padded, (1, values), (5, parts.states))]
    stages += [(kept, (1, values), (3, size), (2, 8 * size)), (kept, (2, values), (3, size))]
    copies = int(narrow) + int(call.facts["final"])
    return (
        footprint([*stages, (kept, (1, values), (copies, call.output_bytes))], arm.on_host, trimmed=False)
        - call.output_bytes
    )


def chirp_transform(call: Call, arm: Arm) -> int:
    """Chirps while their phases are reduced; then those and the rows, multiplied, padded and transformed."""
    stages, kept, multiplied, padded = chirp_stages(call, 5, in_place=False)
    size = transform_length(call.length, call.facts["points"])
    work = (1, _work_area(size, padded // max(1, call.batch), call.batch, arm))
    stages += [
        (*kept, (1, multiplied), (2, padded), work),
        (*kept, (2, padded), work),
        (*kept, (1, padded), (1, call.output_bytes)),
    ]
    return footprint(stages, arm.on_host, trimmed=False) - call.output_bytes


def toeplitz_direct(call: Call, arm: Arm) -> int:
    """The n x n matrix and the indices it is gathered by; on a card all in double precision."""
    n, rows, wide = call.length, call.facts["weight_rows"], call.itemsize if arm.on_host else wide_bytes(call)
    widened = 0 if arm.on_host else call.batch * n * wide
    matrix = (1, rows * n * n * wide)
    stages: list[Stage] = [((2, 8 * n * n),), ((1, 8 * n * n), matrix), (matrix, (3, widened), (1, call.output_bytes))]
    return footprint(stages, arm.on_host, trimmed=False) - call.output_bytes


def toeplitz_fft(call: Call, arm: Arm) -> int:
    """The weights continued and their spectrum; then rows padded, transformed and transformed back."""
    if not call.batch * call.length * call.facts["taps"]:
        return 0
    sizes = padded_sizes(call.facts["points"], call.facts["used"])
    row, real = math.prod(sizes) * call.itemsize, not call.dtype.startswith("complex")
    weights, signals = call.facts["weight_rows"] * row, call.batch * row
    # The spectrum of real weights is real; the way back of several axes, and any on a card, spoils a copy.
    kept = (1, weights // 2 if real else weights)
    copies = _copies(len(sizes), call.batch, arm) if real else 0
    repaired = 0 if arm.on_host or call.facts["used"] == call.facts["points"] else call.output_bytes
    alone = len(sizes) == 1 or not arm.on_host
    work = (1, _work_area(sizes[-1], row, call.batch, arm) if alone else 0)
    stages: list[Stage] = [
        ((2, weights), (1, _work_area(sizes[-1], row, call.facts["weight_rows"], arm) if alone else 0)),
        ((2, weights), kept),
        (kept, (1, repaired), (2, signals), work),
        (kept, (1, repaired), (2 + copies, signals), work),
        (kept, (1, signals), (2, repaired)),
    ]
    return footprint(stages, arm.on_host, trimmed=False) - call.output_bytes


def spectral_multiply(call: Call, arm: Arm) -> int:
    """The spectrum and its product, or on a card a copy that the way back spoils; cosines by permuted copies."""
    if not call.batch * call.length:
        return 0
    spectrum, out, turns = call.facts["spectrum_bytes"], call.output_bytes, call.facts["turns"]
    product = 0 if call.facts["fits"] else out
    copies = _copies(len(turns), call.batch, arm) if call.facts["real"] else 0
    alone = len(turns) == 1 and not call.facts["waves"]
    work = row_scratch(call.length, call.dtype) if arm.on_host and alone else 0 if arm.on_host else spectrum
    stages: list[Stage] = []
    if call.facts["waves"]:
        # Before and after, permuted, transformed, turned; halves of it backwards; on the host a copy along the axis.
        stages.append(((3 + min(2, len(call.facts["waves"])) + arm.on_host, out), (2, out // 2)))
    if turns or not call.facts["waves"]:
        stages.append(((1 + copies, spectrum), (1, product), (1, work), (1, out)))
    return footprint(stages, arm.on_host, trimmed=False) - out


def stencil_tiles(call: Call, arm: Arm) -> int:
    """Both operands with a layer around, and copies of the tiles that are worked on: all of them at worst."""
    moves = call.facts["steps"] if call.facts["edges"] else 1
    padded = math.prod(side + 2 for side in call.facts["lattice"]) if call.length else 0
    return int((call.batch * 7 * padded + (2 + call.batch) * moves * padded) * call.itemsize)
