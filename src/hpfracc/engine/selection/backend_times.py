"""Times that users report per backend, for work that no primitive of ours stands for.

Shared by all selectors of the process; each report remembers whose it is, so that a selector can take its own back.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass

from hpfracc.engine.locks import Guarded
from hpfracc.engine.workload import Bucket

__all__ = ["BackendTimes", "Report", "backend_times"]

#: Reports kept per operation, backend and bucket, as many as the engine keeps samples of an arm.
_KEPT = 32


@dataclass(frozen=True, slots=True)
class Report:
    """One reported time in seconds (``inf`` for a failure), and whose report it is."""

    owner: int
    seconds: float


class BackendTimes(Guarded):
    """Reports by (operation, backend, bucket). Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._reports: dict[tuple[str, str], dict[Bucket, deque[Report]]] = defaultdict(dict)
        #: Changes with everything that is reported or taken back.
        self.version = 0

    def add(self, operation: str, backend: str, bucket: Bucket, report: Report) -> None:
        """Take a report."""
        with self._lock:
            ring = self._reports[operation, backend].setdefault(bucket, deque(maxlen=_KEPT))
            ring.append(report)
            self.version += 1

    def estimate(self, operation: str, backend: str, bucket: Bucket) -> float:
        """Seconds to expect: of this bucket, else scaled from the nearest one; ``nan`` where nothing was reported.

        A backend that failed more often than not in a bucket is expected to fail again: ``inf``.
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
        level = mean if mean > 2.0 * low else low  # a cost that comes and goes is still a cost
        # Beyond the bucket that was seen, time is taken to grow with the size: the least that can be assumed.
        return float(level * 2.0 ** (_size(bucket) - _size(place)))

    def forget(self, owner: int) -> None:
        """Take back what ``owner`` reported."""
        with self._lock:
            for places in self._reports.values():
                for place, ring in places.items():
                    places[place] = deque((report for report in ring if report.owner != owner), maxlen=_KEPT)
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
