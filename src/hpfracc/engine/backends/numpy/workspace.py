"""What NumPy's kernels take beyond operands and result, where that is not what the primitive's model says."""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import (
    Block,
    Stage,
    chirp_stages,
    footprint,
    made_weights,
    recurrence,
    wide_bytes,
)
from hpfracc.engine.numerics.history_tree import LEAF, NODES
from hpfracc.engine.numerics.history_weights import largest_block
from hpfracc.engine.numerics.lengths import fast_length, row_scratch
from hpfracc.engine.numerics.mittag_leffler_values import CHUNK
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes, block_length
from hpfracc.engine.primitives.chirp_transform import transform_length
from hpfracc.engine.primitives.operands import dtype_bytes
from hpfracc.engine.primitives.toeplitz_apply import padded_sizes

__all__ = [
    "HISTORY_BLOCK",
    "HISTORY_ROWS",
    "STATES_TOGETHER",
    "TOGETHER",
    "chirp_transform",
    "convolution_blocked",
    "convolution_fft",
    "elementwise",
    "exponential_recurrence",
    "fft_scipy",
    "history_sum",
    "history_tree",
    "mittag_leffler",
    "scipy_rows",
    "spectral_multiply",
    "toeplitz_fft",
    "transform_scratch",
]

#: Points of all blocks that are transformed together: 1 MB of doubles, so that they meet again in cache.
TOGETHER = 1 << 17
#: Weights of a block of a history sum, and its outputs: with what they are made of they stay in a second-level cache.
HISTORY_BLOCK, HISTORY_ROWS = 1 << 16, 256
#: States of a recurrence that go side by side: with their factors they stay in a second-level cache.
STATES_TOGETHER = 1 << 14


def _sizes(call: Call) -> tuple[int, int, int]:
    """Points, rows of weights, and weights of a convolution."""
    return call.length, call.facts["weight_rows"], call.facts["taps"]


def convolution_blocked(call: Call, arm: Arm) -> int:
    """Only the blocks that are transformed together, for each thread: cut out, transformed and transformed back."""
    _, rows, taps = _sizes(call)
    if not call.batch * call.length * taps:
        return 0
    size = block_length(taps)
    blocks = -(-call.length // (size - taps + 1))
    together = min(-(-blocks // arm.workers), max(1, TOGETHER // (size * call.batch)))
    threads = min(arm.workers, -(-blocks // together))
    return around_bytes(call) + (4 * call.batch * together * threads + rows) * size * call.itemsize


def convolution_fft(call: Call, arm: Arm) -> int:
    """In double precision by NumPy: padded spectra and product in buffers of the pool, beside the result.

    In single precision by SciPy: the spectrum is gone before the result is written, unless threads write parts of it.
    """
    n, rows, taps = _sizes(call)
    if not call.batch * n * taps:
        return 0
    row = fast_length(n + taps - 1) * call.itemsize
    if call.dtype in ("float64", "complex128"):
        # A transform keeps a plan and a scratch row, which together take about one and a half rows more.
        return around_bytes(call) + (4 * call.batch + 2 * rows + 3) * row // 2
    spectra, weights, out = (1, call.batch * row), (1, rows * row), (1, call.output_bytes)
    buffer, work = scipy_rows(call.batch, row, call.dtype, arm.workers)
    stages: list[Stage] = [
        (weights, spectra, buffer, work),
        (weights, (2, call.batch * row), work, (int(arm.workers > 1 and call.batch > 1), call.output_bytes)),
        (weights, spectra, out),
    ]
    return around_bytes(call) + footprint(stages, True) - call.output_bytes


#: Rows that SciPy's transforms take side by side in a vector register of 16 bytes, which every processor has.
_LANES = {"float32": 4, "complex64": 4, "float64": 2, "complex128": 2}


def scipy_rows(batch: int, row: int, dtype: str, workers: int) -> tuple[Block, Block]:
    """Of SciPy's transforms, for each thread: rows that are gathered side by side, and what they go to and fro with.

    A single complex row is transformed where it lies.
    """
    lanes = _LANES[dtype] if batch >= _LANES[dtype] else 1
    threads = max(1, min(workers, batch // _LANES[dtype]))
    gathered = 0 if dtype.startswith("complex") and batch == 1 else threads
    return (gathered, lanes * row), (threads, lanes * row)


def fft_scipy(call: Call, arm: Arm) -> int:
    """A copy padded or cut, and rows on their way; the last rows of the result are written after them."""
    given, kind = call.facts["given"], call.facts["kind"]
    wanted: int = call.facts["frequencies"] if kind == "irfft" else call.length
    padded: int = 0 if given == wanted else call.batch * wanted * call.itemsize
    if not call.batch * call.length:
        return padded
    row = row_scratch(call.length, call.dtype)
    buffer, work = scipy_rows(call.batch, row, call.dtype, arm.workers)
    gathered, moving = (count * size for count, size in (buffer, work))
    # The other half of the whole spectrum of real numbers is written when all is done.
    written = call.output_bytes // (2 if kind in ("fft", "ifft") and not call.dtype.startswith("complex") else 1)
    before = max(0, written - moving)
    return padded + max(0, gathered + max(moving + before, written) - call.output_bytes)


def spectral_multiply(call: Call, arm: Arm) -> int:
    """The spectrum, where it cannot become the result, and rows on their way."""
    if not call.batch * call.length:
        return 0
    spectrum: int = call.facts["spectrum_bytes"]
    product = 0 if call.facts["fits"] else call.output_bytes
    turns, real = len(call.facts["turns"]), call.facts["real"]
    rough = 0
    if turns == 1 and not call.facts["waves"]:
        buffer, work = scipy_rows(call.batch, row_scratch(call.length, call.dtype), call.dtype, arm.workers)
        rough = buffer[0] * buffer[1] + work[0] * work[1]
    # The way back to real numbers over several axes begins with a copy.
    return product + rough + (min(2, turns) * spectrum if real else 0)


def elementwise(call: Call, arm: Arm) -> int:
    """Whole intermediate results; NumPy writes the result of an operator over an operand that nobody else holds."""
    reused: int = call.facts["reused"]
    return max(0, reused - call.output_bytes)


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Of one stretch radii, bands and the members of the largest band; single precision is widened on the way in."""
    each = {"float32": 42, "float64": 27, "complex64": 60, "complex128": 28}[call.dtype]
    return min(call.length, CHUNK) * each + (1 << 20)


def history_sum(call: Call, arm: Arm) -> int:
    """The signal in double precision, and for each thread a block of weights, then what it multiplies."""
    wide = wide_bytes(call)
    weights, rows = largest_block(call.length, HISTORY_BLOCK, HISTORY_ROWS)
    kept: Stage = ((1, call.batch * call.length * wide), (1, call.output_bytes))
    # Real weights are made complex to multiply complex numbers.
    product: Stage = ((1, 8 * weights), (int(wide == 16), 16 * weights), (1, call.batch * rows * wide))
    stages = [(*kept, *made_weights(call, weights)), (*kept, *product)]
    used = max(1, min(arm.workers, -(-call.length // HISTORY_ROWS)))
    threads = [(*kept, *((used * count, size) for count, size in stage[2:])) for stage in stages]
    return footprint(threads, True) - call.output_bytes


def history_tree(call: Call, arm: Arm) -> int:
    """Strengths of all clusters with the polynomials of some leaves, or twice with the signal in double precision."""
    wide, n, batch = wide_bytes(call), call.length, max(1, call.batch)
    clusters = 2 * (n // LEAF) + 1
    strengths = clusters * (NODES * wide * batch + 48)
    together = min(n, 64 * LEAF)
    polynomials = together * (NODES + 4) * (NODES // 2) * 8
    # Positions and remainders a point, and the weights of one block of outputs, as tracemalloc sees them.
    upward = strengths + polynomials + 2 * together * batch * wide + n * (14 + wide * batch // 4) + 180_000
    downward = 2 * strengths + batch * n * wide + 24 * n + 180_000
    return max(upward, downward)


def exponential_recurrence(call: Call, arm: Arm) -> int:
    """The signal in double precision, padded to whole stretches, values and states of all stretches."""
    terms = max(1, call.facts["terms"])
    parts = recurrence(call, STATES_TOGETHER // (terms * max(1, call.batch)))
    signal, values = (1, parts.signal), parts.values
    stages: list[Stage]
    if call.facts["uniform"]:
        stages = [(signal, *parts.carried(3)), (signal, *parts.padded, (1, parts.states), (2, values))]
    else:
        stages = [(signal, *parts.padded, (1, values), (5, parts.states))]
    return footprint([*stages, (signal, (1, values), (1, call.output_bytes))], True) - call.output_bytes


def chirp_transform(call: Call, arm: Arm) -> int:
    """Chirps while their phases are reduced; then those and the rows, multiplied, padded and transformed in place."""
    stages, kept, multiplied, padded = chirp_stages(call, 4, in_place=True)
    scratch = transform_scratch(call, arm)
    stages += [(*kept, (1, multiplied), (1, padded), *scratch), (*kept, (1, padded), (1, call.output_bytes))]
    return footprint(stages, True) - call.output_bytes


def toeplitz_fft(call: Call, arm: Arm) -> int:
    """The weights continued and their spectrum; then padded rows, their spectra and, over several axes, one more."""
    if not call.batch * call.length * call.facts["taps"]:
        return 0
    row = math.prod(padded_sizes(call.facts["points"], call.facts["used"])) * call.itemsize
    weights, signals = call.facts["weight_rows"] * row, call.batch * row
    scratch = transform_scratch(call, arm)
    if call.dtype.startswith("complex"):
        stages: list[Stage] = [((2, weights), *scratch), ((1, weights), (1, signals), *scratch)]
        return footprint([*stages, ((1, weights), (1, signals), (1, call.output_bytes))], True) - call.output_bytes
    # Half a spectrum of complex numbers takes as much as the row of real ones; that of the weights is real.
    stages = [
        ((2, weights), *scratch),
        ((2, weights), (1, weights // 2)),
        ((1, weights // 2), (2, signals), *scratch),
        ((1, weights // 2), (1, signals), (1, call.output_bytes)),
    ]
    return footprint(stages, True) - call.output_bytes


def transform_scratch(call: Call, arm: Arm) -> Stage:
    """What the C library's transforms take of their own, which Python is not told of.

    Rows that are transformed are gathered, and go to and fro between two buffers of each thread; the way back to real
    numbers over several axes begins with a copy of all.
    """
    if call.operation == "chirp_transform":
        result: str = call.facts["result"]
        row = transform_length(call.length, call.facts["points"]) * dtype_bytes(result)
        # Where they lie, for it is written over.
        return (scipy_rows(call.batch, row, result, arm.workers)[1],)
    if call.operation == "toeplitz_apply":
        sizes = padded_sizes(call.facts["points"], call.facts["used"])
        if len(sizes) > 1:
            return () if call.dtype.startswith("complex") else ((1, call.batch * math.prod(sizes) * call.itemsize),)
        buffer, work = scipy_rows(call.batch, sizes[0] * call.itemsize, call.dtype, arm.workers)
        return (work,) if call.batch == 1 else (buffer, work)
    return ()
