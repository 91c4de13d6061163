"""What Numba's kernels take beyond operands and result, where that is not what the primitive's model says."""

from __future__ import annotations

import math

from hpfracc.engine.backends.base import Arm
from hpfracc.engine.backends.footprints import Stage, footprint, wide_bytes
from hpfracc.engine.primitives.base import Call

__all__ = ["exponential_recurrence", "history_sum", "random", "stencil_relax", "toeplitz_direct"]

#: Outputs of a tile of a Toeplitz product.
TILE = 1024


def _is_narrow(call: Call) -> bool:
    return call.dtype in ("float32", "complex64")


def history_sum(call: Call, arm: Arm) -> int:
    """The signal, and in single precision the sum, in double; and which samples are not finite."""
    size = call.batch * call.length
    both = (2, size * wide_bytes(call))
    stages: list[Stage] = [(both, (2, size)), (both, (1, size), (int(_is_narrow(call)), call.output_bytes))]
    return footprint(stages, True) - call.output_bytes


def exponential_recurrence(call: Call, arm: Arm) -> int:
    """States and values in double precision, the latter once for each thread that has terms of its own."""
    terms, batch, wide = call.facts["terms"], call.batch, wide_bytes(call)
    narrow, final = int(_is_narrow(call)), int(call.facts["final"])
    parts = 1 if batch >= arm.workers or terms < 2 * arm.workers else arm.workers
    signal, states = batch * call.length * wide, batch * terms * wide
    kept: Stage = ((narrow + parts, signal), (1, states))
    end: Stage = (*kept, (int(parts > 1), signal), (final, signal + states), (narrow, call.output_bytes))
    return footprint([(*kept, (2, states)), end], True) - call.output_bytes


def toeplitz_direct(call: Call, arm: Arm) -> int:
    """A padded row and a tile for each thread; a second signal and result where the axis is not the last."""
    threads = min(arm.workers, call.batch) if call.batch >= arm.workers else arm.workers
    row = (call.length + 2 * call.facts["taps"] + TILE) * call.itemsize
    return int(threads * row + (0 if call.facts["axes"] == (-1,) else 2 * call.output_bytes))


def stencil_relax(call: Call, arm: Arm) -> int:
    """Costs, and for each thread a map, with a layer of ghosts around; and half of what a queue of all points takes.

    Where all steps cost the same, points wait in such a queue; in buckets, far fewer do.
    """
    padded = math.prod(side + 2 for side in call.facts["lattice"]) if call.length else 0
    edges: bool = call.facts["edges"]
    costs = padded * (call.facts["steps"] // 2 if edges else 1) * call.itemsize + padded * edges
    return costs + min(arm.workers, max(1, call.batch)) * (padded * call.itemsize + 4 * call.length)


def random(call: Call, arm: Arm) -> int:
    """Paths in 64 bits."""
    return call.batch * 8
