"""The clean-up ladder: actions when memory is short, cheapest first; each rung reports what it freed.

Rungs are climbed until there is enough memory. One thread climbs at a time; a callback of a rung may call the monitor,
or request a clean-up itself, which returns at once.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, library_of, nbytes, tracks_gradient
from hpfracc._interrupts import Guarded, after_fork
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.memory.buffers import host_buffers, pinned_buffers
from hpfracc.engine.memory.staging import release_idle
from hpfracc.errors import InvalidInputError

logger = logging.getLogger("hpfracc.memory")

_spillable: weakref.WeakSet[Spillable] = weakref.WeakSet()

#: The rungs, lowest first.
RUNGS = ("own caches", "garbage", "library caches", "device buffers to the host")
#: Seconds to wait for a thread that is cleaning up already.
_PATIENCE = 1.0
#: Seconds between two checks whether it is done.
_POLL_INTERVAL = 0.005


@dataclass(frozen=True, slots=True)
class RungReport:
    """One rung: bytes that it reports as released, increase of free memory, and seconds."""

    name: str
    released: int
    freed: int
    seconds: float
    note: str = ""
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """A whole clean-up.

    Attributes
    ----------
    device : str
        Device whose memory was short.
    rungs : tuple of RungReport
        The rungs that were climbed, in order.
    freed : int
        Increase of free bytes, at least 0.
    enough : bool
        Whether the requested memory is now free.
    skipped : str
        Why nothing was done; empty otherwise.
    """

    device: str
    rungs: tuple[RungReport, ...] = ()
    freed: int = 0
    enough: bool = False
    skipped: str = ""

    @property
    def freed_mb(self) -> float:
        """The same in MiB."""
        return self.freed / 2**20

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Ladder(Guarded):
    """Clean-ups of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], Any]] = []
        self._inside = threading.local()
        #: The climbing thread. Not a lock, because an interrupt after acquiring one with a timeout would leave it held.
        self._climber: dict[str, object] = {}

    def register(self, callback: Callable[[], Any]) -> None:
        """Call ``callback()`` on the first rung, for the user's own caches. It may return the bytes it released."""
        with self._lock:
            self._callbacks.append(callback)

    def unregister(self, callback: Callable[[], Any]) -> None:
        """Remove a callback, if it is registered."""
        with self._lock:
            self._callbacks = [each for each in self._callbacks if each is not callback]

    def climb(
        self,
        device: str = HOST,
        *,
        enough: Callable[[], bool] | None = None,
        highest: str = RUNGS[-1],
    ) -> CleanupReport:
        """Climb until there is room.

        Parameters
        ----------
        device : str
            Device whose memory is short.
        enough : callable, optional
            Returns whether there is enough memory; by default there never is.
        highest : str
            The last rung to climb.
        """
        if getattr(self._inside, "climbing", False):
            return CleanupReport(device, skipped="called from inside a clean-up")
        me, climber, until = object(), self._climber, time.monotonic() + _PATIENCE
        try:
            while climber.setdefault("now", me) is not me:
                if time.monotonic() > until:
                    return CleanupReport(device, skipped="another thread is cleaning up")
                time.sleep(_POLL_INTERVAL)
            self._inside.climbing = True
            return self._climb(device, RUNGS[: RUNGS.index(highest) + 1], enough or (lambda: False))
        finally:
            # No call before this is undone, because interrupts are raised after calls.
            self._inside.climbing = False
            if "now" in climber and climber["now"] is me:
                del climber["now"]

    def _climb(self, device: str, rungs: tuple[str, ...], enough: Callable[[], bool]) -> CleanupReport:
        begin, reports, reached = _free(device), [], False
        for name in rungs if device != HOST else rungs[:3]:
            reports.append(self._step(device, name))
            with suppress(MemoryError):  # to be read again after the next rung
                reached = enough()
            if reached:
                break
        report = CleanupReport(device, tuple(reports), _gain(begin, _free(device)), reached)
        logger.info("clean-up of %s: %.1f MiB freed in %d rungs", device, report.freed_mb, len(reports))
        return report

    def _step(self, device: str, name: str) -> RungReport:
        work: Callable[[str], tuple[int, str]] = getattr(self, f"_{name.replace(' ', '_')}".lower())
        before, begin = _free(device), time.perf_counter()
        released, note, error = 0, "", ""
        try:
            released, note = work(device)
        except Exception as failure:  # memory may run out here too, and the next rung may help
            error = registry.describe_failure(failure)
            logger.warning("clean-up of %s: the rung %r failed: %s", device, name, error)
        get_budget().invalidate()
        return RungReport(name, released, _gain(before, _free(device)), time.perf_counter() - begin, note, error)

    def _own_caches(self, device: str) -> tuple[int, str]:
        release_idle()  # into the pool, which is emptied next
        released = prepared_operands.clear() + host_buffers.clear() + pinned_buffers.clear()
        notes = []
        for callback in list(self._callbacks):
            try:
                told = callback()
            except Exception as failure:  # the user's error, and no reason to skip the rest
                name = getattr(callback, "__name__", repr(callback))
                notes.append(f"{name} failed: {registry.describe_failure(failure)}")
                logger.warning("clean-up callback %s", notes[-1])
                continue
            released += told if type(told) is int and told > 0 else 0
        return released, "; ".join(notes)

    def _garbage(self, device: str) -> tuple[int, str]:
        return 0, f"{gc.collect()} objects"

    def _library_caches(self, device: str) -> tuple[int, str]:
        if device == HOST:
            with suppress(OSError, AttributeError, TypeError):  # a C library without it
                return 0, "malloc" if ctypes.CDLL(None).malloc_trim(0) else ""
            return 0, ""
        used = [name for name in ("torch", "jax", "cupy") if registry.is_loaded(name)]
        for name in used:
            registry.adapter(name).release_memory(device)
        return 0, ", ".join(used)

    def _device_buffers_to_the_host(self, device: str) -> tuple[int, str]:
        released = sum(held.spill() for held in list(_spillable) if held.device == device)
        if released:
            self._library_caches(device)
        return released, ""

    def reset(self) -> None:
        """Remove all callbacks."""
        with self._lock:
            self._callbacks.clear()
        self.forget_climber()

    def forget_climber(self) -> None:
        """Reset the climbing thread, which a forked child does not have."""
        self._climber = {}
        self._inside = threading.local()


def _free(device: str) -> int | None:
    """Free bytes, or None if they cannot be read."""
    with suppress(MemoryError):
        return get_budget().read(device)
    return None


def _gain(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else max(0, after - before)


class Spillable(Guarded):
    """An array on a device that the engine may move to the host under pressure; :meth:`get` moves it back.

    Keep this object instead of the array: while there are other references to the array, its memory is not freed.

    Parameters
    ----------
    array : array
        Array on a device, of any library, without a gradient.
    """

    def __init__(self, array: Any) -> None:
        super().__init__()
        device = device_of(array)
        if device == "cpu":
            raise InvalidInputError("a host array uses no memory of a device; give an array on a device")
        if tracks_gradient(array):
            raise InvalidInputError("an array with a gradient cannot be moved off its device; detach it first")
        self.device = device
        self.library = library_of(array)
        self.nbytes = nbytes(array)
        self._array: Any = array
        self._host: np.ndarray[Any, Any] | None = None
        _spillable.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Spillable, (self.get(),)

    @property
    def spilled(self) -> bool:
        """Whether it is on the host now."""
        return self._host is not None

    def spill(self) -> int:
        """Move it to the host; returns the bytes freed on the device."""
        with self._lock:
            if self._host is not None:
                return 0
            # A separate copy of foreign memory, because it may be page-locked, which is limited.
            self._host = np.require(registry.adapter(self.library).to_host(self._array), requirements="O")
            self._array = None
        get_budget().invalidate(self.device)
        return self.nbytes

    def get(self) -> Any:
        """The array on its device."""
        with self._lock:
            if self._host is not None:
                self._array = registry.adapter(self.library).from_host(self._host, self.device)
                self._host = None
            return self._array


#: The ladder of this process.
ladder = Ladder()

after_fork(ladder.forget_climber)
