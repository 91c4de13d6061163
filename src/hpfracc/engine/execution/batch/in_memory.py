"""An engine call that does not fit into memory as a whole, done in chunks of arrays in memory."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batch.chunk_plans import (
    ChunkPlan,
    check_speed,
    choose_plan,
    time_plan,
)
from hpfracc.engine.execution.batch.driver import ChunkSizer, ChunkTooLargeError, run_chunks
from hpfracc.engine.execution.batch.jobs import Job, decision_in_chunks
from hpfracc.engine.execution.batch.time_blocks import TimeSizer, run_block
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recover import Failure, classify
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.primitives.base import Cut, Primitive
from hpfracc.engine.selection.decision import Fallback
from hpfracc.engine.selection.request import Request
from hpfracc.errors import OutOfMemoryError

__all__ = ["part_of", "run_in_chunks"]

logger = logging.getLogger("hpfracc.engine")

#: Fraction of free memory that cached transforms of the weights may take.
_KEPT_SHARE = 0.1


def run_in_chunks(
    primitive: Primitive,
    arrays: tuple[Any, ...],
    params: dict[str, Any],
    *,
    backend: Any,
    why: str,
    fallbacks: tuple[Fallback, ...] = (),
    whole: float | None = None,
) -> Any:
    """The result of the call, assembled from chunks; None if it cannot be cut, or is faster as a whole.

    Parameters
    ----------
    primitive, arrays, params
        The call, with its ``weights_key`` among the parameters if it has one.
    backend : str or None
        The requested backend.
    why : str
        Why it is not done as a whole; part of the decision.
    fallbacks : tuple of Fallback
        Arms that failed before.
    whole : float, optional
        Predicted seconds of the call as a whole, inf if that is impossible; computed if not given.

    Raises
    ------
    OutOfMemoryError
        If the only plan that fits is very slow; see :func:`~hpfracc.engine.execution.batch.chunk_plans.check_speed`.
    """
    job = _job(primitive, arrays, params, backend)
    if job.request.placement.gradient or job.request.placement.traced:
        return None
    plan = _plan(job, arrays, whole)
    done = None if plan is None or plan.cut is None else _run_plan(job, plan, arrays)
    if done is None:
        return None
    result, words = done
    decision = decision_in_chunks(job, f"in {job.chunks} pieces ({words}): {why}", fallbacks)
    logger.info("%s %s: %s", decision.operation, decision.shape, decision.reason)
    decision_log.record(decision)
    return result


def _job(primitive: Primitive, arrays: tuple[Any, ...], params: dict[str, Any], backend: Any) -> Job:
    plain = {name: value for name, value in params.items() if name != "weights_key"}
    job = Job(primitive, params, make_request(primitive, arrays, plain, backend=backend))
    job.short = True
    return job


def _plan(job: Job, arrays: tuple[Any, ...], whole: float | None, times: int = 1) -> ChunkPlan | None:
    """The fastest plan, after dropping caches if that helps; None if none fits."""
    ideal = job.select(arrays, ignore_memory=True)
    plan = choose_plan(job, arrays, ideal, whole)
    if (plan is None or plan.slow) and ladder.climb(job.request.placement.device, highest="own caches").freed:
        plan = choose_plan(job, arrays, ideal, whole)
    if plan is not None:
        check_speed(job, ideal, plan.seconds, str(plan), times)
    return plan


def _run_plan(job: Job, plan: ChunkPlan, arrays: tuple[Any, ...]) -> tuple[Any, str] | None:
    """The result, and a description of the chunks; None if it did not fit."""
    return _in_time(job, plan, arrays) if plan.blocks is not None else _along(job, plan, arrays)


def _run_smaller(
    job: Job, arrays: tuple[Any, ...], key: Any, plan: ChunkPlan | None, short: ChunkTooLargeError | None
) -> Any:
    """Cut a chunk further: as planned, or because it did not fit; None if it cannot be cut."""
    own = job.inside(make_request(job.primitive, arrays, job.params, backend=job.backend), key)
    if plan is None:
        assert short is not None
        left = max(1, job.request.call.batch // max(1, own.request.call.batch) - job.chunks)
        plan = _plan(own, arrays, None if short.slow else math.inf, left)
    if plan is None:
        return None
    try:
        done = (own.run(arrays, key), "") if plan.cut is None else _run_plan(own, plan, arrays)
    except ChunkTooLargeError:
        return None
    if done is None:
        return None
    job.decision = own.decision
    job.chunks += own.chunks
    return done[0]


def part_of(array: Any, axis: int | None, begin: int, end: int) -> Any:
    """The range ``begin`` to ``end`` of an axis counted from the last; all of an operand without that axis."""
    return array if axis is None else array[(..., slice(begin, end), *(slice(None),) * (-axis - 1))]


def _along(job: Job, plan: ChunkPlan, arrays: tuple[Any, ...]) -> tuple[Any, str] | None:
    """Chunks along an axis that the operands share."""
    cut = plan.cut
    assert cut is not None
    prepared = job.primitive.prepared_operand
    key = job.key if prepared is not None and cut.operands[prepared] is None else None
    sizer, sink = ChunkSizer(plan.count, cut.length), _ArraySink(job.request, cut)

    def chunk(begin: int, end: int) -> tuple[Any, ...]:
        return tuple(part_of(array, axis, begin, end) for array, axis in zip(arrays, cut.operands, strict=True))

    def source(begin: int, end: int) -> Any:
        if plan.inner is not None:
            return _run_smaller(job, chunk(begin, end), key, plan.inner, None)
        return job.run(chunk(begin, end), key, quick=not plan.slow)

    def stuck(begin: int, end: int, short: ChunkTooLargeError) -> Any:
        return _run_smaller(job, chunk(begin, end), key, None, short)

    if not run_chunks(cut.length, sizer, source, sink.put, stuck=stuck):
        return None
    return sink.finished(job), f"up to {sizer.good} of {cut.length:,} along axis {cut.axis}"


class _ArraySink:
    """Collects the results of chunks: in a preallocated array if the library allows writing, otherwise in a list."""

    def __init__(self, request: Request, cut: Cut) -> None:
        self._request = request
        self._cut = cut
        self._parts: list[Any] = []
        self._sizes: list[int] = []
        self._whole: Any = None
        if not cut.merges and request.placement.library != "jax":
            dtype = request.call.facts.get("result", request.call.dtype)
            self._whole = _empty_result(request, str(dtype))

    def put(self, begin: int, end: int, result: Any) -> None:
        """Store the result of a chunk."""
        if self._whole is None:
            self._parts.append(result)
            self._sizes.append(end - begin)
        else:
            part_of(self._whole, self._cut.axis, begin, end)[...] = result

    def finished(self, job: Job) -> Any:
        """The whole result."""
        if self._whole is not None:
            return self._whole
        owner = registry.adapter(self._request.placement.library)
        if self._cut.merges:
            # A few numbers per chunk, combined on the host.
            stacked = np.stack([np.asarray(owner.to_host(part)) for part in self._parts])
            merged = job.primitive.merge(stacked, tuple(self._sizes), **job.params)
            return owner.from_host(merged, self._request.placement.device)
        return owner.concatenate(self._parts, self._cut.axis)


def _empty_result(request: Request, dtype: str) -> Any:
    """An array for the whole result, in the caller's library and on the caller's device."""
    placement, call = request.placement, request.call
    try:
        return registry.adapter(placement.library).empty(call.shape, dtype, placement.device)
    except Exception as error:
        if classify(error, registry.adapter(placement.library)) is not Failure.MEMORY:
            raise
        size = call.output_bytes / 2**20
        raise OutOfMemoryError(
            f"{call.operation}: there is no room on {placement.device} for the result itself, {size:,.0f} MiB; "
            "use smaller arrays, or hpfracc.batch with out= on a numpy.memmap"
        ) from error


def _in_time(job: Job, plan: ChunkPlan, arrays: tuple[Any, ...]) -> tuple[Any, str] | None:
    """Blocks of time of a causal convolution."""
    weights, signal, *starts = arrays
    assert plan.cut is not None and plan.blocks is not None
    first = job.params.get("starts_from", 0)
    job.params = {name: value for name, value in job.params.items() if name != "starts_from"}
    sizer, sink = TimeSizer(plan.blocks, lambda: time_plan(job, arrays, whole=False)), _ArraySink(job.request, plan.cut)

    def source(begin: int, end: int) -> Any:
        free = get_budget().free(job.request.placement.device)
        kept = math.inf if free is None else _KEPT_SHARE * free
        return run_block(job, (weights, signal), sizer.plan, (begin, end), job.key, kept)

    if not run_chunks(job.request.call.length, sizer, source, sink.put, stuck=lambda *_: None):
        return None
    result = sink.finished(job)
    for some in starts:
        result = _add_starts(job, result, signal, some, first)
    return result, f"{sizer.plan.blocks} blocks of time, {sizer.plan.parts} parts of the weights"


def _add_starts(job: Job, result: Any, signal: Any, starts: Any, first: int) -> Any:
    """``result`` with ``starts[j]`` times sample (or difference) ``first + j`` added from that point on.

    The first sample has no difference.
    """
    for row, number in enumerate(range(first, first + starts.shape[0])):
        sample = signal[..., number : number + 1]
        if job.request.call.facts["differences"] and number:
            sample = sample - signal[..., number - 1 : number]
        more = sample * starts[row, number:]
        if job.request.placement.library == "jax":
            result = result.at[..., number:].add(more)
        else:
            result[..., number:] += more
    return result
