"""The arms that can run a call; for every other arm, the reason why it cannot."""

from __future__ import annotations

from collections.abc import Iterator

from hpfracc._config import Settings
from hpfracc._environment import BACKENDS
from hpfracc.engine.backends import cufft, registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.budget import HOST, fits, get_budget, relief
from hpfracc.engine.memory.forecast import ForecastKind, forecasts
from hpfracc.engine.memory.host import thread_bytes
from hpfracc.engine.primitives.base import Call, Primitive
from hpfracc.engine.selection.breaker import CircuitBreaker
from hpfracc.engine.selection.decision import Candidate
from hpfracc.engine.selection.request import Placement, Request, refusal_reason
from hpfracc.engine.workers import started_workers

__all__ = [
    "HOST_SHARE",
    "NEGLIGIBLE_BYTES",
    "Request",
    "forecast_kind",
    "fresh_bytes",
    "is_memory_refusal",
    "masked",
    "memory_place",
    "memory_refusal",
    "memory_share",
    "modelled_bytes",
    "predicted_bytes",
    "refusals",
    "starting_bytes",
    "stays_put",
]


def modelled_bytes(primitive: Primitive, call: Call, arm: Arm) -> int:
    """Bytes of operands, result and workspace, by the kernel's model; on a GPU with cuFFT's work area."""
    spec, algorithm = arm.spec, arm.algorithm
    model = spec.memory if arm.on_host or spec.gpu_memory is None else spec.gpu_memory
    elements = primitive.block_elements(call, algorithm) if model.block else 0
    taken = model.bytes(primitive.workspace(call, algorithm), elements, arm.workers)
    size = call.input_bytes + call.output_bytes + taken
    transform = None if arm.on_host else primitive.transform(call, algorithm)
    return size if transform is None else size + cufft.work_bytes(transform)


def forecast_kind(call: Call, arm: Arm) -> ForecastKind:
    """Key of calls whose memory predictions have about the same relative error."""
    variant = call.facts.get("kind", "")
    kind = f"{call.dtype} {variant}" if variant else call.dtype
    return call.operation, f"{arm.backend}:{arm.algorithm}", "cpu" if arm.on_host else "cuda", kind


def predicted_bytes(primitive: Primitive, call: Call, arm: Arm) -> int:
    """Modelled bytes, corrected by the measured peaks of earlier calls of this kind."""
    need = modelled_bytes(primitive, call, arm)
    if not forecasts.measured:
        return need
    factor = forecasts.correction(forecast_kind(call, arm), call.bucket)
    return need if factor == 1.0 else int(need * factor)


def starting_bytes(arm: Arm, requested: bool) -> int:
    """Host memory that an arm takes before its first call: importing its library, and starting threads.

    The import of a requested library is not counted, because it happens in any case. Thread stacks count only under a
    ``ulimit`` of the process, which they use up in full.
    """
    library = 0 if requested or registry.is_loaded(arm.backend) else registry.adapter(arm.backend).import_bytes
    missing = arm.workers - 1 - started_workers()
    return library + (missing * thread_bytes() if missing > 0 else 0)


def fresh_bytes(need: int, call: Call, stays: bool) -> int:
    """The part of ``need`` that is not allocated yet: all but the operands if they ``stay``."""
    return max(call.output_bytes, need - call.input_bytes) if stays else need


#: Calls that need less are not checked against free memory.
NEGLIGIBLE_BYTES = 2**20
#: Fraction of the host's free memory that one call may use.
HOST_SHARE = 0.9


def masked(
    request: Request, breaker: CircuitBreaker, *, disturb: bool = False
) -> Iterator[tuple[Arm, str | None, int]]:
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
    if request.kernel is not None and f"{arm.backend}:{arm.algorithm}" != request.kernel:
        return f"the rest of this batch runs on {request.kernel}"
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
    free = request.preference is None and not request.needs_gradient
    if spec.own_arrays and free and placement.library != arm.backend:
        return f"its last digits are not those of {placement.library}; backend={arm.backend!r} asks for it"
    if call.dtype not in spec.dtypes:
        return f"dtype {call.dtype} is not served"
    pinned = _pin_refusal(placement, arm)
    if pinned is not None:
        return pinned
    if (placement.gradient or request.needs_gradient) and not spec.differentiable:
        return "its kernel cannot be differentiated"
    if spec.refuses is not None:
        refused = spec.refuses(call)
        if refused is not None:
            return refused
    if arm.name in request.tried:
        return "failed in this call"
    return (
        breaker.masked((call.operation, arm.name, call.dtype, placement.start))
        or (None if disturb else breaker.allows((call.operation, arm.name)))
        or _memory_refusal(request, arm, need, breaker)
    )


def _pin_refusal(placement: Placement, arm: Arm) -> str | None:
    if placement.pinned is None:
        return None
    if arm.backend != placement.library:
        return placement.pinned
    if arm.device != placement.device:
        return f"the operands live on {'the host' if placement.device == 'cpu' else placement.device}"
    return None


def memory_place(arm: Arm) -> str:
    """Key of a byte ceiling: the device for all its arms; on the host the arm, because another may need less."""
    return arm.name if arm.on_host else arm.device


def is_memory_refusal(refused: str | None) -> bool:
    """Whether an arm was refused only for lack of memory."""
    return refused is not None and refused.startswith("needs ")


def memory_share(settings: Settings, arm: Arm) -> float:
    """Fraction of the free memory that one call may use."""
    return HOST_SHARE if arm.on_host else settings.gpu_memory_limit


def stays_put(placement: Placement, arm: Arm) -> bool:
    """Whether the operands are already in the arm's memory."""
    return arm.device == placement.device


def memory_refusal(request: Request, arm: Arm, breaker: CircuitBreaker) -> str | None:
    """The reason why there is no memory for the request on ``arm`` now, or None."""
    return _memory_refusal(request, arm, predicted_bytes(request.primitive, request.call, arm), breaker)


def _memory_refusal(request: Request, arm: Arm, need: int, breaker: CircuitBreaker) -> str | None:
    if request.ignore_memory:
        return None
    ceiling = breaker.ceiling(memory_place(arm))
    if ceiling is not None and need >= ceiling:
        return f"needs {_mib(need)}; {_mib(ceiling)} ran out of memory a short while ago"
    if request.limit is not None and need > request.limit:
        return f"needs {_mib(need)}; it may take {_mib(request.limit)}"
    starting = starting_bytes(arm, request.preference is not None) if arm.on_host else 0
    if need + starting < NEGLIGIBLE_BYTES:
        return None
    avoided = None if arm.on_host else relief.avoids(arm.device)
    if avoided is not None and not stays_put(request.placement, arm):
        return f"needs {_mib(need)}; {avoided}"
    budget, share = get_budget(), memory_share(request.settings, arm)
    fresh = fresh_bytes(need, request.call, stays_put(request.placement, arm))
    free = budget.free(arm.device, None if arm.on_host else arm.backend)
    if free is not None and request.reserved and stays_put(request.placement, arm):
        free = max(0, free - request.reserved)
    if not fits(fresh, free, share):
        return f"needs {_mib(fresh)}; {share:.0%} of {_mib(free or 0)} are free on {arm.device}"
    if starting and not fits(fresh + starting, free, share):
        # A smaller call would need the same, so chunks would not help.
        return (
            f"its threads or library would take {_mib(starting)} to start; {_mib(free or 0)} are free on {arm.device}"
        )
    if not arm.on_host and request.placement.device == HOST:
        free = budget.free(HOST)
        if not fits(request.call.output_bytes, free, HOST_SHARE):
            back = _mib(request.call.output_bytes)
            return f"needs {back} for its result; {HOST_SHARE:.0%} of {_mib(free or 0)} are free on {HOST}"
    return None


def _mib(size: int) -> str:
    return f"{size / 2**20:,.3g} MiB"
