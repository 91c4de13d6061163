"""Plans for a call that does not fit into memory as a whole, compared by predicted time.

Chunks along each axis, in sizes that halve, on the fastest arm for that size; chunks of one row that are cut further;
blocks of time. If only a slow plan fits, it is logged; a very slow one is refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hpfracc.engine.execution.batch.driver import round_size
from hpfracc.engine.execution.batch.jobs import Job, Prediction, as_spec
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.primitives.base import ArraySpec, Call, Cut, Primitive
from hpfracc.engine.selection.call_memory import HOST_SHARE, predicted_bytes
from hpfracc.engine.selection.decide import Selection
from hpfracc.errors import OutOfMemoryError
from hpfracc.profiling.formats import format_bytes, format_seconds

__all__ = ["ChunkPlan", "block_sizes", "choose_plan", "choose_size", "is_time"]

logger = logging.getLogger("hpfracc.engine")

#: The work of all chunks, their number, the points of each, and the weights of a part (0 except for time).
Size = tuple[float, float, int, int]

#: Overhead of a chunk beside its kernel: it is described, decided and bound as a separate call.
CHUNK_SECONDS = 1e-3
#: A plan within this factor of the time with enough memory ends the search.
_GOOD = 1.5
#: A plan slower than with enough memory by this factor is logged; above this many seconds it is refused.
SLOW, REFUSED_SECONDS = 10.0, 60.0
#: Slow plans below this many seconds are logged without a warning.
_WORTH_A_WARNING = 1.0
#: Largest nesting of cuts: more than a call has axes.
_DEEPEST = 8
#: Parts of the weights are at least one in this many of a block of time, or all weights.
_MIN_PART = 4
#: Sizes with this many times the work of ones that fit are not faster, regardless of caches.
_MORE_WORK = 4.0


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
    part : int
        For a cut along time, the number of weights in a part; otherwise 0.
    inner : ChunkPlan or None
        How each chunk is cut further.
    slow : bool
        Whether an arm without room for such a chunk would be much faster.
    """

    seconds: float
    cut: Cut | None = None
    count: int = 0
    part: int = 0
    inner: ChunkPlan | None = None
    slow: bool = False

    def __str__(self) -> str:
        if self.cut is None:
            return "a slower arm"
        if self.part:
            return f"blocks of {self.count:,} of {self.cut.length:,} points of time and parts of {self.part:,} weights"
        inside = "" if self.inner is None else f", each in {self.inner}"
        return f"pieces of {self.count:,} of {self.cut.length:,} along axis {self.cut.axis}{inside}"


def is_time(primitive: Primitive, cut: Cut) -> bool:
    """Whether chunks along this cut need the samples before them."""
    return primitive.name == "causal_convolution" and cut.axis == -1


def choose_plan(
    job: Job, arrays: tuple[Any, ...], whole: float | None = None, *, allocated: bool = False, times: int = 1
) -> ChunkPlan | None:
    """The plan with the shortest predicted time, after dropping caches if that helps; None if none fits.

    Parameters
    ----------
    job : Job
        The call.
    arrays : tuple
        Its operands.
    whole : float, optional
        Predicted seconds of the call as a whole, inf if that is impossible; computed if not given.
    allocated : bool
        Whether the memory of the result is allocated already.
    times : int
        Number of such calls.

    Raises
    ------
    OutOfMemoryError
        If the plan is very slow, no backend was requested and ``config(allow_slow=True)`` is not set.
    """
    specs = tuple(as_spec(array) for array in arrays)
    call = job.primitive.describe(*specs, **job.params)
    ideal = job.select(specs, ignore_memory=True)
    enough = _GOOD * ideal.expected if ideal is not None and ideal.expected > 0.0 else math.inf
    reserved = 0 if allocated else _reserved(job, call.output_bytes)

    def search() -> ChunkPlan | None:
        found = _quickest(job, specs, reserved, enough, whole)
        # The caller asked for the result whatever its size.
        return found if found is not None or not reserved else _quickest(job, specs, 0, enough, whole)

    plan = search()
    if (plan is None or plan.slow) and ladder.climb(job.request.placement.device, highest="own caches").freed:
        plan = search()
    if plan is not None and ideal is not None and plan.seconds > SLOW * ideal.expected:
        _report_slow(job, call, ideal, plan, times)
    return plan


def _reserved(job: Job, result: int) -> int:
    """Bytes of the result that chunks leave free, where the operands are.

    0 if it takes more than half of the memory: then only the chunks are limited, because they would become crumbs.
    """
    device, library = job.request.placement.device, job.request.placement.library
    on_host = device == HOST
    share = HOST_SHARE if on_host else job.request.settings.gpu_memory_limit
    return result if get_budget().fits(2 * result, device, share, None if on_host else library) else 0


def _report_slow(job: Job, call: Call, ideal: Selection, plan: ChunkPlan, times: int) -> None:
    """Log a plan that is slow because memory is short; refuse a very slow one unless slow plans are allowed."""
    request, arm, seconds = job.request, ideal.arm, plan.seconds * times
    free = get_budget().free(arm.device, None if arm.on_host else arm.backend)
    need = predicted_bytes(job.primitive, call, arm)
    allowed = job.limit if job.limit is not None else free
    have = "an unknown amount" if allowed is None else format_bytes(allowed)
    found = (
        f"{call.operation} {call.shape}: only {plan} fits into memory, and is predicted to take "
        f"{format_seconds(seconds)}; {arm.name} would take {format_seconds(ideal.expected * times)} "
        f"but needs {format_bytes(need)}, and {have} may be used on {arm.device}"
    )
    if seconds > REFUSED_SECONDS and request.preference is None and not request.settings.allow_slow:
        raise OutOfMemoryError(
            f"{found}. Free memory or raise the limit, use smaller arrays or float32, or run it anyway with "
            "hpfracc.config(allow_slow=True)"
        )
    logger.log(logging.WARNING if seconds >= _WORTH_A_WARNING else logging.INFO, "%s", found)


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
    found = job.predict(specs, reserved) if whole is None else Prediction(whole)
    yield ChunkPlan(found.seconds, slow=found.slow)
    call = job.primitive.describe(*specs, **job.params)
    for cut in job.primitive.cuts(call, *specs, **job.params):
        beside = 0 if cut.merges else reserved

        def predict(count: int, part: int, cut: Cut = cut, beside: int = beside) -> Prediction:
            if part:
                samples = min(cut.length, count + part - 1)
                return job.predict((_resized(specs[0], -1, part), _resized(specs[1], -1, samples)), beside)
            return job.predict(_chunk_specs(specs, cut, count), beside)

        if is_time(job.primitive, cut):
            yield choose_size(cut, block_sizes(cut.length, specs[0].shape[-1]), predict)
            continue
        yield choose_size(cut, _chunk_sizes(cut.length), predict)
        if depth < _DEEPEST:
            inner = _quickest(job, _chunk_specs(specs, cut, 1), beside, enough / cut.length, math.inf, depth + 1)
            if inner is not None:
                yield ChunkPlan(cut.length * inner.seconds, cut, 1, inner=inner, slow=inner.slow)


def _chunk_specs(specs: tuple[Any, ...], cut: Cut, count: int) -> tuple[Any, ...]:
    pairs = zip(specs, cut.operands, strict=True)
    return tuple(spec if axis is None else _resized(spec, axis, count) for spec, axis in pairs)


def _resized(spec: ArraySpec, axis: int, count: int) -> ArraySpec:
    shape = list(spec.shape)
    shape[axis] = count
    return ArraySpec(tuple(shape), spec.dtype)


def choose_size(cut: Cut, sizes: Iterable[Size], predict: Callable[[int, int], Prediction]) -> ChunkPlan:
    """The size of chunks with the shortest predicted time; inf if none fits.

    Sizes are tried in the order of their work, until the remaining ones take too much to be faster.

    Parameters
    ----------
    cut : Cut
        The cut.
    sizes : iterable of Size
        The possible sizes.
    predict : callable
        ``predict(count, part)`` predicts the time of one chunk.
    """
    best, least_work = ChunkPlan(math.inf, cut, 1), math.inf
    refused: list[tuple[int, int]] = []
    for work, pieces, count, part in sorted(sizes):
        if work > _MORE_WORK * least_work:
            break
        if any(part >= some and count + part >= points for some, points in refused):
            continue  # a smaller one has no room, or only on a slow arm
        found = predict(count, part)
        seconds = pieces * (found.seconds + CHUNK_SECONDS)
        if found.slow or found.seconds == math.inf:
            refused.append((part, count + part))
        else:
            least_work = min(least_work, work)
        if seconds < best.seconds:
            best = ChunkPlan(seconds, cut, count, part, slow=found.slow)
    return best


def _chunk_sizes(length: int) -> Iterator[Size]:
    """Two sizes per power of two."""
    count = round_size(length - 1)
    while count >= 1:
        pieces = -(-length // count)
        yield pieces, pieces, count, 0
        count = round_size(count - 1) if count > 1 else 0


def block_sizes(length: int, taps: int) -> Iterator[Size]:
    """Blocks of time and parts of the weights, which halve; the work is the points transformed, times the logarithm."""
    taps = min(taps, length)
    for block in _halves(length):
        for part in _halves(taps):
            if _MIN_PART * part < block and part < taps:
                break  # parts much shorter than a block only add pieces
            if (block, part) == (length, taps):
                continue  # the whole call
            blocks, parts = -(-length // block), -(-taps // part)
            # The first blocks start before the end of the weights: they need only some of the parts, or some samples.
            early = min(blocks, max(1, taps // block))
            pieces = blocks * parts - early * (parts - 1) / 2
            seen = min(length, block + part - 1) + part
            yield pieces * seen * math.log2(seen + 1), pieces, block, part


def _halves(size: int) -> Iterator[int]:
    while size >= 1:
        yield size
        size //= 2
