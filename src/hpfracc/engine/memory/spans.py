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


class SpanLedger(Guarded):
    """The growth of each span: bytes in use at its end minus those at its start, without nested spans."""

    def __init__(self) -> None:
        super().__init__()
        #: Whether a watcher is active; read without the lock before each span.
        self.active = False
        self._watchers = 0
        self._ended: deque[tuple[float, str, int]] = deque(maxlen=_MAX)

    def watch(self, on: bool) -> None:
        """Start or stop recording spans; several watchers may be active."""
        with self._lock:
            self._watchers = max(0, self._watchers + (1 if on else -1))
            self.active = self._watchers > 0

    def add(self, name: str, grown: int) -> None:
        """Record the end of a span."""
        self._ended.append((time.monotonic(), name, grown))

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

    __slots__ = ("_began", "_inside", "_outer", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._began: int | None = None

    def __enter__(self) -> span:
        if memory_spans.active:
            self._began, self._inside, self._outer = _in_use(), 0, _open.get()
            _open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._began is None:
            return
        _open.set(self._outer)
        grown, self._began = _in_use() - self._began, None
        if self._outer is not None:
            self._outer._inside += grown
        memory_spans.add(self.name, grown - self._inside)


#: The innermost open span of this thread or task.
_open: ContextVar[span | None] = ContextVar("hpfracc_memory_span", default=None)


def _in_use() -> int:
    now = resident_bytes()
    return 0 if now is None else now[0]
