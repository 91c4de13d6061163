"""PyTorch as a backend, on the host and on CUDA devices."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpfracc._optional import import_optional, is_loaded
from hpfracc.engine.backends.cuda import CudaAdapter
from hpfracc.engine.backends.torch import BACKEND

logger = logging.getLogger("hpfracc.engine")


class TorchAdapter(CudaAdapter):
    """PyTorch. Its thread count, default dtype and TF32 settings are not changed."""

    declaration = BACKEND
    out_of_memory = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")

    def devices(self) -> tuple[str, ...]:
        """The host and every CUDA device that PyTorch finds."""
        if self._devices is None:
            torch = import_optional("torch")
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            self._devices = ("cpu", *(f"cuda:{index}" for index in range(count)))
        return self._devices

    def from_host(self, array: np.ndarray, device: str) -> Any:
        """A tensor on ``device``; on the host it shares the array's memory if possible."""
        from hpfracc.engine.backends.torch import transfers

        return transfers.as_tensor(array) if device == "cpu" else transfers.upload(array, device)

    def to_host(self, array: Any) -> np.ndarray:
        """A NumPy array without the gradient; shares the memory of a host tensor."""
        if array.is_cpu:
            return array.detach().resolve_conj().resolve_neg().numpy()
        from hpfracc.engine.backends.torch import transfers

        return transfers.download(array)

    def cast(self, array: Any, dtype: str) -> Any:
        """The tensor in ``dtype``; differentiable."""
        return array.to(getattr(import_optional("torch"), dtype))

    def synchronize(self, device: str) -> None:
        """Wait for a CUDA device; the host is synchronous."""
        if device != "cpu":
            import_optional("torch").cuda.synchronize(device)

    def in_use(self) -> bool:
        """Whether PyTorch has a context on a GPU."""
        return bool(import_optional("torch").cuda.is_initialized())

    def visible(self) -> tuple[int, int]:
        """No device without a driver."""
        cuda = import_optional("torch").cuda
        return (cuda.device_count(), cuda.current_device()) if cuda.is_available() else (0, 0)

    def record(self, event: Any | None, index: int) -> Any:
        """On PyTorch's stream."""
        cuda = import_optional("torch").cuda
        event = cuda.Event(enable_timing=True) if event is None else event
        event.record(cuda.current_stream(index))
        return event

    def is_idle(self, index: int) -> bool:
        """PyTorch's stream."""
        return bool(import_optional("torch").cuda.current_stream(index).query())

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.query())

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events."""
        return float(first.elapsed_time(second)) / 1e3

    def wait(self, value: Any) -> bool:
        """Wait for the stream that works on a CUDA tensor."""
        torch = import_optional("torch")
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return False
        torch.cuda.current_stream(value.device).synchronize()
        return True

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes of tensors on a CUDA device, and their peak since the last reset."""
        return None if device == "cpu" else self._counts(device, "allocated_bytes", "current", "peak")

    def _counts(self, device: str, name: str, *columns: str) -> Any:
        """Counters of PyTorch's pool, 0 before its first use.

        In the nested form: memory_allocated() and the like flatten all counters to read one.
        """
        counts = import_optional("torch").cuda.memory_stats_as_nested_dict(device).get(name)
        return tuple(int(counts["all"][column]) if counts else 0 for column in columns)

    def free_bytes(self, device: str) -> int | None:
        """Free memory of the driver plus unused memory of PyTorch's pool; None for the host."""
        if device == "cpu":
            return None
        cuda = import_optional("torch").cuda
        free, _ = cuda.mem_get_info(device)
        held, used = (self._counts(device, name, "current")[0] for name in ("reserved_bytes", "allocated_bytes"))
        return int(free) + int(held - used)

    def begin_in_child(self) -> None:
        """Use one thread, as in PyTorch's data loaders, because it would wait forever for threads of the parent."""
        torch = import_optional("torch")
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
            logger.warning("PyTorch was imported before this process was forked: it runs with one thread here")

    def is_recording(self) -> bool:
        """Whether the current stream records a CUDA graph."""
        torch = sys.modules["torch"] if is_loaded("torch") else None
        return torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()

    def release_memory(self, device: str) -> None:
        """Return the unused part of PyTorch's pool to the driver."""
        torch = sys.modules["torch"] if is_loaded("torch") else None
        if device != "cpu" and torch is not None and torch.cuda.is_initialized():
            with torch.cuda.device(device):
                torch.cuda.empty_cache()

    def reset_peak(self, device: str) -> None:
        """Reset PyTorch's counter."""
        if device != "cpu":
            import_optional("torch").cuda.reset_peak_memory_stats(device)

    def reserved_bytes(self, device: str) -> int:
        """Bytes that PyTorch's caching allocator has reserved."""
        return 0 if device == "cpu" else int(import_optional("torch").cuda.memory_reserved(device))

    def stack(self, arrays: Sequence[Any]) -> Any:
        """By PyTorch; differentiable."""
        return import_optional("torch").stack(tuple(arrays))

    def pinned_bytes(self, size: int) -> np.ndarray | None:
        """Page-locked memory from PyTorch's allocator; None without a GPU."""
        torch = import_optional("torch")
        if not torch.cuda.is_available():
            return None
        return torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
        """A tensor, on a GPU from PyTorch's caching allocator."""
        torch = import_optional("torch")
        return torch.empty(shape, dtype=getattr(torch, dtype), device=device)


ADAPTER = TorchAdapter()
