"""The most memory that a kernel has at once, told stage by stage; and the stages that several backends share.

A stage lists what is alive in it beside the operands: ``(count, bytes)`` for so many blocks of a size. A model that is
written so can be read beside its kernel. What is told here is imported by no kernel and imports no library.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from typing import NamedTuple

from hpfracc.engine.numerics.recurrence import FEW_STRETCHES, stretch_length
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.chirp_transform import transform_length
from hpfracc.engine.primitives.operands import dtype_bytes

__all__ = ["Block", "Recurrence", "Stage", "chirp_stages", "footprint", "made_weights", "recurrence", "wide_bytes"]

#: glibc takes blocks up to the second size from its heap; what is freed there serves blocks of that size again, and
#: goes back to the system only beyond the third (DEFAULT_MMAP_THRESHOLD_MAX of its malloc, and twice that). What blocks
#: below the first leave is not worth counting.
_HEAP_LEAST, _HEAP_BLOCK, _HEAP_KEPT = 2**22, 2**25, 2**26

#: Of two neighbours, what is between them counts as well.
_NEARLY = 0.999

Block = tuple[int, int]
Stage = tuple[Block, ...]


def footprint(stages: Iterable[Stage], on_host: bool, trimmed: bool = True) -> int:
    """The most bytes of all stages; on the host with what the heap keeps of blocks of earlier stages.

    ``trimmed`` is False for a library whose aligned blocks leave remnants between them, so that nothing goes back.
    """
    most = 0
    held: dict[int, int] = {}
    for stage in stages:
        counts: dict[int, int] = {}
        for count, size in stage:
            counts[size] = counts.get(size, 0) + count
        idle = _idle(held, counts)
        idle = min(idle, _HEAP_KEPT) if trimmed else idle
        most = max(most, idle + sum(count * size for size, count in counts.items()))
        if on_host:
            kept = {size: count for size, count in counts.items() if _HEAP_LEAST <= size <= _HEAP_BLOCK}
            held = {size: max(held.get(size, 0), kept.get(size, 0)) for size in {*held, *kept}}
    return most


def _idle(held: dict[int, int], counts: dict[int, int]) -> int:
    """Bytes that the heap keeps and this stage has no use for.

    Its blocks go where equal or larger ones were, or where two neighbours were that together are as large.
    """
    holes = sorted(size for size, count in held.items() for _ in range(max(0, count - counts.get(size, 0))))
    wanted = [
        size
        for size, count in counts.items()
        if 0 < size <= _HEAP_BLOCK
        for _ in range(min(len(holes), max(0, count - held.get(size, 0))))
    ]
    for size in sorted(wanted, reverse=True):
        place = bisect.bisect_left(holes, size)
        if place < len(holes):
            bisect.insort(holes, holes.pop(place) - size)
        elif len(holes) > 1 and holes[-1] + holes[-2] >= _NEARLY * size:
            bisect.insort(holes, max(0, holes.pop() + holes.pop() - size))
    return sum(holes)


def wide_bytes(call: Call) -> int:
    """Bytes of a number of double precision, of which the work is done in where all of it is widened."""
    return 16 if call.dtype.startswith("complex") else 8


# Blocks of weights of a history sum.


def made_weights(call: Call, weights: int) -> Stage:
    """A block of weights while it is made: distances, ratios, powers and what they are made of, and two masks.

    Those of a table: indices, the knots and values to both sides, and shares.
    """
    return (9 if call.facts["kernel"] == "tabulated" else 7, 8 * weights), (2, weights)


# The exponential recurrence by stretches.


class Recurrence(NamedTuple):
    """Bytes of the parts of a recurrence: the signal widened, and padded values and states of all stretches."""

    signal: int
    padded: Stage
    values: int
    states: int
    stretches: int

    def carried(self, temporaries: int) -> Stage:
        """While states are carried from stretch to stretch: what each adds, those before each, and sums of them."""
        if self.stretches <= FEW_STRETCHES:
            temporaries = 1
        group = max(1, math.isqrt(max(0, self.stretches - 1)) + 1)
        return *self.padded, (1, self.states), (group, self.states // group), (temporaries, self.states)


def recurrence(call: Call, together: int) -> Recurrence:
    """Those of a call; with steps that differ ``together`` stretches go side by side."""
    wide, n, batch, terms = wide_bytes(call), call.length, call.batch, max(1, call.facts["terms"])
    if call.facts["uniform"]:
        length = max(1, stretch_length(n))
        stretches = -(-n // length)
        kept = stretches
    else:
        kept = stretches = max(1, min(together, n))
        length = -(-n // stretches)
    values = batch * stretches * length * wide
    padded: Stage = () if stretches * length == n else ((1, values),)
    return Recurrence(batch * n * wide, padded, values, batch * kept * terms * wide, stretches)


# The chirp transform: chirps in double precision, then transforms.


def chirp_stages(call: Call, partial_sums: int, in_place: bool) -> tuple[list[Stage], Stage, int, int]:
    """Stages of making the chirps, what is kept of them, and bytes of the multiplied and of the padded rows.

    ``partial_sums`` says how many arrays a sum of phases takes, ``in_place`` whether a chirp's transform takes its
    place.
    """
    given, points, rows = call.length, call.facts["points"], max(1, call.facts["rate_rows"])
    size, item = transform_length(given, points), dtype_bytes(call.facts["result"])
    pieces = -(-(4 * max(given, points) ** 2).bit_length() // 26)
    before, after, between = 16 * given * rows, 16 * points * rows, 16 * size * rows
    made: Stage = ((1, before), (2, after))
    phases: Stage = ((3 + pieces, 8 * given), (partial_sums, 8 * given * rows))
    kept: Stage = tuple((1, length * rows * item) for length in (given, points, size))
    stages: list[Stage] = [
        (*made, *phases),
        (*made, (1, before), (1, between)),
        ((1, before), (1, after), (1 if in_place else 2, between)),
    ]
    if item < 16:
        stages.append(((1, before), (1, after), (1, between), *kept))
    return stages, kept, call.batch * given * item, call.batch * size * item
