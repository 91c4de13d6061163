"""A time limit for one call, in any thread.

Python code is interrupted by an exception that the interpreter raises in the thread of the call. Code that does not
return to the interpreter (a library's loop, a long sleep) cannot be interrupted: after a grace period a worker process
is terminated, and its pool or nanny replaces it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType

from hpfracc._shielded import start_thread

__all__ = ["EXIT_STATUS", "TimeLimit"]

#: Exit status of a worker process terminated because a call did not stop.
EXIT_STATUS = 73
#: Shortest time in seconds between the exception and the end of the process.
_GRACE = 5.0


class _LimitReached(BaseException):
    """Raised in the thread of the call. Not an ``Exception``, so that handlers inside the call do not catch it."""


class TimeLimit:
    """``with TimeLimit(seconds): ...`` raises ``TimeoutError`` if the block takes longer.

    Parameters
    ----------
    seconds : float or None
        The limit; None for no limit.
    before_exit : callable, optional
        Called before the process is terminated, to say why.
    """

    def __init__(self, seconds: float | None, before_exit: Callable[[], None] | None = None) -> None:
        self._seconds = seconds
        self._before_exit = before_exit
        self._lock = threading.Lock()
        self._over = False
        self._raised = False
        self._done: SimpleQueue[None] = SimpleQueue()
        self._thread = 0

    def __enter__(self) -> TimeLimit:
        if self._seconds is not None:
            self._thread = threading.get_ident()
            start_thread(self._watch, "hpfracc-timeout")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._seconds is None:
            return
        reached = isinstance(error, _LimitReached)
        while True:
            try:
                with self._lock:
                    self._over = True
                self._done.put(None)
                if self._raised and not reached:
                    _raise_in(self._thread, None)  # not delivered yet, so drop it
                break
            except _LimitReached:  # delivered after the block had ended
                reached = True
        if isinstance(error, _LimitReached):
            raise TimeoutError(f"it took longer than timeout={self._seconds:g} s") from None

    def _watch(self) -> None:
        assert self._seconds is not None
        if self._ended_within(self._seconds):
            return
        with self._lock:
            if self._over:
                return
            self._raised = True
            _raise_in(self._thread, _LimitReached)
        if not self._ended_within(max(_GRACE, self._seconds)) and multiprocessing.parent_process() is not None:
            try:
                if self._before_exit is not None:
                    self._before_exit()
            finally:
                os._exit(EXIT_STATUS)

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._done.get(timeout=seconds)
        except Empty:
            return False
        return True


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
