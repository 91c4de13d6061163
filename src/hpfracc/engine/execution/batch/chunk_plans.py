"""Plans for a call that does not fit into memory as a whole, compared by predicted time.

Chunks along each axis, in sizes that halve, on the fastest arm for that size; chunks of one row that are cut further;
blocks of time. If only a slow plan fits, it is logged; a very slow one is refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hpfracc.engine.execution.batch.driver import round_size
from hpfracc.engine.execution.batch.jobs import Job, Prediction, as_spec
from hpfracc.engine.execution.batch.time_blocks import CHUNK_SECONDS, TimeBlocks, choose_blocks
from hpfracc.engine.memory.budget import HOST, get_budget, relief
from hpfracc.engine.primitives.base import ArraySpec, Cut, Primitive, dtype_of
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.call_memory import HOST_SHARE, predicted_bytes
from hpfracc.engine.selection.decide import MIN_SAVED, WORTH_CUTTING, Selection
from hpfracc.errors import OutOfMemoryError
from hpfracc.profiling.formats import format_bytes, format_seconds

__all__ = ["ChunkPlan", "check_speed", "choose_plan", "is_time", "time_plan"]

logger = logging.getLogger("hpfracc.engine")

#: A plan within this factor of the time with enough memory ends the search.
_GOOD = 1.5
#: A plan slower than with enough memory by this factor is logged; above this many seconds it is refused.
SLOW, REFUSED_SECONDS = 10.0, 60.0
#: Slow plans below this many seconds are logged without a warning.
_WORTH_A_WARNING = 1.0
#: Largest nesting of cuts: more than a call has axes.
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """A way to do a call in chunks, with its predicted time.

    Attributes
    ----------
    seconds : float
        Predicted time of the whole call.
    cut : Cut or None
        The cut; None for the whole call on one arm.
    count : int
        Number of points of the axis in a chunk.
    blocks : TimeBlocks or None
        Blocks of time and parts of the weights, for a cut along time.
    inner : ChunkPlan or None
        How each chunk is cut further.
    slow : bool
        Whether an arm without room for such a chunk would be much faster.
    """

    seconds: float
    cut: Cut | None = None
    count: int = 0
    blocks: TimeBlocks | None = None
    inner: ChunkPlan | None = None
    slow: bool = False

    def __str__(self) -> str:
        if self.cut is None:
            return "a slower arm"
        if self.blocks is not None:
            return f"{self.blocks.blocks:,} blocks of time and {self.blocks.parts:,} parts of the weights"
        inside = "" if self.inner is None else f", each in {self.inner}"
        return f"pieces of {self.count:,} of {self.cut.length:,} along axis {self.cut.axis}{inside}"


def is_time(primitive: Primitive, cut: Cut) -> bool:
    """Whether chunks along this cut need the samples before them."""
    return primitive.name == "causal_convolution" and cut.axis == -1


def choose_plan(
    job: Job, arrays: tuple[Any, ...], ideal: Selection | None, whole: float | None = None
) -> ChunkPlan | None:
    """The plan with the shortest predicted time, or None if none fits.

    Parameters
    ----------
    job : Job
        The call.
    arrays : tuple
        Its operands, or specs of them.
    ideal : Selection or None
        The selection with enough memory: a plan that is nearly as fast ends the search.
    whole : float, optional
        Predicted seconds of the call as a whole, inf if that is impossible; computed if not given.
    """
    specs = tuple(as_spec(array) for array in arrays)
    enough = _GOOD * ideal.expected if ideal is not None and ideal.expected > 0.0 else math.inf
    beside = job.request.call.output_bytes
    within = _quickest(job, specs, beside, enough, whole) if _has_room(job, beside) else None
    if within is not None and within.seconds <= enough:
        return within
    # The caller asked for the result whatever its size. If it leaves too little room, only the chunks are limited.
    alone = _quickest(job, specs, 0, enough, whole)
    if within is None or alone is None:
        return within or alone
    worth = within.seconds > WORTH_CUTTING * alone.seconds and within.seconds - alone.seconds > MIN_SAVED
    return alone if worth else within


def _has_room(job: Job, size: int) -> bool:
    """Whether ``size`` bytes are allowed where the operands are."""
    device, library = job.request.placement.device, job.request.placement.library
    on_host = device == HOST
    share = HOST_SHARE if on_host else job.request.settings.gpu_memory_limit
    return get_budget().fits(size, device, share, None if on_host else library)


def check_speed(job: Job, ideal: Selection | None, seconds: float, words: str, times: int = 1) -> None:
    """Log a plan that is slow because memory is short; refuse a very slow one unless slow plans are allowed.

    Parameters
    ----------
    job : Job
        The call.
    ideal : Selection or None
        The selection with enough memory.
    seconds : float
        Predicted time of the plan.
    words : str
        A description of the plan.
    times : int
        Number of such calls.

    Raises
    ------
    OutOfMemoryError
        If the plan is very slow, no backend was requested and ``config(allow_slow=True)`` is not set.
    """
    if ideal is None or not seconds > SLOW * ideal.expected:
        return
    request, arm = job.request, ideal.arm
    free = get_budget().free(arm.device, None if arm.on_host else arm.backend)
    need = predicted_bytes(request.primitive, request.call, arm)
    allowed = job.limit if job.limit is not None else free
    have = "an unknown amount" if allowed is None else format_bytes(allowed)
    found = (
        f"{request.call.operation} {request.call.shape}: only {words} fits into memory, and is predicted to take "
        f"{format_seconds(seconds * times)}; {ideal.arm.name} would take {format_seconds(ideal.expected * times)} "
        f"but needs {format_bytes(need)}, and {have} may be used on {arm.device}"
    )
    if seconds * times > REFUSED_SECONDS and request.preference is None and not request.settings.allow_slow:
        raise OutOfMemoryError(
            f"{found}. Free memory or raise the limit, use smaller arrays or float32, or run it anyway with "
            "hpfracc.config(allow_slow=True)"
        )
    logger.log(logging.WARNING if seconds * times >= _WORTH_A_WARNING else logging.INFO, "%s", found)


def _quickest(
    job: Job, specs: tuple[Any, ...], reserved: int, enough: float, whole: float | None, depth: int = 0
) -> ChunkPlan | None:
    best: ChunkPlan | None = None
    for plan in _plans(job, specs, reserved, enough, whole, depth):
        if plan.seconds < (math.inf if best is None else best.seconds):
            best = plan
        if best is not None and best.cut is not None and best.seconds <= enough:
            break
    return best


def _plans(
    job: Job, specs: tuple[Any, ...], reserved: int, enough: float, whole: float | None, depth: int
) -> Iterator[ChunkPlan]:
    if whole is None:
        found = job.predict(specs, reserved)
        yield ChunkPlan(found.seconds, slow=found.slow)
    else:
        yield ChunkPlan(whole)
    call = job.primitive.describe(*specs, **job.params)
    for cut in job.primitive.cuts(call, *specs, **job.params):
        if is_time(job.primitive, cut):
            blocks = time_plan(job, specs, reserved, whole=False)
            if blocks is not None:
                yield ChunkPlan(blocks.seconds, cut, blocks.block, blocks, slow=not blocks.quick)
            continue
        beside = 0 if cut.merges else reserved
        yield _along(job, specs, cut, beside)
        if depth < _DEEPEST:
            inner = _quickest(job, _chunk_specs(specs, cut, 1), beside, enough / cut.length, math.inf, depth + 1)
            if inner is not None:
                yield ChunkPlan(cut.length * inner.seconds, cut, 1, inner=inner, slow=inner.slow)


def _along(job: Job, specs: tuple[Any, ...], cut: Cut, reserved: int) -> ChunkPlan:
    """The best size of chunks along one axis: sizes halve, and the best is compared with one 1.5 times as large."""
    best = ChunkPlan(math.inf, cut, 1)
    count = round_size(cut.length - 1)
    while count >= 1 and best.seconds * count >= cut.length * CHUNK_SECONDS:
        best = _better(best, job, specs, cut, reserved, count)
        count //= 2
    if best.seconds < math.inf and best.count + best.count // 2 < cut.length:
        best = _better(best, job, specs, cut, reserved, round_size(best.count + best.count // 2))
    return replace(best, count=round_size(max(1, int(best.count * relief.chunk_scale()))))


def _better(best: ChunkPlan, job: Job, specs: tuple[Any, ...], cut: Cut, reserved: int, count: int) -> ChunkPlan:
    found = job.predict(_chunk_specs(specs, cut, count), reserved)
    seconds = -(-cut.length // count) * (found.seconds + CHUNK_SECONDS)
    return ChunkPlan(seconds, cut, count, slow=found.slow) if seconds < best.seconds else best


def _chunk_specs(specs: tuple[Any, ...], cut: Cut, count: int) -> tuple[Any, ...]:
    found = []
    for spec, axis in zip(specs, cut.operands, strict=True):
        if axis is None:
            found.append(spec)
            continue
        shape = list(spec.shape)
        shape[axis] = count
        found.append(ArraySpec(tuple(shape), spec.dtype))
    return tuple(found)


def time_plan(job: Job, arrays: tuple[Any, ...], reserved: int = 0, *, whole: bool = True) -> TimeBlocks | None:
    """The blocks of time with the shortest predicted time; the first two operands are weights and signal.

    ``whole`` says whether a single block with all weights is allowed.
    """
    weights, signal = arrays[:2]
    rows, points = shape_of(weights)[:-1], shape_of(signal)[:-1]
    length = shape_of(signal)[-1]

    def predict(taps: int, samples: int) -> Prediction:
        kinds = ArraySpec((*rows, taps), dtype_of(weights)), ArraySpec((*points, samples), dtype_of(signal))
        return job.predict(kinds, reserved)

    return choose_blocks(length, min(shape_of(weights)[-1], length), predict, relief.chunk_scale(), whole=whole)
