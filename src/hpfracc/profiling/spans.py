"""Spans: named intervals of time, as context managers and decorators."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar, cast

from hpfracc.errors import InvalidInputError
from hpfracc.profiling.clocks import read_host_memory
from hpfracc.profiling.device_time import DeviceTime
from hpfracc.profiling.session import Session, ThreadLane, running_loop

#: Kinds of spans: ``"span"`` for a user's own, the others are the engine's.
KINDS = ("span", "call", "kernel", "decide", "import", "transfer", "compile", "fallback", "batch", "usage")

#: Maximum length of a stored error message.
_MAX_TEXT = 500

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_now = time.perf_counter_ns


class SpanDecision(NamedTuple):
    """The decision of a call. Equal decisions have equal ``key``; ``tell()`` returns it as plain values.

    ``tell`` is called only when a profile is read, once per key.
    """

    key: Hashable
    tell: Callable[[], dict[str, Any]]


#: The session of a span from another process, which cannot be entered.
_ELSEWHERE = cast(Session, object())
#: The lane of a span that was not entered yet.
_NOWHERE = ThreadLane("")


class Span:
    """A named interval, created by :meth:`hpfracc.profiling.Profiler.profile` through its recorder.

    Attributes
    ----------
    name, kind : str
        Name, and kind: ``"span"`` for a user's span, otherwise one of the engine's kinds.
    id, parent : int
        Its number, and that of the enclosing span (0 for none).
    start, end : int
        Nanoseconds of ``time.perf_counter_ns``; ``end`` is 0 while it is open.
    device : DeviceTime or None
        The device's part; None without a device.
    memory : tuple or None
        Name of the counter, its bytes before and after, and its peak if known.
    size : int or None
        Bytes moved.
    decision : SpanDecision or None
        The engine's decision, for a call of the engine.
    error : str or None
        The exception that ended it.
    metadata : dict
        The user's data.
    lane : ThreadLane
        The thread or task in which it ran.
    """

    __slots__ = (
        "_outer", "_recorder", "_session", "decision", "device", "end", "error", "id", "kind", "lane", "memory",
        "metadata", "name", "parent", "size", "start",
    )  # fmt: skip

    def __init__(
        self, recorder: Any, name: str, kind: str = "span", device: str | None = None, metadata: Any = None
    ) -> None:
        self._recorder = recorder
        self._session: Session | None = None
        self._outer: Span | None = None
        self.name = name
        self.kind = kind
        self.metadata = metadata
        self.id = self.parent = self.start = self.end = 0
        self.lane = _NOWHERE
        self.size: int | None = None
        self.decision: SpanDecision | None = None
        self.error: str | None = None
        self.memory: tuple[str, int, int | None, int | None] | None = None
        self.device: DeviceTime | None = None if device is None else recorder.device_time(device)

    def __getstate__(self) -> dict[str, Any]:
        """Its data, without the recorder, which belongs to this process."""
        state = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
        if self.decision is not None:
            state["decision"] = SpanDecision(repr(self.decision.key), self.decision.tell().copy)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._recorder = self._outer = None
        self._session = _ELSEWHERE
        for name, value in state.items():
            setattr(self, name, value)

    def __enter__(self) -> Span:
        recorder = self._recorder
        session = self._session
        if session is not None:
            raise InvalidInputError(f"span {self.name!r} was already entered; create one for each use")
        self._session = session = recorder.session
        current = recorder.current
        outer = current.get()
        if outer is not None and outer._session is session:
            self._outer = outer
            self.parent = outer.id
        self.id = session.issue()
        try:
            self.lane = session.local.lane
        except AttributeError:
            self.lane = session.new_lane()
        if (loop := running_loop()) is not None:
            self.lane = session.task_lane(self.lane, loop)
        current.set(self)
        if recorder.memory:
            self._read_memory()
        if self.device is not None:
            self.device.begin()
        self.start = _now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.end = _now()
        if kind is not None:
            self.error = _describe(kind, error)
        recorder, session = self._recorder, self._session
        if session is None:
            raise InvalidInputError(f"span {self.name!r} was never entered; use it in a with block")
        if self.device is not None:
            self.device.end()
            session.settle_later(self.device)
        if recorder.memory:
            self._read_memory()
        recorder.current.set(self._outer)
        self._outer = None
        session.keep(self)
        session.count_end()

    def __call__(self, function: Decorated) -> Decorated:
        """Decorate ``function``: every call of it is a span like this one, while profiling is on."""
        device = self.device.device if self.device else None
        return cast(Decorated, self._recorder.decorate(function, self.name, device, self.metadata))

    def annotate(self, **metadata: Any) -> Span:
        """Add to its metadata."""
        self.metadata = {**(self.metadata or {}), **metadata}
        return self

    def synchronize(self, value: Any = None) -> Any:
        """Wait for ``value`` (or for all work of the span's device) inside the span, and return it.

        The device time then ends with its work. For a library without marks, such as JAX, the span's duration then
        includes the work, not only the time to enqueue it.
        """
        if self.device is not None:
            self.device.wait(value)
        return value

    @property
    def duration(self) -> float:
        """Seconds on the host."""
        return (self.end - self.start) / 1e9

    @property
    def device_duration(self) -> float | None:
        """Seconds of work on the device; None if not measured."""
        if self.device is None:
            return None
        self.device.settle()
        return None if self.device.duration is None else self.device.duration / 1e9

    def _read_memory(self) -> None:
        if self.device is None:
            reading = read_host_memory() if self._recorder.memory == "all" else None
        else:
            told = self.device.memory()
            reading = None if told is None else (self.device.device, *told)
        if reading is None:
            return
        where, now, peak = reading
        if self.memory is None:
            self.memory = (where, now, None, peak)
            return
        kept, before, _, peak_before = self.memory
        if kept != where:  # tracing started or ended within: the two readings cannot be compared
            self.memory = None
            return
        # The span's own peak is known only if the counter reached a new high-water mark within it.
        known = peak if peak is not None and peak_before is not None and peak > peak_before else None
        self.memory = (where, before, now, known)

    def __repr__(self) -> str:
        state = "open" if not self.end else f"{self.duration * 1e6:.1f} us"
        return f"<span {self.name!r} ({self.kind}): {state}>"


def _describe(kind: type[BaseException], error: BaseException | None) -> str:
    try:
        text = str(error)
    except Exception:  # str() of the error failed
        text = ""
    return f"{kind.__name__}: {text}"[:_MAX_TEXT] if text else kind.__name__
