"""Pinned host memory between pageable arrays and a device: a ring of slots, and a limit on pinned results.

A device copies from and to page-locked memory at the full speed of its link and asynchronously; pageable memory allows
neither. So a large array is sent in chunks through a few page-locked slots: while one slot is in transfer, the host
fills or empties the next. This module is independent of any library: an adapter provides a :class:`Link`.

The slots take their memory from the pool, on first use, and keep it, so that later transfers do not allocate; idle
slots return it when memory is short (:func:`release_idle`).
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpfracc._interrupts import Guarded
from hpfracc.engine.memory.buffers import pinned_buffers
from hpfracc.errors import InvalidInputError

#: Smaller arrays are copied directly: filling a pipeline costs more than it saves; see `benchmarks/transfers.py`.
SMALL_BYTES = 2**20
#: Number of slots and their size: the best of `benchmarks/transfers.py --chunk-mib 2 4 8 --slots 3 4` on an H200, 1e7
#: doubles in 2.5 ms, compared with 3.6 for slots of 2 MiB.
SLOTS = 3
CHUNK_BYTES = 8 * 2**20


class Link(Protocol):
    """The link between the host and one device. All buffers are flat arrays of bytes that can be sliced."""

    def pinned(self, size: int) -> np.ndarray[Any, Any] | None:
        """A page-locked host buffer of ``size`` bytes; None if there is none, and pageable memory is used."""

    def view(self, buffer: np.ndarray[Any, Any]) -> Any:
        """The same memory as an array of the copying library."""

    def marker(self) -> Any:
        """An event that can be recorded in the device's queue and waited for."""

    def wait(self, marker: Any) -> None:
        """Wait until the device has passed ``marker``; returns immediately for one that was never recorded."""

    def enqueue(self, target: Any, source: Any, marker: Any) -> None:
        """Queue a copy between a pinned buffer and device memory, in either direction, followed by ``marker``."""

    def host_copy(self, target: Any, source: Any) -> None:
        """Copy between two host buffers, with a suitable number of threads."""


class _Slot:
    """A slot of the ring."""

    __slots__ = ("_memory", "buffer", "fills", "marker", "uses")

    def __init__(self, link: Link) -> None:
        self._memory: np.ndarray[Any, Any] | None = None
        self.buffer: Any = None
        self.marker = link.marker()
        self.uses = self.fills = 0

    def ready(self, link: Link, size: int) -> Any:
        """Its buffer, once the previous copy is done; allocated from the pool on first use."""
        link.wait(self.marker)
        self.uses += 1
        if self.buffer is None:
            self.fills += 1
            self._memory = pinned_buffers.allocate(size, np.uint8, clear=False, make=link.pinned)
            self.buffer = link.view(self._memory)
        return self.buffer

    def release(self, link: Link) -> int:
        """Release the buffer to the pool once its copy is done; returns its bytes."""
        memory = self._memory
        if memory is None:
            return 0
        link.wait(self.marker)
        self.buffer = self._memory = None
        # A pool that was reset in the meantime does not know the buffer: then it is just dropped.
        with contextlib.suppress(InvalidInputError):
            pinned_buffers.release(memory)
        return int(memory.nbytes)


@dataclass(frozen=True, slots=True)
class RingStats:
    """Chunks copied through a ring, how many of them allocated a buffer, and the bytes held by its slots."""

    uses: int = 0
    fills: int = 0
    held_bytes: int = 0

    def __add__(self, other: RingStats) -> RingStats:
        return RingStats(self.uses + other.uses, self.fills + other.fills, self.held_bytes + other.held_bytes)


class StagingRing(Guarded):
    """A fixed number of pinned slots through which arrays of any size pass, in either direction.

    Threads may share one: they share the link's bandwidth anyway, so one transfer is made after the other. Slots take
    turns, and a copy that is still in a slot, perhaps of a transfer that an interrupt ended, is waited for.
    """

    def __init__(self, link: Link, slots: int = SLOTS, chunk: int = CHUNK_BYTES) -> None:
        super().__init__()
        self._link = link
        self._chunk = chunk
        self._slots = tuple(_Slot(link) for _ in range(slots))
        self._turns = itertools.cycle(self._slots)
        _rings.add(self)

    def release_idle(self) -> int:
        """Release the buffers of the slots to the pool, between two transfers; returns their bytes."""
        with self._lock:
            return sum(slot.release(self._link) for slot in self._slots)

    def stats(self) -> RingStats:
        """The statistics so far."""
        held = sum(self._chunk for slot in self._slots if slot.buffer is not None)
        return RingStats(sum(slot.uses for slot in self._slots), sum(slot.fills for slot in self._slots), held)

    def _chunks(self, size: int) -> Iterator[slice]:
        for begin in range(0, size, self._chunk):
            yield slice(begin, min(begin + self._chunk, size))

    def upload(self, source: Any, target: Any, size: int) -> None:
        """Queue the copy of ``size`` bytes from the host buffer ``source`` to the device buffer ``target``.

        On return ``source`` may be modified: all of it is in the slots or on the device.
        """
        link = self._link
        with self._lock:
            for part, slot in zip(self._chunks(size), self._turns, strict=False):
                staged = slot.ready(link, self._chunk)[: part.stop - part.start]
                link.host_copy(staged, source[part])
                link.enqueue(target[part], staged, slot.marker)

    def download(self, source: Any, target: Any, size: int) -> None:
        """Copy ``size`` bytes from the device buffer ``source`` into the host buffer ``target``; complete on return."""
        link = self._link
        coming: deque[tuple[_Slot, slice]] = deque()

        def land() -> None:
            slot, part = coming.popleft()
            link.wait(slot.marker)
            link.host_copy(target[part], slot.buffer[: part.stop - part.start])

        with self._lock:
            for part, slot in zip(self._chunks(size), self._turns, strict=False):
                if len(coming) == len(self._slots):
                    land()
                buffer = slot.ready(link, self._chunk)  # an upload may still be reading from it
                link.enqueue(buffer[: part.stop - part.start], source[part], slot.marker)
                coming.append((slot, part))
            while coming:
                land()


#: All rings of this process.
_rings: weakref.WeakSet[StagingRing] = weakref.WeakSet()


def release_idle() -> int:
    """Release the buffers of idle slots of all rings; returns their bytes."""
    return sum(ring.release_idle() for ring in list(_rings))


def staging_stats() -> RingStats:
    """The statistics of all rings so far."""
    return sum((ring.stats() for ring in list(_rings)), RingStats())


class PinnedLedger:
    """Limits the pinned memory that callers hold as results, because it is taken from the whole machine."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._held = 0
        self._lock = threading.RLock()
        # Results are freed wherever the garbage collector runs, possibly while this lock is held; deque.append is safe.
        self._returned: deque[int] = deque()

    def reserve(self, size: int) -> bool:
        """Count ``size`` bytes as handed out, unless that exceeds the limit."""
        with self._lock:
            if self.held + size > self.bound:
                return False
            self._held += size
            return True

    def release(self, size: int) -> None:
        """Count ``size`` bytes as returned."""
        self._returned.append(size)

    @property
    def held(self) -> int:
        """Bytes handed out and not returned."""
        with self._lock:
            while self._returned:
                self._held -= self._returned.popleft()
            return self._held
