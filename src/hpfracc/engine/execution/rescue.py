"""Before a call is given up for want of memory: room is made, another arm is tried, and then the call is cut."""

from __future__ import annotations

import math
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.batch.in_memory import describe_shortage, run_in_chunks
from hpfracc.engine.execution.binding import Bound
from hpfracc.engine.execution.failure import Failure, classify
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recovery import recover
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.decision import Decision, Fallback
from hpfracc.errors import OutOfMemoryError

__all__ = ["cut_or_raise", "make_room", "rescue", "run_cut"]


def rescue(plan: Plan, bound: Bound, arrays: tuple[Any, ...], params: dict[str, Any], error: Exception) -> Any:
    """Do a call that failed on another arm; in pieces, if it was memory that ran out; or raise.

    ``bound`` is what failed: the plan itself may have moved on in another thread.
    """

    def cut(why: str, fallbacks: tuple[Fallback, ...], whole: float) -> Any:
        return run_in_chunks(
            plan.request.primitive, arrays, params, backend=plan.backend, why=why, fallbacks=fallbacks, whole=whole
        )

    try:
        return recover(plan, bound, arrays, params, error, cut)
    except Exception as final:
        adapter = registry.adapter(bound.arm.backend)
        if isinstance(final, OutOfMemoryError):
            fallbacks = _fallbacks()
        elif final is error and classify(error, adapter) is Failure.MEMORY:
            # The arm was the user's word: no other one is tried, but a smaller piece on the same one is.
            adapter.release_memory(bound.arm.device)
            fallbacks = (Fallback(bound.arm.name, Failure.MEMORY.value, registry.describe_failure(error)),)
        else:
            raise
        return cut_or_raise(plan.request.primitive, arrays, params, plan.backend, final, fallbacks)


def cut_or_raise(
    primitive: Primitive,
    arrays: tuple[Any, ...],
    params: dict[str, Any],
    backend: Any,
    error: Exception,
    fallbacks: tuple[Fallback, ...] = (),
) -> Any:
    """The call in pieces, or ``error`` where it cannot be cut."""
    result = run_in_chunks(
        primitive, arrays, params, backend=backend, why=describe_shortage(error), fallbacks=fallbacks, whole=math.inf
    )
    if result is None:
        raise error
    return result


def run_cut(plan: Plan, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """A call whose quickest arms have no room for all of it, in pieces on those; None where it cannot be cut."""
    assert plan.in_chunks is not None
    return run_in_chunks(plan.request.primitive, arrays, params, backend=plan.backend, why=plan.in_chunks)


def make_room(plan: Plan) -> bool:
    """Clean up for a call that fitted when it was planned, and does not now; whether it fits again."""
    guard = plan.guard
    if guard is None:
        return True
    ladder.climb(plan.bound.arm.device, enough=guard, highest="library caches")
    return bool(guard())


def _fallbacks() -> tuple[Fallback, ...]:
    last = trail.last_decision()
    return last.fallbacks if isinstance(last, Decision) else ()
