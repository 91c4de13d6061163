"""One decision: masks, then costs, then the rule; or the error that says why nothing is left."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial

from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.selection.candidates import Request, is_memory_refusal, masked, refusals
from hpfracc.engine.selection.choose import Choice, Option
from hpfracc.engine.selection.decision import Candidate, Decision
from hpfracc.engine.selection.knowledge import Knowledge
from hpfracc.engine.selection.slots import slot_of
from hpfracc.errors import BackendUnavailableError, OutOfMemoryError, PinnedBackendError

__all__ = ["LEAST_SAVED", "WORTH_CUTTING", "Verdict", "decide"]

logger = logging.getLogger("hpfracc.engine")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The arm to take, the decision in words and figures, for how many calls it stands, and what one should take.

    ``rival`` is what the quickest arm would take that only has no room for the whole call, inf where there is none;
    ``in_chunks`` says why the call had better be cut, where that arm is much quicker.
    """

    arm: Arm
    option: Option
    decision: Decision
    review_after: int
    expected: float
    rival: float = math.inf
    in_chunks: str | None = None

    @property
    def slowdown(self) -> float:
        """How much longer the arm takes than the quickest that only lacks room; 0 where there is none, or unknown."""
        ratio = self.expected / max(self.rival, 1e-9)
        return ratio if ratio == ratio else 0.0


#: An arm without room for the whole call must be this much quicker than the best that has, and save as many seconds.
WORTH_CUTTING, LEAST_SAVED = 4.0, 0.05


def decide(request: Request, knowledge: Knowledge, *, frozen: bool = False) -> Verdict:
    """Choose an arm for ``request``.

    Parameters
    ----------
    request : Request
        What is asked.
    knowledge : Knowledge
        What is known about costs and failures.
    frozen : bool
        Only look: nothing about this decision is remembered, nothing is explored.

    Raises
    ------
    PinnedBackendError, BackendUnavailableError, OutOfMemoryError
        If no arm is left, with the reason of each that could have been.
    """
    settings, call = request.settings, request.call
    rows = list(masked(request, knowledge.breaker))
    arms = {arm.name: arm for arm, refused, _ in rows if refused is None}
    if not arms:
        # Better to try an arm that failed a moment ago than to do nothing: what failed may have been the data.
        rows = list(masked(request, knowledge.breaker, disturb=True))
        arms = {arm.name: arm for arm, refused, _ in rows if refused is None}
    if not arms:
        raise _nothing_left(request, rows)
    options = [knowledge.option(request, arm) for arm in arms.values()]
    if settings.deterministic:
        # What is compiled or imported already differs from run to run, so the decision must not depend on it.
        options = [replace(option, compile_key=None, startup=0.0) for option in options]
    frozen = frozen or settings.deterministic or request.placement.traced
    choice = knowledge.chooser.choose(
        slot_of(request),
        call.bucket,
        options,
        threshold=settings.performance_threshold,
        explore=settings.explores and not frozen,
        budget=settings.exploration_budget,
        frozen=frozen,
    )
    arm = arms[choice.option.arm]
    decision = Decision(
        operation=call.operation,
        arm=arm.name,
        backend=arm.backend,
        device=arm.device,
        algorithm=arm.algorithm,
        reason=choice.reason if request.wish is None else f"{request.wish.source} asks for it; {choice.reason}",
        shape=call.shape,
        dtype=call.dtype,
        bucket=call.bucket,
        start=request.placement.start,
        library=request.placement.library,
        wish=None if request.wish is None else request.wish.source,
        rows=partial(build_candidates, request, rows, choice),
        explored=choice.explored,
    )
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s %s %s: %s: %s", call.operation, call.shape, call.dtype, arm, choice.reason)
    rival, in_chunks = _quicker_in_pieces(request, knowledge, rows, choice)
    return Verdict(arm, choice.option, decision, choice.review_after, choice.estimate.seconds, rival, in_chunks)


def _quicker_in_pieces(
    request: Request, knowledge: Knowledge, rows: list[tuple[Arm, str | None, int]], choice: Choice
) -> tuple[float, str | None]:
    """What the quickest arm without room for all of it would take, and why the call had better be cut, if so."""
    short = {arm.name: (arm, refused) for arm, refused, _ in rows if is_memory_refusal(refused)}
    if not short or request.placement.gradient or request.placement.traced:
        return math.inf, None
    taken = choice.estimate.seconds
    options = [knowledge.option(request, arm) for arm, _ in short.values()]
    known = [row for row in knowledge.chooser.score(request.call.bucket, options) if row.total == row.total]
    if not known:
        return math.inf, None
    best = min(known, key=lambda row: row.total)
    if not (best.total * WORTH_CUTTING < taken and taken - best.total > LEAST_SAVED):
        return best.total, None
    name = best.option.arm
    ratio = taken / max(best.total, 1e-9)
    return best.total, f"{name} {short[name][1]}, and {choice.option.arm} would take {ratio:,.0f} times as long"


def _nothing_left(request: Request, rows: list[tuple[Arm, str | None, int]]) -> Exception:
    """The error for a request that every arm refuses."""
    wish, placement, operation = request.wish, request.placement, request.call.operation
    if wish is not None and placement.pinned is not None and wish.backend != placement.library:
        return PinnedBackendError(
            f"{operation}: {wish.source} asks for {wish.backend!r}, but {placement.pinned}; "
            f"use {placement.library!r} or 'auto', or detach and convert the operands first"
        )
    if wish is not None:
        own_rows = [(arm, refused) for arm, refused, _ in rows if arm.backend == wish.backend]
        if any(is_memory_refusal(refused) for _, refused in own_rows):
            short = "; ".join(f"{arm.name}: {refused}" for arm, refused in own_rows)
            return OutOfMemoryError(
                f"{operation}: {wish.source} asks for {wish.backend!r}, which has no room for this call ({short}); "
                "use smaller arrays, free memory, or another backend"
            )
        why = registry.unavailable(wish.backend)
        if why is None:
            own = [f"{arm.name}: {refused}" for arm, refused, _ in rows if arm.backend == wish.backend]
            why = "; ".join(own) or "kernel not implemented"
        return BackendUnavailableError(
            f"{operation}: {wish.source} asks for {wish.backend!r}, which cannot serve this call ({why}); "
            "use another backend or 'auto'"
        )
    reasons = "; ".join(f"{arm.name}: {refused}" for arm, refused, _ in rows)
    if any(is_memory_refusal(refused) for _, refused, _ in rows):
        return OutOfMemoryError(f"{operation}: no arm fits into memory ({reasons}); use smaller arrays or free memory")
    return BackendUnavailableError(
        f"{operation}: no backend can serve dtype {request.call.dtype!r} here ({reasons or 'none has a kernel'}); "
        "install another backend or convert the operands"
    )


def build_candidates(
    request: Request, rows: list[tuple[Arm, str | None, int]], choice: Choice
) -> tuple[Candidate, ...]:
    """Every arm as a row, cheapest first, the refused ones after them, then backends without any arm."""
    judged = {row.option.arm: row for row in choice.candidates}
    possible, refused = [], []
    for arm, why, need in rows:
        if why is not None:
            refused.append(Candidate(arm.name, arm.backend, arm.device, refused=why, memory=need))
            continue
        row = judged[arm.name]
        estimate = row.estimate
        possible.append(
            Candidate(
                arm.name,
                arm.backend,
                arm.device,
                seconds=estimate.seconds,
                low=estimate.low,
                high=estimate.high,
                transfer=row.option.transfer,
                compile=row.compile,
                total=row.total,
                memory=need,
                samples=estimate.samples,
                source=estimate.source,
            )
        )
    possible.sort(key=lambda row: row.total)
    return (*possible, *refused, *refusals(request.call.operation))
