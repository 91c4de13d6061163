"""Predicted against actual: what each kind of call really took, and what that says of the next prediction.

A model says what a kernel allocates; a library may keep a plan, round up, or copy once more. So the highest memory that
was seen during a call is kept beside what was predicted for it, and the next prediction for that kind of call is
corrected by the worst of the recent ratios: too much costs a chunk more, too little costs the call.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any

from hpfracc.engine.locks import Guarded

__all__ = ["LEAST_BYTES", "ForecastRow", "Forecasts", "forecasts"]

#: Calls below this say nothing: what else the process does is as large.
LEAST_BYTES = 16 * 2**20
#: Ratios kept for each kind of call.
_KEPT = 16
#: Samples before a prediction is lowered; one is enough to raise it.
_BEFORE_LOWERING = 3
#: A correction beyond these is a disturbance, not a model's error.
_LOWEST, _HIGHEST = 0.25, 8.0
#: Closer to 1 than this a correction is not worth its rounding.
_USUAL = 0.05


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """How well the peak of one kind of call was predicted.

    Attributes
    ----------
    operation, kernel, device, kind : str
        What was called, on what; ``kind`` is dtype and variant.
    samples : int
        Calls of which the peak is known.
    predicted, actual : int
        Bytes of the last of them; ``predicted`` by the model alone.
    error : float
        Median of ``|predicted / actual - 1|`` of the model alone.
    corrected_error : float
        The same with the correction that was in force at each call.
    correction : float
        What the model's prediction is multiplied by from now on.
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
    __slots__ = ("corrected", "exact", "last", "ratios", "samples")

    def __init__(self) -> None:
        self.ratios: deque[float] = deque(maxlen=_KEPT)
        self.corrected: deque[float] = deque(maxlen=_KEPT)
        self.samples = 0
        self.exact = True
        self.last = (0, 0)

    def correction(self) -> float:
        if not self.ratios:
            return 1.0
        worst = max(self.ratios)
        if worst < 1.0 and (not self.exact or len(self.ratios) < _BEFORE_LOWERING):
            return 1.0
        return 1.0 if abs(worst - 1.0) < _USUAL else min(_HIGHEST, max(_LOWEST, worst))


class Forecasts(Guarded):
    """Predictions and what came of them, per kind of call; thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[Hashable, _Record] = {}
        self._corrections: dict[Hashable, float] = {}

    def correction(self, key: Hashable) -> float:
        """What a prediction for calls of this kind is multiplied by; 1 where nothing is known."""
        return self._corrections.get(key, 1.0)

    def observe(self, key: tuple[str, str, str, str], predicted: int, actual: int, *, exact: bool = True) -> None:
        """Keep what a call took; ``predicted`` is the model's own word, without a correction.

        What is not ``exact`` (the resident memory of a process, where freed memory may be used again unseen) raises
        later predictions and never lowers them.
        """
        if predicted < LEAST_BYTES or actual <= 0:
            return
        with self._lock:
            record = self._records.setdefault(key, _Record())
            before = self.correction(key)
            record.samples += 1
            record.last = (predicted, actual)
            record.ratios.append(actual / predicted)
            record.corrected.append(before * predicted / actual)
            record.exact = record.exact and exact
            self._corrections[key] = record.correction()

    def rows(self) -> list[ForecastRow]:
        """Every kind of call of which a peak is known."""
        with self._lock:
            return [
                ForecastRow(
                    *key,  # type: ignore[misc]
                    samples=record.samples,
                    predicted=record.last[0],
                    actual=record.last[1],
                    error=statistics.median(abs(1 / ratio - 1) for ratio in record.ratios),
                    corrected_error=statistics.median(abs(ratio - 1) for ratio in record.corrected),
                    correction=self._corrections[key],
                )
                for key, record in self._records.items()
            ]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._records.clear()
            self._corrections.clear()


#: Those of this process.
forecasts = Forecasts()
