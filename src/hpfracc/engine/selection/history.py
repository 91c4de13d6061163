"""What one selector saw: a bounded record of the calls that were reported to it, and their sums."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

from hpfracc.engine.backends.registry import BackendType
from hpfracc.engine.locks import Guarded

__all__ = ["History", "PerformanceRecord"]

#: Records kept one by one; the sums cover all.
_KEPT = 10_000
_RECENT = 10


@dataclass(frozen=True, slots=True)
class PerformanceRecord:
    """One reported call; ``execution_time`` in seconds."""

    backend: BackendType
    operation: str
    data_size: int
    execution_time: float
    success: bool


class History(Guarded):
    """Records and their sums. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[PerformanceRecord] = deque(maxlen=_KEPT)
        self._sums: dict[tuple[BackendType, str], list[float]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return History, (), (self._records.copy(), {key: list(sums) for key, sums in self._sums.items()})

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._records, self._sums = state

    def add(self, record: PerformanceRecord) -> None:
        """Keep a record."""
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
        """Totals per backend and operation; ``avg_time`` is nan where no call succeeded."""
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
