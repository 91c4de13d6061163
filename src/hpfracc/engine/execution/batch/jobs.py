"""One call in chunks: whether a chunk fits, its predicted time, and its execution as a separate call."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

from hpfracc._config import state
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.batch.driver import ChunkTooLargeError
from hpfracc.engine.execution.learn import TimedRun, review
from hpfracc.engine.execution.operation import plan_key
from hpfracc.engine.execution.plan import Plan, learns, make_plan, make_request
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recover import Failure, classify, drop_frames, try_other_arms
from hpfracc.engine.primitives.base import ArraySpec, Primitive, dtype_of
from hpfracc.engine.primitives.operands import shape_of
from hpfracc.engine.selection.call_memory import memory_refusal, predicted_bytes
from hpfracc.engine.selection.decide import WORTH_CUTTING, Selection, decide
from hpfracc.engine.selection.decision import Decision, Fallback
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import Request
from hpfracc.errors import BackendUnavailableError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["Job", "Prediction", "as_spec", "decision_in_chunks"]

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
        #: The kernel for all chunks, such as ``"numpy:fft"``, if it is fixed.
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

    def _options(self) -> dict[str, Any]:
        return {"backend": self.backend, "limit": self.limit, "kernel": self.kernel}

    def select(self, operands: tuple[Any, ...], reserved: int = 0, *, ignore_memory: bool = False) -> Selection | None:
        """The selection for a chunk beside ``reserved`` bytes; None if no arm takes it."""
        specs = tuple(as_spec(array) for array in operands)
        short = self.short and not ignore_memory
        placement = self.request.placement
        made = make_request(self.primitive, specs, self.params, placement=placement, short=short, **self._options())
        request = replace(made, reserved=reserved, ignore_memory=ignore_memory)
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
        kind = plan_key(operands, None, key, {}), self.kernel
        plan = self._plans.get(kind)
        if plan is not None and _is_current(plan):
            if plan.review_at == 0 or plan.bound.slowdown > 1.0:  # free memory changes, perhaps enough for a faster arm
                review(plan, self.chunks, operands)
            if plan.version == state.version:
                return plan
        try:
            plan = make_plan(
                self.primitive, operands, self.params, prepared=key is not None, short=self.short, **self._options()
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
