"""One call in chunks: whether a chunk fits, its predicted time, its execution as a separate call, and the plans.

A plan is chosen by its predicted time, over all arms: the largest chunks along an axis that fit on the arm, chunks of
one row that are cut further, or blocks of time. If only a slow plan fits, it is logged; a very slow one is refused.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from hpfracc._config import state
from hpfracc._reading import format_bytes, format_seconds
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError, sizes_below
from hpfracc.engine.execution.learn import run_and_learn
from hpfracc.engine.execution.plan import Plan, make_plan, make_request, plan_key
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.primitives.base import ArraySpec, Call, Cut, Primitive, dtype_of, shape_of
from hpfracc.engine.selection.call_memory import HOST_SHARE, predicted_bytes
from hpfracc.engine.selection.decide import Selection, decide
from hpfracc.engine.selection.decision import Candidate, Decision, Fallback
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import Request
from hpfracc.errors import BackendUnavailableError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

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
            return decide(request, knowledge_for(request.settings), frozen=True, explore=False)
        except (OutOfMemoryError, BackendUnavailableError):
            return None

    def predict(self, operands: tuple[Any, ...], reserved: int = 0, kernel: str | None = None) -> float:
        """Predicted seconds of a chunk beside ``reserved`` bytes: inf if no arm takes it, 0 if nothing is known."""
        selection = self.select(operands, reserved, kernel)
        return math.inf if selection is None else 0.0 if math.isnan(selection.expected) else selection.expected

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
        if plan is not None and plan.version == state.version and plan.has_room():
            return plan
        options: dict[str, Any] = {"backend": self.backend, "limit": self.limit, "kernel": kernel, "short": self.short}
        try:
            plan = make_plan(self.primitive, operands, self.params, prepared=key is not None, **options)
        except OutOfMemoryError as error:
            raise ChunkTooLargeError(str(error)) from None
        self._plans[kind] = plan
        return plan


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

#: Overhead of a chunk beside its kernel: it is described, decided and bound as a separate call.
CHUNK_SECONDS = 1e-3
#: A plan slower than with enough memory by this factor is logged; above this many seconds it is refused.
SLOW, REFUSED_SECONDS = 10.0, 60.0
#: Slow plans below this many seconds are logged without a warning.
_WORTH_A_WARNING = 1.0


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
    reserved = 0
    if not allocated:
        device, library = job.request.placement.device, job.request.placement.library
        share, owner = (HOST_SHARE, None) if device == HOST else (job.request.settings.gpu_memory_limit, library)
        # A result that takes more than half of the memory limits only itself: the chunks would become crumbs.
        reserved = call.output_bytes if get_budget().fits(2 * call.output_bytes, device, share, owner) else 0
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

        in_time = is_time(job.primitive, cut)

        def predict(count: int, part: int, cut: Cut = cut, beside: int = beside) -> float:
            if part:
                samples = min(cut.length, count + part - 1)
                chunk: tuple[Any, ...] = (_resized(specs[0], -1, part), _resized(specs[1], -1, samples))
            else:
                chunk = _chunk_specs(specs, cut, count)
            return job.predict(chunk, beside, arm)

        found = choose_size(cut, specs[0].shape[-1] if in_time else 0, predict)
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


def choose_size(cut: Cut, taps: int, predict: Callable[[int, int], float]) -> ChunkPlan:
    """The plan with the largest chunks that fit; its predicted time is inf if there is none.

    Blocks of time have parts of the ``taps`` weights that are as long as a block; other cuts have 0 taps.
    ``predict(count, part)`` are the seconds of one chunk, inf if it does not fit.
    """
    sizes, taps = list(sizes_below(cut.length)), min(taps, cut.length)
    fits = bisect_left(sizes, True, key=lambda count: predict(count, min(taps, count)) < math.inf)
    if fits == len(sizes):
        return ChunkPlan(math.inf)
    count = sizes[fits]
    part, pieces = min(taps, count), float(-(-cut.length // count))
    if taps:
        # The first blocks start before the end of the weights: they need only some of the parts, or some samples.
        parts, early = -(-taps // part), min(pieces, max(1, taps // count))
        pieces = pieces * parts - early * (parts - 1) / 2
    return ChunkPlan(pieces * (predict(count, part) + CHUNK_SECONDS), "", cut, count, part)
