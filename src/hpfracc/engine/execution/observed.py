"""An engine call as a span, while the profiler is on.

While it is off, a call looks at one flag and nothing here runs.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.planning import learns
from hpfracc.engine.execution.watching import queue_of, watch_compilation
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans
from hpfracc.profiling.spans import Span, Told

__all__ = ["Observable", "observe_call"]


_UNWATCHED = contextlib.nullcontext()


class Observable(Protocol):
    """An operation, as far as observing its calls needs it."""

    name: str

    def call_plainly(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Any:
        """Do the call."""

    def plan_for(self, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]) -> Plan:
        """The plan for such a call."""


def observe_call(
    operation: Observable, arrays: tuple[Any, ...], backend: Any, weights_key: Any, params: dict[str, Any]
) -> Any:
    """Do a call inside a span that carries its decision; on a device that keeps the result, timed by its own clock."""
    mode = trail.current()
    if type(mode) is trail.Mode and mode.dry:  # nothing is computed, so there is nothing to time
        return operation.call_plainly(arrays, backend, weights_key, params)
    with Span(spans, operation.name, "call") as span:
        try:
            plan: Plan | None = operation.plan_for(arrays, backend, weights_key, params)
        except OutOfMemoryError:  # then the call is cut into pieces, or says so itself
            plan = None
        device = None if plan is None else _works_on(plan)
        if device is not None:
            span.device = spans.device_time(device)
            if span.device is not None:
                span.device.begin()
        try:
            with _UNWATCHED if plan is None else _watch_first(plan):
                return operation.call_plainly(arrays, backend, weights_key, params)
        finally:
            decided = trail.last_decision()
            if isinstance(decided, Decision):
                span.decision = _told(decided)


def _watch_first(plan: Plan) -> contextlib.AbstractContextManager[Any]:
    """A span around a call that compiles, of a plan that learns nothing: one that does notices by itself."""
    first = plan.fresh and not learns(plan.request) and plan.calls() == 0
    return watch_compilation(plan.bound.arm) if first else _UNWATCHED


def _told(decision: Decision) -> Told:
    d = decision
    key = d.operation, d.arm, d.shape, d.dtype, d.start, d.library, d.wish, d.explored, d.fallbacks
    return Told(key, d.to_dict)


def _works_on(plan: Plan) -> str | None:
    """The queue in which the call's work is still under way when it returns; None if it is done by then."""
    arm, bound = plan.bound.arm, plan.bound
    stays = plan.request.placement.library == arm.backend and not bound.moves and not plan.request.placement.traced
    return queue_of(arm) if stays and registry.adapter(arm.backend).is_asynchronous(arm.device) else None
