"""CUDA events on PyTorch's current stream, and the memory of its allocator, for the profiler."""

from __future__ import annotations

from typing import Any

import torch

from hpfracc.engine.backends.cuda import CudaClock


class TorchClock(CudaClock):
    """PyTorch's CUDA devices."""

    name = "torch"

    def in_use(self) -> bool:
        """Whether PyTorch has a context on a GPU."""
        return bool(torch.cuda.is_initialized())

    def visible(self) -> tuple[int, int]:
        """No device without a driver."""
        cuda = torch.cuda
        return (cuda.device_count(), cuda.current_device()) if cuda.is_available() else (0, 0)

    def record(self, event: Any | None, index: int) -> Any:
        """On PyTorch's stream."""
        event = torch.cuda.Event(enable_timing=True) if event is None else event
        event.record(torch.cuda.current_stream(index))
        return event

    def is_idle(self, index: int) -> bool:
        """PyTorch's stream."""
        return bool(torch.cuda.current_stream(index).query())

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.query())

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events."""
        return float(first.elapsed_time(second)) / 1e3

    def synchronize(self, device: str) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(device)

    def wait(self, value: Any) -> bool:
        """Wait for the stream that works on a CUDA tensor."""
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return False
        torch.cuda.current_stream(value.device).synchronize()
        return True

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes in use of PyTorch's allocator, and the peak since the user last reset it."""
        # The nested form of the counters: memory_allocated() flattens all of them to read one.
        counts = torch.cuda.memory_stats_as_nested_dict(device).get("allocated_bytes")
        if not counts:
            return None
        return int(counts["all"]["current"]), int(counts["all"]["peak"])


CLOCK = TorchClock()
