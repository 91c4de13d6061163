"""One bounded cache of all arrays that are kept between calls: weights, transforms, tables, matrices.

Entries are found by a key that the caller gives.

The key is the operator's (scheme, order, length, ...), never a hash of the data: hashing a million weights costs more
than it saves, and a key that describes the weights cannot collide by chance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from hpfracc._arrays import is_array, may_be_cached, nbytes
from hpfracc._interrupts import Guarded
from hpfracc._torch_transforms import is_tracing
from hpfracc.engine.memory.host import HostProbe

#: Capacity in bytes: about ninety operators on 50,000 points, five on 1e6, or one on 1e7, in float64.
CAPACITY = 256 * 2**20
#: One entry alone may be larger, up to this fraction of memory: the next call would compute it again.
_SHARE = 32
#: Maximum number of entries: a small entry takes 0.7 KB for its key and slot, which the bytes do not include.
MAX_ENTRIES = 4096


class PreparedOperands(Guarded):
    """A least-recently-used cache bounded in bytes and in entries; thread-safe.

    It keeps no array that belongs to a transform (:func:`~hpfracc._arrays.may_be_cached`), and is not used while
    PyTorch traces: a later call would find a tensor without values.

    The newest entry stays even if it alone exceeds ``capacity``, up to 1/32 of this process's memory.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        super().__init__()
        self.capacity, self.most = capacity, MAX_ENTRIES
        self.hits = self.misses = self.bytes = 0
        #: Values and their bytes.
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[..., Any], *args: Any) -> Any:
        """The transform of ``key``, computed by ``make(*args)`` if missing (two threads may both compute it once)."""
        if is_tracing():
            return make(*args)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                self.hits += 1
                return entry[0]
            self.misses += 1
        made = make(*args)
        size = _size(made)
        if not may_be_cached(made) or (size > self.capacity and size > HostProbe().read().limit // _SHARE):
            return made
        with self._lock:
            if key not in self._entries:
                self._shrink(self.capacity - size, self.most - 1)
                self._entries[key] = made, size
                self.bytes += size
        return made

    def limit(self, capacity: int) -> None:
        """Change the capacity; what exceeds it is dropped."""
        with self._lock:
            self.capacity = capacity
            self._shrink(capacity, self.most)

    def _shrink(self, size: int, most: int) -> None:
        while self._entries and (self.bytes > size or len(self._entries) > most):
            self.bytes -= self._entries.popitem(last=False)[1][1]

    def forget(self, owner: Hashable) -> None:
        """Drop entries whose keys start with ``owner``."""
        with self._lock:
            for key in list(self._entries):
                # A key is ``(weights_key, tag)``.
                name = key[0] if isinstance(key, tuple) and key else None
                if isinstance(name, tuple) and name and name[0] is owner:
                    self.bytes -= self._entries.pop(key)[1]

    def clear(self) -> int:
        """Drop everything; returns the freed bytes."""
        with self._lock:
            freed, self.bytes = self.bytes, 0
            self._entries.clear()
            return freed

    def reset(self) -> None:
        """Drop everything, and reset the counters and the capacity."""
        self.clear()
        self.capacity = CAPACITY
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)


def _size(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(_size(part) for part in value)
    return nbytes(value) if is_array(value) else getattr(value, "nbytes", 0)


#: The cache of this process.
prepared_operands = PreparedOperands()
