"""Workloads that users describe, without arrays: the times they report, and decisions by them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from functools import partial

from hpfracc._config import BACKENDS, Settings
from hpfracc._interrupts import Guarded
from hpfracc.engine.backends import registry
from hpfracc.engine.primitives import OWN_PRIMITIVES, PRIMITIVES
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.costs import CostModel
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Candidate, Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import HOST_PLACEMENT, Preference, Request, refusal_reason
from hpfracc.engine.workload import OPERATION_PRIMITIVES, OTHER, WorkloadCharacteristics, bucket_of
from hpfracc.errors import BackendUnavailableError

#: Number of reports that can be withdrawn.
_MAX_REPORTS = 10_000


class BackendTimes(Guarded):
    """Reports by operation and backend, shared by all selectors of the process. Thread-safe.

    They are used for operations without a primitive. A selector can withdraw its own reports.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Owner, operation, backend, size and seconds (inf for a failure).
        self._reports: deque[tuple[int, str, str, int, float]] = deque(maxlen=_MAX_REPORTS)
        self._costs = CostModel()
        #: Changes with every report, and when reports are withdrawn.
        self.version = 0

    def add(self, operation: str, backend: str, size: int, owner: int, seconds: float) -> None:
        """Add a time in seconds (``inf`` for a failure), and the selector it was reported to."""
        with self._lock:
            self._reports.append((owner, operation, backend, size, seconds))
            self._learn(operation, backend, size, seconds)
            self.version += 1

    def _learn(self, operation: str, backend: str, size: int, seconds: float) -> None:
        kind = "failed" if seconds == math.inf else "done"
        self._costs.observe((operation, backend, kind), bucket_of(1, size), size, 0.0 if kind == "failed" else seconds)

    def estimate(self, workload: WorkloadCharacteristics, backend: str) -> float:
        """Predicted seconds, from workloads of this size or scaled from other ones; ``nan`` without reports.

        ``inf`` for a backend that failed in at least half of the last reports for this size.
        """
        size, key = workload.data_size, (workload.operation_type, backend)
        done, failed = (
            self._costs.estimate((*key, kind), workload.bucket_of_size, size) for kind in ("done", "failed")
        )
        return math.inf if failed.source != "none" and failed.samples >= done.samples else done.seconds

    def forget(self, owner: int) -> None:
        """Withdraw the reports of ``owner``."""
        with self._lock:
            kept = [report for report in self._reports if report[0] != owner]
            self.clear()
            for report in kept:
                self.add(*report[1:4], report[0], report[4])

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._reports.clear()
            self._costs = CostModel()
            self.version += 1


#: The reports of this process.
backend_times = BackendTimes()


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
    reported = {name: backend_times.estimate(workload, name) for name in BACKENDS}
    return _with_reports(decision, reported, settings)


def _by_arms(
    primitive: Primitive, workload: WorkloadCharacteristics, settings: Settings, preference: Preference | None
) -> Decision:
    shape = workload.data_shape
    if not shape or math.prod(shape) != workload.data_size:
        shape = (workload.batch, workload.length) if workload.batch > 1 else (workload.length,)
    sizes, usual = (_INTS, "int64") if primitive.name == "bitwise_xor" else (_FLOATS, "float64")
    arrays, params = primitive.example(shape, sizes.get(workload.dtype_size, usual))
    request = Request(
        primitive=primitive,
        call=primitive.describe(*arrays, **params),
        placement=HOST_PLACEMENT,
        settings=settings,
        shapes=(tuple((array.dtype, array.shape) for array in arrays), tuple(params.items())),
        preference=preference,
        needs_gradient=workload.requires_gradient,
    )
    return decide(request, knowledge_for(settings), frozen=True, explore=False).decision


def _with_reports(decision: Decision, reported: dict[str, float], settings: Settings) -> Decision:
    """The decision with the times that users reported: for a backend they replace the engine's predictions."""
    if all(map(math.isnan, reported.values())):
        return decision
    best: dict[str, tuple[float, Candidate]] = {}
    for row in decision.candidates:
        if row.refused is None:
            told = reported.get(row.backend, math.nan)
            seconds = row.total if math.isnan(told) else told
            seconds = math.inf if math.isnan(seconds) else seconds  # an unknown arm is not the fastest
            if row.backend not in best or seconds < best[row.backend][0]:
                best[row.backend] = seconds, row
    least, row = min(best.values(), key=lambda pair: pair[0])
    if best[decision.backend][0] <= least / (1.0 - settings.performance_threshold):
        return decision
    algorithm, reason = row.arm.partition(":")[2].partition("@")[0], f"reported times make {row.backend} the fastest"
    return replace(decision, arm=row.arm, backend=row.backend, device=row.device, algorithm=algorithm, reason=reason)


def _between_backends(workload: WorkloadCharacteristics, settings: Settings, preference: Preference | None) -> Decision:
    operation = workload.operation_type
    rows = [_row(name, workload, settings, preference) for name in BACKENDS]
    possible = [row for row in rows if row.refused is None]
    if not possible:
        reasons = "; ".join(f"{row.backend}: {row.refused}" for row in rows)
        asked = "" if preference is None else f"{preference.source} asks for {preference.backend!r}, but "
        raise BackendUnavailableError(f"{operation}: {asked}no backend can serve it ({reasons}); use another or 'auto'")
    # The fastest of those that are known; otherwise the first that did not fail.
    best = min(possible, key=lambda row: row.total if math.isfinite(row.total) else math.inf)
    reason = "it is the fastest by reported times"
    if not math.isfinite(best.total):
        best = next((row for row in possible if math.isnan(row.total)), best)
        reason = "nothing was reported yet; it is the first that can run it"
    wish = None if preference is None else preference.source
    taken = operation, best.arm, best.backend, best.device, "any", reason if wish is None else f"{wish} asks for it"
    work = workload.data_shape, f"{workload.dtype_size} bytes", workload.bucket, "host"
    return Decision(*taken, *work, wish=wish, rows=partial(tuple, rows))


def _row(name: str, workload: WorkloadCharacteristics, settings: Settings, preference: Preference | None) -> Candidate:
    refused = registry.unavailable(name)
    if refused is None and preference is not None and name != preference.backend:
        refused = f"{preference.source} asks for {preference.backend}"
    refused = refused or refusal_reason(workload.operation_type, name, settings)
    if refused is None and workload.requires_gradient and name not in _GRADIENT:
        refused = "it carries no gradient"
    seconds = backend_times.estimate(workload, name)
    source = "none" if math.isnan(seconds) else "samples"
    return Candidate(arm=name, backend=name, refused=refused, seconds=seconds, total=seconds, source=source)
