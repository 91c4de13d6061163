"""During which parts of a program did memory grow? Spans that are open, and what was in use when each began and ended.

Kept only while somebody watches. A profiler on another floor hands its own spans in the same way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType

from hpfracc.engine.locks import Guarded
from hpfracc.engine.memory.host import resident_bytes

__all__ = ["SpanLedger", "span", "spans"]

#: Ends of spans that are remembered.
_MOST = 8192


class SpanLedger(Guarded):
    """What each span left behind: bytes in use at its end, less at its beginning, less what spans inside it left."""

    def __init__(self) -> None:
        super().__init__()
        #: Whether anybody watches; read without the lock before each span.
        self.active = False
        self._watchers = 0
        self._ended: deque[tuple[float, str, int]] = deque(maxlen=_MOST)
        self._local = threading.local()

    def watch(self, on: bool) -> None:
        """Begin or end to keep spans; several may watch at once."""
        with self._lock:
            self._watchers = max(0, self._watchers + (1 if on else -1))
            self.active = self._watchers > 0

    def enter(self) -> None:
        """A span begins in this thread."""
        now = resident_bytes()
        self._stack().append([0 if now is None else now[0], 0])

    def leave(self, name: str) -> None:
        """The innermost span of this thread ends."""
        stack = self._stack()
        if not stack:
            return  # began before anybody watched
        began, inside = stack.pop()
        now = resident_bytes()
        grown = 0 if now is None else now[0] - began
        if stack:
            stack[-1][1] += grown
        self._ended.append((time.monotonic(), name, grown - inside))

    def record(self, name: str, grown: int) -> None:
        """A span that somebody else timed: what was in use at its end, less at its beginning and less spans inside."""
        if self.active:
            self._ended.append((time.monotonic(), name, grown))

    def growers(self, seconds: float, now: float | None = None) -> dict[str, float]:
        """Bytes a second that each span added over the last ``seconds``, the fastest first."""
        begin = (time.monotonic() if now is None else now) - seconds
        total: dict[str, int] = {}
        for ended, name, grown in list(self._ended):
            if ended >= begin:
                total[name] = total.get(name, 0) + grown
        rates = {name: grown / seconds for name, grown in total.items() if grown > 0}
        return dict(sorted(rates.items(), key=lambda pair: -pair[1]))

    def clear(self) -> None:
        """Forget everything, watchers too."""
        with self._lock:
            self._ended.clear()
            self._watchers, self.active = 0, False
        self._local = threading.local()

    def _stack(self) -> list[list[int]]:
        stack: list[list[int]] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack


#: Those of this process.
spans = SpanLedger()


class span:
    """A named part of a program: while a monitor samples, it knows how much memory this part left behind.

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
        self._entered = spans.active
        if self._entered:
            spans.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered:
            spans.leave(self.name)
