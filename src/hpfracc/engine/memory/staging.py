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
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import numpy as np

from hpfracc._shielded import POLL_INTERVAL
from hpfracc.engine.memory.buffers import BufferPool, pinned_buffers
from hpfracc.errors import InvalidInputError

__all__ = ["SMALL_BYTES", "Link", "PinnedLedger", "RingStats", "StagingRing", "release_idle", "staging_stats"]

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


class _Taker:
    """Owns slots during its lifetime; if an interrupt ends it, they become free."""

    __slots__ = ("__weakref__",)


class _Slot:
    """A slot of the ring; used only by its owner."""

    __slots__ = ("_memory", "_pool", "buffer", "fills", "given_back", "marker", "taker", "uses")

    def __init__(self, link: Link, pool: BufferPool) -> None:
        self._pool = pool
        self._memory: np.ndarray[Any, Any] | None = None
        self.buffer: Any = None
        self.marker = link.marker()
        self.uses = self.fills = 0
        self.taker: weakref.ref[_Taker] | None = None
        self.given_back = 0

    def ready(self, link: Link, size: int) -> Any:
        """Its buffer, once the previous copy is done; allocated from the pool on first use."""
        link.wait(self.marker)
        self.uses += 1
        if self.buffer is None:
            self.fills += 1
            self._memory = self._pool.allocate(size, np.uint8, clear=False, make=link.pinned)
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
            self._pool.release(memory)
        return int(memory.nbytes)


@dataclass(frozen=True, slots=True)
class RingStats:
    """Chunks copied through a ring, how many of them allocated a buffer, and the bytes held by its slots."""

    uses: int = 0
    fills: int = 0
    held_bytes: int = 0

    def __add__(self, other: RingStats) -> RingStats:
        return RingStats(self.uses + other.uses, self.fills + other.fills, self.held_bytes + other.held_bytes)


class StagingRing:
    """A fixed number of pinned slots through which arrays of any size pass, in either direction.

    Threads may share one. A slot belongs to the thread that took it until its copy is queued, and the next thread to
    take it waits for that copy. If an interrupt ends a taker before it returns its slot, the slot becomes free. A
    thread that waits for a slot holds none, so that there is no deadlock.
    """

    def __init__(
        self, link: Link, slots: int = SLOTS, chunk: int = CHUNK_BYTES, pool: BufferPool = pinned_buffers
    ) -> None:
        self._link = link
        self._chunk = chunk
        self._slots = tuple(_Slot(link, pool) for _ in range(slots))
        self._lock = threading.Lock()
        self._turns = itertools.count(1)
        #: Wakes a thread that waits for a slot.
        self._freed: SimpleQueue[None] = SimpleQueue()
        _rings.add(self)

    def _take_free(self, taker: _Taker) -> _Slot | None:
        """The free slot released first, whose copy is most likely done; it belongs to ``taker`` during its lifetime."""
        with self._lock:
            free = [slot for slot in self._slots if slot.taker is None or slot.taker() is None]
            if not free:
                return None
            slot = min(free, key=lambda each: each.given_back)
            slot.taker = weakref.ref(taker)
            return slot

    def _wait_for_one(self, taker: _Taker) -> _Slot:
        while (slot := self._take_free(taker)) is None:
            with contextlib.suppress(Empty):
                self._freed.get(timeout=POLL_INTERVAL)
        return slot

    def _give_back(self, slot: _Slot) -> None:
        slot.given_back = next(self._turns)
        slot.taker = None
        if self._freed.empty():
            self._freed.put(None)

    def release_idle(self) -> int:
        """Release the buffers of idle slots to the pool; returns their bytes."""
        released, taker = 0, _Taker()
        idle: list[_Slot] = []
        try:
            while (slot := self._take_free(taker)) is not None:
                idle.append(slot)
                released += slot.release(self._link)
        finally:
            for slot in idle:
                self._give_back(slot)
        return released

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
        link, taker = self._link, _Taker()
        for part in self._chunks(size):
            slot = self._wait_for_one(taker)
            try:
                staged = slot.ready(link, self._chunk)[: part.stop - part.start]
                link.host_copy(staged, source[part])
                link.enqueue(target[part], staged, slot.marker)
            finally:
                self._give_back(slot)

    def download(self, source: Any, target: Any, size: int) -> None:
        """Copy ``size`` bytes from the device buffer ``source`` into the host buffer ``target``; complete on return."""
        link, taker = self._link, _Taker()
        coming: deque[tuple[_Slot, slice]] = deque()
        try:
            for part in self._chunks(size):
                slot = self._take(taker, coming, target)
                coming.append((slot, part))
                buffer = slot.ready(link, self._chunk)  # an upload may still be reading from it
                link.enqueue(buffer[: part.stop - part.start], source[part], slot.marker)
            while coming:
                self._give_back(self._land(coming, target))
        finally:
            for slot, _ in coming:
                self._give_back(slot)

    def _take(self, taker: _Taker, coming: deque[tuple[_Slot, slice]], target: Any) -> _Slot:
        slot = self._take_free(taker)
        if slot is not None:
            return slot
        return self._land(coming, target) if coming else self._wait_for_one(taker)

    def _land(self, coming: deque[tuple[_Slot, slice]], target: Any) -> _Slot:
        """Copy the oldest slot to the target; it stays in ``coming`` until that has succeeded."""
        slot, part = coming[0]
        self._link.wait(slot.marker)
        self._link.host_copy(target[part], slot.buffer[: part.stop - part.start])
        coming.popleft()
        return slot


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
