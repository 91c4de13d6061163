"""Wrappers of an engine call: a profiler's span, a dry run, a composite call, a record of memory growth.

Each wraps the path of every call (:meth:`Operation.find_and_run`). Without them a call checks three flags and
nothing here runs.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.bind import compilation_span, queue_of
from hpfracc.engine.execution.operation import Operation
from hpfracc.engine.execution.plan import Plan, learns, make_request, zeros_for
from hpfracc.engine.memory.spans import memory_spans, span
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.errors import OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["call_wrapped"]

_NO_SPAN = contextlib.nullcontext()


def call_wrapped(
    operation: Operation, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]
) -> Any:
    """Run the call inside its wrappers; a dry run decides and returns zeros instead."""
    mode = decision_log.current_mode()
    if mode is not None and mode.dry:
        request = make_request(operation.primitive, arrays, params, backend=backend, prepared=weights_key is not None)
        mode.decisions.append(decide(request, knowledge_for(request.settings), frozen=True).decision)
        return zeros_for(request)
    call = arrays, backend, weights_key, params
    with contextlib.ExitStack() as around:
        if mode is not None:
            around.callback(_append_decision, mode)
        if spans.on:
            _enter_span(around, operation, call)
        if memory_spans.active:
            around.enter_context(span(operation.name))
        return operation.find_and_run(*call)


def _append_decision(mode: decision_log.Mode) -> None:
    last = decision_log.last_recorded()
    if isinstance(last, Decision):
        mode.decisions.append(last)


def _enter_span(around: contextlib.ExitStack, operation: Operation, call: tuple[Any, ...]) -> None:
    """Open a span with the call's decision, timed by the device's clock if the result stays there."""
    from hpfracc.profiling.spans import Span

    span = around.enter_context(Span(spans, operation.name, "call"))
    around.callback(_tell_decision, span)
    try:
        plan = operation.plan_for(*call)
    except OutOfMemoryError:  # the call runs in chunks, or raises the error itself
        return
    device = _asynchronous_queue(plan)
    if device is not None:
        span.device = spans.device_time(device)
        if span.device is not None:
            span.device.begin()
    # The first call of a plan that learns opens its own span.
    first = plan.bound.fresh and not learns(plan.request) and plan.calls() == 0
    around.enter_context(compilation_span(plan.bound.arm) if first else _NO_SPAN)


def _tell_decision(span: Any) -> None:
    d = decision_log.last_recorded()
    if isinstance(d, Decision):
        from hpfracc.profiling.spans import SpanDecision

        key = d.operation, d.arm, d.shape, d.dtype, d.start, d.library, d.wish, d.explored, d.fallbacks
        span.decision = SpanDecision(key, d.to_dict)


def _asynchronous_queue(plan: Plan) -> str | None:
    """The queue of work that is still running when the call returns; None if it is done."""
    arm, placement = plan.bound.arm, plan.request.placement
    stays = placement.library == arm.backend and not plan.bound.moves and not placement.traced
    return queue_of(arm) if stays and registry.adapter(arm.backend).is_asynchronous(arm.device) else None
