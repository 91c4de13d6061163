"""A call that gets attention: it is timed, what it took is learned, and the choice is made anew."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.planning import bind_verdict
from hpfracc.engine.execution.recovery import recover
from hpfracc.engine.execution.timing import pending_times
from hpfracc.engine.selection.choose import Option

__all__ = ["attend"]

logger = logging.getLogger("hpfracc.engine")


def attend(plan: Plan, count: int, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run the call with its plan's arm, learn from it, and let the plan choose again where that may change anything."""
    pending_times.settle()
    calls = count - plan.seen
    option, knowledge, request = plan.option, plan.knowledge, plan.request
    arm = plan.bound.arm
    adapter = registry.adapter(arm.backend)
    first = knowledge.is_first(option)
    asynchronous = request.placement.library == arm.backend and adapter.is_asynchronous(arm.device)
    timer = adapter.timer(arm.device) if asynchronous and not first else None
    if timer is not None:
        timer.start()
    begin = time.perf_counter()
    try:
        result = plan.run(*arrays, **params)
    except Exception as error:
        return recover(plan, arrays, params, error)
    seconds = time.perf_counter() - begin
    if first or not asynchronous:
        # A first call compiles, on the host; what the device does later is small beside that.
        knowledge.observe(request, option, seconds, first=first, calls=calls)
    elif timer is not None:
        timer.stop()
        pending_times.add(timer, partial(_learn, plan, option, calls))
    else:
        knowledge.tally(request, option, calls)
    knowledge.breaker.success((request.call.operation, arm.name))
    if first or asynchronous or plan.deserves_review(seconds, calls):
        _choose_again(plan, count, arrays)
    else:
        plan.keep_for(plan.interval, count)
    return result


def _learn(plan: Plan, option: Option, calls: int, seconds: float) -> None:
    plan.knowledge.observe(plan.request, option, seconds, first=False, calls=calls)


def _choose_again(plan: Plan, count: int, arrays: tuple[Any, ...]) -> None:
    before = plan.bound.arm
    verdict, bound = bind_verdict(plan.request, plan.knowledge, arrays, bound=plan.bound)
    plan.adopt(bound, verdict.decision, verdict.option, verdict.expected)
    # The first call of another arm is always timed: it may compile.
    plan.keep_for(verdict.review_after if bound.arm == before else 0, count)
    if bound.arm != before:
        logger.debug("%s: %s instead of %s: %s", plan.request.operation, bound.arm, before, verdict.decision.reason)
