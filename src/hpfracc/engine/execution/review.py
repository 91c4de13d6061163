"""A call that gets attention: it is timed, what it took is learned, and the choice is made anew."""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.binding import Bound
from hpfracc.engine.execution.peaks import read_marks, record_peak
from hpfracc.engine.execution.plan import LOOK, REVIEW, Plan
from hpfracc.engine.execution.planning import bind_verdict, learns
from hpfracc.engine.execution.recovery import RECHECK
from hpfracc.engine.execution.rescue import rescue, run_cut
from hpfracc.engine.execution.timing import pending_times
from hpfracc.engine.execution.watching import watch_compilation
from hpfracc.engine.selection.costs import Option

__all__ = ["attend"]

logger = logging.getLogger("hpfracc.engine")


def attend(plan: Plan, count: int, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run the call with its plan's arm, learn from it, and let the plan choose again where that may change anything."""
    entered = time.perf_counter()
    pending_times.settle()
    if plan.in_chunks is not None:
        result = run_cut(plan, arrays, params)
        plan.version = -1  # memory comes and goes: the next call decides from the start
        if result is not None:
            return result
        plan.in_chunks = None
    calls = plan.claim(count)
    knowledge, request = plan.knowledge, plan.request
    # Another thread may give the plan another arm at any moment: what is read once belongs together.
    bound, option = plan.bound, plan.option
    arm, decision = bound.arm, bound.decision
    trail.note(bound)
    if option.arm != arm.name:
        option = knowledge.option(request, arm)
    if not learns(request):
        return _look_again(plan, bound, count, arrays, params)
    adapter = registry.adapter(arm.backend)
    first = knowledge.is_first(option)
    stays = request.placement.library == arm.backend and not bound.moves
    asynchronous = stays and adapter.is_asynchronous(arm.device)
    timer = adapter.timer(arm.device) if asynchronous and not first else None
    marks = None if first else read_marks(request, arm)  # a first call compiles, which is no part of the next
    if timer is not None:
        timer.start()
    watched = watch_compilation(arm) if first else contextlib.nullcontext()
    begin = time.perf_counter()
    try:
        with watched:
            result = bound.run(*arrays, **params)
    except Exception as error:
        return rescue(plan, bound, arrays, params, error)
    seconds = time.perf_counter() - begin
    record_peak(request, arm, marks)
    if plan.warms_up(arm) and not first:
        knowledge.tally(request, option, calls)
    elif first or not asynchronous:
        # A first call compiles, on the host; what the device does later is small beside that.
        knowledge.observe(request, option, seconds, first=first, calls=calls)
    elif timer is not None:
        timer.stop()
        pending_times.add(timer, partial(_learn, plan, option, calls))
    else:
        knowledge.tally(request, option, calls)
    knowledge.breaker.success((request.call.operation, arm.name))
    # What the host saw of a call that the device does later is only how long it took to ask for it.
    took = plan.expected if asynchronous and plan.expected > 0.0 else seconds
    if first or plan.deserves_review(took, calls):
        chosen = time.perf_counter()
        _choose_again(plan, count, arrays)
        REVIEW.paid(time.perf_counter() - chosen)
    else:
        LOOK.paid(time.perf_counter() - entered - seconds)
        plan.keep_for(plan.interval, count)
    if bound.decision is not decision:
        trail.note(decision)  # what was done, and not what will be next time
    return result


def _look_again(plan: Plan, bound: Bound, count: int, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run the call and choose anew, learning nothing: after a failure, to see whether the arm is well again."""
    try:
        result = bound.run(*arrays, **params)
    except Exception as error:
        return rescue(plan, bound, arrays, params, error)
    _choose_again(plan, count, arrays)
    plan.keep_for(RECHECK, count)
    return result


def _learn(plan: Plan, option: Option, calls: int, seconds: float) -> None:
    plan.knowledge.observe(plan.request, option, seconds, first=False, calls=calls)


def _choose_again(plan: Plan, count: int, arrays: tuple[Any, ...]) -> None:
    before = plan.bound.arm
    try:
        verdict, bound = bind_verdict(plan.request, plan.knowledge, arrays, bound=plan.bound)
    except Exception as error:
        # This call is done, and its result must not be lost. The next one decides from the start, and says so itself.
        logger.debug("%s: cannot be chosen anew: %s", plan.request.operation, registry.describe_failure(error))
        plan.version = -1
        return
    plan.adopt(bound, verdict.decision, verdict.option, verdict.expected)
    # The first call of another arm is timed, for it may compile.
    plan.keep_for(verdict.review_after if bound.arm == before or bound.arm.name in plan.warm else 0, count)
    if bound.arm != before:
        logger.debug("%s: %s instead of %s: %s", plan.request.operation, bound.arm, before, verdict.decision.reason)
