"""Times that users report to selectors: shared for predictions by backend, and the history of each selector."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from hpfracc.engine.backends.registry import BackendType
from hpfracc.engine.locks import Guarded
from hpfracc.engine.workload import Bucket

__all__ = ["BackendTimes", "PerformanceHistory", "PerformanceRecord", "TimeReport", "backend_times"]

#: Number of reports per operation, backend and bucket, as for samples of an arm.
_KEPT_TIMES = 32


@dataclass(frozen=True, slots=True)
class TimeReport:
    """A reported time in seconds (``inf`` for a failure), and the selector it was reported to."""

    owner: int
    seconds: float


class BackendTimes(Guarded):
    """Reports by (operation, backend, bucket), shared by all selectors of the process. Thread-safe.

    They are used for operations without a primitive. A selector can withdraw its own reports.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reports: dict[tuple[str, str], dict[Bucket, deque[TimeReport]]] = defaultdict(dict)
        #: Changes with every report, and when reports are withdrawn.
        self.version = 0

    def add(self, operation: str, backend: str, bucket: Bucket, report: TimeReport) -> None:
        """Add a report."""
        with self._lock:
            ring = self._reports[operation, backend].setdefault(bucket, deque(maxlen=_KEPT_TIMES))
            ring.append(report)
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
        seconds = sorted(report.seconds for report in known[place])
        good = [value for value in seconds if math.isfinite(value)]
        if 2 * len(good) <= len(seconds):
            return math.inf
        low = good[len(good) // 4]
        mean = sum(good) / len(good)
        level = mean if mean > 2.0 * low else low  # an intermittent cost is still a cost
        # Time is assumed proportional to the size.
        return float(level * 2.0 ** (_size(bucket) - _size(place)))

    def forget(self, owner: int) -> None:
        """Withdraw the reports of ``owner``."""
        with self._lock:
            for places in self._reports.values():
                for place, ring in places.items():
                    places[place] = deque((report for report in ring if report.owner != owner), maxlen=_KEPT_TIMES)
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


#: Maximum number of records; the sums cover all that were ever added.
_KEPT_RECORDS = 10_000
_RECENT = 10


@dataclass(frozen=True, slots=True)
class PerformanceRecord:
    """A reported call; ``execution_time`` is in seconds."""

    backend: BackendType
    operation: str
    data_size: int
    execution_time: float
    success: bool


class PerformanceHistory(Guarded):
    """The calls reported to one selector, and their sums. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[PerformanceRecord] = deque(maxlen=_KEPT_RECORDS)
        self._sums: dict[tuple[BackendType, str], list[float]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return PerformanceHistory, (), (self._records.copy(), {key: list(sums) for key, sums in self._sums.items()})

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._records, self._sums = state

    def add(self, record: PerformanceRecord) -> None:
        """Add a record."""
        with self._lock:
            self._records.append(record)
            sums = self._sums.setdefault((record.backend, record.operation), [0.0, 0, 0])
            if record.success:
                sums[0] += record.execution_time
                sums[1] += 1
            else:
                sums[2] += 1

    def records(self) -> list[PerformanceRecord]:
        """The records, oldest first."""
        with self._lock:
            return list(self._records)

    def summary(self) -> dict[str, Any]:
        """Totals per backend and operation; ``avg_time`` is nan if no call succeeded."""
        with self._lock:
            stats = {
                key: {
                    "total_time": total,
                    "count": int(count),
                    "failures": int(failures),
                    "avg_time": total / count if count else math.nan,
                }
                for key, (total, count, failures) in self._sums.items()
            }
            recent = [record.backend for record in list(self._records)[-_RECENT:]]
        total_records = sum(entry["count"] + entry["failures"] for entry in stats.values())
        return {"total_records": int(total_records), "operation_stats": stats, "recent_backends": recent}

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._records.clear()
            self._sums.clear()
