"""Recording spans into a bounded ring buffer, without a lock.

``shared`` is the recorder of the process. While profiling is off, the engine reads only its attribute ``on``.
"""

from __future__ import annotations

import os
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from hpfracc.errors import InvalidInputError
from hpfracc.profiling.clocks import HOST_NAMES
from hpfracc.profiling.device_time import DeviceTime
from hpfracc.profiling.session import Session
from hpfracc.profiling.spans import NULL_SPAN, Decorated, MemoryMode, NullSpan, Span, decorate

if TYPE_CHECKING:
    from hpfracc.profiling.energy import EnergyTrace

__all__ = ["CAPACITY", "Recorder", "check_capacity", "reset", "shared", "watched"]

#: Spans kept by default; 60 MB at some 300 bytes each.
CAPACITY = 200_000


class Recorder:
    """Creates and stores spans.

    Parameters
    ----------
    capacity : int
        Maximum number of spans. Older ones are dropped and counted.
    memory : {"", "device", "all"}
        What is read around spans.
    """

    def __init__(self, capacity: int = CAPACITY, memory: MemoryMode = "") -> None:
        self.on = False
        self.memory: MemoryMode = memory
        self.capacity = check_capacity(capacity)
        self.current: ContextVar[Span | None] = ContextVar("hpfracc_span", default=None)
        self.session = Session(self.capacity)
        self.energy: EnergyTrace | None = None
        _recorders.add(self)

    def watch_energy(self, on: bool) -> None:
        """Start or stop reading energy counters; discards earlier readings."""
        if self.energy is not None:
            self.energy.stop()
            self.energy = None
        if on:
            from hpfracc.profiling.energy import EnergyTrace

            self.energy = EnergyTrace()

    def enable(self) -> None:
        """Record from now on."""
        self.on = True

    def disable(self) -> None:
        """Stop recording; open spans are still stored when they end."""
        self.on = False

    def reset(self, capacity: int | None = None) -> None:
        """Discard everything recorded; open spans will not be stored."""
        if capacity is not None:
            self.capacity = check_capacity(capacity)
        self.session = Session(self.capacity)

    def span(
        self, name: str, kind: str = "span", device: str | None = None, metadata: dict[str, Any] | None = None
    ) -> Span | NullSpan:
        """A new span; the null span while recording is off."""
        return Span(self, name, kind, device, metadata) if self.on else NULL_SPAN

    def event(self, name: str, kind: str, metadata: dict[str, Any] | None = None, error: str | None = None) -> None:
        """Record a span without duration."""
        if self.on:
            with Span(self, name, kind, None, metadata) as span:
                span.error = error

    def device_time(self, device: str) -> DeviceTime | None:
        """The device's part of a span on ``device``; None for the host."""
        return None if device in HOST_NAMES else self.session.device_time(device)


def check_capacity(capacity: Any) -> int:
    """Check that the capacity is an integer of at least 1."""
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise InvalidInputError(f"capacity={capacity!r} is not a number of spans; use an integer of at least 1")
    return capacity


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked child starts with nothing recorded: the parent exports its own spans."""
    for recorder in list(_recorders):
        recorder.session.forget_devices()
        recorder.energy = None  # its thread is the parent's
        recorder.reset()
        recorder.current.set(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#: The recorder of the process, to which the engine reports.
shared = Recorder()


def watched(function: Decorated) -> Decorated:
    """Decorate a public function: every call is a span while profiling is on."""
    return decorate(shared, function, function.__qualname__, None, None)


def reset() -> None:
    """Reset the shared recorder: off, empty, with the default capacity."""
    shared.disable()
    shared.watch_energy(False)
    shared.memory = ""
    shared.reset(CAPACITY)
    shared.current.set(None)
