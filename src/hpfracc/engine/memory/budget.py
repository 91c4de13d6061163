"""The one rule by which memory is granted, and a reading of free memory cheap enough for every call.

``allowed = share * free``: the mask that refuses an arm, the monitor that watches and the batcher that cuts all ask
here, so that they cannot disagree. This floor knows no backend: a backend hands over how it counts its free bytes.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable

from hpfracc.engine.memory.host import HostProbe

__all__ = ["HOST", "Budget", "FreeBytes", "allowed", "fits", "get_budget", "reset"]

#: Free bytes of a device by its name, as one library could allocate them now; None where it cannot tell.
FreeBytes = Callable[[str], int | None]

#: The name under which the host's memory is asked for.
HOST = "cpu"

#: Seconds for which a reading is trusted. A host reading takes 0.1 to 0.3 ms: at most 0.3 % of the time goes there.
TIME_TO_LIVE = 0.1

_log = logging.getLogger("hpfracc.memory")
_lock = threading.Lock()
_every: weakref.WeakSet[Budget] = weakref.WeakSet()


def allowed(free: int, share: float) -> int:
    """Whole bytes that one call may take when ``free`` are free: the formula itself."""
    return int(share * free)


def fits(need: float, free: int | None, share: float) -> bool:
    """Whether ``need`` bytes are allowed; memory that nobody can read refuses nothing.

    The same formula without the rounding, which no whole number of bytes notices.
    """
    return free is None or need <= share * free


def _read_host(_: str) -> int | None:
    return _probe.read().free


_probe = HostProbe()


class Budget:
    """Free memory of the host and of devices, read through whoever registered, remembered for a moment.

    Parameters
    ----------
    host : callable
        How the host's free bytes are read.
    time_to_live : float
        Seconds for which a reading is trusted.
    clock : callable
        A monotonic clock, in seconds.
    """

    def __init__(
        self,
        host: FreeBytes = _read_host,
        time_to_live: float = TIME_TO_LIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._time_to_live = time_to_live
        self._clock = clock
        self._readers: dict[str, FreeBytes] = {}
        self._readings: dict[tuple[str, str | None], tuple[float, int | None]] = {}
        self._caps: dict[str, int] = {}
        _every.add(self)

    def register(self, owner: str, reader: FreeBytes) -> None:
        """Let ``owner`` (a backend's name) say how much of a device it could allocate; the last word counts."""
        with _lock:
            self._readers = {**self._readers, owner: reader}  # replaced, so that readers need no lock
        self.invalidate()

    def unregister(self, owner: str) -> None:
        """Forget what ``owner`` registered; nothing happens if it did not."""
        with _lock:
            self._readers = {name: reader for name, reader in self._readers.items() if name != owner}
        self.invalidate()

    def free(self, device: str = HOST, owner: str | None = None) -> int | None:
        """Bytes free on ``device``, at most :data:`TIME_TO_LIVE` old.

        Parameters
        ----------
        device : str
            ``"cpu"`` for the host, or a device's name such as ``"cuda:0"``.
        owner : str, optional
            The library that will allocate: memory unused in its own pool counts as free. Without it, the least that
            any of the registered ones reports.

        Returns
        -------
        int or None
            None where nobody can tell.
        """
        entry = self._readings.get((device, owner))
        if entry is not None and self._clock() < entry[0]:
            return entry[1]
        return self.read(device, owner)

    def read(self, device: str = HOST, owner: str | None = None) -> int | None:
        """Like :meth:`free`, but read now."""
        if device == HOST:
            readers = [self._host]
        elif owner is not None:
            readers = [reader for name, reader in self._readers.items() if name == owner]
        else:
            readers = list(self._readers.values())
        known = [value for reader in readers if (value := _ask(reader, device)) is not None]
        value = min(known) if known else None
        cap = self._caps.get(device)
        if cap is not None:
            value = cap if value is None else min(value, cap)
        self._readings[device, owner] = (self._clock() + self._time_to_live, value)
        return value

    def fits(self, need: float, device: str, share: float, owner: str | None = None) -> bool:
        """Whether ``need`` bytes are within ``share`` of what is free on ``device``."""
        entry = self._readings.get((device, owner))  # as in free(), without the call: this one is asked every time
        if entry is not None and self._clock() < entry[0]:
            return fits(need, entry[1], share)
        return fits(need, self.read(device, owner), share)

    def allowed(self, device: str, share: float, owner: str | None = None) -> int | None:
        """Bytes one call may take on ``device`` now; None where nobody can tell."""
        free = self.free(device, owner)
        return None if free is None else allowed(free, share)

    def cap(self, device: str, size: int | None) -> int | None:
        """Let no call take more than ``size`` bytes on ``device``, whatever is free; gives back the cap before."""
        with _lock:
            before = self._caps.get(device)
            self._caps = {name: cap for name, cap in self._caps.items() if name != device}
            if size is not None:
                self._caps[device] = size
        self.invalidate(device)
        return before

    def caps(self) -> dict[str, int]:
        """The caps in force."""
        return dict(self._caps)

    def invalidate(self, device: str | None = None) -> None:
        """Forget the readings of ``device`` (of all without one), as after a large allocation or a clean-up."""
        if device is None:
            self._readings = {}
        else:
            self._readings = {key: entry for key, entry in self._readings.items() if key[0] != device}


def _ask(reader: FreeBytes, device: str) -> int | None:
    """A reader's answer; one that fails knows nothing, and must not take the user's call down with it."""
    try:
        value = reader(device)
    except Exception:
        _log.debug("free memory of %s could not be read", device, exc_info=True)
        return None
    return None if value is None else max(0, int(value))


_budget = Budget()


def get_budget() -> Budget:
    """The process's budget, with which backends register."""
    return _budget


def reset() -> None:
    """Forget every reader and reading of the process's budget; who holds it still holds the right one."""
    with _lock:
        _budget._readers = {}
        _budget._caps = {}
    _budget.invalidate()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for budget in list(_every):
        budget.invalidate()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
