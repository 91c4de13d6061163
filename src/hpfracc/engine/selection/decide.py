"""Decisions: mask the arms, predict their costs, and choose; or raise an error if no arm is left."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from hpfracc._config import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.selection.call_memory import is_memory_refusal, memory_refusal, predicted_bytes
from hpfracc.engine.selection.costs import Option
from hpfracc.engine.selection.decision import Candidate, Decision
from hpfracc.engine.selection.knowledge import CircuitBreaker, Knowledge
from hpfracc.engine.selection.policy import Choice
from hpfracc.engine.selection.request import Request, preference_error, refusal_reason
from hpfracc.errors import BackendUnavailableError, ConfigurationError, OutOfMemoryError, PinnedBackendError

logger = logging.getLogger("hpfracc.engine")

#: An arm, why it is refused, and the bytes it would need.
Row = tuple[Arm, str | None, int]
Rows = list[Row]


class Selection(NamedTuple):
    """The chosen arm with its decision, the calls until the next review, and the predicted seconds of one call.

    ``in_chunks`` is the reason to run the call in chunks, if an arm that only lacks memory is much faster.
    """

    arm: Arm
    option: Option
    decision: Decision
    review_after: int
    expected: float
    in_chunks: str | None = None


#: An arm without enough memory is used in chunks if it is faster than the best other one by this factor, and by these
#: seconds.
_WORTH_CUTTING, _MIN_SAVED = 4.0, 0.05


def decide(request: Request, knowledge: Knowledge, *, frozen: bool = False, explore: bool = True) -> Selection:
    """Choose an arm for ``request``.

    Parameters
    ----------
    request : Request
        The request.
    knowledge : Knowledge
        Costs and failures so far.
    frozen : bool
        Whether to store nothing about this decision, which is what the next call would decide.
    explore : bool
        Whether alternatives may be tried, if the settings allow it.

    Raises
    ------
    PinnedBackendError, BackendUnavailableError, OutOfMemoryError
        If no arm is left, with the reason for each.
    ConfigurationError
        If energy is minimised, and the power of no arm was measured.
    """
    settings, call, preference = request.settings, request.call, request.preference
    rows = list(masked(request, knowledge.breaker))
    if all(refused for _, refused, _ in rows):
        # Use an arm that has just failed rather than none: the failure may have been due to the data.
        rows = list(masked(request, knowledge.breaker, disturb=True))
    if all(refused for _, refused, _ in rows):
        raise _nothing_left(request, rows)
    if settings.objective == "energy":
        rows = _with_power(request, knowledge, rows)
    arms = {arm.name: arm for arm, refused, _ in rows if refused is None}
    options = [knowledge.option(request, arm) for arm in arms.values()]
    fixed = settings.deterministic or request.placement.traced
    choice = knowledge.chooser.choose(
        request.slot,
        call.bucket,
        options,
        threshold=settings.performance_threshold,
        explore=explore and settings.explores and not fixed,
        budget=settings.exploration_budget,
        frozen=frozen or fixed,
    )
    arm = arms[choice.option.arm]
    wish = None if preference is None else preference.source
    reason = choice.reason if wish is None else f"{wish} asks for it; {choice.reason}"
    taken = call.operation, arm.name, arm.backend, arm.device, arm.algorithm, reason
    asked = call.shape, call.dtype, call.bucket, request.placement.start, request.placement.library, wish
    candidates = partial(build_candidates, request, rows, choice)
    decision = Decision(*taken, *asked, rows=candidates, explored=choice.explored)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s %s %s: %s: %s", call.operation, call.shape, call.dtype, arm, choice.reason)
    in_chunks = _quicker_in_pieces(request, knowledge, rows, choice)
    return Selection(arm, choice.option, decision, choice.review_after, choice.estimate.seconds, in_chunks)


def _with_power(request: Request, knowledge: Knowledge, rows: Rows) -> Rows:
    """The rows, without arms whose power was not measured; raises an error if none is left."""
    operation = request.call.operation
    unknown = "its power was not measured; run `hpfracc calibrate --energy`"
    found = [
        (arm, refused if refused or knowledge.watts(operation, arm) is not None else unknown, need)
        for arm, refused, need in rows
    ]
    if all(refused is not None for _, refused, _ in found):
        from hpfracc.profiling.clocks import energy_counters

        reason = energy_counters()[1]
        raise ConfigurationError(
            f"objective='energy': the power of no arm that can serve {operation} was measured; run `hpfracc calibrate "
            f"--energy`, or use objective='time'" + (f" ({reason})" if reason else "")
        )
    return found


def _quicker_in_pieces(request: Request, knowledge: Knowledge, rows: Rows, choice: Choice) -> str | None:
    """The reason to work in chunks, if an arm without enough memory is much faster."""
    short = {arm.name: (arm, refused) for arm, refused, _ in rows if is_memory_refusal(refused)}
    if not short or request.placement.gradient or request.placement.traced:
        return None
    options = [knowledge.option(request, arm) for arm, _ in short.values()]
    scored = knowledge.chooser.score(request.call.bucket, options)
    least, name = min(((row.total, row.option.arm) for row in scored if row.known), default=(math.inf, ""))
    taken = choice.estimate.seconds
    if not is_worth_cutting(taken, least):
        return None
    return f"{name} {short[name][1]}, and {choice.option.arm} would take {taken / max(least, 1e-9):,.0f} times as long"


def is_worth_cutting(whole: float, cut: float) -> bool:
    """Whether an arm that takes ``cut`` seconds, but lacks memory, is so much faster that chunks on it pay off."""
    return whole > _WORTH_CUTTING * cut and whole - cut > _MIN_SAVED


def _nothing_left(request: Request, rows: Rows) -> Exception:
    """The error for a request that no arm can run."""
    preference, placement, operation = request.preference, request.placement, request.call.operation
    if preference is not None:
        asked = f"{operation}: {preference.source} asks for {preference.backend!r}"
        if placement.pinned is not None and preference.backend != placement.library:
            return PinnedBackendError(
                f"{asked}, but {placement.pinned}; use {placement.library!r} or 'auto', or detach and convert the "
                "operands first"
            )
        rows = [row for row in rows if row[0].backend == preference.backend]
    reasons = "; ".join(f"{arm.name}: {refused}" for arm, refused, _ in rows)
    if any(is_memory_refusal(refused) for _, refused, _ in rows):
        if preference is None:
            return OutOfMemoryError(
                f"{operation}: no arm fits into memory ({reasons}); use smaller arrays or free memory"
            )
        return OutOfMemoryError(
            f"{asked}, which has no room for this call ({reasons}); use smaller arrays, free memory, or another backend"
        )
    if preference is not None:
        return preference_error(operation, preference, reasons or "kernel not implemented")
    return BackendUnavailableError(
        f"{operation}: no backend can serve dtype {request.call.dtype!r} here ({reasons or 'none has a kernel'}); "
        "install another backend or convert the operands"
    )


def build_candidates(request: Request, rows: Rows, choice: Choice) -> tuple[Candidate, ...]:
    """Every arm as a row: the cheapest first, then the refused ones, then backends without an arm."""
    judged = {row.option.arm: row for row in choice.candidates}
    possible, refused = [], []
    for arm, why, need in rows:
        here = arm.name, arm.backend, arm.device
        if why is not None:
            refused.append(Candidate(*here, refused=why, memory=need))
            continue
        option, (seconds, low, high, samples, source, *_), total, wait = judged[arm.name]
        costs = seconds, low, high, option.transfer, wait, total
        possible.append(Candidate(*here, None, *costs, memory=need, samples=samples, source=source))
    possible.sort(key=lambda row: row.total)
    return (*possible, *refused, *refusals(request.call.operation))


# The arms that can run a call; for every other arm, the reason why it cannot.


def masked(request: Request, breaker: CircuitBreaker, *, disturb: bool = False) -> Iterator[Row]:
    """Every arm with the reason why it is refused, or None, and the bytes it would need.

    ``disturb`` also offers arms whose circuit breaker is open, for a call that no other arm can run.
    """
    call, primitive = request.call, request.primitive
    for arm in registry.arms(call.operation):
        need = predicted_bytes(primitive, call, arm)
        yield arm, _refusal(request, arm, need, breaker, disturb), need


def refusals(operation: str) -> Iterator[Candidate]:
    """A row for each backend without an arm: not installed, or without a kernel for this operation."""
    for name in BACKENDS:
        why = registry.unavailable(name)
        if why is None and not registry.specs(operation, name):
            why = "kernel not implemented"
        if why is not None:
            yield Candidate(arm=name, backend=name, refused=why)


def _refusal(request: Request, arm: Arm, need: int, breaker: CircuitBreaker, disturb: bool) -> str | None:
    settings, call, placement, spec = request.settings, request.call, request.placement, arm.spec
    if request.preference is not None and arm.backend != request.preference.backend:
        return f"{request.preference.source} asks for {request.preference.backend}"
    if arm.backend in request.banned:
        return "failed already in the monitored call around this one"
    ruled_out = refusal_reason(call.operation, arm.backend, settings)
    if ruled_out is not None:
        return ruled_out
    stopped = registry.stopped(placement.library)
    if stopped is not None:  # the result could not be converted to that library either
        return stopped
    if request.preference is None and placement.library != arm.backend:
        absent = registry.forked(arm.backend) or registry.delayed(arm.backend)
        if absent is not None:
            return absent
    if request.short and request.preference is None and arm.on_host and not registry.is_loaded(arm.backend):
        return f"memory is short, and importing {arm.backend} takes some"
    if request.kernel is not None and request.kernel not in (arm.name, f"{arm.backend}:{arm.algorithm}"):
        return f"the rest of this batch runs on {request.kernel}"
    free = request.preference is None and not request.needs_gradient
    if spec.own_arrays and free and placement.library != arm.backend:
        return f"its last digits are not those of {placement.library}; backend={arm.backend!r} asks for it"
    if call.dtype not in spec.dtypes:
        return f"dtype {call.dtype} is not served"
    if placement.pinned is not None and arm.backend != placement.library:
        return placement.pinned
    if placement.pinned is not None and arm.device != placement.device:
        return f"the operands live on {'the host' if placement.device == 'cpu' else placement.device}"
    if (placement.gradient or request.needs_gradient) and not spec.differentiable:
        return "its kernel cannot be differentiated"
    refused = None if spec.refuses is None else spec.refuses(call)
    if refused is not None or arm.name in request.tried:
        return refused or "failed in this call"
    return (
        breaker.allows((call.operation, arm.name, call.dtype, placement.start))
        or (None if disturb else breaker.allows((call.operation, arm.name)))
        or memory_refusal(request, arm, need, breaker)
    )
