"""An engine call that does not fit as a whole, done in pieces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.batching.overlap import BlockPlan, choose_blocks, convolve_block, time_blocks
from hpfracc.engine.execution.batching.pieces import Job, PieceTooLargeError
from hpfracc.engine.execution.batching.sizes import ChunkSizer, largest_that_fits, round_size
from hpfracc.engine.execution.failure import Failure, classify
from hpfracc.engine.execution.planning import make_request
from hpfracc.engine.memory.relief import relief
from hpfracc.engine.primitives._cuts import Cut
from hpfracc.engine.primitives._operands import shape_of
from hpfracc.engine.primitives.base import ArraySpec, Primitive, dtype_of
from hpfracc.engine.selection.candidates import Request
from hpfracc.engine.selection.decision import Decision, Fallback
from hpfracc.errors import HpfraccError, OutOfMemoryError

__all__ = ["decision_in_pieces", "describe_shortage", "run_in_chunks"]

logger = logging.getLogger("hpfracc.engine")

#: A cut within a cut within a cut: more than a call has axes.
_DEEPEST = 8


def run_in_chunks(
    primitive: Primitive,
    arrays: tuple[Any, ...],
    params: dict[str, Any],
    *,
    backend: Any,
    why: str,
    fallbacks: tuple[Fallback, ...] = (),
    depth: int = 0,
) -> Any:
    """The result of the call, put together from pieces; None where it cannot be cut, or not any further.

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
    depth : int
        How many cuts this one is inside of.
    """
    plain = {name: value for name, value in params.items() if name != "weights_key"}
    request = make_request(primitive, arrays, plain, backend=backend)
    if request.placement.gradient or request.placement.traced or depth > _DEEPEST:
        return None
    job = Job(primitive, params, request)
    for cut in primitive.cuts(request.call, *arrays, **plain):
        done = _in_time(job, cut, arrays) if cut.before or _is_time(primitive, cut) else _along(job, cut, arrays, depth)
        if done is not None:
            result, words = done
            decision = decision_in_pieces(job, f"in {job.pieces} pieces ({words}): {why}", fallbacks)
            logger.info("%s %s: %s", decision.operation, decision.shape, decision.reason)
            trail.note(decision)
            return result
    return None


def _is_time(primitive: Primitive, cut: Cut) -> bool:
    return primitive.name == "causal_convolution" and cut.axis == -1


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


def _specs(arrays: tuple[Any, ...], cut: Cut, count: int) -> tuple[ArraySpec, ...]:
    found = []
    for array, axis in zip(arrays, cut.operands, strict=True):
        shape = list(shape_of(array))
        if axis is not None:
            shape[axis] = count
        found.append(ArraySpec(tuple(shape), dtype_of(array)))
    return tuple(found)


def _along(job: Job, cut: Cut, arrays: tuple[Any, ...], depth: int) -> tuple[Any, str] | None:
    call = job.request.call
    reserved = 0 if cut.merges else call.output_bytes

    def most_that_fit(beside: int, quick: bool = False) -> int:
        return largest_that_fits(
            lambda count: job.fits(_specs(arrays, cut, count), beside, quick=quick), cut.length - 1
        )

    # Where nothing fits beside the result, which the caller asked for whatever it takes, pieces are kept small alone.
    most = most_that_fit(reserved, quick=True) or most_that_fit(reserved) or most_that_fit(0)
    # Where not even one fits by prediction, one is tried all the same: it may be cut further.
    sizer = ChunkSizer(round_size(max(1, int(most * relief.chunk_scale()))), cut.length)
    prepared = job.primitive.prepared_operand
    key = job.key if prepared is not None and cut.operands[prepared] is None else None
    target = _Target(job.request, cut)
    begin = 0
    while begin < cut.length:
        end = min(cut.length, begin + sizer.size)
        piece = _piece(arrays, cut, begin, end)
        try:
            result = job.run(piece, key)
        except PieceTooLargeError as short:
            if sizer.failed(end - begin):
                continue
            result = run_in_chunks(
                job.primitive,
                piece,
                job.params if key is None else {**job.params, "weights_key": key},
                backend=job.backend,
                why=str(short),
                depth=depth + 1,
            )
            if result is None:
                return None
            job.decision = _last(job.decision)
            job.pieces += 1 if job.decision is None else job.decision.chunks
        target.put(begin, end, result)
        sizer.succeeded(end - begin)
        begin = end
    result = target.finished(job)
    return result, f"up to {sizer.good} of {cut.length:,} along axis {cut.axis}"


def _last(before: Decision | None) -> Decision | None:
    last = trail.last_decision()
    return last if isinstance(last, Decision) else before


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


def _in_time(job: Job, cut: Cut, arrays: tuple[Any, ...]) -> tuple[Any, str] | None:
    weights, signal, *starts = arrays
    call = job.request.call
    taps: int = call.facts["taps"]
    first = job.params.get("starts_from", 0)
    job.params = {name: value for name, value in job.params.items() if name != "starts_from"}

    def fits(beside: int, some: int, samples: int, quick: bool) -> bool:
        rows, points = shape_of(weights)[:-1], shape_of(signal)[:-1]
        kinds = ArraySpec((*rows, some), dtype_of(weights)), ArraySpec((*points, samples), dtype_of(signal))
        return job.fits(kinds, beside, quick=quick)

    plan = next(
        (
            found
            for beside in (call.output_bytes, 0)
            if (found := choose_blocks(call.length, taps, partial(fits, beside), relief.chunk_scale())) is not None
        ),
        None,
    )
    if plan is None or (plan.blocks == 1 and plan.parts == 1):
        return None
    target = _Target(job.request, cut)
    failures = 0
    while True:
        try:
            _blocks(job, weights, signal, plan, taps, target.put)
        except PieceTooLargeError:
            failures += 1
            part = max(1, plan.part // 2) if plan.part * 2 > plan.block else plan.part
            smaller = BlockPlan(max(1, plan.block // 2), part, plan.blocks * 2, -(-taps // part))
            if plan.block <= 1 or failures > 40:
                return None
            plan, target = smaller, _Target(job.request, cut)
            continue
        result = target.finished(job)
        for some in starts:
            result = _add_starts(job, result, signal, some, first)
        return result, f"{plan.blocks} blocks of time, {plan.parts} parts of the weights"


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


def _blocks(
    job: Job, weights: Any, signal: Any, plan: BlockPlan, taps: int, put: Callable[[int, int, Any], None]
) -> None:
    def convolve(some: Any, samples: Any, first: int) -> Any:
        # A kept transform belongs to a part of the weights and to one length of samples.
        key = None if job.key is None else (job.key, "part", first, some.shape[-1])
        return job.run((some, samples), key)

    for begin, end in time_blocks(job.request.call.length, plan.block):
        total = None
        extra = int(job.request.call.facts["differences"])
        for start, result in convolve_block(convolve, weights, signal, begin, end, plan.part, taps, extra):
            if total is None:
                total = result
            elif job.request.placement.library == "jax":
                total = total.at[..., start - begin :].add(result)
            else:
                total[..., start - begin :] += result
        put(begin, end, total)


def describe_shortage(error: BaseException) -> str:
    """Why a call is cut, from the error that said it does not fit."""
    return str(error) if isinstance(error, HpfraccError) else registry.describe_failure(error)
