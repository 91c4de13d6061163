"""Recording spans into a bounded ring buffer, without a lock.

``shared`` is the recorder of the process. While profiling is off, the engine reads only its attribute ``on``.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from hpfracc import _reading
from hpfracc._interrupts import after_fork
from hpfracc.errors import InvalidInputError

if TYPE_CHECKING:
    from hpfracc.profiling.clocks import EnergyTrace
    from hpfracc.profiling.device_time import DeviceTime
    from hpfracc.profiling.session import Session
    from hpfracc.profiling.spans import Span

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

#: Names of the host as a device.
HOST_NAMES = frozenset({"cpu", "host"})

#: Memory to read around spans: none, that of the span's device, or also that of the host for other spans.
MemoryMode = Literal["", "device", "all"]

#: Spans kept by default; 60 MB at some 300 bytes each.
CAPACITY = 200_000


class NullSpan:
    """The span while profiling is off: a single object that does nothing."""

    __slots__ = ()

    def __enter__(self) -> NullSpan:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __call__(self, function: Decorated) -> Decorated:
        """Return the function unchanged. `Profiler.profile_function` makes decorators that can be enabled later."""
        return function

    def annotate(self, **metadata: Any) -> NullSpan:
        """Do nothing."""
        return self

    def synchronize(self, value: Any = None) -> Any:
        """Return ``value`` without waiting."""
        return value

    def __repr__(self) -> str:
        return "<no span: profiling is off>"


NULL_SPAN = NullSpan()


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
        self.capacity = _reading.whole("capacity", capacity, least=1)
        self.current: ContextVar[Span | None] = ContextVar("hpfracc_span", default=None)
        self._session: Session | None = None
        self.energy: EnergyTrace | None = None
        _recorders.add(self)

    @property
    def session(self) -> Session:
        """What was recorded since the last reset. The recording of spans is loaded with the first one."""
        if self._session is None:
            from hpfracc.profiling.session import Session

            self._session = Session(self.capacity)
        return self._session

    def watch_energy(self, on: bool) -> None:
        """Start or stop reading energy counters; discards earlier readings."""
        if self.energy is not None:
            self.energy.stop()
            self.energy = None
        if on:
            from hpfracc.profiling.clocks import EnergyTrace

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
            self.capacity = _reading.whole("capacity", capacity, least=1)
        self._session = None

    def span(
        self, name: str, kind: str = "span", device: str | None = None, metadata: dict[str, Any] | None = None
    ) -> Span | NullSpan:
        """A new span; the null span while recording is off."""
        if not self.on:
            return NULL_SPAN
        from hpfracc.profiling.spans import Span

        return Span(self, name, kind, device, metadata)

    def event(self, name: str, kind: str, metadata: dict[str, Any] | None = None, error: str | None = None) -> None:
        """Record a span without duration."""
        span = self.span(name, kind, None, metadata)
        if not isinstance(span, NullSpan):
            with span:
                span.error = error

    def decorate(
        self, function: Decorated, name: str, device: str | None = None, metadata: dict[str, Any] | None = None
    ) -> Decorated:
        """Wrap a function so that every call is a span while recording is on."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidInputError(
                f"{name!r} is a generator, which cannot be timed as one call; put a span into its body, or "
                "around the loop that uses it"
            )
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def run_later(*args: Any, **kwargs: Any) -> Any:
                with self.span(name, "span", device, metadata):
                    return await function(*args, **kwargs)

            return cast(Decorated, run_later)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return function(*args, **kwargs)
            with self.span(name, "span", device, metadata):
                return function(*args, **kwargs)

        return cast(Decorated, run)

    def device_time(self, device: str) -> DeviceTime | None:
        """The device's part of a span on ``device``; None for the host."""
        return None if device in HOST_NAMES else self.session.device_time(device)


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


@after_fork
def _after_fork() -> None:
    """A forked child starts with nothing recorded: the parent exports its own spans."""
    for recorder in list(_recorders):
        if recorder._session is not None:
            recorder._session.forget_devices()
        recorder.energy = None  # its thread is the parent's
        recorder.reset()
        recorder.current.set(None)


#: The recorder of the process, to which the engine reports.
shared = Recorder()


def watched(function: Decorated) -> Decorated:
    """Decorate a public function: every call is a span while profiling is on."""
    return shared.decorate(function, function.__qualname__)


def reset() -> None:
    """Reset the shared recorder: off, empty, with the default capacity."""
    shared.disable()
    shared.watch_energy(False)
    shared.memory = ""
    shared.reset(CAPACITY)
    shared.current.set(None)
