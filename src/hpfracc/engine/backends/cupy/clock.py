"""CUDA events on CuPy's current stream, and the memory of its pool, for the profiler."""

from __future__ import annotations

from typing import Any

import cupy

from hpfracc.engine.backends.cuda import CudaClock, device_index


class CupyClock(CudaClock):
    """CuPy's devices."""

    name = "cupy"

    def in_use(self) -> bool:
        """Always: importing CuPy means using it."""
        return True

    def visible(self) -> tuple[int, int]:
        """No device without a driver."""
        runtime = cupy.cuda.runtime
        try:
            return int(runtime.getDeviceCount()), int(runtime.getDevice())
        except runtime.CUDARuntimeError:
            return 0, 0

    def record(self, event: Any | None, index: int) -> Any:
        """On CuPy's stream."""
        with cupy.cuda.Device(index):
            event = cupy.cuda.Event() if event is None else event
            event.record(cupy.cuda.get_current_stream())
        return event

    def is_idle(self, index: int) -> bool:
        """CuPy's stream."""
        with cupy.cuda.Device(index):
            return bool(cupy.cuda.get_current_stream().done)

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.done)

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events."""
        return float(cupy.cuda.get_elapsed_time(first, second)) / 1e3

    def synchronize(self, device: str) -> None:
        """Wait for the device."""
        cupy.cuda.Device(device_index(device)).synchronize()

    def wait(self, value: Any) -> bool:
        """Wait for the stream that works on an array."""
        if not isinstance(value, cupy.ndarray):
            return False
        with value.device:
            cupy.cuda.get_current_stream().synchronize()
        return True

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes in use of CuPy's pool, which has no peak."""
        with cupy.cuda.Device(device_index(device)):
            return int(cupy.get_default_memory_pool().used_bytes()), None


CLOCK = CupyClock()
