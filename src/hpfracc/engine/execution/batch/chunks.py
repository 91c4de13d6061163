"""One call in chunks: whether a chunk fits, its predicted time, its execution as a separate call, and the plans.

A plan is chosen by its predicted time, over all arms: the largest chunks along an axis that fit on the arm, chunks of
one row that are cut further, or blocks of time. If only a slow plan fits, it is logged; a very slow one is refused.

Blocks of time are exactly the same sum in another order, ``y[n] = sum_p sum_{k in part p} w[k] x[n - k]``. For one
block of outputs and one part of the weights, this is the convolution of the part with the samples it reaches back to
(overlap-save).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._config import state
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.batch.driver import ChunkSizer, ChunkTooLargeError, round_size, run_chunks
from hpfracc.engine.execution.learn import run_and_learn
from hpfracc.engine.execution.plan import Plan, as_array, make_plan, make_request, plan_key
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recover import Failure, classify
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import ArraySpec, Call, Cut, Primitive, dtype_of
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.call_memory import HOST_SHARE, memory_refusal, predicted_bytes
from hpfracc.engine.selection.decide import Selection, decide
from hpfracc.engine.selection.decision import Candidate, Decision, Fallback
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import Request
from hpfracc.errors import BackendUnavailableError, OutOfMemoryError
from hpfracc.profiling.formats import format_bytes, format_seconds
from hpfracc.profiling.recorder import shared as spans

__all__ = [
    "ChunkPlan", "Job", "block_sizes", "choose_plan", "choose_size", "convolve_block", "decision_in_chunks",
    "run_in_chunks", "run_plan",
]  # fmt: skip

logger = logging.getLogger("hpfracc.engine")


class Job:
    """One call in chunks: their common data, how many were run, and the decision for the last one.

    Parameters
    ----------
    primitive : Primitive
        The operation's contract.
    params : dict
        Its parameters; a ``weights_key`` among them is stored separately.
    request : Request
        The whole call.
    limit : int, optional
        Bytes that one chunk may take in total.
    """

    def __init__(
        self, primitive: Primitive, params: dict[str, Any], request: Request, limit: int | None = None
    ) -> None:
        self.primitive = primitive
        self.params = {name: value for name, value in params.items() if name != "weights_key"}
        self.key = params.get("weights_key")
        self.request = request
        self.backend = None if request.preference is None else request.preference.backend
        self.limit = limit
        #: The kernel of every chunk, such as ``"numpy:fft"``, if it is fixed.
        self.kernel: str | None = None
        #: Whether the call is cut because memory is short.
        self.short = False
        #: Whether the result replaces an operand.
        self.in_place = False
        #: Bytes that cached transforms of parts of the weights may take.
        self.kept = math.inf
        #: Called with the number of elements of each part of the result that is stored.
        self.advance: Callable[[int], None] | None = None
        self.chunks = 0
        self.decision: Decision | None = None
        self._plans: dict[Hashable, Plan] = {}
        #: Whether a kernel failed for another reason than memory: then every chunk may use any.
        self._failed = False

    def select(
        self, operands: tuple[Any, ...], reserved: int = 0, kernel: str | None = None, *, ignore_memory: bool = False
    ) -> Selection | None:
        """The selection for a chunk beside ``reserved`` bytes, perhaps of one kernel or arm; None if none takes it."""
        request = make_request(
            self.primitive,
            tuple(as_spec(array) for array in operands),
            self.params,
            backend=self.backend,
            placement=self.request.placement,
            limit=self.limit,
            kernel=kernel or self.kernel,
            short=self.short and not ignore_memory,
            reserved=reserved,
            ignore_memory=ignore_memory,
        )
        try:
            return decide(request, knowledge_for(request.settings), frozen=True)
        except (OutOfMemoryError, BackendUnavailableError):
            return None

    def predict(self, operands: tuple[Any, ...], reserved: int = 0, kernel: str | None = None) -> float:
        """Predicted seconds of a chunk beside ``reserved`` bytes: inf if no arm takes it, 0 if nothing is known."""
        selection = self.select(operands, reserved, kernel)
        if selection is None:
            return math.inf
        return selection.expected if selection.expected == selection.expected else 0.0

    def run(self, operands: tuple[Any, ...], key: Any = None, kernel: str | None = None) -> Any:
        """Run a chunk; raises :class:`ChunkTooLargeError` if it runs out of memory.

        Parameters
        ----------
        operands : tuple
            Its operands.
        key : Hashable, optional
            Names the operand that is transformed once.
        kernel : str, optional
            The kernel, or the arm, to use.
        """
        params = self.params if key is None else {**self.params, "weights_key": key}
        plan = self._plan(operands, key, None if self._failed else kernel or self.kernel)
        bound = plan.bound
        try:
            with spans.span(self.primitive.name, "batch", metadata={"piece": self.chunks + 1}):
                result = run_and_learn(plan, plan.tick(), operands, params)
        except OutOfMemoryError as short:
            plan.expire()  # the next chunk is planned from scratch
            raise ChunkTooLargeError(str(short)) from None
        self.chunks += 1
        # After a review the plan may have the arm of the next chunk; after a failure it has the one that ran this one.
        self.decision = plan.bound.decision if plan.bound.decision.fallbacks else bound.decision
        self._failed = self._failed or bool(self.decision.fallbacks)
        return result

    def _plan(self, operands: tuple[Any, ...], key: Any, kernel: str | None) -> Plan:
        """The plan for a chunk: that of the last chunk of the same kind, if there still is memory for it."""
        kind = plan_key(operands, None, key, {}), kernel
        plan = self._plans.get(kind)
        if plan is not None and _is_current(plan):
            return plan
        options: dict[str, Any] = {"backend": self.backend, "limit": self.limit, "kernel": kernel, "short": self.short}
        try:
            plan = make_plan(self.primitive, operands, self.params, prepared=key is not None, **options)
        except OutOfMemoryError as error:
            raise ChunkTooLargeError(str(error)) from None
        self._plans[kind] = plan
        return plan


def _is_current(plan: Plan) -> bool:
    """Whether a plan holds for another chunk: under the same settings, with memory for it."""
    request, arm = plan.request, plan.bound.arm
    need = predicted_bytes(request.primitive, request.call, arm)
    return plan.version == state.version and memory_refusal(request, arm, need, plan.knowledge.breaker) is None


def as_spec(array: Any) -> Any:
    """The shape and dtype of an operand; plain numbers stay, because they adopt the dtype of the others."""
    if isinstance(array, ArraySpec | bool | int | float | complex):
        return array
    return ArraySpec(shape_of(array), dtype_of(array))


def decision_in_chunks(job: Job, reason: str, fallbacks: tuple[Fallback, ...] = ()) -> Decision:
    """The decision for the last chunk, as the decision for the whole call."""
    decision, call = job.decision, job.request.call
    assert decision is not None  # at least one chunk was run
    return replace(
        decision,
        reason=f"{reason}; each: {decision.reason}",
        shape=call.shape,
        bucket=call.bucket,
        chunks=job.chunks,
        fallbacks=(*fallbacks, *decision.fallbacks),
    )


# Plans, compared by predicted time. All chunks of a plan run on one arm.

#: The work of all chunks, their number, the points of each, and the weights of a part (0 except for time).
Size = tuple[float, float, int, int]

#: Overhead of a chunk beside its kernel: it is described, decided and bound as a separate call.
CHUNK_SECONDS = 1e-3
#: The same in the work of a block of time, at a few nanoseconds for each point and halving.
_CHUNK_WORK = 3e5
#: A plan slower than with enough memory by this factor is logged; above this many seconds it is refused.
SLOW, REFUSED_SECONDS = 10.0, 60.0
#: Slow plans below this many seconds are logged without a warning.
_WORTH_A_WARNING = 1.0
#: Parts of the weights are at least one in this many of a block of time, or all weights.
_MIN_PART = 4


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """A way to do a call in chunks, with its predicted time.

    Attributes
    ----------
    seconds : float
        Predicted time of the whole call; inf if no chunk fits into memory.
    arm : str
        What every chunk runs on.
    cut : Cut or None
        The cut; None for the whole call.
    count : int
        Number of points of the axis in a chunk.
    part : int
        For a cut along time, the number of weights in a part; otherwise 0.
    inner : ChunkPlan or None
        How each chunk is cut further.
    """

    seconds: float
    arm: str = ""
    cut: Cut | None = None
    count: int = 0
    part: int = 0
    inner: ChunkPlan | None = None

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
    ideal = job.select(specs, ignore_memory=True)
    if ideal is None:
        return None
    call = job.primitive.describe(*specs, **job.params)
    reserved = 0 if allocated else _reserved(job, call.output_bytes)
    arms = sorted((row for row in ideal.decision.candidates if row.refused is None), key=_with_compiling)

    def search() -> ChunkPlan | None:
        found = _quickest(job, arms, specs, reserved, whole)
        # The caller asked for the result whatever its size.
        return found or (_quickest(job, arms, specs, 0, whole) if reserved else None)

    def is_slow(plan: ChunkPlan) -> bool:
        return plan.seconds > SLOW * ideal.expected

    plan = search()
    if (plan is None or is_slow(plan)) and ladder.climb(job.request.placement.device, highest="own caches").freed:
        plan = search()
    if plan is not None and is_slow(plan):
        _report_slow(job, call, ideal, plan, times)
    return plan


def _with_compiling(row: Candidate) -> float:
    """Predicted seconds of one call with what it must compile; inf if nothing is known."""
    return math.inf if math.isnan(row.total) else row.total + row.compile


def _reserved(job: Job, result: int) -> int:
    """Bytes of the result that chunks leave free, where the operands are.

    0 if it takes more than half of the memory: then only the chunks are limited, because they would become crumbs.
    """
    device, library = job.request.placement.device, job.request.placement.library
    share, owner = (HOST_SHARE, None) if device == HOST else (job.request.settings.gpu_memory_limit, library)
    return result if get_budget().fits(2 * result, device, share, owner) else 0


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
    job: Job, arms: list[Candidate], specs: tuple[Any, ...], reserved: int, whole: float | None
) -> ChunkPlan | None:
    """The fastest plan over all arms; one whose whole call would take longer than the best plan is not looked at."""
    best = ChunkPlan(math.inf if whole is None else whole)
    least = best.seconds
    for row in arms:
        if least < math.inf and least <= _with_compiling(row):
            break
        found = _plan_on(job, row.arm, specs, reserved, whole is None)
        if found.seconds + row.compile < least:
            best, least = found, found.seconds + row.compile
    return best if least < math.inf else None


def _plan_on(job: Job, arm: str, specs: tuple[Any, ...], reserved: int, whole: bool) -> ChunkPlan:
    """The fastest plan on one arm: the whole call if that fits, otherwise along one of its cuts."""
    best = ChunkPlan(job.predict(specs, reserved, arm) if whole else math.inf, arm)
    if best.seconds < math.inf:
        return best
    call = job.primitive.describe(*specs, **job.params)
    for cut in job.primitive.cuts(call, *specs, **job.params):
        beside = 0 if cut.merges else reserved

        def predict(count: int, part: int, cut: Cut = cut, beside: int = beside) -> float:
            if part:
                samples = min(cut.length, count + part - 1)
                chunk: tuple[Any, ...] = (_resized(specs[0], -1, part), _resized(specs[1], -1, samples))
            else:
                chunk = _chunk_specs(specs, cut, count)
            return job.predict(chunk, beside, arm)

        in_time = is_time(job.primitive, cut)
        sizes = block_sizes(cut.length, specs[0].shape[-1]) if in_time else _chunk_sizes(cut.length)
        found = choose_size(cut, sizes, predict)
        if found.seconds == math.inf and not in_time and cut.length > 1:
            inner = _plan_on(job, arm, _chunk_specs(specs, cut, 1), beside, whole=False)
            found = ChunkPlan(cut.length * inner.seconds, arm, cut, 1, inner=inner)
        best = min(best, replace(found, arm=arm), key=lambda plan: plan.seconds)
    return best


def _chunk_specs(specs: tuple[Any, ...], cut: Cut, count: int) -> tuple[Any, ...]:
    pairs = zip(specs, cut.operands, strict=True)
    return tuple(spec if axis is None else _resized(spec, axis, count) for spec, axis in pairs)


def _resized(spec: ArraySpec, axis: int, count: int) -> ArraySpec:
    shape = list(spec.shape)
    shape[axis] = count
    return ArraySpec(tuple(shape), spec.dtype)


def choose_size(cut: Cut, sizes: Iterable[Size], predict: Callable[[int, int], float]) -> ChunkPlan:
    """The plan with the least work whose chunks fit; its predicted time is inf if there is none.

    ``predict(count, part)`` are the seconds of one chunk, inf if it does not fit.
    """
    refused: list[tuple[int, int]] = []
    for _, pieces, count, part in sorted(sizes):
        if any(part >= some and count + part >= points for some, points in refused):
            continue  # a smaller one does not fit
        seconds = predict(count, part)
        if seconds < math.inf:
            return ChunkPlan(pieces * (seconds + CHUNK_SECONDS), "", cut, count, part)
        refused.append((part, count + part))
    return ChunkPlan(math.inf)


def _chunk_sizes(length: int) -> Iterator[Size]:
    """Two sizes per power of two."""
    count = length
    while count > 1:
        count = round_size(count - 1)
        pieces = -(-length // count)
        yield pieces, pieces, count, 0


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
            yield pieces * (seen * math.log2(seen + 1) + _CHUNK_WORK), pieces, block, part


def _halves(size: int) -> Iterator[int]:
    while size >= 1:
        yield size
        size //= 2


# Running a plan.

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
    # After a shortage, parts shrink with the blocks.
    rows, part = math.prod(weights.shape[:-1]), plan.part if size >= plan.count else min(plan.part, size)
    keeps = key is not None and -(-taps // part) * fast_length(size + 2 * part) * call.itemsize * rows <= job.kept

    def convolve(some: Any, samples: Any, first: int) -> Any:
        # A cached transform belongs to one part of the weights and one length of samples.
        return job.run((some, samples), (key, "part", first, some.shape[-1]) if keeps else None, plan.arm)

    total = None
    for start, result in convolve_block(convolve, weights, signal, begin, end, part, taps, extra):
        total = result if total is None else _added(job, total, start - begin, result)
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


def _added(job: Job, total: Any, start: int, more: Any) -> Any:
    """``total`` with ``more`` added from point ``start`` on."""
    if job.request.placement.library == "jax":
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
        result = _added(job, result, number, sample * row[number:])
    return result
