"""CUDA events on PyTorch's current stream, and what its allocator has handed out: for the profiler."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

__all__ = ["CLOCK", "TorchClock"]

#: Idle events kept for each device.
_MOST_IDLE = 16_384


class TorchClock:
    """PyTorch's CUDA devices. Events are taken from a pool: making one takes longer than recording it."""

    name = "torch"
    marks = True

    def __init__(self) -> None:
        self._idle: dict[str, deque[Any]] = {}
        #: PyTorch's streams by their numbers: making the object for one takes longer than recording on it.
        self._streams: dict[tuple[int, ...], Any] = {}
        self._indices: dict[str, int] = {}

    def in_use(self) -> bool:
        """Whether PyTorch has a context on a card."""
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
        idle = self._idle.get(device)
        if idle is None:
            idle = self._idle.setdefault(device, deque(maxlen=_MOST_IDLE))
        try:
            event = idle.pop()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record(self._current(device))
        return event

    def is_idle(self, device: str) -> bool:
        """Whether the current stream has nothing left to do."""
        return bool(self._current(device).query())

    def _current(self, device: str) -> Any:
        """The stream that work is given to now."""
        index = self._indices.get(device)
        if index is None:
            index = self._indices[device] = _index(device)
        number: tuple[int, ...] = torch._C._cuda_getCurrentStream(index)
        stream = self._streams.get(number)
        if stream is None:
            stream = self._streams[number] = torch.cuda.current_stream(index)
        return stream

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.query())

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events."""
        return float(first.elapsed_time(second)) / 1e3

    def release(self, device: str, mark: Any) -> None:
        """Back into the pool."""
        self._idle.setdefault(device, deque(maxlen=_MOST_IDLE)).append(mark)

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
        """What PyTorch's allocator has handed out, and the most since its peak was last reset (which is the user's)."""
        # The nested form of the counters: memory_allocated() flattens all of them to read one.
        counts = torch.cuda.memory_stats_as_nested_dict(device).get("allocated_bytes")
        if not counts:
            return None
        return int(counts["all"]["current"]), int(counts["all"]["peak"])


def _index(device: str) -> int:
    """A number: PyTorch takes longer to read a name than to find the stream."""
    return int(device[5:])


CLOCK = TorchClock()
