"""A pool of host buffers, each with one owner at a time, with a bounded total size and statistics.

Fresh memory costs a page fault per 4 KiB; a pooled buffer does not. A buffer is cleared unless the caller declares that
it will write every element. A buffer is not reused while a view of it is still held, and a released buffer becomes
read-only for its former owner.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hpfracc._interrupts import Guarded
from hpfracc.engine.workload import as_shape
from hpfracc.errors import InvalidInputError

#: Largest number of idle bytes that are kept.
CAPACITY = 256 * 2**20
#: The smallest buffer, and the base-2 logarithm of the steps per doubling: buffers are found by their rounded size.
_SMALLEST, _STEPS_LOG2 = 4096, 3

#: Allocates ``size`` bytes as an array of uint8; None if it cannot.
Maker = Callable[[int], "np.ndarray[Any, Any] | None"]


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Statistics of a pool: requests, hits, and bytes.

    Attributes
    ----------
    hits, misses : int
        Requests served from the pool, and others.
    hit_rate : float
        Fraction of requests served from the pool; nan before the first.
    held_bytes, used_bytes : int
        Bytes idle in the pool, and in use now.
    peak_bytes : int
        The largest sum of both.
    dropped : int
        Buffers dropped because the pool was full, or because a view of them was still held.
    pinned : bool
        Whether buffers are page-locked.
    """

    hits: int = 0
    misses: int = 0
    hit_rate: float = math.nan
    held_bytes: int = 0
    used_bytes: int = 0
    peak_bytes: int = 0
    dropped: int = 0
    pinned: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None for a rate that is not known yet."""
        rate = None if math.isnan(self.hit_rate) else self.hit_rate
        return {**asdict(self), "hit_rate": rate}


class BufferPool(Guarded):
    """Host buffers by size. Thread-safe.

    Parameters
    ----------
    capacity : int
        Largest number of idle bytes that are kept.
    make : callable, optional
        Allocates memory, e.g. a library's page-locked memory; plain memory is used if it returns None.
    """

    def __init__(self, capacity: int = CAPACITY, make: Maker | None = None) -> None:
        super().__init__()
        self.capacity = capacity
        #: Allocates memory that is not in the pool.
        self.make = make
        #: Idle raw buffers by identity, longest unused first; and by size.
        self._idle: OrderedDict[int, np.ndarray[Any, Any]] = OrderedDict()
        self._by_size: dict[int, list[int]] = {}
        #: Buffers in use: identity of the view, a weak reference to it, and its raw buffer.
        self._used: dict[int, tuple[weakref.ref[Any], np.ndarray[Any, Any]]] = {}
        self._hits = self._misses = self._dropped = 0
        self._held = self._used_bytes = self._peak = 0
        self._pinned = False

    def allocate(
        self, shape: int | tuple[int, ...], dtype: Any = "float64", *, clear: bool = True, make: Maker | None = None
    ) -> Any:
        """An array of that shape and dtype, zeros unless ``clear`` is False: then its contents are arbitrary.

        Memory that is not in the pool comes from ``make``, by default the pool's own. Return it with :meth:`release`; a
        buffer that is merely dropped is lost to the pool, with no other effect.
        """
        kind, shape = _as_dtype(dtype), as_shape(shape if isinstance(shape, tuple) else (shape,))
        size = math.prod(shape) * kind.itemsize
        if size >= 2**60:
            raise InvalidInputError(f"shape={shape!r} needs more bytes than any memory has; use fewer elements")
        raw, fresh = self._take(size, make or self.make)
        view: np.ndarray[Any, Any] = raw[:size].view(kind).reshape(shape)
        if clear and not fresh:
            view.fill(0)
        with self._lock:
            self._used[id(view)] = (weakref.ref(view, self._forget(id(view), raw.nbytes)), raw)
            self._used_bytes += raw.nbytes
            self._peak = max(self._peak, self._used_bytes + self._held)
        return view

    def release(self, buffer: np.ndarray[Any, Any]) -> None:
        """Return a buffer to the pool; one that is not the pool's, or was released before, is refused."""
        with self._lock:
            entry = self._used.get(id(buffer))
            if entry is None or entry[0]() is not buffer:
                raise InvalidInputError(
                    "this buffer is not from this pool, or was released before; release what allocate() returned, once"
                )
            del self._used[id(buffer)]
            raw = entry[1]
            self._used_bytes -= raw.nbytes
            del entry
            # A caller that still uses the buffer must not write to the next owner's data.
            buffer.flags.writeable = False
            # References: this variable, the buffer and getrefcount; any further one means that a view is still held.
            if sys.getrefcount(raw) > 3 or raw.nbytes > self.capacity:
                self._dropped += 1
                return
            self._idle[id(raw)] = raw
            self._by_size.setdefault(raw.nbytes, []).append(id(raw))
            self._held += raw.nbytes
            while self._held > self.capacity:
                key, old = self._idle.popitem(last=False)
                self._by_size[old.nbytes].remove(key)
                self._held -= old.nbytes
                self._dropped += 1

    @contextmanager
    def borrow(self, shape: int | tuple[int, ...], dtype: Any = "float64", *, clear: bool = True) -> Iterator[Any]:
        """A buffer for the duration of a ``with`` block."""
        buffer = self.allocate(shape, dtype, clear=clear)
        try:
            yield buffer
        finally:
            self.release(buffer)

    def _take(self, size: int, make: Maker | None) -> tuple[np.ndarray[Any, Any], bool]:
        """Raw memory of at least ``size`` bytes, and whether it is freshly zeroed."""
        with self._lock:
            size = _rounded(size)
            found = self._by_size.get(size)
            if found:
                raw = self._idle.pop(found.pop())  # the most recently used one: it may still be in cache
                self._held -= raw.nbytes
                self._hits += 1
                return raw, False
            self._misses += 1
        made = None if make is None else make(size)
        if made is not None:
            self._pinned = True
            return made, False
        return np.zeros(size, np.uint8), True

    def _forget(self, key: int, size: int) -> Callable[[Any], None]:
        owner = weakref.ref(self)

        def forget(_: Any) -> None:
            pool = owner()
            if pool is not None and pool._used.pop(key, None) is not None:
                pool._used_bytes -= size

        return forget

    def clear(self) -> int:
        """Drop all idle buffers; returns their size in bytes."""
        with self._lock:
            freed, self._held = self._held, 0
            self._idle.clear()
            self._by_size.clear()
            return freed

    def stats(self) -> PoolStats:
        """The statistics so far."""
        with self._lock:
            asked = self._hits + self._misses
            rate = self._hits / asked if asked else math.nan
            return PoolStats(
                self._hits, self._misses, rate, self._held, self._used_bytes, self._peak, self._dropped, self._pinned
            )

    def reset(self) -> None:
        """Drop everything and reset the statistics; buffers in use stay with their owners."""
        with self._lock:
            self._idle.clear()
            self._by_size.clear()
            self._used.clear()
            self._hits = self._misses = self._dropped = 0
            self._held = self._used_bytes = self._peak = 0
            self._pinned = False


def _as_dtype(dtype: Any) -> np.dtype[Any]:
    """A numeric dtype."""
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise InvalidInputError(f"dtype={dtype!r} is not a dtype; use a name such as 'float64'") from None
    if kind.hasobject or kind.subdtype is not None or not kind.itemsize:
        raise InvalidInputError(
            f"dtype={dtype!r} holds Python objects, arrays or nothing; a pool provides memory for numbers"
        )
    return kind


def _rounded(size: int) -> int:
    """The next larger size; sizes are an eighth of a power of two apart."""
    if size <= _SMALLEST:
        return _SMALLEST
    step = 1 << max(0, (size - 1).bit_length() - 1 - _STEPS_LOG2)
    return -(-size // step) * step


#: The engine's own buffers: padding and blocks of large arrays.
host_buffers = BufferPool()
#: Page-locked buffers, if there is a GPU: for its transfers.
pinned_buffers = BufferPool()
