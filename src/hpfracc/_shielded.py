"""Calls that Ctrl-C cannot interrupt half way: they run in a thread of their own while the caller waits.

Ctrl-C raises ``KeyboardInterrupt`` in the main thread, between any two instructions of Python. An import or a
compilation that it breaks may stay broken: a lock that was just taken stays held, a library stays half imported. Other
threads never receive it, so such work runs in one of them. The caller is interrupted at once; the work goes on to its
end behind it, and its result is dropped.

Everything here that a caller waits on is implemented in C or read without a lock: see :mod:`hpfracc.engine.locks`.
"""

from __future__ import annotations

import _thread
import atexit
import contextvars
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

__all__ = ["POLL_INTERVAL", "ShieldedCall", "run_shielded", "start_thread"]

T = TypeVar("T")

#: Longest wait in seconds before a waiting thread polls again: an interrupt may have swallowed its wake-up.
POLL_INTERVAL = 0.05
#: Seconds that process exit waits for calls still running.
_EXIT_TIMEOUT = 60.0

#: Calls still running, for process exit.
_running: set[ShieldedCall] = set()


def start_thread(target: Callable[[], Any], name: str) -> None:
    """Start a daemon thread, or raise RuntimeError where the system lets none be started.

    ``Thread.start()`` waits on a condition, and an interrupt there can leave the new thread stuck for ever. So a bare
    thread, whose start is one step, does it.
    """
    _thread.start_new_thread(_start, (target, name))


def _start(target: Callable[[], Any], name: str) -> None:
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError:  # there was room for one thread, and it is this
        target()


class ShieldedCall:
    """A call that runs in a thread of its own, in a copy of the caller's context.

    Parameters
    ----------
    function : callable
        Called without arguments, at once.
    awaited : bool
        Whether the end of the process waits for it, some seconds: a thread that is cut off within a library's own code
        may take the process down with it.
    name : str
        Of the thread.

    Raises
    ------
    RuntimeError
        If no thread can be started.
    """

    def __init__(self, function: Callable[[], Any], *, awaited: bool = True, name: str = "hpfracc-shielded") -> None:
        self.ended = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._wake: SimpleQueue[None] = SimpleQueue()
        start_thread(partial(contextvars.copy_context().run, self._run, function, awaited), name)

    def _run(self, function: Callable[[], Any], awaited: bool) -> None:
        if awaited:
            _running.add(self)
        try:
            self._value = function()
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error
        finally:
            self.ended = True
            self._wake.put(None)
            _running.discard(self)

    def wait(self, seconds: float = float("inf")) -> bool:
        """Wait for its end, that long at most; whether it has ended."""
        until = time.monotonic() + seconds
        while not self.ended:
            left = until - time.monotonic()
            if left <= 0.0:
                return False
            try:
                self._wake.get(timeout=min(left, POLL_INTERVAL))
            except Empty:
                continue
            self._wake.put(None)  # another thread may wait too
        return True

    def result(self) -> Any:
        """What the function returned, or raise what it raised; only once it has ended."""
        if self._error is not None:
            raise self._error
        return self._value


def run_shielded(function: Callable[[], T]) -> T:
    """Call ``function()`` so that an interrupt reaches the caller at once and never the function.

    In threads other than the main one, and where no thread can be started, it is simply called.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    try:
        call = ShieldedCall(function)
    except RuntimeError:  # no room for another stack, or the interpreter is shutting down
        return function()
    call.wait()
    found: T = call.result()
    return found


@atexit.register
def _finish() -> None:
    until = time.monotonic() + _EXIT_TIMEOUT
    for call in list(_running):
        call.wait(until - time.monotonic())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)
