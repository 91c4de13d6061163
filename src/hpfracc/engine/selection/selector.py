"""The selector: the engine's decisions for workloads, with a history of reported times."""

from __future__ import annotations

import inspect
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from hpfracc import _config
from hpfracc._config import Settings, check_backend, check_fraction, current_context, get_settings, state, use_backend
from hpfracc._interrupts import Guarded
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.registry import BackendType
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.selection.decision import Decision, Explanation
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.regret import RegretReport, regret_report
from hpfracc.engine.selection.reports import backend_times, operation_name, route
from hpfracc.engine.selection.request import disabled_reason, find_preference
from hpfracc.engine.workload import WorkloadCharacteristics, as_count, as_shape
from hpfracc.errors import AllBackendsFailedError, BackendUnavailableError, InvalidInputError
from hpfracc.profiling.recorder import shared as spans

#: Fraction of the time since an answer that recomputing it may take, because new knowledge may change it.
_REVIEW_SHARE = 0.01
_MAX_ANSWERS = 4096
_ids = itertools.count(1)


#: Maximum number of records in a history; the sums cover all that were ever added.
_MAX_RECORDS = 10_000
_RECENT = 10


@dataclass(frozen=True, slots=True)
class PerformanceRecord:
    """A reported call; ``execution_time`` is in seconds."""

    backend: BackendType
    operation: str
    data_size: int
    execution_time: float
    success: bool


class IntelligentBackendSelector(Guarded):
    """Select a backend for a workload, run functions with fallback, and learn from their times.

    Parameters
    ----------
    enable_learning : bool, optional
        Whether reported times change later choices; by default ``HPFRACC_ENABLE_LEARNING`` or True.
    gpu_memory_limit : float, optional
        Fraction of a device's free memory that a workload may use; by default ``HPFRACC_GPU_MEMORY_LIMIT`` or 0.8.
    performance_threshold : float, optional
        Speed-up for which another backend replaces the current one; 0.1 by default.

    Notes
    -----
    The environment is read when a selector is created. Costs are shared by all selectors of a process; each has its own
    history. All methods are thread-safe.
    """

    def __init__(
        self,
        enable_learning: bool | None = None,
        gpu_memory_limit: float | None = None,
        performance_threshold: float | None = None,
    ) -> None:
        super().__init__()
        _config.refresh_environment()
        own = {
            "enable_learning": enable_learning,
            "gpu_memory_limit": gpu_memory_limit,
            "performance_threshold": performance_threshold,
        }
        self._own = _config.config.check({name: value for name, value in own.items() if value is not None})
        self._records: deque[PerformanceRecord] = deque(maxlen=_MAX_RECORDS)
        #: Seconds, successes and failures.
        self._sums: dict[tuple[BackendType, str], list[float]] = {}
        self._begin()

    def _begin(self) -> None:
        self._id = next(_ids)
        #: The selected backends, the versions of settings and reports, and the time of the next review.
        self._answers: dict[Any, tuple[BackendType, int, int, float]] = {}

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            sums = {key: list(each) for key, each in self._sums.items()}
            return {"_own": self._own, "_records": self._records.copy(), "_sums": sums}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(state)
        self._begin()

    @property
    def settings(self) -> Settings:
        """The settings of this selector: those of the process, overridden by its own arguments."""
        return replace(get_settings(), **self._own)

    @property
    def enable_learning(self) -> bool:
        """Whether reported times change later choices."""
        return self.settings.enable_learning

    @property
    def gpu_memory_limit(self) -> float:
        """Fraction of a device's free memory that a workload may use."""
        return self.settings.gpu_memory_limit

    @property
    def performance_threshold(self) -> float:
        """Speed-up for which another backend replaces the current one."""
        return self.settings.performance_threshold

    def select_backend(self, workload: WorkloadCharacteristics, preferred_backend: Any = None) -> BackendType:
        """The fastest backend for ``workload``.

        Raises
        ------
        BackendUnavailableError
            If ``preferred_backend`` (or ``use_backend``, or ``HPFRACC_FORCE_*``) cannot be satisfied, with the reason.
        """
        try:
            key = (
                workload.operation_type,
                workload.data_size,
                workload.data_shape,
                workload.dtype_size,
                workload.requires_gradient,
                preferred_backend,
                current_context(),
            )
        except AttributeError:
            raise _no_workload(workload) from None
        answer = self._answers.get(key)
        begin = time.perf_counter()
        if answer is not None:
            found, settings, reports, review_at = answer
            if begin < review_at and settings == state.version and reports == backend_times.version:
                return found
        versions = get_settings().version, backend_times.version  # read first: a later change invalidates it
        backend = BackendType(self._decide(workload, preferred_backend).backend)
        end = time.perf_counter()
        if len(self._answers) >= _MAX_ANSWERS:
            self._answers.clear()
        self._answers[key] = backend, *versions, end + (end - begin) / _REVIEW_SHARE
        return backend

    def _decide(self, workload: WorkloadCharacteristics, preferred: Any = None) -> Decision:
        if not isinstance(workload, WorkloadCharacteristics):
            raise _no_workload(workload)
        operation, settings, context = operation_name(workload), self.settings, current_context().backend
        return route(workload, settings, find_preference(operation, settings, context=context, preferred=preferred))

    def explain(self, workload: WorkloadCharacteristics, preferred_backend: Any = None) -> Explanation:
        """Every arm with its predicted time, interval, transfer, compile time, memory and samples, or why not."""
        return Explanation([self._decide(workload, preferred_backend)])

    def predict_performance(self, workload: WorkloadCharacteristics) -> dict[BackendType, float]:
        """Predicted seconds on every backend that could run ``workload``; nan if nothing is known yet."""
        best: dict[BackendType, float] = {}
        for row in self._decide(workload).candidates:
            if row.refused is None:
                backend = BackendType(row.backend)
                reported = backend_times.estimate(workload, row.backend)
                seconds = row.total if math.isnan(reported) else reported
                known = best.get(backend, math.nan)
                best[backend] = seconds if math.isnan(known) else min(known, seconds)
        return best

    def execute_with_monitoring(
        self,
        operation_name: str,
        backend: Any,
        func: Callable[..., Any],
        workload: WorkloadCharacteristics,
        fallback_backends: Iterable[Any] | None = None,
    ) -> Any:
        """Run ``func`` on ``backend``, time and record it; on failure run it on the fallbacks, NumPy last.

        Parameters
        ----------
        operation_name : str
            Name under which it is recorded.
        backend : BackendType or str
            Backend to run on first; ``AUTO`` selects one by :meth:`select_backend`.
        func : callable
            A function with one required positional parameter receives the backend. Any other runs inside
            ``use_backend(backend)``, so that its engine calls use it.
        workload : WorkloadCharacteristics
            The workload of the function.
        fallback_backends : iterable, optional
            Tried in this order; NumPy is tried last even if it is not listed.

        Raises
        ------
        TypeError, ValueError
            Errors of the function, raised unchanged and at once.
        AllBackendsFailedError
            With the error of each backend.
        """
        first = BackendType(check_backend(backend, auto=True))
        if first is BackendType.AUTO:
            first = self.select_backend(workload)
        wanted = [first, *(BackendType(check_backend(other)) for other in fallback_backends or ()), BackendType.NUMPY]
        order = [other for other in dict.fromkeys(wanted) if self._refusal(other) is None]
        if first not in order:
            reason = self._refusal(first)
            raise BackendUnavailableError(f"backend {first.value!r} cannot be used ({reason}); use another or AUTO")
        arguments = 1 if _takes_backend(func) else 0
        failures: dict[str, Exception] = {}
        for place, tried in enumerate(order, start=1):
            begin, span = time.perf_counter(), spans.span(operation_name, "call", metadata={"backend": tried.value})
            try:
                with span, use_backend(tried, _banned=frozenset(failures)):
                    result = func(*[tried][:arguments])
            except (TypeError, ValueError):
                raise
            except Exception as error:
                failures[tried.value] = error
            seconds, failed = time.perf_counter() - begin, failures.get(tried.value)
            self.record_performance(tried, operation_name, workload.data_size, seconds, failed is None)
            if failed is None:
                return result
            if place < len(order):
                taken = order[place].value
                knowledge_for(self.settings).note_fallback(operation_name, tried.value, taken, "failed", failed)
        rows = "; ".join(f"{name}: {registry.describe_failure(error)}" for name, error in failures.items())
        raise AllBackendsFailedError(
            f"{operation_name}: every backend failed ({rows}); see the cause of this error for each", failures
        ) from ExceptionGroup(f"{operation_name}: what each backend raised", list(failures.values()))

    def _refusal(self, backend: BackendType) -> str | None:
        return disabled_reason(backend.value, self.settings) or registry.unavailable(backend.value)

    def record_performance(
        self, backend: Any, operation: str, data_size: int, execution_time: float, success: bool = True
    ) -> None:
        """Report that ``operation`` on ``data_size`` elements took ``execution_time`` seconds, or failed."""
        used = BackendType(check_backend(backend))
        seconds = float(execution_time)
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise InvalidInputError(f"execution_time={execution_time!r} is not a time; use seconds of at least 0")
        size = as_count("data_size", data_size)
        record = PerformanceRecord(used, operation, size, seconds, bool(success))
        with self._lock:
            self._records.append(record)
            sums = self._sums.setdefault((used, operation), [0.0, 0, 0])
            sums[1 if success else 2] += 1
            sums[0] += seconds if success else 0.0
        if self.settings.enable_learning:
            backend_times.add(operation, used.value, size, self._id, seconds if success else math.inf)
            self._answers.clear()

    def get_performance_summary(self) -> dict[str, Any]:
        """Totals of the reports to this selector."""
        stats = {}
        with self._lock:
            for key, (seconds, count, failures) in self._sums.items():
                mean = seconds / count if count else math.nan
                stats[key] = {"total_time": seconds, "count": count, "failures": failures, "avg_time": mean}
            recent = [record.backend for record in list(self._records)[-_RECENT:]]
        total = sum(row["count"] + row["failures"] for row in stats.values())
        return {"total_records": total, "operation_stats": stats, "recent_backends": recent}

    def get_performance_history(self) -> list[PerformanceRecord]:
        """The reports to this selector, oldest first."""
        with self._lock:
            return list(self._records)

    def reset_performance_history(self) -> None:
        """Discard the history and what this selector learned; the shared wisdom is kept."""
        with self._lock:
            self._records.clear()
            self._sums.clear()
        backend_times.forget(self._id)
        self._answers.clear()

    def regret_report(self) -> RegretReport:
        """Time that the engine's choices cost compared with the best ones, as measured in this process."""
        return regret_report(knowledge_for(self.settings).chooser)

    def calculate_gpu_threshold(self, dtype_size: int = 8) -> int:
        """Elements that fit on the first GPU now, within ``gpu_memory_limit``; 0 without a GPU."""
        return calculate_gpu_threshold(dtype_size, self.gpu_memory_limit)


def _takes_backend(function: Callable[..., Any]) -> bool:
    """Whether ``function`` has exactly one required positional parameter."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(each.kind in kinds and each.default is each.empty for each in parameters) == 1


def _no_workload(value: Any) -> InvalidInputError:
    return InvalidInputError(f"workload={value!r} is not a WorkloadCharacteristics; create one first")


def calculate_gpu_threshold(dtype_size: int = 8, gpu_memory_limit: float | None = None) -> int:
    """Elements of ``dtype_size`` bytes that fit on the first GPU now; 0 without a GPU."""
    size = as_count("dtype_size", dtype_size)
    if size == 0:
        raise InvalidInputError("dtype_size=0 is not the size of an element; use its bytes, such as 8")
    share = get_settings().gpu_memory_limit
    if gpu_memory_limit is not None:
        share = check_fraction("gpu_memory_limit", gpu_memory_limit)
    allowed = get_budget().allowed("cuda:0", share) if hardware.machine().gpus else None
    return 0 if allowed is None else allowed // size


_shared: IntelligentBackendSelector | None = None


def get_shared_selector() -> IntelligentBackendSelector:
    """The shared selector of the process."""
    global _shared
    if _shared is None:
        _shared = IntelligentBackendSelector()
    return _shared


def reset() -> None:
    """Discard the shared selector and every report."""
    global _shared
    _shared = None
    backend_times.clear()


def select_optimal_backend(
    operation_type: str, data_shape: Iterable[int], requires_gradient: bool = False
) -> BackendType:
    """The best backend for an operation on float64 data, by the shared selector.

    Parameters
    ----------
    operation_type : str
        As for :class:`WorkloadCharacteristics`: an operation such as ``"fft"``, or a kind of work such as
        ``"derivative"``; anything else is counted as ``"other"``.
    data_shape : iterable of int
        Shape of the main operand; leading axes are a batch.
    requires_gradient : bool
        Whether the work must be differentiable.

    Returns
    -------
    BackendType
        The backend.

    Raises
    ------
    InvalidInputError
        If ``operation_type`` is not a name, or ``data_shape`` not a shape.
    """
    shape = as_shape(data_shape)
    workload = WorkloadCharacteristics(operation_type, math.prod(shape), shape, requires_gradient=requires_gradient)
    return get_shared_selector().select_backend(workload)


registry.plug_in_selection(select_optimal_backend)
