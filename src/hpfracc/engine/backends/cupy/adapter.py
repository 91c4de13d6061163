"""CuPy as a backend, for CUDA devices only."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc._optional import import_optional, is_loaded
from hpfracc.engine.backends.base import Adapter, DeviceTimer
from hpfracc.engine.backends.cupy import BACKEND
from hpfracc.profiling.clocks import DeviceClock

__all__ = ["ADAPTER", "CupyAdapter"]

#: Out-of-memory messages of the underlying libraries.
_OUT_OF_MEMORY = ("ALLOC_FAILED", "cudaErrorMemoryAllocation")


def _index(device: str) -> int:
    return int(device.rpartition(":")[2])


class CupyAdapter(Adapter):
    """CuPy. Its allocator and plan cache keep the user's settings."""

    declaration = BACKEND

    def __init__(self) -> None:
        self._devices: tuple[str, ...] | None = None
        self._idle_events: dict[str, deque[tuple[Any, Any]]] = {}

    def devices(self) -> tuple[str, ...]:
        """Every CUDA device that CuPy finds; none without a driver."""
        if self._devices is None:
            runtime = import_optional("cupy").cuda.runtime
            try:
                count = int(runtime.getDeviceCount())
            except runtime.CUDARuntimeError:
                count = 0
            self._devices = tuple(f"cuda:{index}" for index in range(count))
        return self._devices

    def from_host(self, array: np.ndarray, device: str) -> Any:
        """A copy on ``device``."""
        from hpfracc.engine.backends.cupy import transfers

        return transfers.upload(array, _index(device))

    def to_host(self, array: Any) -> np.ndarray:
        """A copy in host memory."""
        from hpfracc.engine.backends.cupy import transfers

        return transfers.download(array)

    def cast(self, array: Any, dtype: str) -> Any:
        """``array`` in ``dtype``; itself if it has that dtype."""
        return array.astype(dtype, copy=False)

    def synchronize(self, device: str) -> None:
        """Wait for a device."""
        import_optional("cupy").cuda.Device(_index(device)).synchronize()

    def timer(self, device: str) -> DeviceTimer | None:
        """A pair of CUDA events on the current stream, reused from earlier timers."""
        cuda = import_optional("cupy").cuda
        idle = self._idle_events.setdefault(device, deque(maxlen=64))
        with cuda.Device(_index(device)):
            try:
                pair = idle.pop()
            except IndexError:
                pair = cuda.Event(), cuda.Event()
            return _EventTimer(cuda, _index(device), pair, idle)

    def clock(self) -> DeviceClock:
        """CUDA events on the current stream, for the profiler."""
        from hpfracc.engine.backends.cupy.clock import CLOCK

        return CLOCK

    def free_bytes(self, device: str) -> int | None:
        """Free memory of the driver plus unused memory of CuPy's pool."""
        cupy = import_optional("cupy")
        with cupy.cuda.Device(_index(device)):
            free, _ = cupy.cuda.runtime.memGetInfo()
            return int(free) + int(cupy.get_default_memory_pool().free_bytes())

    def release_memory(self, device: str) -> None:
        """Release the unused part of CuPy's pool, and the work areas of this thread's cached cuFFT plans."""
        cupy = sys.modules["cupy"] if is_loaded("cupy") else None
        if cupy is not None:
            with cupy.cuda.Device(_index(device)):
                cupy.fft.config.get_plan_cache().clear()
                cupy.get_default_memory_pool().free_all_blocks()

    def reserved_bytes(self, device: str) -> int:
        """Bytes that CuPy's pool has allocated."""
        cupy = import_optional("cupy")
        with cupy.cuda.Device(_index(device)):
            return int(cupy.get_default_memory_pool().total_bytes())

    def stack(self, arrays: Sequence[Any]) -> Any:
        """By CuPy."""
        return import_optional("cupy").stack(list(arrays))

    def pinned_bytes(self, size: int) -> np.ndarray | None:
        """Page-locked memory from CuPy's pool; None without a GPU."""
        if not self.devices():
            return None
        return np.frombuffer(import_optional("cupy").cuda.alloc_pinned_memory(size), np.uint8, size)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        """An array from CuPy's pool."""
        cupy = import_optional("cupy")
        with cupy.cuda.Device(_index(device)):
            return cupy.empty(shape, dtype)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """CuPy's error, or those of cuFFT, cuBLAS and the driver."""
        cupy = sys.modules["cupy"] if is_loaded("cupy") else None
        if isinstance(error, MemoryError) or (
            cupy is not None and isinstance(error, cupy.cuda.memory.OutOfMemoryError)
        ):
            return True
        return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


class _EventTimer:
    """Two CUDA events; :meth:`seconds` checks whether the second has passed, and never waits for it."""

    __slots__ = ("_cuda", "_idle", "_index", "_pair", "_seconds", "_stopped")

    def __init__(self, cuda: Any, index: int, pair: tuple[Any, Any], idle: deque[tuple[Any, Any]]) -> None:
        self._cuda = cuda
        self._index = index
        self._pair: tuple[Any, Any] | None = pair
        self._idle = idle
        self._stopped = False
        self._seconds: float | None = None

    def start(self) -> None:
        """Mark the beginning in the current stream."""
        self._record(0)

    def stop(self) -> None:
        """Mark the end in the current stream."""
        self._record(1)
        self._stopped = True

    def _record(self, which: int) -> None:
        if self._pair is not None:
            with self._cuda.Device(self._index):
                self._pair[which].record(self._cuda.get_current_stream())

    def seconds(self) -> float | None:
        """Seconds between the marks once the device has passed both, otherwise None."""
        if self._pair is not None and self._stopped and self._pair[1].done:
            self._seconds = self._cuda.get_elapsed_time(*self._pair) / 1000.0
            self._idle.append(self._pair)
            self._pair = None
        return self._seconds


ADAPTER = CupyAdapter()
