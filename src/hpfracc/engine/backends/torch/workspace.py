"""What PyTorch's kernels take beyond operands and result; imports no PyTorch, for it is asked before that is loaded.

Measured by ``benchmarks/memory.py``, by the peak resident memory of the host. On a GPU most kernels take something
else, which stands in ``gpu_memory.py``.
"""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import Stage, chirp_stages, footprint, made_weights, recurrence, wide_bytes
from hpfracc.engine.backends.torch import gpu_memory
from hpfracc.engine.numerics.history_weights import largest_block, output_blocks
from hpfracc.engine.numerics.lengths import fast_length, largest_factor, power_of_two, row_scratch
from hpfracc.engine.numerics.mittag_leffler_values import CHUNK
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes, block_length
from hpfracc.engine.primitives.chirp_transform import transform_length
from hpfracc.engine.primitives.operands import dtype_bytes
from hpfracc.engine.primitives.toeplitz_apply import padded_sizes
from hpfracc.engine.workers import available_cores

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


#: Weights of a block of a history sum on the host, where they should stay in cache, and on a GPU; and its outputs.
HISTORY_BLOCK, HISTORY_ROWS = {True: 1 << 17, False: 1 << 24}, 2048
#: Values of the Mittag-Leffler function that are taken at once on the host, and bytes of the fractions of each.
_AT_ONCE, _FRACTIONS = 2048, 1330
#: Bytes of the longest row of real numbers that MKL takes whole.
_MKL_LONGEST = 1 << 24
#: States of a recurrence that go side by side on the host, where they should stay in cache, and on a GPU.
STATES_TOGETHER = {True: 1 << 14, False: 1 << 19}


def _sizes(call: Call) -> tuple[int, int, int]:
    """Points, rows of weights, and weights of a convolution."""
    return call.length, call.facts["weight_rows"], call.facts["taps"]


def mkl_scratch(points: int, dtype: str, rows: int) -> int:
    """Bytes that MKL, PyTorch's library on the host, takes while it transforms rows.

    For a single row: another one of real numbers, nothing of complex ones. Of several rows each thread has scratch,
    twice as much where a row is neither a power of two nor so long that it goes in pieces.
    """
    real = not dtype.startswith("complex")
    row = points * dtype_bytes(dtype)
    if largest_factor(points) ** 2 > points >= 50:
        return row_scratch(points, dtype)  # by Bluestein
    if rows < 2:
        return row if real else 0
    in_pieces = points == power_of_two(points) or row > (_MKL_LONGEST if real else 2 * _MKL_LONGEST)
    each = (1.13 if in_pieces else 2.13) if real else (0.6 if in_pieces else 1.13)
    return int(min(rows, available_cores()) * each * row)


def nothing(call: Call, arm: Arm) -> int:
    """A kernel that reads its operands and writes its result."""
    return 0


def convolution_direct(call: Call, arm: Arm) -> int:
    """The n x n matrix, the signal reversed."""
    if not arm.on_host:
        return gpu_memory.convolution_direct(call)
    n, rows, _ = _sizes(call)
    return around_bytes(call) + (call.batch * n + rows * n * n) * call.itemsize


def convolution_fft(call: Call, arm: Arm) -> int:
    """Padded signal, spectra, padded product, and what the transforms copy."""
    if not arm.on_host:
        return gpu_memory.convolution_fft(call)
    n, rows, taps = _sizes(call)
    if not call.batch * n * taps:
        return 0
    points = fast_length(n + taps - 1)
    size, given = points * call.itemsize, int(call.facts["signal_rows"])
    # The result is a part of the padded product. Where the weights are several rows, the product of the spectra is not
    # written over one of them.
    products = call.batch if rows == 1 else 2 * call.batch
    work = mkl_scratch(points, call.dtype, call.batch)
    return around_bytes(call) + max(0, (given + products + rows) * size + work - call.output_bytes)


def convolution_blocked(call: Call, arm: Arm) -> int:
    """Two sets of blocks."""
    if not arm.on_host:
        return gpu_memory.convolution_blocked(call)
    _, rows, taps = _sizes(call)
    if not call.batch * call.length * taps:
        return 0
    size = block_length(taps)
    blocks = call.batch * -(-call.length // (size - taps + 1))
    work = mkl_scratch(size, call.dtype, blocks)
    return around_bytes(call) + (2 * blocks + rows) * size * call.itemsize + work


def fft(call: Call, arm: Arm) -> int:
    """A padded or cut copy, and scratch of the transforms."""
    if not arm.on_host:
        return gpu_memory.fft(call)
    kind, given = call.facts["kind"], call.facts["given"]
    wanted: int = call.facts["frequencies"] if kind == "irfft" else call.length
    padded = 0 if given == wanted else call.batch * wanted * call.itemsize
    return padded + mkl_scratch(call.length, call.dtype, call.batch)


def reduction(call: Call, arm: Arm) -> int:
    """On a GPU what a norm takes."""
    return 0 if arm.on_host else gpu_memory.reduction(call)


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Everything in double precision, sorted into bands, and the fractions of one block."""
    if not arm.on_host:
        return gpu_memory.mittag_leffler(call)
    each = {"float32": 66, "float64": 44, "complex64": 92, "complex128": 76}[call.dtype]
    return min(call.length, CHUNK) * each + _FRACTIONS * min(call.length, _AT_ONCE)


def _copies(axes: int, rows: int) -> int:
    """Copies of a spectrum that the way back to real numbers spoils.

    One an axis after the first, and of several lattices one more.
    """
    return min(2, max(0, axes - 1 + (axes > 1 and rows > 1)))


def history_sum(call: Call, arm: Arm) -> int:
    """The signal in double precision, with and without its bad samples; parts of the sum, then all of it, twice."""
    wide, size, narrow = wide_bytes(call), call.batch * call.length, call.dtype in ("float32", "complex64")
    double = size * wide
    weights, rows = largest_block(call.length, HISTORY_BLOCK[arm.on_host], HISTORY_ROWS)
    if not arm.on_host and call.length <= 4 * HISTORY_ROWS:
        # Few blocks, of which none need be as large as it may be.
        blocks = output_blocks(call.length, HISTORY_BLOCK[False], HISTORY_ROWS)
        weights = max(((high - low) * high for low, high in blocks), default=0)
    parts = -(-call.length // rows)
    # Samples of a table are the operand itself, those of intervals a copy without the first.
    copied = 1 if call.facts["kernel"] == "tabulated" and not narrow and not arm.on_host else 2
    kept: Stage = ((copied, double), (parts, double // parts))
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
    if not arm.on_host and call.facts["final"]:
        # Values and final states as they are, together, and in the precision of the result.
        together_bytes = call.output_bytes * wide_bytes(call) // call.itemsize
        ends = (2, together_bytes - size * wide_bytes(call))
        stages.append((kept, (1, values), ends, (1, together_bytes), (int(narrow), call.output_bytes)))
    copies = int(narrow) + int(call.facts["final"])
    return (
        footprint([*stages, (kept, (1, values), (copies, call.output_bytes))], arm.on_host, trimmed=False)
        - call.output_bytes
    )


def chirp_transform(call: Call, arm: Arm) -> int:
    """Chirps while their phases are reduced; then those and the rows, multiplied, padded and transformed."""
    if not arm.on_host:
        return gpu_memory.chirp_transform(call)
    stages, kept, multiplied, padded = chirp_stages(call, 5, in_place=False)
    points = transform_length(call.length, call.facts["points"])
    # Padded by the transform, which takes a row more of a single one.
    work = (1, max(padded // max(1, call.batch), mkl_scratch(points, call.facts["result"], call.batch)))
    stages += [
        (*kept, (1, multiplied), (2, padded), work),
        (*kept, (2, padded), work),
        (*kept, (1, padded), (1, call.output_bytes)),
    ]
    return footprint(stages, arm.on_host, trimmed=False) - call.output_bytes


def toeplitz_direct(call: Call, arm: Arm) -> int:
    """The n x n matrix and the indices it is gathered by."""
    if not arm.on_host:
        return gpu_memory.toeplitz_direct(call)
    n, rows = call.length, call.facts["weight_rows"]
    matrix = (1, rows * n * n * call.itemsize)
    stages: list[Stage] = [((2, 8 * n * n),), ((1, 8 * n * n), matrix), (matrix, (1, call.output_bytes))]
    return footprint(stages, arm.on_host, trimmed=False) - call.output_bytes


def toeplitz_fft(call: Call, arm: Arm) -> int:
    """The weights continued and their spectrum; then rows padded, transformed and transformed back."""
    if not arm.on_host:
        return gpu_memory.toeplitz_fft(call)
    if not call.batch * call.length * call.facts["taps"]:
        return 0
    sizes = padded_sizes(call.facts["points"], call.facts["used"])
    row, real = math.prod(sizes) * call.itemsize, not call.dtype.startswith("complex")
    weights, signals = call.facts["weight_rows"] * row, call.batch * row
    # The spectrum of real weights is real; the way back of several axes spoils a copy.
    kept = (1, weights // 2 if real else weights)
    copies = _copies(len(sizes), call.batch) if real else 0
    # The functions for several axes take a row more of a single one, and turn it where it is not the last.
    work = (1, max(row, mkl_scratch(sizes[0], call.dtype, call.batch)) if len(sizes) == 1 else 0)
    turned = (0 if call.facts["axes"][-1] == -1 else 1, signals)
    stages: list[Stage] = [
        ((2, weights), work),
        ((2, weights), kept),
        (kept, (2, signals), turned, work),
        (kept, (2 + copies, signals), turned, work),
        (kept, (1, signals)),
    ]
    return footprint(stages, arm.on_host, trimmed=False) - call.output_bytes


def spectral_multiply(call: Call, arm: Arm) -> int:
    """The spectrum and its product; cosines by permuted copies."""
    if not arm.on_host:
        return gpu_memory.spectral_multiply(call)
    if not call.batch * call.length:
        return 0
    spectrum, out, turns = call.facts["spectrum_bytes"], call.output_bytes, call.facts["turns"]
    product = 0 if call.facts["fits"] else out
    copies = _copies(len(turns), call.batch) if call.facts["real"] else 0
    alone = len(turns) == 1 and not call.facts["waves"]
    row = call.length * call.itemsize
    work = max(row, mkl_scratch(call.length, call.dtype, call.batch)) if alone else 0
    stages: list[Stage] = []
    if call.facts["waves"]:
        # Before and after, permuted, transformed, turned; halves of it backwards; a copy along the axis.
        stages.append(((4 + min(2, len(call.facts["waves"])), out), (2, out // 2)))
    if turns or not call.facts["waves"]:
        stages.append(((1 + copies, spectrum), (1, product), (1, work), (1, out)))
    return footprint(stages, arm.on_host, trimmed=False) - out


def stencil_tiles(call: Call, arm: Arm) -> int:
    """As on a GPU; on the host somewhat more, for blocks that were given back are not taken again at once."""
    return gpu_memory.stencil_tiles(call) if not arm.on_host else gpu_memory.stencil_tiles(call) * 13 // 10
