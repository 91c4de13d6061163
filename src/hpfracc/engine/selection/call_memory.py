"""The memory of a call: bytes from shapes by the kernel's model, corrected by measured peaks, against what is free.

A kernel's model holds within a factor of 2. So the measured peak of a call is kept beside its prediction, and
predictions for calls of that kind and about that size are multiplied by the largest of the recent ratios: predicting
too much costs another chunk, predicting too little costs the call.

A peak is measured without resetting counters: the system tracks a process's high-water mark, and a library that of its
pool. If a call leaves a new mark, it is the peak of that call; otherwise the peak is unknown and not recorded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from hpfracc._arrays import file_mapping
from hpfracc._config import Settings
from hpfracc._interrupts import Guarded
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.memory.budget import HOST, fits, get_budget
from hpfracc.engine.memory.host import resident_bytes
from hpfracc.engine.primitives.base import Call, Primitive
from hpfracc.engine.selection.knowledge import CircuitBreaker
from hpfracc.engine.selection.request import Request
from hpfracc.engine.workload import Bucket

#: Calls below this are not measured: other allocations of the process are as large.
MIN_BYTES = 16 * 2**20
#: Number of ratios kept for each kind and size of call.
_KEPT = 16
#: Corrections outside this range are disturbances, not model errors.
_LOWEST, _HIGHEST = 0.25, 8.0

#: Operation, kernel, device, and dtype with variant: calls whose predictions have about the same relative error.
ForecastKind = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """How well the peak of one kind of call was predicted.

    Attributes
    ----------
    operation, kernel, device, kind : str
        The call and where it ran; ``kind`` is dtype and variant.
    samples : int
        Number of calls whose peak is known.
    predicted, actual : int
        Bytes of the last of them; ``predicted`` by the model alone.
    error : float
        Median of ``|predicted / actual - 1|`` of the model alone.
    corrected_error : float
        The same, with the correction in force at each call.
    correction : float
        The current factor for the model's prediction.
    """

    operation: str
    kernel: str
    device: str
    kind: str
    samples: int
    predicted: int
    actual: int
    error: float
    corrected_error: float
    correction: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(slots=True)
class _Record:
    """The measurements of one kind of call."""

    #: Ratios of measured to predicted bytes, by size.
    ratios: dict[Bucket, deque[float]] = field(default_factory=dict)
    #: Errors of the model alone, and with the correction in force.
    errors: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    samples: int = 0
    last: tuple[int, int, Bucket] = (0, 0, (0, 0))

    def correction(self, bucket: Bucket) -> float:
        """The correction for this size; a size that was never measured is only corrected upwards."""
        worst = max(self.ratios.get(bucket) or (1.0, *map(max, self.ratios.values())))
        return min(_HIGHEST, max(_LOWEST, worst))


class Forecasts(Guarded):
    """Predictions and measured peaks by kind of call; thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[ForecastKind, _Record] = {}

    @property
    def measured(self) -> bool:
        """Whether any peak was measured."""
        return bool(self._records)

    def correction(self, kind: ForecastKind, bucket: Bucket) -> float:
        """The factor for predictions of this kind and size; 1 if nothing was measured."""
        with self._lock:
            return self._records[kind].correction(bucket) if kind in self._records else 1.0

    def observe(self, kind: ForecastKind, bucket: Bucket, predicted: int, actual: int) -> None:
        """Record the measured peak of a call; ``predicted`` is the model's uncorrected prediction."""
        if predicted < MIN_BYTES or actual <= 0:
            return
        with self._lock:
            record = self._records.setdefault(kind, _Record())
            ratio = predicted / actual
            record.errors.append((abs(ratio - 1), abs(record.correction(bucket) * ratio - 1)))
            record.samples += 1
            record.last = (predicted, actual, bucket)
            record.ratios.setdefault(bucket, deque(maxlen=_KEPT)).append(actual / predicted)

    def rows(self) -> list[ForecastRow]:
        """One row for every kind of call with a known peak."""
        from statistics import median  # takes 10 ms to import, and only reports need it

        rows = []
        with self._lock:
            for kind, record in self._records.items():
                error, corrected = (median(errors) for errors in zip(*record.errors, strict=True))
                predicted, actual, bucket = record.last
                correction = record.correction(bucket)
                rows.append(ForecastRow(*kind, record.samples, predicted, actual, error, corrected, correction))
        return rows

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._records.clear()


#: The forecasts of this process.
forecasts = Forecasts()


def modelled_bytes(primitive: Primitive, call: Call, arm: Arm) -> int:
    """Bytes of operands, result and workspace, by the kernel's model; on a GPU with cuFFT's work area."""
    spec, algorithm = arm.spec, arm.algorithm
    model = spec.memory if arm.on_host or spec.gpu_memory is None else spec.gpu_memory
    elements = primitive.block_elements(call, algorithm) if model.block else 0
    taken = model.bytes(primitive.workspace(call, algorithm), elements, arm.workers)
    transform = None if arm.on_host else primitive.transform(call, algorithm)
    if transform is not None:
        from hpfracc.engine.backends.cuda import work_bytes

        taken += work_bytes(transform)
    return call.input_bytes + call.output_bytes + taken


def _kind(call: Call, arm: Arm) -> ForecastKind:
    kind = f"{call.dtype} {call.facts.get('kind', '')}".rstrip()
    return call.operation, f"{arm.backend}:{arm.algorithm}", "cpu" if arm.on_host else "cuda", kind


def predicted_bytes(primitive: Primitive, call: Call, arm: Arm) -> int:
    """Modelled bytes, corrected by the measured peaks of earlier calls of this kind."""
    need = modelled_bytes(primitive, call, arm)
    return int(need * forecasts.correction(_kind(call, arm), call.bucket)) if forecasts.measured else need


def fresh_bytes(request: Request, arm: Arm, need: int) -> int:
    """The part of ``need`` that is not allocated yet: all but the operands if they are in the arm's memory."""
    call = request.call
    return max(call.output_bytes, need - call.input_bytes) if arm.device == request.placement.device else need


#: Calls that need less are not checked against free memory.
NEGLIGIBLE_BYTES = 2**20
#: Fraction of the host's free memory that one call may use.
HOST_SHARE = 0.9


def memory_place(arm: Arm) -> str:
    """Key of a byte ceiling: the device for all its arms; on the host the arm, because another may need less."""
    return arm.name if arm.on_host else arm.device


def is_memory_refusal(refused: str | None) -> bool:
    """Whether an arm was refused only for lack of memory."""
    return refused is not None and refused.startswith("needs ")


def memory_share(settings: Settings, arm: Arm) -> float:
    """Fraction of the free memory that one call may use."""
    return HOST_SHARE if arm.on_host else settings.gpu_memory_limit


def memory_refusal(request: Request, arm: Arm, need: int, breaker: CircuitBreaker) -> str | None:
    """The reason why there is no memory for the ``need`` bytes of the request on ``arm`` now, or None."""
    if request.ignore_memory:
        return None
    ceiling = breaker.ceiling(memory_place(arm))
    if ceiling is not None and need >= ceiling:
        return f"needs {_mib(need)}; {_mib(ceiling)} ran out of memory a short while ago"
    if request.limit is not None and need > request.limit:
        return f"needs {_mib(need)}; it may take {_mib(request.limit)}"
    # The import of a requested library happens in any case.
    imports = arm.on_host and request.preference is None and not registry.is_loaded(arm.backend)
    starting = registry.declaration(arm.backend).import_bytes if imports else 0
    if need + starting < NEGLIGIBLE_BYTES:
        return None
    budget, share, fresh = get_budget(), memory_share(request.settings, arm), fresh_bytes(request, arm, need)
    free = budget.free(arm.device, None if arm.on_host else arm.backend)
    if free is not None and arm.device == request.placement.device:
        free = max(0, free - request.reserved)
    have = f"{_mib(free or 0)} are free on {arm.device}"
    if not fits(fresh, free, share):
        return f"needs {_mib(fresh)}; {share:.0%} of {have}"
    if starting and not fits(fresh + starting, free, share):
        # A smaller call would need the same, so chunks would not help.
        return f"importing its library would take {_mib(starting)} to start; {have}"
    if not arm.on_host and request.placement.device == HOST:
        result, free = request.call.output_bytes, budget.free(HOST)
        if not fits(result, free, HOST_SHARE):
            return f"needs {_mib(result)} for its result; {HOST_SHARE:.0%} of {_mib(free or 0)} are free on {HOST}"
    return None


def _mib(size: int) -> str:
    return f"{size / 2**20:,.3g} MiB"


#: Minimum size of measured calls on the host, where all other activity of the process is included.
_MIN_ON_HOST = 4 * MIN_BYTES
#: Smaller arrays may come from the heap, which keeps what was freed, so that they raise no mark. Larger ones are never
#: allocated from glibc's (DEFAULT_MMAP_THRESHOLD_MAX).
_HEAP_ARRAY = 2**25


def read_marks(request: Request, arm: Arm, arrays: tuple[Any, ...]) -> tuple[int, int] | None:
    """Bytes in use before a call, and the peak so far; None if the call cannot be measured."""
    need = modelled_bytes(request.primitive, request.call, arm)
    if need < (_MIN_ON_HOST if arm.on_host else MIN_BYTES):
        return None
    # JAX frees memory some time after a call, in its own threads; memory from the heap is not measured; and pages of a
    # mapped file become resident while a call reads them, although its operands are not allocated by it.
    if arm.on_host and (
        arm.backend == "jax"
        or request.call.output_bytes <= _HEAP_ARRAY
        or any(file_mapping(array) is not None for array in arrays)
    ):
        return None
    return _read(arm)


def _read(arm: Arm) -> tuple[int, int] | None:
    found = resident_bytes() if arm.on_host else registry.adapter(arm.backend).memory(arm.device)
    return None if found is None or found[1] is None else (found[0], found[1])


def record_peak(request: Request, arm: Arm, before: tuple[int, int]) -> None:
    """Record the peak of a call that left a new high-water mark."""
    after = _read(arm)
    if after is None or after[1] <= before[1]:
        return
    taken = after[1] - before[0]
    if arm.device == request.placement.device:
        taken += request.call.input_bytes
    need = modelled_bytes(request.primitive, request.call, arm)
    forecasts.observe(_kind(request.call, arm), request.call.bucket, need, taken)
