"""CUDA events on CuPy's current stream, and the memory of its pool, for the profiler."""

from __future__ import annotations

from collections import deque
from typing import Any

import cupy

__all__ = ["CLOCK", "CupyClock"]

#: Maximum number of idle events per device.
_MAX_IDLE = 1024


class CupyClock:
    """CuPy's devices. Events come from a pool, because creating one takes longer than recording it."""

    name = "cupy"
    marks = True

    def __init__(self) -> None:
        self._idle: dict[str, deque[Any]] = {}

    def in_use(self) -> bool:
        """Always: importing CuPy means using it."""
        return True

    def resolve(self, device: str) -> str | None:
        """``"gpu"`` and ``"cuda"`` are the current device."""
        if not (device in ("gpu", "cuda") or device.startswith(("gpu:", "cuda:"))):
            return None
        runtime = cupy.cuda.runtime
        try:
            count, current = int(runtime.getDeviceCount()), int(runtime.getDevice())
        except runtime.CUDARuntimeError:
            return None
        _, _, index = device.partition(":")
        number = int(index) if index.isdigit() else None if index else current
        return None if number is None or number >= count else f"cuda:{number}"

    def mark(self, device: str) -> Any:
        """An event, recorded on the current stream."""
        idle = self._idle.setdefault(device, deque(maxlen=_MAX_IDLE))
        with cupy.cuda.Device(_index(device)):
            try:
                event = idle.pop()
            except IndexError:
                event = cupy.cuda.Event()
            event.record(cupy.cuda.get_current_stream())
        return event

    def mark_end(self, device: str) -> tuple[bool, Any]:
        """Whether the current stream is idle, and an event recorded on it."""
        with cupy.cuda.Device(_index(device)):
            idle = bool(cupy.cuda.get_current_stream().done)
            return idle, self.mark(device)

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.done)

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events."""
        return float(cupy.cuda.get_elapsed_time(first, second)) / 1e3

    def release(self, device: str, mark: Any) -> None:
        """Return the event to the pool."""
        self._idle.setdefault(device, deque(maxlen=_MAX_IDLE)).append(mark)

    def synchronize(self, device: str) -> None:
        """Wait for the device."""
        cupy.cuda.Device(_index(device)).synchronize()

    def wait(self, value: Any) -> bool:
        """Wait for the stream that works on an array."""
        if not isinstance(value, cupy.ndarray):
            return False
        with value.device:
            cupy.cuda.get_current_stream().synchronize()
        return True

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes in use of CuPy's pool, which has no peak."""
        with cupy.cuda.Device(_index(device)):
            return int(cupy.get_default_memory_pool().used_bytes()), None


def _index(device: str) -> int:
    return int(device.rpartition(":")[2])


CLOCK = CupyClock()
