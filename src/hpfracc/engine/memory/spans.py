"""Growth of memory in named parts of a program: bytes in use when each span begins and ends.

Recorded only while a monitor is active.
"""

from __future__ import annotations

import time
from collections import deque
from contextvars import ContextVar
from types import TracebackType

from hpfracc.engine.locks import Guarded
from hpfracc.engine.memory.host import resident_bytes

__all__ = ["SpanLedger", "memory_spans", "span"]

#: Number of span ends that are kept.
_MAX = 8192


class _Open:
    """An open span: bytes in use at its start, and bytes that nested spans have left so far."""

    __slots__ = ("began", "inside", "outer")

    def __init__(self, began: int, outer: _Open | None) -> None:
        self.began = began
        self.inside = 0
        self.outer = outer


class SpanLedger(Guarded):
    """The growth of each span: bytes in use at its end minus those at its start, without nested spans."""

    def __init__(self) -> None:
        super().__init__()
        #: Whether a watcher is active; read without the lock before each span.
        self.active = False
        self._watchers = 0
        self._ended: deque[tuple[float, str, int]] = deque(maxlen=_MAX)
        #: The innermost open span of this thread or task.
        self._open: ContextVar[_Open | None] = ContextVar("hpfracc_memory_span", default=None)

    def watch(self, on: bool) -> None:
        """Start or stop recording spans; several watchers may be active."""
        with self._lock:
            self._watchers = max(0, self._watchers + (1 if on else -1))
            self.active = self._watchers > 0

    def enter(self) -> None:
        """Begin a span in this thread or task."""
        now = resident_bytes()
        self._open.set(_Open(0 if now is None else now[0], self._open.get()))

    def leave(self, name: str) -> None:
        """End the innermost span of this thread or task."""
        ending = self._open.get()
        if ending is None:
            return  # it started before watching did
        self._open.set(ending.outer)
        now = resident_bytes()
        grown = 0 if now is None else now[0] - ending.began
        if ending.outer is not None:
            ending.outer.inside += grown
        self._ended.append((time.monotonic(), name, grown - ending.inside))

    def growers(self, seconds: float) -> dict[str, float]:
        """Bytes per second that each span added over the last ``seconds``, fastest first."""
        begin = time.monotonic() - seconds
        total: dict[str, int] = {}
        for ended, name, grown in list(self._ended):
            if ended >= begin:
                total[name] = total.get(name, 0) + grown
        rates = {name: grown / seconds for name, grown in total.items() if grown > 0}
        return dict(sorted(rates.items(), key=lambda pair: -pair[1]))

    def clear(self) -> None:
        """Reset everything, including watchers."""
        with self._lock:
            self._ended.clear()
            self._watchers, self.active = 0, False
        self._open.set(None)


#: The spans of this process.
memory_spans = SpanLedger()


class span:
    """A named part of a program. While a monitor is sampling, the memory that it leaves behind is recorded.

    Examples
    --------
    >>> from hpfracc import memory
    >>> with memory.span("load"):
    ...     data = bytearray(1000)
    """

    __slots__ = ("_entered", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._entered = False

    def __enter__(self) -> span:
        self._entered = memory_spans.active
        if self._entered:
            memory_spans.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered:
            memory_spans.leave(self.name)
