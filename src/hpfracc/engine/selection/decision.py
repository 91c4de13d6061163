"""A decision: the chosen arm, and all candidates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hpfracc.engine.workload import Bucket

__all__ = ["Candidate", "Decision", "Fallback"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One arm in a decision: its predicted cost, or why it was refused.

    Times are in seconds, ``nan`` if unknown.
    """

    arm: str
    backend: str
    device: str = "cpu"
    refused: str | None = None
    seconds: float = math.nan
    low: float = math.nan
    high: float = math.nan
    transfer: float = 0.0
    compile: float = 0.0
    total: float = math.nan
    memory: int = 0
    samples: int = 0
    source: str = "none"

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values, with None for unknown numbers."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Fallback:
    """An arm that was chosen and failed, and its error."""

    arm: str
    kind: str
    error: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"arm": self.arm, "kind": self.kind, "error": self.error}


@dataclass(frozen=True)
class Decision:
    """The arm chosen for a call, and why.

    Attributes
    ----------
    operation, arm, backend, device, algorithm : str
        The operation, and what runs it.
    reason : str
        One sentence.
    wish : str or None
        What requested this backend; None if the engine chose it.
    shape, dtype, bucket, start
        Properties of the call; ``start`` is where the operands were, ``"host"`` or ``"device"``.
    rows : callable
        Computes ``candidates`` on first access, because most decisions are never inspected.
    fallbacks : tuple of Fallback
        Arms that failed before this one succeeded.
    explored : bool
        Whether this arm was tried to learn about it, rather than expected to be fastest.
    chunks : int
        Number of chunks: more than 1 if the call did not fit into memory.
    """

    operation: str
    arm: str
    backend: str
    device: str
    algorithm: str
    reason: str
    shape: tuple[int, ...]
    dtype: str
    bucket: Bucket
    start: str
    library: str = "numpy"
    wish: str | None = None
    rows: Callable[[], tuple[Candidate, ...]] = field(default=tuple, repr=False, compare=False)
    fallbacks: tuple[Fallback, ...] = ()
    explored: bool = False
    chunks: int = 1

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every arm; refused ones with the reason."""
        return self.rows()

    @property
    def chosen(self) -> Candidate | None:
        """The row of the chosen arm."""
        return next((row for row in self.candidates if row.arm == self.arm), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "operation": self.operation,
            "arm": self.arm,
            "backend": self.backend,
            "device": self.device,
            "algorithm": self.algorithm,
            "reason": self.reason,
            "wish": self.wish,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "bucket": list(self.bucket),
            "start": self.start,
            "library": self.library,
            "explored": self.explored,
            "chunks": self.chunks,
            "candidates": [row.to_dict() for row in self.candidates],
            "fallbacks": [row.to_dict() for row in self.fallbacks],
        }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
