"""CUDA devices of PyTorch and CuPy: marks in their queues, pinned memory, cuFFT's work areas. Imports neither."""

from __future__ import annotations

import math
import threading
import weakref
from abc import abstractmethod
from collections import deque
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Adapter
from hpfracc.engine.memory.host import HostProbe
from hpfracc.engine.memory.staging import PinnedLedger
from hpfracc.engine.numerics.lengths import largest_factor, power_of_two
from hpfracc.engine.primitives.base import Transform

#: Maximum number of idle events per device.
_MAX_IDLE = 16_384
#: Maximum pinned memory that callers may hold as results: eight arrays of 1e7 doubles, as PyTorch rounds them, and at
#: most a sixteenth of the process's memory.
_MAX_PINNED, _PINNED_SHARE = 2**30, 16
_lock = threading.Lock()
_ledgers: dict[str, PinnedLedger] = {}


def device_index(device: str) -> int:
    """The number in ``"cuda:<number>"``."""
    return int(device.rpartition(":")[2])


class CudaAdapter(Adapter):
    """Marks are events on the current stream of each device, from a pool: creating one takes longer than recording."""

    marks = True

    def __init__(self) -> None:
        self._devices: tuple[str, ...] | None = None
        self._idle: dict[str, deque[Any]] = {}

    @abstractmethod
    def visible(self) -> tuple[int, int]:
        """Number of devices, and the index of the current one."""

    @abstractmethod
    def record(self, event: Any | None, index: int) -> Any:
        """Record an event, a new one if it is None, on the current stream of a device."""

    @abstractmethod
    def is_idle(self, index: int) -> bool:
        """Whether the current stream of a device has done all its work."""

    def resolve(self, device: str) -> str | None:
        """``"gpu"`` and ``"cuda"`` are the current device."""
        kind, _, index = device.partition(":")
        if kind not in ("gpu", "cuda") or (index and not index.isdigit()):
            return None
        count, current = self.visible()
        number = int(index) if index else current
        return f"cuda:{number}" if number < count else None

    def mark(self, device: str) -> Any:
        """An event, recorded on the current stream."""
        idle = self._idle.get(device)
        try:
            event = idle.pop() if idle else None
        except IndexError:  # another thread took the last one
            event = None
        return self.record(event, device_index(device))

    def mark_end(self, device: str) -> tuple[bool, Any]:
        """Whether the current stream is idle, and an event recorded on it."""
        return self.is_idle(device_index(device)), self.mark(device)

    def release(self, device: str, mark: Any) -> None:
        """Return the event to the pool."""
        self._idle.setdefault(device, deque(maxlen=_MAX_IDLE)).append(mark)


def pinned_ledger(library: str) -> PinnedLedger:
    """The ledger of the pinned memory that callers hold as results of a library."""
    with _lock:
        if library not in _ledgers:
            _ledgers[library] = PinnedLedger(min(_MAX_PINNED, HostProbe().read().limit // _PINNED_SHARE))
        return _ledgers[library]


def keep_pinned(ledger: PinnedLedger, result: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """``result``, whose ``size`` bytes return to the ledger with it; every view of it keeps it alive."""
    weakref.finalize(result, ledger.release, size).atexit = False
    return result


# The size of cuFFT's work areas depends on lengths, batch and precision in a way that no simple rule describes: on an
# H200 between nothing and five times the transform. The rule is that of most transforms; the measured peak of a call
# corrects the prediction of later ones.

#: Points of the longest row that cuFFT mostly transforms in one pass, and of the largest block of several axes.
_ONE_PASS, _ONE_BLOCK = 4096, 2**20
#: The largest prime with special passes.
_LARGEST_PRIME = 127


def work_bytes(transform: Transform) -> int:
    """Typical work area in bytes: 0 for one pass, otherwise that of the transform; odd real ones as complex ones."""
    # A plan supports up to three axes; more are transformed in groups.
    lengths, batch = transform.lengths[-3:], transform.rows * math.prod(transform.lengths[:-3])
    points, item = math.prod(lengths), 8 if transform.dtype in ("float32", "complex64") else 16
    if not points * batch:
        return 0
    real = transform.dtype.startswith("float")
    whole = batch * points * item
    spectrum = batch * (points // lengths[-1]) * (lengths[-1] // 2 + 1) * item if real else whole
    if len(lengths) > 1:
        return spectrum if points > _ONE_BLOCK else 0
    if points > _ONE_PASS and largest_factor(points) > _LARGEST_PRIME:
        # A convolution of at least twice the length, with its two factors (Bluestein); of half the length for a real
        # transform of even length, which is a complex one of half that length.
        row = points // 2 if real and points % 2 == 0 else points
        return 2 * batch * power_of_two(2 * row - 1) * item + (spectrum if real else 0)
    if real and points % 2:
        return whole
    in_one_pass = points <= _ONE_PASS and (not real or points == power_of_two(points))
    return 0 if in_one_pass else spectrum
