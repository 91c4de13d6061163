"""Learning from a call: it is timed, its peak memory is measured, and the choice of the arm is reviewed."""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.bind import BoundArm, compilation_span, pending_times
from hpfracc.engine.execution.plan import LOOK, MAX_CALLS_BETWEEN_LOOKS, RECHECK, REVIEW, Plan, choose_and_bind, learns
from hpfracc.engine.selection.call_memory import read_marks, record_peak

__all__ = ["TimedRun", "review", "run_and_learn"]

logger = logging.getLogger("hpfracc.engine")


class TimedRun:
    """One run of a plan's arm, of a call or of a chunk: its time and its peak memory are measured and learned.

    Asynchronous work is timed by marks in the queue of its device, which a later run reads.

    Parameters
    ----------
    plan : Plan
        The plan; it must be one that learns.
    bound : BoundArm
        Its arm, given separately because another thread may change the plan's at any time.
    arrays : tuple
        The operands.
    """

    __slots__ = ("_bound", "_first", "_marks", "_option", "_plan", "_timer", "measured", "seconds", "tells")

    def __init__(self, plan: Plan, bound: BoundArm, arrays: tuple[Any, ...]) -> None:
        pending_times.settle()
        request, arm = plan.request, bound.arm
        adapter = registry.adapter(arm.backend)
        self._plan, self._bound, self._option = plan, bound, bound.option
        self._first = plan.knowledge.is_first(bound.option)
        self._timer = adapter.timer(arm.device) if bound.asynchronous and not self._first else None
        # A first call compiles, which later calls do not.
        self._marks = None if self._first else read_marks(request, arm, arrays)
        #: Seconds of the run by the host's clock, which measures only the launch of asynchronous work.
        self.seconds = 0.0
        #: Whether that is the time of a usual call, and whether anything is timed: work of a device only by its clock.
        self.tells = not self._first and not self._bound.asynchronous
        self.measured = self._first or not self._bound.asynchronous or self._timer is not None

    def run(self, *arrays: Any, **params: Any) -> Any:
        """Run the arm; errors of its kernel are raised unchanged."""
        if self._timer is not None:
            self._timer.start()
        with compilation_span(self._bound.arm) if self._first else contextlib.nullcontext():
            begin = time.perf_counter()
            result = self._bound.run(*arrays, **params)
            self.seconds = time.perf_counter() - begin
        return result

    def learn(self, calls: int = 1, *, warms_up: bool = False) -> bool:
        """Learn from the run, which represents ``calls`` calls; returns whether the plan's choice should be reviewed.

        A run that ``warms_up`` its arm is slower than later ones, and is only counted.
        """
        plan, option, first = self._plan, self._option, self._first
        knowledge, request, arm = plan.knowledge, plan.request, self._bound.arm
        if self._marks is not None:
            record_peak(request, arm, self._marks)
        if warms_up and not first:
            knowledge.tally(request, option, calls)
        elif first or not self._bound.asynchronous:
            # A first call compiles on the host; the later work of the device is small in comparison.
            knowledge.observe(request, option, self.seconds, first=first, calls=calls)
        elif self._timer is not None:
            self._timer.stop()
            observe = partial(knowledge.observe, request, option, first=False, calls=calls)
            pending_times.add(self._timer, lambda seconds: observe(seconds=seconds))
        else:
            knowledge.tally(request, option, calls)
        knowledge.breaker.success((request.call.operation, arm.name))
        expected = self._bound.expected
        took = expected if self._bound.asynchronous and expected > 0.0 else self.seconds
        return first or plan.deserves_review(took, calls)


def run_and_learn(plan: Plan, count: int, arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run call number ``count`` of a plan, learn from it, and review the plan's choice if that may change it."""
    if registry.adapter(plan.bound.arm.backend).is_recording():
        return plan.bound.run(*arrays, **params)
    entered = time.perf_counter()
    if plan.in_chunks is not None:
        result = plan.run_in_chunks(arrays, params, why=plan.in_chunks)
        plan.expire()  # free memory changes, so the next call decides from scratch
        if result is not None:
            return result
        plan.run_whole()
        review(plan, count, arrays)  # memory was freed since the arm was chosen
    calls = plan.claim(count)
    bound = plan.bound  # read once, because another thread may change the plan's arm at any time
    decision = bound.decision
    decision_log.record(bound)
    timed = TimedRun(plan, bound, arrays) if learns(plan.request) else None
    try:
        result = (bound if timed is None else timed).run(*arrays, **params)
    except Exception as error:
        from hpfracc.engine.execution.recover import recover  # loaded with the first failure

        return recover(plan, bound, arrays, params, error)
    if timed is None:  # check whether a failed arm works again
        review(plan, count, arrays)
        plan.keep_for(RECHECK, count)
        return result
    warms_up = plan.warms_up(bound.arm)
    due = timed.learn(calls, warms_up=warms_up)
    if due and timed.tells and not warms_up and decision.explored and plan.end_trial(timed.seconds, count):
        pass  # the incumbent stays
    elif due:
        # Without a device clock there is nothing to learn; such a plan is reviewed less and less often.
        review(plan, count, arrays, at_least=0 if timed.measured else 2 * plan.interval + 1)
    else:
        LOOK.paid(time.perf_counter() - entered - timed.seconds)
        plan.keep_for(plan.interval, count)
    if bound.decision is not decision:
        decision_log.record(decision)  # of this call, not of the next
    return result


def review(plan: Plan, count: int, arrays: tuple[Any, ...], at_least: int = 0) -> None:
    """Choose the plan's arm again; an unchanged one is kept for at least ``at_least`` calls."""
    begin, before = time.perf_counter(), plan.bound.arm
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
    REVIEW.paid(time.perf_counter() - begin)
