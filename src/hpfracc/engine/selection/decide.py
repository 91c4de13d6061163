"""Decisions: mask the arms, predict their costs, and choose; or raise an error if no arm is left."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial

from hpfracc._config import Settings
from hpfracc._environment import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.primitives import OWN_PRIMITIVES, PRIMITIVES
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.candidates import is_memory_refusal, masked, refusals
from hpfracc.engine.selection.costs import Option
from hpfracc.engine.selection.decision import Candidate, Decision
from hpfracc.engine.selection.knowledge import Knowledge, knowledge_for
from hpfracc.engine.selection.policy import Choice
from hpfracc.engine.selection.reports import backend_times
from hpfracc.engine.selection.request import HOST_PLACEMENT, Preference, Request, preference_error, refusal_reason
from hpfracc.engine.workload import OPERATION_PRIMITIVES, OTHER, WorkloadCharacteristics
from hpfracc.errors import BackendUnavailableError, ConfigurationError, OutOfMemoryError, PinnedBackendError
from hpfracc.profiling.clocks import energy_counters

__all__ = ["MIN_SAVED", "WORTH_CUTTING", "Selection", "decide", "operation_name", "route"]

logger = logging.getLogger("hpfracc.engine")


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen arm with its decision, the calls until the next review, and the predicted seconds of one call.

    ``rival`` is the predicted time of the fastest arm that was refused only for lack of memory; inf if there is none.
    ``in_chunks`` is the reason to run the call in chunks, if that arm is much faster.
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
        """Predicted time over that of the ``rival``; 0 if there is none, or it is unknown."""
        ratio = self.expected / max(self.rival, 1e-9)
        return ratio if ratio == ratio else 0.0


#: An arm without enough memory is used in chunks if it is faster than the best other one by this factor, and by these
#: seconds.
WORTH_CUTTING, MIN_SAVED = 4.0, 0.05


def decide(request: Request, knowledge: Knowledge, *, frozen: bool = False) -> Selection:
    """Choose an arm for ``request``.

    Parameters
    ----------
    request : Request
        The request.
    knowledge : Knowledge
        Costs and failures so far.
    frozen : bool
        Whether to store nothing about this decision, and not to explore.

    Raises
    ------
    PinnedBackendError, BackendUnavailableError, OutOfMemoryError
        If no arm is left, with the reason for each.
    ConfigurationError
        If energy is minimised, and the power of no arm was measured.
    """
    settings, call, preference = request.settings, request.call, request.preference
    rows = list(masked(request, knowledge.breaker))
    arms = {arm.name: arm for arm, refused, _ in rows if refused is None}
    if not arms:
        # Use an arm that has just failed rather than none: the failure may have been due to the data.
        rows = list(masked(request, knowledge.breaker, disturb=True))
        arms = {arm.name: arm for arm, refused, _ in rows if refused is None}
    if not arms:
        raise _nothing_left(request, rows)
    if settings.objective == "energy":
        rows = _with_power(request, knowledge, rows)
        arms = {arm.name: arm for arm, refused, _ in rows if refused is None}
    options = [knowledge.option(request, arm) for arm in arms.values()]
    if settings.objective == "energy":
        options = [replace(option, watts=knowledge.watts(call.operation, arms[option.arm])) for option in options]
    if settings.deterministic:
        # What is already compiled or imported differs from run to run.
        options = [replace(option, compile_key=None, startup=0.0) for option in options]
    frozen = frozen or settings.deterministic or request.placement.traced
    choice = knowledge.chooser.choose(
        request.slot,
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
        reason=choice.reason if preference is None else f"{preference.source} asks for it; {choice.reason}",
        shape=call.shape,
        dtype=call.dtype,
        bucket=call.bucket,
        start=request.placement.start,
        library=request.placement.library,
        wish=None if preference is None else preference.source,
        rows=partial(build_candidates, request, rows, choice),
        explored=choice.explored,
    )
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s %s %s: %s: %s", call.operation, call.shape, call.dtype, arm, choice.reason)
    rival, in_chunks = _quicker_in_pieces(request, knowledge, rows, choice)
    return Selection(arm, choice.option, decision, choice.review_after, choice.estimate.seconds, rival, in_chunks)


def _with_power(
    request: Request, knowledge: Knowledge, rows: list[tuple[Arm, str | None, int]]
) -> list[tuple[Arm, str | None, int]]:
    """The rows, without arms whose power was not measured; raises an error if none is left."""
    operation = request.call.operation
    unknown = "its power was not measured; run `hpfracc calibrate --energy`"
    found = [
        (arm, refused if refused or knowledge.watts(operation, arm) is not None else unknown, need)
        for arm, refused, need in rows
    ]
    if all(refused is not None for _, refused, _ in found):
        reason = energy_counters()[1]
        raise ConfigurationError(
            f"objective='energy': the power of no arm that can serve {operation} was measured; run `hpfracc calibrate "
            f"--energy`, or use objective='time'" + (f" ({reason})" if reason else "")
        )
    return found


def _quicker_in_pieces(
    request: Request, knowledge: Knowledge, rows: list[tuple[Arm, str | None, int]], choice: Choice
) -> tuple[float, str | None]:
    """The time of the fastest arm without enough memory, and the reason to work in chunks, or None."""
    short = {arm.name: (arm, refused) for arm, refused, _ in rows if is_memory_refusal(refused)}
    if not short or request.placement.gradient or request.placement.traced:
        return math.inf, None
    taken = choice.estimate.seconds
    options = [knowledge.option(request, arm) for arm, _ in short.values()]
    known = [row for row in knowledge.chooser.score(request.call.bucket, options) if row.total == row.total]
    if not known:
        return math.inf, None
    best = min(known, key=lambda row: row.total)
    if not (best.total * WORTH_CUTTING < taken and taken - best.total > MIN_SAVED):
        return best.total, None
    name = best.option.arm
    ratio = taken / max(best.total, 1e-9)
    return best.total, f"{name} {short[name][1]}, and {choice.option.arm} would take {ratio:,.0f} times as long"


def _nothing_left(request: Request, rows: list[tuple[Arm, str | None, int]]) -> Exception:
    """The error for a request that no arm can run."""
    preference, placement, operation = request.preference, request.placement, request.call.operation
    if preference is not None and placement.pinned is not None and preference.backend != placement.library:
        return PinnedBackendError(
            f"{operation}: {preference.source} asks for {preference.backend!r}, but {placement.pinned}; "
            f"use {placement.library!r} or 'auto', or detach and convert the operands first"
        )
    if preference is not None:
        own_rows = [(arm, refused) for arm, refused, _ in rows if arm.backend == preference.backend]
        if any(is_memory_refusal(refused) for _, refused in own_rows):
            short = "; ".join(f"{arm.name}: {refused}" for arm, refused in own_rows)
            return OutOfMemoryError(
                f"{operation}: {preference.source} asks for {preference.backend!r}, which has no room for this call "
                f"({short}); use smaller arrays, free memory, or another backend"
            )
        why = registry.unavailable(preference.backend)
        if why is None:
            own = [f"{arm.name}: {refused}" for arm, refused, _ in rows if arm.backend == preference.backend]
            why = "; ".join(own) or "kernel not implemented"
        return preference_error(operation, preference, why)
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
    """Every arm as a row: the cheapest first, then the refused ones, then backends without an arm."""
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


_FLOATS = {2: "float32", 4: "float32", 8: "float64", 16: "complex128"}
_INTS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
#: Backends that can differentiate any work.
_GRADIENT = ("torch", "jax")


def operation_name(workload: WorkloadCharacteristics) -> str:
    """The primitive for a workload; an unregistered name counts as ``"other"``."""
    named = workload.operation_type
    if named in PRIMITIVES or named in OWN_PRIMITIVES:
        return named
    return OPERATION_PRIMITIVES.get(named, OTHER) or named


def route(workload: WorkloadCharacteristics, settings: Settings, preference: Preference | None) -> Decision:
    """The decision for ``workload``, without running it: between arms, or between backends if no primitive fits."""
    name = operation_name(workload)
    primitive = PRIMITIVES.get(name) or OWN_PRIMITIVES.get(name)
    if primitive is None:
        return _between_backends(workload, settings, preference)
    decision = _by_arms(primitive, workload, settings, preference)
    reported = {
        name: seconds
        for name in BACKENDS
        if not math.isnan(seconds := backend_times.estimate(workload.operation_type, name, workload.bucket_of_size))
    }
    return decision if not reported else _with_reports(decision, reported, settings)


def _by_arms(
    primitive: Primitive, workload: WorkloadCharacteristics, settings: Settings, preference: Preference | None
) -> Decision:
    arrays, params = primitive.example(_shape(workload), _dtype(primitive, workload))
    request = Request(
        primitive=primitive,
        call=primitive.describe(*arrays, **params),
        placement=HOST_PLACEMENT,
        settings=settings,
        signature=(tuple((array.dtype, array.ndim) for array in arrays), tuple(params.items())),
        shapes=(tuple((array.dtype, array.shape) for array in arrays), tuple(params.items())),
        preference=preference,
        needs_gradient=workload.requires_gradient,
    )
    return decide(request, knowledge_for(settings), frozen=True).decision


def _shape(workload: WorkloadCharacteristics) -> tuple[int, ...]:
    if math.prod(workload.data_shape) == workload.data_size and workload.data_shape:
        return workload.data_shape
    return (workload.batch, workload.length) if workload.batch > 1 else (workload.length,)


def _dtype(primitive: Primitive, workload: WorkloadCharacteristics) -> str:
    if primitive.name == "bitwise_xor":
        return _INTS.get(workload.dtype_size, "int64")
    return _FLOATS.get(workload.dtype_size, "float64")


def _with_reports(decision: Decision, reported: dict[str, float], settings: Settings) -> Decision:
    """The decision with the times that users reported: for a backend they replace the engine's predictions."""
    totals: dict[str, float] = {}
    for row in decision.candidates:
        if row.refused is None:
            seconds = reported.get(row.backend, row.total)
            seconds = math.inf if math.isnan(seconds) else seconds  # an unknown arm is not the fastest
            totals[row.backend] = min(seconds, totals.get(row.backend, math.inf))
    best = min(totals, key=lambda name: totals[name])
    if totals[decision.backend] <= totals[best] / (1.0 - settings.performance_threshold):
        return decision
    row = next(row for row in decision.candidates if row.backend == best and row.refused is None)
    return replace(
        decision,
        arm=row.arm,
        backend=best,
        device=row.device,
        algorithm=row.arm.partition(":")[2].partition("@")[0],
        reason=f"reported times make {best} the fastest",
    )


def _between_backends(workload: WorkloadCharacteristics, settings: Settings, preference: Preference | None) -> Decision:
    operation = workload.operation_type
    rows = [_row(name, workload, settings, preference) for name in BACKENDS]
    possible = [row for row in rows if row.refused is None]
    if not possible:
        reasons = "; ".join(f"{row.backend}: {row.refused}" for row in rows)
        asked = "" if preference is None else f"{preference.source} asks for {preference.backend!r}, but "
        raise BackendUnavailableError(f"{operation}: {asked}no backend can serve it ({reasons}); use another or 'auto'")
    known = [row for row in possible if math.isfinite(row.total)]
    untried = [row for row in possible if math.isnan(row.total)]
    if known:
        best = min(known, key=lambda row: row.total)
        reason = "it is the fastest by reported times"
    else:
        best = (untried or possible)[0]
        reason = "nothing was reported yet; it is the first that can run it"
    if preference is not None:
        reason = f"{preference.source} asks for it"
    return Decision(
        operation=operation,
        arm=best.arm,
        backend=best.backend,
        device=best.device,
        algorithm="any",
        reason=reason,
        shape=workload.data_shape,
        dtype=f"{workload.dtype_size} bytes",
        bucket=workload.bucket,
        start="host",
        wish=None if preference is None else preference.source,
        rows=partial(tuple, rows),
    )


def _row(name: str, workload: WorkloadCharacteristics, settings: Settings, preference: Preference | None) -> Candidate:
    refused = registry.unavailable(name)
    if refused is None and preference is not None and name != preference.backend:
        refused = f"{preference.source} asks for {preference.backend}"
    if refused is None:
        refused = refusal_reason(workload.operation_type, name, settings)
    if refused is None and workload.requires_gradient and name not in _GRADIENT:
        refused = "it carries no gradient"
    seconds = backend_times.estimate(workload.operation_type, name, workload.bucket_of_size)
    return Candidate(
        arm=name,
        backend=name,
        refused=refused,
        seconds=seconds,
        total=seconds,
        source="none" if math.isnan(seconds) else "samples",
    )
