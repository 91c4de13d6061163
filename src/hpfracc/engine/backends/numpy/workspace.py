"""What NumPy's kernels take beyond operands and result, where that is not what the primitive's model says."""

from __future__ import annotations

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.causal_convolution import around_bytes, block_length

__all__ = ["TOGETHER", "convolution_blocked", "elementwise", "mittag_leffler"]

#: Points of all blocks that are transformed together: 1 MB of doubles, so that they meet again in cache.
TOGETHER = 1 << 17


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


def elementwise(call: Call, arm: Arm) -> int:
    """Whole intermediate results; NumPy writes the result of an operator over an operand that nobody else holds."""
    reused: int = call.facts["reused"]
    return max(0, reused - 1) * call.length * call.itemsize


def mittag_leffler(call: Call, arm: Arm) -> int:
    """Radii, bands and the members of the largest band; single precision is widened on the way in."""
    each = {"float32": 42, "float64": 27, "complex64": 60, "complex128": 28}[call.dtype]
    return call.length * each + (1 << 20)
