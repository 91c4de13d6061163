"""CuPy as a backend, for CUDA devices only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc._optional import import_optional, is_loaded
from hpfracc.engine.backends.cuda import CudaAdapter, device_index
from hpfracc.engine.backends.cupy import BACKEND


class CupyAdapter(CudaAdapter):
    """CuPy. Its allocator and plan cache keep the user's settings."""

    declaration = BACKEND
    #: Those of cuFFT, cuBLAS and the driver; CuPy's own error is a MemoryError.
    out_of_memory = ("ALLOC_FAILED", "cudaErrorMemoryAllocation")

    def devices(self) -> tuple[str, ...]:
        """Every CUDA device that CuPy finds; none without a driver."""
        if self._devices is None:
            self._devices = tuple(f"cuda:{index}" for index in range(self.visible()[0]))
        return self._devices

    def from_host(self, array: np.ndarray, device: str) -> Any:
        """A copy on ``device``."""
        from hpfracc.engine.backends.cupy import transfers

        return transfers.upload(array, device_index(device))

    def to_host(self, array: Any) -> np.ndarray:
        """A copy in host memory."""
        from hpfracc.engine.backends.cupy import transfers

        return transfers.download(array)

    def cast(self, array: Any, dtype: str) -> Any:
        """``array`` in ``dtype``; itself if it has that dtype."""
        return array.astype(dtype, copy=False)

    def synchronize(self, device: str) -> None:
        """Wait for a device."""
        import_optional("cupy").cuda.Device(device_index(device)).synchronize()

    def in_use(self) -> bool:
        """Always: importing CuPy means using it."""
        return True

    def visible(self) -> tuple[int, int]:
        """No device without a driver."""
        runtime = import_optional("cupy").cuda.runtime
        try:
            return int(runtime.getDeviceCount()), int(runtime.getDevice())
        except runtime.CUDARuntimeError:
            return 0, 0

    def record(self, event: Any | None, index: int) -> Any:
        """On CuPy's stream."""
        cuda = import_optional("cupy").cuda
        with cuda.Device(index):
            event = cuda.Event() if event is None else event
            event.record(cuda.get_current_stream())
        return event

    def is_idle(self, index: int) -> bool:
        """CuPy's stream."""
        cuda = import_optional("cupy").cuda
        with cuda.Device(index):
            return bool(cuda.get_current_stream().done)

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.done)

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events."""
        return float(import_optional("cupy").cuda.get_elapsed_time(first, second)) / 1e3

    def wait(self, value: Any) -> bool:
        """Wait for the stream that works on an array."""
        cupy = import_optional("cupy")
        if not isinstance(value, cupy.ndarray):
            return False
        with value.device:
            cupy.cuda.get_current_stream().synchronize()
        return True

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes in use of CuPy's pool, which has no peak."""
        cupy = import_optional("cupy")
        with cupy.cuda.Device(device_index(device)):
            return int(cupy.get_default_memory_pool().used_bytes()), None

    def free_bytes(self, device: str) -> int | None:
        """Free memory of the driver plus unused memory of CuPy's pool."""
        cupy = import_optional("cupy")
        with cupy.cuda.Device(device_index(device)):
            free, _ = cupy.cuda.runtime.memGetInfo()
            return int(free) + int(cupy.get_default_memory_pool().free_bytes())

    def release_memory(self, device: str) -> None:
        """Release the unused part of CuPy's pool, and the work areas of this thread's cached cuFFT plans."""
        cupy = sys.modules["cupy"] if is_loaded("cupy") else None
        if cupy is not None:
            with cupy.cuda.Device(device_index(device)):
                cupy.fft.config.get_plan_cache().clear()
                cupy.get_default_memory_pool().free_all_blocks()

    def reserved_bytes(self, device: str) -> int:
        """Bytes that CuPy's pool has allocated."""
        cupy = import_optional("cupy")
        with cupy.cuda.Device(device_index(device)):
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
        with cupy.cuda.Device(device_index(device)):
            return cupy.empty(shape, dtype)


ADAPTER = CupyAdapter()
