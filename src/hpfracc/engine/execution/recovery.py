"""When an arm fails: what kind of failure it was decides, and the same inputs go to the next arm."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.binding import Bound
from hpfracc.engine.execution.failure import Failure, classify, drop_frames
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.planning import bind_verdict, learns, without
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.selection.candidates import memory_place, predicted_bytes
from hpfracc.engine.selection.decide import LEAST_SAVED, WORTH_CUTTING, Selection
from hpfracc.engine.selection.decision import Fallback
from hpfracc.engine.selection.request import Request
from hpfracc.errors import AllBackendsFailedError, BackendUnavailableError, OutOfMemoryError

__all__ = ["RECHECK", "recover"]

logger = logging.getLogger("hpfracc.engine")

#: Calls of a plan that learns nothing after which it is chosen anew, once an arm of it has failed.
RECHECK = 256


def recover(
    plan: Plan,
    bound: Bound,
    arrays: tuple[Any, ...],
    params: dict[str, Any],
    error: Exception,
    cut: Callable[[str, tuple[Fallback, ...], float], Any] | None = None,
) -> Any:
    """Do the call on another arm, or raise: the caller's own mistake and a forced backend's error unchanged.

    ``bound`` is what failed: the plan itself may have moved on in another thread. ``cut(why, fallbacks,
    seconds)`` does the call in pieces, or gives None where that takes longer: it is asked where memory ran out and the
    next arm would be much slower.
    """
    failures: dict[str, Exception] = {}
    kinds: set[Failure] = set()
    fallbacks: list[Fallback] = []
    request, need = plan.request, 0
    knowledge = plan.knowledge
    while True:
        arm = bound.arm
        kind = classify(error, registry.adapter(arm.backend))
        if kind is Failure.CALLER or plan.forced:
            raise error
        need = predicted_bytes(request.primitive, request.call, arm)
        _remember(plan, request, arm, need, kind, error)
        failures[arm.name] = error
        kinds.add(kind)
        fallbacks.append(Fallback(arm.name, kind.value, registry.describe_failure(error)))
        request = without(request, arm.name)
        try:
            verdict, bound = bind_verdict(request, knowledge, arrays)
        except (BackendUnavailableError, OutOfMemoryError):
            trail.note(replace(plan.decision, fallbacks=tuple(fallbacks)))
            raise _all_failed(request, failures, kinds, need) from ExceptionGroup(
                f"{request.call.operation}: what each arm raised", list(failures.values())
            )
        if cut is not None and kind is Failure.MEMORY and _is_much_slower(plan, request, arm, verdict):
            words = f"{arm.name} ran out of memory, and {bound.arm.name} would take much longer"
            result = cut(words, tuple(fallbacks), verdict.expected)
            if result is not None:
                return result
        knowledge.note_fallback(request.call.operation, arm.name, bound.arm.name, kind.value, error)
        try:
            result = bound.run(*arrays, **params)
        except Exception as another:
            error = another
            continue
        decision = replace(verdict.decision, fallbacks=tuple(fallbacks))
        plan.adopt(bound, decision, verdict.option)
        # The next call is timed and chosen anew; where nothing is learned, one some calls later looks whether the arm
        # that failed is well again.
        plan.attention = plan.seen + 1 if learns(request) else plan.seen + RECHECK
        trail.note(decision)
        return result


def _is_much_slower(plan: Plan, request: Request, failed: Arm, verdict: Selection) -> bool:
    """Whether the next arm takes so much longer than the one that failed that pieces on that one are worth it."""
    option = plan.knowledge.option(request, failed)
    before = plan.knowledge.chooser.score(request.call.bucket, [option])[0].total
    return verdict.expected > WORTH_CUTTING * before and verdict.expected - before > LEAST_SAVED


def _remember(plan: Plan, request: Request, arm: Arm, need: int, kind: Failure, error: Exception) -> None:
    """Keep the arm from being taken again at once, for as long as its kind of failure asks for."""
    breaker, key = plan.knowledge.breaker, (request.call.operation, arm.name)
    if kind is Failure.MEMORY:
        drop_frames(error)
        prepared_operands.clear()
        registry.adapter(arm.backend).release_memory(arm.device)
        get_budget().invalidate(arm.device)
        breaker.exhausted(memory_place(arm), need)
    elif kind is Failure.UNSUPPORTED:
        breaker.unsupported((*key, request.call.dtype, request.placement.start), registry.describe_failure(error))
    elif kind is Failure.IMPORT and not registry.is_loaded(arm.backend):
        registry.mark_broken(arm.backend, error)
    else:
        breaker.failure(key, registry.describe_failure(error))


def _all_failed(request: Request, failures: dict[str, Exception], kinds: set[Failure], need: int) -> Exception:
    operation = request.call.operation
    rows = "; ".join(f"{arm}: {registry.describe_failure(error)}" for arm, error in failures.items())
    if kinds == {Failure.MEMORY}:
        free = get_budget().free("cpu")
        have = "an unknown amount" if free is None else f"{free / 2**20:,.0f} MiB"
        return OutOfMemoryError(
            f"{operation}: every arm ran out of memory ({rows}); the call needs about {need / 2**20:,.0f} MiB and "
            f"{have} are free on the host: use smaller arrays, a smaller batch or float32"
        )
    return AllBackendsFailedError(
        f"{operation}: every arm failed ({rows}); hpfracc.last_decision() and the cause of this error say more",
        failures,
    )
