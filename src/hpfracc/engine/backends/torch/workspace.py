"""What PyTorch's kernels take beyond operands and result; imports no PyTorch, for it is asked before that is loaded.

Measured by ``benchmarks/memory.py``: on the host by peak resident memory, on a card (an H200) by PyTorch's own counter.
There the transforms of long rows have scratch of their own, and non-finite samples are always repaired.
"""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives._lengths import fast_length
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes, block_length

__all__ = [
    "convolution_blocked",
    "convolution_direct",
    "convolution_fft",
    "fft",
    "mittag_leffler",
    "nothing",
    "reduction",
    "stencil_tiles",
]


#: Points of the longest row that cuFFT transforms in one pass, without a work area.
ONE_PASS = 4096


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
        return around_bytes(call) + max(0, (2 * call.batch + rows + 1) * size - call.output_bytes)
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
        return padded
    if kind == "irfft":
        padded += call.batch * wanted * call.itemsize
    return padded + (max(call.output_bytes, call.input_bytes) if call.length > ONE_PASS else 0)


def reduction(call: Call, arm: Arm) -> int:
    """On a card the absolute values of a norm, and their squares."""
    if arm.on_host or call.facts["kind"] != "norm":
        return 0
    return 2 * call.input_bytes


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Everything in double precision, sorted into bands, and the fractions of one block; on a card of all at once."""
    each = {"float32": 80, "float64": 44, "complex64": 92, "complex128": 76}[call.dtype]
    return call.length * (each if arm.on_host else each + 229) + (1 << 22)


def stencil_tiles(call: Call, arm: Arm) -> int:
    """Both operands with a layer around, and copies of the tiles that are worked on: all of them at worst."""
    moves = call.facts["steps"] if call.facts["edges"] else 1
    padded = math.prod(side + 2 for side in call.facts["lattice"]) if call.length else 0
    return int((call.batch * 7 * padded + (2 + call.batch) * moves * padded) * call.itemsize)
