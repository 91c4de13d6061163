"""CUDA events on PyTorch's current stream, and the memory of its allocator, for the profiler."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

__all__ = ["CLOCK", "TorchClock"]

#: Maximum number of idle events per device.
_MAX_IDLE = 16_384


class _Queue:
    """The current stream of one device, and idle events, because creating one takes longer than recording it."""

    __slots__ = ("_index", "idle")

    def __init__(self, index: int) -> None:
        self._index = index
        self.idle: deque[Any] = deque(maxlen=_MAX_IDLE)

    def current(self) -> Any:
        """The current stream."""
        return torch.cuda.current_stream(self._index)

    def record(self, stream: Any) -> Any:
        """An event, recorded on ``stream``."""
        try:
            event = self.idle.pop()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event


class TorchClock:
    """PyTorch's CUDA devices."""

    name = "torch"
    marks = True

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    def in_use(self) -> bool:
        """Whether PyTorch has a context on a GPU."""
        return bool(torch.cuda.is_initialized())

    def resolve(self, device: str) -> str | None:
        """``"gpu"`` and ``"cuda"`` are the current device."""
        cuda = torch.cuda
        if not (device in ("gpu", "cuda") or device.startswith(("gpu:", "cuda:"))) or not cuda.is_available():
            return None
        _, _, index = device.partition(":")
        number = int(index) if index.isdigit() else None if index else cuda.current_device()
        return None if number is None or number >= cuda.device_count() else f"cuda:{number}"

    def mark(self, device: str) -> Any:
        """An event, recorded on the current stream."""
        queue = self._queues.get(device) or self._queue(device)
        return queue.record(queue.current())

    def mark_end(self, device: str) -> tuple[bool, Any]:
        """Whether the current stream is idle, and an event recorded on it."""
        queue = self._queues.get(device) or self._queue(device)
        stream = queue.current()
        return bool(stream.query()), queue.record(stream)

    def _queue(self, device: str) -> _Queue:
        # A number, because PyTorch takes longer to parse a name than to find the stream.
        return self._queues.setdefault(device, _Queue(int(device[5:])))

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.query())

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events."""
        return float(first.elapsed_time(second)) / 1e3

    def release(self, device: str, mark: Any) -> None:
        """Return the event to the pool."""
        (self._queues.get(device) or self._queue(device)).idle.append(mark)

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
