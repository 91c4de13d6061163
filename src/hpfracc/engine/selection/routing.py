"""From a workload to a decision: through the arms of a primitive, or between backends where none stands for it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from hpfracc._config import Settings
from hpfracc._environment import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.primitives import OWN_PRIMITIVES, PRIMITIVES
from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.selection.backend_times import backend_times
from hpfracc.engine.selection.candidates import Request
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Candidate, Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.placement import HOST
from hpfracc.engine.selection.wish import Wish
from hpfracc.engine.workload import OPERATION_PRIMITIVES, OTHER, WorkloadCharacteristics
from hpfracc.errors import BackendUnavailableError

__all__ = ["operation_name", "route"]

_FLOATS = {2: "float32", 4: "float32", 8: "float64", 16: "complex128"}
_INTS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
#: Backends that can carry a gradient through work of any kind.
_GRADIENT = ("torch", "jax")


def operation_name(workload: WorkloadCharacteristics) -> str:
    """The primitive or entry that decides for a workload; a name nobody registered counts as ``"other"``."""
    named = workload.operation_type
    if named in PRIMITIVES or named in OWN_PRIMITIVES:
        return named
    return OPERATION_PRIMITIVES.get(named, OTHER) or named


def route(workload: WorkloadCharacteristics, settings: Settings, wish: Wish | None) -> Decision:
    """The decision for ``workload``, which is not run."""
    name = operation_name(workload)
    primitive = PRIMITIVES.get(name) or OWN_PRIMITIVES.get(name)
    if primitive is None:
        return _between_backends(workload, settings, wish)
    decision = _by_arms(primitive, workload, settings, wish)
    reported = {
        name: seconds
        for name in BACKENDS
        if not math.isnan(seconds := backend_times.estimate(workload.operation_type, name, workload.bucket_of_size))
    }
    return decision if not reported else _with_reports(decision, reported, settings)


def _by_arms(
    primitive: Primitive, workload: WorkloadCharacteristics, settings: Settings, wish: Wish | None
) -> Decision:
    arrays, params = primitive.example(_shape(workload), _dtype(primitive, workload))
    request = Request(
        primitive=primitive,
        call=primitive.describe(*arrays, **params),
        placement=HOST,
        settings=settings,
        signature=(tuple((array.dtype, array.ndim) for array in arrays), tuple(params.items())),
        shapes=(tuple((array.dtype, array.shape) for array in arrays), tuple(params.items())),
        wish=wish,
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
    """The decision after users' own times: those of a backend replace what the engine predicts for it."""
    totals: dict[str, float] = {}
    for row in decision.candidates:
        if row.refused is None:
            seconds = reported.get(row.backend, row.total)
            seconds = math.inf if math.isnan(seconds) else seconds  # what nobody knows is not the fastest
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


def _between_backends(workload: WorkloadCharacteristics, settings: Settings, wish: Wish | None) -> Decision:
    operation = workload.operation_type
    rows = [_row(name, workload, settings, wish) for name in BACKENDS]
    possible = [row for row in rows if row.refused is None]
    if not possible:
        reasons = "; ".join(f"{row.backend}: {row.refused}" for row in rows)
        asked = "" if wish is None else f"{wish.source} asks for {wish.backend!r}, but "
        raise BackendUnavailableError(f"{operation}: {asked}no backend can serve it ({reasons}); use another or 'auto'")
    known = [row for row in possible if math.isfinite(row.total)]
    untried = [row for row in possible if math.isnan(row.total)]
    if known:
        best = min(known, key=lambda row: row.total)
        reason = "the fastest of those that were reported"
    else:
        best = (untried or possible)[0]
        reason = "nothing was reported yet; the first that can serve it"
    if wish is not None:
        reason = f"{wish.source} asks for it"
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
        wish=None if wish is None else wish.source,
        rows=partial(tuple, rows),
    )


def _row(name: str, workload: WorkloadCharacteristics, settings: Settings, wish: Wish | None) -> Candidate:
    refused = registry.unavailable(name)
    if refused is None and wish is not None and name != wish.backend:
        refused = f"{wish.source} asks for {wish.backend}"
    if refused is None and name in settings.disabled:
        refused = f"disabled by HPFRACC_DISABLE_{name.upper()}"
    if refused is None and name in settings.never.get(workload.operation_type, ()):
        refused = f"config(never=...) rules it out for {workload.operation_type}"
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
