"""Calls in chunks, as planned: along an axis, in blocks of time, or nested.

Blocks of time are exactly the same sum in another order, ``y[n] = sum_p sum_{k in part p} w[k] x[n - k]``. For one
block of outputs and one part of the weights, this is the convolution of the part with the samples it reaches back to
(overlap-save).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batch.driver import ChunkSizer, ChunkTooLargeError, run_chunks
from hpfracc.engine.execution.batch.planning import ChunkPlan, Job, choose_plan, decision_in_chunks, is_time
from hpfracc.engine.execution.plan import as_array, make_request
from hpfracc.engine.execution.recover import Failure, classify
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import Primitive, shape_of
from hpfracc.engine.selection.decision import Fallback
from hpfracc.engine.selection.request import Request
from hpfracc.errors import OutOfMemoryError

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
        If the only plan that fits is very slow.
    """
    arrays = tuple(as_array(each) if library_of(each) == "python" and shape_of(each) else each for each in arrays)
    plain = {name: value for name, value in params.items() if name != "weights_key"}
    job = Job(primitive, params, make_request(primitive, arrays, plain, backend=backend))
    placement = job.request.placement
    if placement.gradient or placement.traced:
        return None
    job.short = True
    free = get_budget().free(placement.device)
    job.kept = math.inf if free is None else _KEPT_SHARE * free
    plan = choose_plan(job, arrays, whole)
    if plan is None or plan.cut is None:
        return None
    # JAX's arrays cannot be written to.
    out = None if plan.cut.merges or placement.library == "jax" else _empty_result(job.request)
    result = run_plan(job, plan, arrays, job.key, out)
    if result is None:
        return None
    decision = decision_in_chunks(job, f"in {job.chunks} pieces, planned as {plan}: {why}", fallbacks)
    logger.info("%s %s: %s", decision.operation, decision.shape, decision.reason)
    decision_log.record(decision)
    return result


def _empty_result(request: Request) -> Any:
    """An array for the whole result, in the caller's library and on the caller's device."""
    placement, call = request.placement, request.call
    adapter = registry.adapter(placement.library)
    try:
        return adapter.empty(call.shape, str(call.facts.get("result", call.dtype)), placement.device)
    except Exception as error:
        if classify(error, adapter) is not Failure.MEMORY:
            raise
        size = call.output_bytes / 2**20
        raise OutOfMemoryError(
            f"{call.operation}: there is no room on {placement.device} for the result itself, {size:,.0f} MiB; "
            "use smaller arrays, or hpfracc.batch with out= on a numpy.memmap"
        ) from error


def run_plan(job: Job, plan: ChunkPlan, arrays: tuple[Any, ...], key: Any = None, out: Any = None) -> Any:
    """The result of a call by a plan, stored in ``out`` if given; None if a chunk does not fit and cannot be cut.

    Parameters
    ----------
    job : Job
        The call, or one that this is a chunk of.
    plan : ChunkPlan
        How it is cut.
    arrays : tuple
        Its operands.
    key : Hashable, optional
        Names the operand that is transformed once.
    out : array, optional
        The memory of the result.
    """
    cut = plan.cut
    if cut is None:
        return _stored(job, job.run(arrays, key, plan.arm), out)
    prepared, in_time = job.primitive.prepared_operand, is_time(job.primitive, cut)
    if prepared is None or cut.operands[prepared] is not None:
        key = None
    collects = out is None or cut.merges
    parts: list[tuple[int, Any]] = []
    sizer = ChunkSizer(plan.count, cut.length)

    def chunk(begin: int, end: int) -> tuple[Any, ...]:
        return tuple(part_of(array, axis, begin, end) for array, axis in zip(arrays, cut.operands, strict=True))

    def place(begin: int, end: int) -> Any:
        return None if collects else part_of(out, cut.axis, begin, end)

    def source(begin: int, end: int) -> Any:
        if plan.inner is not None:
            return run_plan(job, plan.inner, chunk(begin, end), key, place(begin, end))
        if in_time:
            found = _run_block(job, plan, arrays, begin, end, min(plan.count, sizer.size), key)
        else:
            found = job.run(chunk(begin, end), key, plan.arm)
        return _stored(job, found, place(begin, end))

    def sink(begin: int, end: int, result: Any) -> None:
        if collects:
            parts.append((end - begin, result))

    def stuck(begin: int, end: int, short: ChunkTooLargeError) -> Any:
        operands, times = chunk(begin, end), (cut.length - begin) // (end - begin)
        for whole in (math.inf, None):  # cut further, or on another arm
            smaller = choose_plan(job, operands, whole, allocated=not collects, times=times)
            with contextlib.suppress(ChunkTooLargeError):
                found = None if smaller is None else run_plan(job, smaller, operands, key, place(begin, end))
                if found is not None:
                    return found
        return None

    if not run_chunks(cut.length, sizer, source, sink, stuck=stuck, backwards=in_time and job.in_place):
        return None
    owner = registry.adapter(job.request.placement.library)
    if not collects:
        result = out
    elif cut.merges:
        # A few numbers per chunk, combined on the host.
        stacked = np.stack([np.asarray(owner.to_host(part)) for _, part in parts])
        merged = job.primitive.merge(stacked, tuple(size for size, _ in parts), **job.params)
        result = _stored(job, owner.from_host(merged, job.request.placement.device), out)
    else:
        result = owner.concatenate([part for _, part in parts], cut.axis)
    return _add_starts(job, result, *arrays[1:]) if in_time and len(arrays) > 2 else result


def part_of(array: Any, axis: int | None, begin: int, end: int) -> Any:
    """The range ``begin`` to ``end`` of an axis counted from the last; all of an operand without that axis."""
    return array if axis is None else array[(..., slice(begin, end), *(slice(None),) * (-axis - 1))]


def _stored(job: Job, result: Any, out: Any) -> Any:
    if out is None:
        return result
    out[...] = result
    if job.advance is not None:
        job.advance(math.prod(shape_of(out)))
    return out


def _run_block(job: Job, plan: ChunkPlan, arrays: tuple[Any, ...], begin: int, end: int, size: int, key: Any) -> Any:
    """Outputs ``begin`` to ``end`` of a block of time, from weights and signal; blocks have at most ``size`` points.

    Transforms of the parts of the weights are cached under ``key`` for the next block if all of them fit into
    ``job.kept`` bytes; otherwise each would be evicted before it is needed.
    """
    weights, signal = arrays[:2]
    call = job.request.call
    taps, extra = min(weights.shape[-1], signal.shape[-1]), int(call.facts["differences"])
    rows, part = math.prod(weights.shape[:-1]), min(plan.part, size)  # after a shortage, parts shrink with the blocks
    keeps = key is not None and -(-taps // part) * fast_length(size + 2 * part) * call.itemsize * rows <= job.kept

    def convolve(some: Any, samples: Any, first: int) -> Any:
        # A cached transform belongs to one part of the weights and one length of samples.
        return job.run((some, samples), (key, "part", first, some.shape[-1]) if keeps else None, plan.arm)

    total = None
    for start, result in convolve_block(convolve, weights, signal, begin, end, part, taps, extra):
        total = result if total is None else _added(total, start - begin, result)
    return total


def convolve_block(
    convolve: Callable[[Any, Any, int], Any],
    weights: Any,
    signal: Any,
    begin: int,
    end: int,
    part: int,
    taps: int,
    extra: int = 0,
) -> Iterator[tuple[int, Any]]:
    """Contributions to outputs ``begin`` to ``end``, each with its first output; the first one covers all of them.

    Parameters
    ----------
    convolve : callable
        ``convolve(weights, samples, first_weight)``; the number identifies the part of the weights.
    weights, signal : array
        Cut along their last axes.
    begin, end : int
        The range of outputs.
    part, taps : int
        Number of weights of one part, and in total.
    extra : int
        Samples before those that a part reaches back to: differences need one.
    """
    for first in range(0, min(taps, end), part):
        some = weights[..., first : min(first + part, taps)]
        low, high = max(0, begin - first - some.shape[-1] + 1 - extra), end - first
        skipped = max(0, begin - first - low)
        result = convolve(some, signal[..., low:high], first)
        yield low + skipped + first, result[..., skipped:]


def _added(total: Any, start: int, more: Any) -> Any:
    """``total`` with ``more`` added from point ``start`` on."""
    if library_of(total) == "jax":
        return total.at[..., start:].add(more)
    total[..., start:] += more
    return total


def _add_starts(job: Job, result: Any, signal: Any, starts: Any) -> Any:
    """``result`` with ``starts[j]`` times sample (or difference) ``starts_from + j`` added from that point on.

    The first sample has no difference.
    """
    for number, row in enumerate(starts, job.params.get("starts_from", 0)):
        sample = signal[..., number : number + 1]
        if job.request.call.facts["differences"] and number:
            sample = sample - signal[..., number - 1 : number]
        result = _added(result, number, sample * row[number:])
    return result
