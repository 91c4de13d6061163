"""Arrays that are spilled from a device to the host while its memory is short, and moved back on use."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, library_of, nbytes, tracks_gradient
from hpfracc.engine.backends import registry
from hpfracc.engine.locks import Guarded
from hpfracc.engine.memory.budget import get_budget
from hpfracc.errors import InvalidInputError

__all__ = ["Spillable", "spill_device"]

_every: weakref.WeakSet[Spillable] = weakref.WeakSet()


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
        _every.add(self)

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


def spill_device(device: str) -> int:
    """Move every registered array of ``device`` to the host; returns the bytes freed."""
    return sum(held.spill() for held in list(_every) if held.device == device)
