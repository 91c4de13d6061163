"""Predicted against measured peaks, and the correction that follows for the next prediction.

A kernel's model holds within a factor of 2. So the measured peak of a call is kept beside its prediction, and
predictions for calls of that kind and about that size are multiplied by the largest of the recent ratios: predicting
too much costs another chunk, predicting too little costs the call.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from hpfracc.engine.locks import Guarded
from hpfracc.engine.workload import Bucket

__all__ = ["MIN_BYTES", "ForecastKind", "ForecastRow", "Forecasts", "forecasts"]

#: Calls below this are not measured: other allocations of the process are as large.
MIN_BYTES = 16 * 2**20
#: Number of ratios kept for each kind and size of call.
_KEPT = 16
#: Corrections outside this range are disturbances, not model errors.
_LOWEST, _HIGHEST = 0.25, 8.0
#: Largest distance of two buckets, in powers of two, at which one can stand for the other.
_NEAR = 2

#: Operation, kernel, device, and dtype with variant.
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


class _Record:
    """The measurements of one kind of call."""

    __slots__ = ("corrected", "errors", "last", "ratios", "samples")

    def __init__(self) -> None:
        #: Ratios of measured to predicted bytes, by size.
        self.ratios: dict[Bucket, deque[float]] = {}
        self.errors: deque[float] = deque(maxlen=_KEPT)
        self.corrected: deque[float] = deque(maxlen=_KEPT)
        self.samples = 0
        self.last: tuple[int, int, Bucket] = (0, 0, (0, 0))

    def correction(self, bucket: Bucket) -> float:
        """The correction for the nearest size; sizes far from every measured one are only corrected upwards."""
        nearest = min(self.ratios, key=lambda other: (_distance(bucket, other), other))
        if _distance(bucket, nearest) <= _NEAR:
            worst = max(self.ratios[nearest])
        else:
            worst = max(1.0, *map(max, self.ratios.values()))
        return min(_HIGHEST, max(_LOWEST, worst))


def _distance(one: Bucket, other: Bucket) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


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
        if kind not in self._records:
            return 1.0
        with self._lock:
            return self._records[kind].correction(bucket) if kind in self._records else 1.0

    def observe(self, kind: ForecastKind, bucket: Bucket, predicted: int, actual: int) -> None:
        """Record the measured peak of a call; ``predicted`` is the model's uncorrected prediction."""
        if predicted < MIN_BYTES or actual <= 0:
            return
        with self._lock:
            before = self.correction(kind, bucket)
            record = self._records.setdefault(kind, _Record())
            record.samples += 1
            record.last = (predicted, actual, bucket)
            record.ratios.setdefault(bucket, deque(maxlen=_KEPT)).append(actual / predicted)
            record.errors.append(abs(predicted / actual - 1))
            record.corrected.append(abs(before * predicted / actual - 1))

    def rows(self) -> list[ForecastRow]:
        """One row for every kind of call with a known peak."""
        with self._lock:
            return [
                ForecastRow(
                    *kind,
                    samples=record.samples,
                    predicted=record.last[0],
                    actual=record.last[1],
                    error=statistics.median(record.errors),
                    corrected_error=statistics.median(record.corrected),
                    correction=record.correction(record.last[2]),
                )
                for kind, record in self._records.items()
            ]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._records.clear()


#: The forecasts of this process.
forecasts = Forecasts()
