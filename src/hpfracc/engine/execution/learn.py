"""Learning from a call: it is timed, its peak memory is measured, and the choice of the arm is reviewed."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.bind import pending_times
from hpfracc.engine.execution.plan import MAX_CALLS_BETWEEN_LOOKS, RECHECK, Plan, choose_and_bind, learns
from hpfracc.engine.selection.call_memory import read_marks, record_peak

logger = logging.getLogger("hpfracc.engine")


def run_and_learn(plan: Plan, count: int, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run call number ``count`` of a plan, learn from it, and review the plan's choice if that may change it.

    Asynchronous work is timed by marks in the queue of its device, which a later call reads.
    """
    if registry.adapter(plan.bound.arm.backend).is_recording():
        return plan.bound.run(*arrays, **params)
    if plan.in_chunks is not None:
        result = plan.run_in_chunks(arrays, params, why=plan.in_chunks)
        plan.expire()  # free memory changes, so the next call decides from scratch
        if result is not None:
            return result
        plan.run_whole()
        review(plan, count, arrays)  # memory was freed since the arm was chosen
    calls = plan.claim(count)
    bound = plan.bound  # read once, because another thread may change the plan's arm at any time
    request, knowledge, option, decision = plan.request, plan.knowledge, bound.option, bound.decision
    decision_log.record(bound)
    learning, first, timer, marks = learns(request), knowledge.is_first(option), None, None
    if learning:
        pending_times.settle()
    if learning and not first:  # a first call compiles, which later calls do not
        timer = registry.adapter(bound.arm.backend).timer(bound.arm.device) if bound.asynchronous else None
        marks = read_marks(request, bound.arm, arrays)
    if timer is not None:
        timer.start()
    begin = time.perf_counter()
    try:
        result = bound.run(*arrays, **params)
    except Exception as error:
        from hpfracc.engine.execution.recover import recover  # loaded with the first failure

        return recover(plan, bound, arrays, params, error)
    seconds = time.perf_counter() - begin  # of asynchronous work only the launch
    if not learning:  # check whether a failed arm works again
        review(plan, count, arrays)
        plan.keep_for(RECHECK, count)
        return result
    if marks is not None:
        record_peak(request, bound.arm, marks)
    warms_up = plan.warms_up(bound.arm) and not first
    if first or not (bound.asynchronous or warms_up):
        # A first call compiles on the host; the later work of the device is small in comparison.
        knowledge.observe(request, option, seconds, first=first, calls=calls)
    elif timer is not None and not warms_up:
        timer.stop()
        observe = partial(knowledge.observe, request, option, first=False, calls=calls)
        pending_times.add(timer, lambda seconds: observe(seconds=seconds))
    else:  # slower than later calls, or without a clock
        knowledge.tally(request, option, calls)
    knowledge.breaker.success((request.call.operation, bound.arm.name))
    timed = first or not bound.asynchronous
    due = plan.deserves_review(bound.expected if bound.asynchronous and bound.expected > 0.0 else seconds, calls)
    if due or first:
        # Without a device clock there is nothing to learn; such a plan is reviewed less and less often.
        review(plan, count, arrays, at_least=0 if timed or timer is not None else 2 * plan.interval + 1)
    else:
        plan.keep_for(plan.interval, count)
    if bound.decision is not decision:
        decision_log.record(decision)  # of this call, not of the next
    return result


def review(plan: Plan, count: int, arrays: tuple[Any, ...], at_least: int = 0) -> None:
    """Choose the plan's arm again; an unchanged one is kept for at least ``at_least`` calls."""
    before = plan.bound.arm
    try:
        selection, bound = choose_and_bind(plan.request, plan.knowledge, arrays, bound=plan.bound)
    except Exception as error:
        # This call is done, and its result must not be lost. The next one decides from scratch and raises the error.
        logger.debug("%s: the review failed: %s", plan.request.operation, registry.describe_failure(error))
        plan.expire()
        return
    plan.adopt(bound, selection, selection.expected)
    kept = selection.review_after
    if bound.arm == before:
        kept = max(kept, min(at_least, MAX_CALLS_BETWEEN_LOOKS))
    elif bound.arm.name not in plan.warm:
        kept = 0  # the first call of another arm is timed, because it may compile
    plan.keep_for(kept, count)
    if bound.arm != before:
        logger.debug("%s: %s instead of %s: %s", plan.request.operation, bound.arm, before, selection.decision.reason)
