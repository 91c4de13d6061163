"""An engine call that does not fit as a whole, done in pieces."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batching.overlap import BlockPlan, convolve_block
from hpfracc.engine.execution.batching.pieces import Job, PieceTooLargeError
from hpfracc.engine.execution.batching.sizes import ChunkSizer
from hpfracc.engine.execution.batching.ways import Way, check_speed, choose_way, ideal_verdict, time_plan
from hpfracc.engine.execution.plan import make_request
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recover import Failure, classify
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.primitives.cuts import Cut
from hpfracc.engine.selection.decision import Decision, Fallback
from hpfracc.engine.selection.request import Request
from hpfracc.errors import OutOfMemoryError

__all__ = ["decision_in_pieces", "run_in_chunks"]

logger = logging.getLogger("hpfracc.engine")

#: Times that pieces which ran out of memory are made smaller.
_MOST_FAILURES = 40
#: Share of what is free that kept transforms of the weights may take.
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
    """The result of the call, put together from pieces; None where it cannot be cut, or is quicker whole.

    Parameters
    ----------
    primitive, arrays, params
        The call, with its ``weights_key`` among the parameters if it has one.
    backend : str or None
        The backend that was asked for.
    why : str
        Why it is not done whole; becomes part of the decision.
    fallbacks : tuple of Fallback
        Arms that failed before.
    whole : float, optional
        Seconds that the call is predicted to take whole, inf where it cannot be done so; asked for if not given.

    Raises
    ------
    OutOfMemoryError
        If the only way that fits is very slow; see :func:`~hpfracc.engine.execution.batching.ways.check_speed`.
    """
    job = _job(primitive, arrays, params, backend)
    if job.request.placement.gradient or job.request.placement.traced:
        return None
    way = _plan(job, arrays, whole)
    done = None if way is None or way.cut is None else _run_way(job, way, arrays)
    if done is None:
        return None
    result, words = done
    decision = decision_in_pieces(job, f"in {job.pieces} pieces ({words}): {why}", fallbacks)
    logger.info("%s %s: %s", decision.operation, decision.shape, decision.reason)
    decision_log.record(decision)
    return result


def _job(primitive: Primitive, arrays: tuple[Any, ...], params: dict[str, Any], backend: Any) -> Job:
    plain = {name: value for name, value in params.items() if name != "weights_key"}
    job = Job(primitive, params, make_request(primitive, arrays, plain, backend=backend))
    job.short = True
    return job


def _plan(job: Job, arrays: tuple[Any, ...], whole: float | None, times: int = 1) -> Way | None:
    """The quickest way, after what is kept for later was given up where that helps; None where none fits."""
    ideal = ideal_verdict(job, arrays)
    way = choose_way(job, arrays, ideal, whole)
    if (way is None or way.slow) and ladder.climb(job.request.placement.device, highest="own caches").freed:
        way = choose_way(job, arrays, ideal, whole)
    if way is not None:
        check_speed(job, ideal, way.seconds, str(way), times)
    return way


def _run_way(job: Job, way: Way, arrays: tuple[Any, ...]) -> tuple[Any, str] | None:
    assert way.cut is not None
    return _in_time(job, way, arrays) if way.blocks is not None else _along(job, way, arrays)


def _run_smaller(job: Job, arrays: tuple[Any, ...], key: Any, way: Way | None, short: PieceTooLargeError | None) -> Any:
    """A piece that is cut further: as planned, or because there was no room for it; None where that cannot be."""
    params = job.params if key is None else {**job.params, "weights_key": key}
    own = _job(job.primitive, arrays, params, job.backend)
    own.limit = job.limit
    if way is None:
        assert short is not None
        left = max(1, job.request.call.batch // max(1, own.request.call.batch) - job.pieces)
        way = _plan(own, arrays, None if short.slow else math.inf, left)
    if way is None:
        return None
    try:
        done = (own.run(arrays, key), "") if way.cut is None else _run_way(own, way, arrays)
    except PieceTooLargeError:
        return None
    if done is None:
        return None
    job.decision = own.decision
    job.pieces += own.pieces
    return done[0]


def decision_in_pieces(job: Job, reason: str, fallbacks: tuple[Fallback, ...] = ()) -> Decision:
    """What was decided for the last piece, as the decision about the whole call."""
    decision, call = job.decision, job.request.call
    assert decision is not None  # at least one piece was run
    return replace(
        decision,
        reason=f"{reason}; each: {decision.reason}",
        shape=call.shape,
        bucket=call.bucket,
        chunks=job.pieces,
        fallbacks=(*fallbacks, *decision.fallbacks),
    )


# Pieces along an axis that operands share.


def _piece(arrays: tuple[Any, ...], cut: Cut, begin: int, end: int) -> tuple[Any, ...]:
    return tuple(
        array if axis is None else array[(..., slice(begin, end), *(slice(None),) * (-axis - 1))]
        for array, axis in zip(arrays, cut.operands, strict=True)
    )


def _along(job: Job, way: Way, arrays: tuple[Any, ...]) -> tuple[Any, str] | None:
    cut = way.cut
    assert cut is not None
    sizer = ChunkSizer(way.count, cut.length)
    prepared = job.primitive.prepared_operand
    key = job.key if prepared is not None and cut.operands[prepared] is None else None
    target = _Target(job.request, cut)
    begin = 0
    while begin < cut.length:
        end = min(cut.length, begin + sizer.size)
        piece = _piece(arrays, cut, begin, end)
        if way.inner is not None:
            result = _run_smaller(job, piece, key, way.inner, None)
        else:
            try:
                result = job.run(piece, key, quick=not way.slow)
            except PieceTooLargeError as short:
                if sizer.failed(end - begin):
                    continue
                result = _run_smaller(job, piece, key, None, short)
        if result is None:
            return None
        target.put(begin, end, result)
        sizer.succeeded(end - begin)
        begin = end
    result = target.finished(job)
    return result, f"up to {sizer.good} of {cut.length:,} along axis {cut.axis}"


class _Target:
    """Where pieces of the result go: an array made at once where one can be written to, else a list."""

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
        if self._whole is None:
            self._parts.append(result)
            self._sizes.append(end - begin)
        else:
            self._whole[(..., slice(begin, end), *(slice(None),) * (-self._cut.axis - 1))] = result

    def finished(self, job: Job) -> Any:
        if self._whole is not None:
            return self._whole
        owner = registry.adapter(self._request.placement.library)
        if self._cut.merges:
            # A few numbers for each piece: brought together on the host.
            stacked = np.stack([np.asarray(owner.to_host(part)) for part in self._parts])
            merged = job.primitive.merge(stacked, tuple(self._sizes), **job.params)
            return owner.from_host(merged, self._request.placement.device)
        return owner.concatenate(self._parts, self._cut.axis)


def _empty_result(request: Request, dtype: str) -> Any:
    """An array for the whole result, of the caller's library and on the caller's device."""
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


# Pieces of time, for a causal convolution.


def _in_time(job: Job, way: Way, arrays: tuple[Any, ...]) -> tuple[Any, str] | None:
    weights, signal, *starts = arrays
    cut, plan = way.cut, way.blocks
    assert cut is not None and plan is not None
    call = job.request.call
    first = job.params.get("starts_from", 0)
    job.params = {name: value for name, value in job.params.items() if name != "starts_from"}
    target = _Target(job.request, cut)
    begin = failures = 0
    while begin < call.length:
        end = min(call.length, begin + plan.block)
        try:
            target.put(begin, end, _one_block(job, weights, signal, plan, (begin, end)))
        except PieceTooLargeError as short:
            failures += 1
            smaller = _smaller_blocks(plan, time_plan(job, arrays, whole=False), short)
            if smaller is None or failures > _MOST_FAILURES:
                return None
            plan = smaller
            continue
        begin = end
    result = target.finished(job)
    for some in starts:
        result = _add_starts(job, result, signal, some, first)
    return result, f"{plan.blocks} blocks of time, {plan.parts} parts of the weights"


def _smaller_blocks(plan: BlockPlan, again: BlockPlan | None, short: PieceTooLargeError) -> BlockPlan | None:
    """What to go on with after a piece for which there was no room; None where there is nothing smaller.

    ``again`` is the best plan now: there is less room than there was. After a real failure blocks are at most half as
    long.
    """
    if short.slow and again is not None:
        # Where the best now is what has just been tried, it is run as it is.
        return replace(again, quick=again.quick and (again.block, again.part) != (plan.block, plan.part))
    if plan.block <= 1:
        return None
    block = plan.block // 2 if again is None else min(plan.block // 2, again.block)
    part = plan.part if again is None else min(plan.part, again.part)
    part = max(1, part // 2) if part > block else part
    length, taps = plan.block * plan.blocks, plan.part * plan.parts
    return BlockPlan(block, part, -(-length // block), -(-taps // part), quick=plan.quick)


def _add_starts(job: Job, result: Any, signal: Any, starts: Any, first: int) -> Any:
    """``result`` with ``starts[j]`` times sample (or difference) ``first + j`` added from that point on."""
    for row, number in enumerate(range(first, first + starts.shape[0])):
        sample = signal[..., number : number + 1]
        if job.request.call.facts["differences"]:
            before = max(0, number - 1)
            sample = sample - signal[..., before : before + 1]
        more = sample * starts[row, number:]
        if job.request.placement.library == "jax":
            result = result.at[..., number:].add(more)
        else:
            result[..., number:] += more
    return result


def _one_block(job: Job, weights: Any, signal: Any, plan: BlockPlan, block: tuple[int, int]) -> Any:
    call = job.request.call
    taps, extra, begin = call.facts["taps"], int(call.facts["differences"]), block[0]
    size = fast_length(plan.block + 2 * plan.part) * call.itemsize * call.facts["weight_rows"]
    free = get_budget().free(job.request.placement.device)
    # Kept for the next block where all parts fit: of more, each would be gone before it is wanted again.
    keeps = job.key is not None and (free is None or plan.parts * size <= _KEPT_SHARE * free)

    def convolve(some: Any, samples: Any, first: int) -> Any:
        # A kept transform belongs to a part of the weights and to one length of samples.
        key = (job.key, "part", first, some.shape[-1]) if keeps else None
        return job.run((some, samples), key, quick=plan.quick)

    total = None
    for start, result in convolve_block(convolve, weights, signal, *block, plan.part, taps, extra):
        if total is None:
            total = result
        elif job.request.placement.library == "jax":
            total = total.at[..., start - begin :].add(result)
        else:
            total[..., start - begin :] += result
    return total
