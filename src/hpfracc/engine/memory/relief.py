"""What the engine was asked to do with less: smaller chunks, and devices that new work keeps away from for a while.

The cleanup ladder writes here, on a floor above; the masks and the chunker read. All of it fades: memory comes and
goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hpfracc.engine.locks import Guarded

__all__ = ["Relief", "relief"]

#: Seconds after which a request for smaller chunks, or for another device, is forgotten.
FADE = 60.0
#: Chunks are never asked to be smaller than this share of what memory would allow.
_SMALLEST = 1 / 16


class Relief(Guarded):
    """Requests of the cleanup ladder, thread-safe.

    Parameters
    ----------
    clock : callable
        A monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._scale = 1.0
        self._scale_until = 0.0
        self._avoided: dict[str, float] = {}

    def shrink(self) -> float:
        """Halve the chunks for a while; gives back the share of the usual size that they now have."""
        with self._lock:
            self._scale = max(_SMALLEST, self.chunk_scale() / 2)
            self._scale_until = self._clock() + FADE
            return self._scale

    def chunk_scale(self) -> float:
        """The share of what memory would allow that a chunk may take, 1 unless smaller ones were asked for."""
        return self._scale if self._clock() < self._scale_until else 1.0

    def avoid(self, device: str) -> None:
        """Keep new work that could go elsewhere away from ``device`` for a while."""
        with self._lock:
            self._avoided = {**self._avoided, device: self._clock() + FADE}

    def avoids(self, device: str) -> str | None:
        """Why new work keeps away from ``device``, or None."""
        until = self._avoided.get(device)
        rest = 0.0 if until is None else until - self._clock()
        return None if rest <= 0.0 else f"{device} was short of memory, and is left alone for {rest:.0f} s more"

    def clear(self) -> None:
        """Forget every request."""
        with self._lock:
            self._scale, self._scale_until = 1.0, 0.0
            self._avoided = {}


#: That of this process.
relief = Relief()
