"""Workloads that users describe, without arrays: the times they report, and decisions by them."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import replace
from functools import partial

from hpfracc._config import Settings
from hpfracc._environment import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.locks import Guarded
from hpfracc.engine.primitives import OWN_PRIMITIVES, PRIMITIVES
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Candidate, Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.request import HOST_PLACEMENT, Preference, Request, refusal_reason
from hpfracc.engine.workload import OPERATION_PRIMITIVES, OTHER, Bucket, WorkloadCharacteristics
from hpfracc.errors import BackendUnavailableError

__all__ = ["BackendTimes", "backend_times", "operation_name", "route"]

#: Number of reports per operation, backend and bucket, as for samples of an arm.
_KEPT_TIMES = 32


class BackendTimes(Guarded):
    """Reports by (operation, backend, bucket), shared by all selectors of the process. Thread-safe.

    They are used for operations without a primitive. A selector can withdraw its own reports.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reports: dict[tuple[str, str], dict[Bucket, deque[tuple[int, float]]]] = defaultdict(dict)
        #: Changes with every report, and when reports are withdrawn.
        self.version = 0

    def add(self, operation: str, backend: str, bucket: Bucket, owner: int, seconds: float) -> None:
        """Add a time in seconds (``inf`` for a failure), and the selector it was reported to."""
        with self._lock:
            ring = self._reports[operation, backend].setdefault(bucket, deque(maxlen=_KEPT_TIMES))
            ring.append((owner, seconds))
            self.version += 1

    def estimate(self, operation: str, backend: str, bucket: Bucket) -> float:
        """Predicted seconds, from this bucket or scaled from the nearest one; ``nan`` without reports.

        ``inf`` for a backend that failed in at least half of the reports.
        """
        with self._lock:
            known = {place: list(ring) for place, ring in self._reports.get((operation, backend), {}).items() if ring}
        if not known:
            return math.nan
        place = min(known, key=lambda other: (abs(_size(other) - _size(bucket)), other))
        seconds = sorted(time for _, time in known[place])
        good = [value for value in seconds if math.isfinite(value)]
        if 2 * len(good) <= len(seconds):
            return math.inf
        low = good[len(good) // 4]
        mean = sum(good) / len(good)
        level = mean if mean > 2.0 * low else low  # an intermittent cost is still a cost
        # Time is assumed proportional to the size.
        return float(level * 2.0 ** (_size(bucket) - _size(place)))

    def estimate_for(self, workload: WorkloadCharacteristics, backend: str) -> float:
        """The same for a workload, whose batch shape reports do not include."""
        return self.estimate(workload.operation_type, backend, workload.bucket_of_size)

    def forget(self, owner: int) -> None:
        """Withdraw the reports of ``owner``."""
        with self._lock:
            for places in self._reports.values():
                for place, ring in places.items():
                    places[place] = deque((each for each in ring if each[0] != owner), maxlen=_KEPT_TIMES)
            self.version += 1

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._reports.clear()
            self.version += 1


def _size(bucket: Bucket) -> int:
    return bucket[0] + bucket[1]


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
    reported = {name: backend_times.estimate_for(workload, name) for name in BACKENDS}
    reported = {name: seconds for name, seconds in reported.items() if not math.isnan(seconds)}
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
    seconds = backend_times.estimate_for(workload, name)
    source = "none" if math.isnan(seconds) else "samples"
    return Candidate(arm=name, backend=name, refused=refused, seconds=seconds, total=seconds, source=source)
