"""One call in chunks: whether a chunk fits, its predicted time, its execution as a separate call, and the plans.

A plan is chosen by its predicted time: chunks along each axis, in sizes that halve, on the fastest arm for that size;
chunks of one row that are cut further; blocks of time. If only a slow plan fits, it is logged; a very slow one is
refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hpfracc._config import state
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError, round_size
from hpfracc.engine.execution.learn import TimedRun, review
from hpfracc.engine.execution.plan import Plan, learns, make_plan, make_request, plan_key
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recover import Failure, classify, drop_frames, try_other_arms
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.primitives.base import ArraySpec, Call, Cut, Primitive, dtype_of
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.call_memory import HOST_SHARE, memory_refusal, predicted_bytes
from hpfracc.engine.selection.decide import WORTH_CUTTING, Selection, decide
from hpfracc.engine.selection.decision import Decision, Fallback
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import Request
from hpfracc.errors import BackendUnavailableError, OutOfMemoryError
from hpfracc.profiling.formats import format_bytes, format_seconds
from hpfracc.profiling.recorder import shared as spans

__all__ = [
    "ChunkPlan", "Job", "Prediction", "as_spec", "block_sizes", "choose_plan", "choose_size", "decision_in_chunks",
    "is_time",
]  # fmt: skip

logger = logging.getLogger("hpfracc.engine")

#: How much slower than an arm without room the chosen one may be; beyond that, chunks shrink until that arm fits.
_HARDLY_SLOWER = 1.5


class Prediction(NamedTuple):
    """Predicted seconds of a chunk: inf if no arm has room for it, 0 if nothing is known.

    ``slow`` says that an arm without room for it would be much faster.
    """

    seconds: float
    slow: bool = False


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
        #: Options of every chunk: the requested backend, the limit, and the kernel (``"numpy:fft"``) if it is fixed.
        self.options: dict[str, Any] = {"backend": self.backend, "limit": limit, "kernel": None}
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

    def select(self, operands: tuple[Any, ...], reserved: int = 0, *, ignore_memory: bool = False) -> Selection | None:
        """The selection for a chunk beside ``reserved`` bytes; None if no arm takes it."""
        request = make_request(
            self.primitive,
            tuple(as_spec(array) for array in operands),
            self.params,
            placement=self.request.placement,
            short=self.short and not ignore_memory,
            reserved=reserved,
            ignore_memory=ignore_memory,
            **self.options,
        )
        try:
            return decide(request, knowledge_for(request.settings), frozen=True)
        except (OutOfMemoryError, BackendUnavailableError):
            return None

    def predict(self, operands: tuple[Any, ...], reserved: int = 0) -> Prediction:
        """The prediction for a chunk beside ``reserved`` bytes."""
        selection = self.select(operands, reserved)
        if selection is None:
            return Prediction(math.inf)
        seconds = selection.expected if selection.expected == selection.expected else 0.0
        return Prediction(seconds, selection.slowdown > _HARDLY_SLOWER)

    def fits(self, operands: tuple[Any, ...], reserved: int = 0) -> bool:
        """Whether some arm takes a chunk beside ``reserved`` bytes."""
        return self.predict(operands, reserved).seconds < math.inf

    def run(self, operands: tuple[Any, ...], key: Any = None, *, quick: bool = False) -> Any:
        """Run a chunk; raises :class:`ChunkTooLargeError` if it runs out of memory.

        Parameters
        ----------
        operands : tuple
            Its operands.
        key : Hashable, optional
            Names the operand that is transformed once.
        quick : bool
            Whether to refuse a chunk for which a much faster arm has no room: a smaller one may fit there.
        """
        params = self.params if key is None else {**self.params, "weights_key": key}
        plan = self._plan(operands, key)
        if quick and plan.bound.slowdown > WORTH_CUTTING:
            # Drop caches before accepting a slower arm.
            ladder.climb(plan.bound.arm.device, highest="own caches")
            plan = self._plan(operands, key)
            if plan.bound.slowdown > WORTH_CUTTING:
                raise ChunkTooLargeError(plan.in_chunks or f"only {plan.bound.arm.name} has enough memory", slow=True)
        bound = plan.bound
        adapter = registry.adapter(bound.arm.backend)
        learning = learns(plan.request) and not adapter.is_recording()
        timed = TimedRun(plan, bound, operands) if learning else None
        run = bound.run if timed is None else timed.run
        try:
            with spans.span(self.primitive.name, "batch", metadata={"piece": self.chunks + 1}):
                result = run(*operands, **params)
        except Exception as error:
            plan.expire()  # the next chunk is planned from scratch
            if classify(error, adapter) is Failure.MEMORY:
                drop_frames(error)
                adapter.release_memory(bound.arm.device)
                ladder.climb(bound.arm.device, highest="library caches")
                raise ChunkTooLargeError(registry.describe_failure(error)) from None
            try:
                result = try_other_arms(plan, bound, operands, params, error)
            except OutOfMemoryError as short:
                raise ChunkTooLargeError(str(short)) from None
        else:
            # There may be no other chunk of this kind, so every one is learned from, and the arm is chosen again only
            # before the next one.
            plan.review_next(timed is not None and timed.learn())
        self.chunks += 1
        self.decision = plan.bound.decision
        return result

    def _plan(self, operands: tuple[Any, ...], key: Any) -> Plan:
        """The plan for a chunk: that of the last chunk of the same kind, if there still is memory for it."""
        kind = plan_key(operands, None, key, {}), self.options["kernel"]
        plan = self._plans.get(kind)
        if plan is not None and _is_current(plan):
            if plan.review_at == 0 or plan.bound.slowdown > 1.0:  # free memory changes, perhaps enough for a faster arm
                review(plan, self.chunks, operands)
            if plan.version == state.version:
                return plan
        try:
            plan = make_plan(
                self.primitive, operands, self.params, prepared=key is not None, short=self.short, **self.options
            )
        except OutOfMemoryError as error:
            raise ChunkTooLargeError(str(error)) from None
        self._plans[kind] = plan
        return plan


def _is_current(plan: Plan) -> bool:
    """Whether a plan holds for another chunk: with memory for it, and no much faster arm that only lacks memory."""
    if plan.version != state.version or plan.bound.slowdown > WORTH_CUTTING:
        return False
    request, arm = plan.request, plan.bound.arm
    need = predicted_bytes(request.primitive, request.call, arm)
    return memory_refusal(request, arm, need, plan.knowledge.breaker) is None


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


# Plans, compared by predicted time.

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
        return found or (_quickest(job, specs, 0, enough, whole) if reserved else None)

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
    job: Job, specs: tuple[Any, ...], reserved: int, enough: float, whole: float | None, depth: int = 0
) -> ChunkPlan | None:
    best = ChunkPlan(math.inf)
    for plan in _plans(job, specs, reserved, enough, whole, depth):
        best = min(best, plan, key=lambda plan: plan.seconds)
        if best.cut is not None and best.seconds <= enough:
            break
    return best if best.seconds < math.inf else None


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
            yield pieces * seen * math.log2(seen + 1), pieces, block, part


def _halves(size: int) -> Iterator[int]:
    while size >= 1:
        yield size
        size //= 2
