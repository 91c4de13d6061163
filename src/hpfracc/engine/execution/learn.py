"""Learning from a call: it is timed, its peak memory is measured, and the choice of the arm is reviewed."""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.bind import BoundArm, compilation_span
from hpfracc.engine.execution.peaks import read_marks, record_peak
from hpfracc.engine.execution.plan import LOOK, MAX_CALLS_BETWEEN_LOOKS, REVIEW, Plan, choose_and_bind, learns
from hpfracc.engine.execution.recover import RECHECK, recover
from hpfracc.engine.execution.timing import pending_times
from hpfracc.engine.selection.costs import Option

__all__ = ["run_and_learn"]

logger = logging.getLogger("hpfracc.engine")


def run_and_learn(plan: Plan, count: int, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run call number ``count`` of a plan, learn from it, and review the plan's choice if that may change it."""
    if registry.adapter(plan.bound.arm.backend).is_recording():
        return plan.bound.run(*arrays, **params)
    entered = time.perf_counter()
    pending_times.settle()
    if plan.in_chunks is not None:
        result = plan.run_in_chunks(arrays, params, why=plan.in_chunks)
        plan.version = -1  # free memory changes, so the next call decides from scratch
        if result is not None:
            return result
        plan.in_chunks = None
    calls = plan.claim(count)
    knowledge, request = plan.knowledge, plan.request
    # Another thread may change the plan's arm at any time, so bound and option are read once.
    bound, option = plan.bound, plan.option
    arm, decision = bound.arm, bound.decision
    decision_log.record(bound)
    if option.arm != arm.name:
        option = knowledge.option(request, arm)
    if not learns(request):
        return _run_and_recheck(plan, bound, count, arrays, params)
    adapter = registry.adapter(arm.backend)
    first = knowledge.is_first(option)
    stays = request.placement.library == arm.backend and not bound.moves
    asynchronous = stays and adapter.is_asynchronous(arm.device)
    timer = adapter.timer(arm.device) if asynchronous and not first else None
    marks = None if first else read_marks(request, arm)  # a first call compiles, which later calls do not
    if timer is not None:
        timer.start()
    compiling = compilation_span(arm) if first else contextlib.nullcontext()
    begin = time.perf_counter()
    try:
        with compiling:
            result = bound.run(*arrays, **params)
    except Exception as error:
        return recover(plan, bound, arrays, params, error)
    seconds = time.perf_counter() - begin
    record_peak(request, arm, marks)
    if plan.warms_up(arm) and not first:
        knowledge.tally(request, option, calls)
    elif first or not asynchronous:
        # A first call compiles on the host; the later work of the device is small in comparison.
        knowledge.observe(request, option, seconds, first=first, calls=calls)
    elif timer is not None:
        timer.stop()
        pending_times.add(timer, partial(_observe, plan, option, calls))
    else:
        knowledge.tally(request, option, calls)
    knowledge.breaker.success((request.call.operation, arm.name))
    # For asynchronous work the host's clock measures only the launch.
    took = plan.expected if asynchronous and plan.expected > 0.0 else seconds
    if first or plan.deserves_review(took, calls):
        chosen = time.perf_counter()
        # Without a device clock there is nothing to learn; such a plan is reviewed less and less often.
        unmeasured = asynchronous and timer is None and not first
        _review(plan, count, arrays, at_least=2 * plan.interval + 1 if unmeasured else 0)
        REVIEW.paid(time.perf_counter() - chosen)
    else:
        LOOK.paid(time.perf_counter() - entered - seconds)
        plan.keep_for(plan.interval, count)
    if bound.decision is not decision:
        decision_log.record(decision)  # of this call, not of the next
    return result


def _run_and_recheck(plan: Plan, bound: BoundArm, count: int, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run the call and choose again without learning, to check whether a failed arm works again."""
    try:
        result = bound.run(*arrays, **params)
    except Exception as error:
        return recover(plan, bound, arrays, params, error)
    _review(plan, count, arrays)
    plan.keep_for(RECHECK, count)
    return result


def _observe(plan: Plan, option: Option, calls: int, seconds: float) -> None:
    plan.knowledge.observe(plan.request, option, seconds, first=False, calls=calls)


def _review(plan: Plan, count: int, arrays: tuple[Any, ...], at_least: int = 0) -> None:
    """Choose the plan's arm again; an unchanged one is kept for at least ``at_least`` calls."""
    before = plan.bound.arm
    try:
        selection, bound = choose_and_bind(plan.request, plan.knowledge, arrays, bound=plan.bound)
    except Exception as error:
        # This call is done, and its result must not be lost. The next one decides from scratch and raises the error.
        logger.debug("%s: the review failed: %s", plan.request.operation, registry.describe_failure(error))
        plan.version = -1
        return
    plan.adopt(bound, selection.decision, selection.option, selection.expected)
    # The first call of another arm is timed, because it may compile.
    if bound.arm == before:
        plan.keep_for(max(selection.review_after, min(at_least, MAX_CALLS_BETWEEN_LOOKS)), count)
    else:
        plan.keep_for(selection.review_after if bound.arm.name in plan.warm else 0, count)
    if bound.arm != before:
        logger.debug("%s: %s instead of %s: %s", plan.request.operation, bound.arm, before, selection.decision.reason)
