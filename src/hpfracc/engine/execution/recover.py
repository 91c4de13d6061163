"""Handling of failures: depending on the kind, another arm is tried, the call is split, or an error is raised."""

from __future__ import annotations

import enum
import math
from dataclasses import replace
from typing import Any

from hpfracc._reading import format_bytes
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Adapter, Arm
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.bind import BoundArm
from hpfracc.engine.execution.plan import RECHECK, Plan, choose_and_bind, learns
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.selection.call_memory import memory_place, predicted_bytes
from hpfracc.engine.selection.decide import is_worth_cutting
from hpfracc.engine.selection.decision import Decision, Fallback
from hpfracc.engine.selection.request import Request
from hpfracc.errors import AllBackendsFailedError, BackendUnavailableError, HpfraccError, OutOfMemoryError


class Failure(enum.Enum):
    """The classes of failure. Each is handled in its own way."""

    CALLER = "the caller's mistake"
    UNSUPPORTED = "not supported"
    MEMORY = "out of memory"
    IMPORT = "cannot be imported"
    TRANSIENT = "failed"


#: Errors in the arguments. They would occur on every backend, so they are raised unchanged.
#: hpfracc's errors are raised deliberately and already say what to do; warnings and floating-point errors were turned
#: into errors by the user.
_CALLER = (
    TypeError, ValueError, LookupError, AttributeError, NameError, AssertionError, ArithmeticError, Warning,
    HpfraccError,
)  # fmt: skip


def classify(error: BaseException, adapter: Adapter) -> Failure:
    """The class of an error raised by a kernel of ``adapter``, or by loading it."""
    if isinstance(error, NotImplementedError):
        return Failure.UNSUPPORTED
    if isinstance(error, MemoryError) or adapter.is_out_of_memory(error):
        return Failure.MEMORY
    if isinstance(error, ImportError):
        return Failure.IMPORT
    if isinstance(error, _CALLER):
        return Failure.CALLER
    return Failure.TRANSIENT


def drop_frames(error: BaseException) -> None:
    """Release the frames that an error holds, because they keep alive the buffers that filled the memory."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def recover(plan: Plan, bound: BoundArm, arrays: tuple[Any, ...], params: dict[str, Any], error: Exception) -> Any:
    """Run a failed call on another arm, or in chunks if memory ran out, or raise the error.

    ``bound`` is the failed arm, because another thread may have changed the plan since. What cannot be recorded as a
    graph may still run, so it is no failure of its arm.
    """
    adapter = registry.adapter(bound.arm.backend)
    if adapter.is_recording():
        raise error
    if plan.in_pieces is None and classify(error, adapter) is Failure.MEMORY:
        # A chunk: a smaller one is tried, on the same arm.
        drop_frames(error)
        adapter.release_memory(bound.arm.device)
        ladder.climb(bound.arm.device, highest="library caches")
        raise OutOfMemoryError(registry.describe_failure(error)) from None
    try:
        return try_other_arms(plan, bound, arrays, params, error)
    except Exception as final:
        if isinstance(final, OutOfMemoryError):
            last = decision_log.last_recorded()
            fallbacks = last.fallbacks if isinstance(last, Decision) else ()
        elif final is error and classify(error, adapter) is Failure.MEMORY:
            # The user chose the arm: no other one is tried, but smaller chunks on the same one are.
            adapter.release_memory(bound.arm.device)
            fallbacks = (Fallback(bound.arm.name, Failure.MEMORY.value, registry.describe_failure(error)),)
        else:
            raise
        why = str(final) if isinstance(final, HpfraccError) else registry.describe_failure(final)
        result = plan.run_in_chunks(arrays, params, why=why, fallbacks=fallbacks, whole=math.inf)
        if result is None:
            raise final
        return result


def try_other_arms(
    plan: Plan, bound: BoundArm, arrays: tuple[Any, ...], params: dict[str, Any], error: Exception
) -> Any:
    """Run the call on another arm, or raise: errors in the arguments and those of a forced backend unchanged.

    If memory ran out and the next arm would be much slower, the call runs in chunks if the plan can and that is faster.
    """
    failures: dict[str, Exception] = {}
    kinds: set[Failure] = set()
    fallbacks: list[Fallback] = []
    request, need = plan.request, 0
    knowledge = plan.knowledge
    while True:
        arm = bound.arm
        kind = classify(error, registry.adapter(arm.backend))
        if kind is Failure.CALLER or request.preference is not None:
            raise error
        need = predicted_bytes(request.primitive, request.call, arm)
        _remember(plan, request, arm, need, kind, error)
        failures[arm.name] = error
        kinds.add(kind)
        fallbacks.append(Fallback(arm.name, kind.value, registry.describe_failure(error)))
        request = replace(request, tried=request.tried | {arm.name}, kernel=None)
        try:
            selection, bound = choose_and_bind(request, knowledge, arrays)
        except (BackendUnavailableError, OutOfMemoryError):
            decision_log.record(replace(plan.bound.decision, fallbacks=tuple(fallbacks)))
            raise _all_failed(request, failures, kinds, need) from ExceptionGroup(
                f"{request.call.operation}: what each arm raised", list(failures.values())
            )
        before = knowledge.chooser.score(request.call.bucket, [knowledge.option(request, arm)])[0].total
        if kind is Failure.MEMORY and plan.in_pieces is not None and is_worth_cutting(selection.expected, before):
            words = f"{arm.name} ran out of memory, and {bound.arm.name} would take much longer"
            result = plan.run_in_chunks(arrays, params, why=words, fallbacks=tuple(fallbacks), whole=selection.expected)
            if result is not None:
                return result
        knowledge.note_fallback(request.call.operation, arm.name, bound.arm.name, kind.value, error)
        try:
            result = bound.run(*arrays, **params)
        except Exception as another:
            error = another
            continue
        decision = replace(selection.decision, fallbacks=tuple(fallbacks))
        plan.adopt(bound, selection, math.nan, decision)
        # The next call is timed and chosen again. If nothing is learned, a later call checks whether the failed arm
        # works again.
        plan.review_after(1 if learns(request) else RECHECK)
        decision_log.record(decision)
        return result


def _remember(plan: Plan, request: Request, arm: Arm, need: int, kind: Failure, error: Exception) -> None:
    """Exclude the arm for a time that depends on the kind of failure; not for what fails only while it is traced."""
    if request.placement.traced:
        return
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
        have = format_bytes(get_budget().free("cpu"))
        return OutOfMemoryError(
            f"{operation}: every arm ran out of memory ({rows}); the call needs about {format_bytes(need)} and {have} "
            "are free on the host: use smaller arrays, a smaller batch or float32"
        )
    return AllBackendsFailedError(
        f"{operation}: every arm failed ({rows}); hpfracc.last_decision() and the cause of this error say more",
        failures,
    )
