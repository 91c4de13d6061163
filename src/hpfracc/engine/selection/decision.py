"""What was decided, and everything it was decided from."""

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
    """One arm as the decision saw it: what it would cost, or why it was refused.

    Times are in seconds, ``nan`` where nothing is known.
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
        """Plain values, with None where a number is not known."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Fallback:
    """An arm that was chosen and failed, and what it said."""

    arm: str
    kind: str
    error: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"arm": self.arm, "kind": self.kind, "error": self.error}


@dataclass(frozen=True)
class Decision:
    """The arm that was taken for a call, and why.

    Attributes
    ----------
    operation, arm, backend, device, algorithm : str
        What was asked, and what does it.
    reason : str
        One sentence.
    wish : str or None
        Who asked for this backend, where the engine did not choose.
    shape, dtype, bucket, start : what the call looked like; ``start`` is where the operands were.
    rows : callable
        Makes ``candidates`` when they are first asked for: most decisions are never looked at.
    fallbacks : tuple of Fallback
        Arms that failed before this one did the work.
    explored : bool
        Whether this arm was taken to learn about it rather than because it was expected to be fastest.
    chunks : int
        Pieces the call was done in: more than 1 where it did not fit into memory whole.
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
        """Every arm, the refused ones with their reason."""
        return self.rows()

    @property
    def chosen(self) -> Candidate | None:
        """The row of the arm that was taken."""
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
