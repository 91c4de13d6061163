"""Ctrl-C and forks: calls that are not interrupted, locks that are not left held, what was done so far; and the bar.

Ctrl-C raises ``KeyboardInterrupt`` in the main thread, between any two bytecode instructions. An interrupted import or
compilation may stay broken: a lock stays held, a library stays half imported. Other threads never receive the
interrupt, so such work runs in one of them. The caller is interrupted at once; the work completes in the background and
its result is dropped.

A lock stays held forever if an interrupt occurs after it was acquired and before the block that releases it was
entered; and in the child of a fork, if another thread of the parent held it. Hence :class:`Guarded`, and these rules,
which ``tests/architecture/test_rules.py`` enforces:

- A lock is a ``Lock`` or ``RLock`` of :mod:`threading`, acquired by ``with``: both are implemented in C, and no
  interrupt can occur between acquiring one and entering the block. Nothing calls ``acquire``.
- Nothing uses a ``Condition``, ``Semaphore``, ``Event`` or ``Barrier``, an executor or its futures, or ``Thread``
  outside this file: they are Python code around such a lock, and an interrupt inside leaves it held.
- A thread waits for others by polling a ``queue.SimpleQueue`` with a timeout, and holds no lock while it waits.

What takes long and receives ``KeyboardInterrupt`` raises :class:`~hpfracc.errors.Interrupted` with its own part, by
`raise_interrupted`. Its caller may be one of ours too, which then raises that of its own.
"""

from __future__ import annotations

import _thread
import atexit
import contextvars
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeVar

from hpfracc.errors import Interrupted

T = TypeVar("T")

#: Maximum seconds between polls of a waiting thread, because an interrupt may swallow its wake-up.
POLL_INTERVAL = 0.05
#: Seconds that process exit waits for running calls.
_EXIT_TIMEOUT = 60.0

#: Running calls that process exit waits for.
_running: set[ShieldedCall] = set()


def start_thread(target: Callable[[], Any], name: str) -> None:
    """Start a daemon thread; raises RuntimeError if the system refuses to start one.

    ``Thread.start()`` waits on a condition, and an interrupt there can leave the new thread stuck forever. Therefore a
    low-level thread, which starts in one step, calls it.
    """
    _thread.start_new_thread(_start, (target, name))


def _start(target: Callable[[], Any], name: str) -> None:
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError:  # no second thread can be started, so use this one
        target()


class ShieldedCall:
    """A call that runs in a thread of its own, in a copy of the caller's context. It starts immediately.

    Parameters
    ----------
    function : callable
        Called without arguments.
    awaited : bool
        Whether process exit waits for it, with a timeout. A thread that is killed inside a library's native code may
        crash the process.
    name : str
        Name of the thread.

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
        except BaseException as error:  # raised by result(); one of a call whose caller was interrupted concerns nobody
            self._error = error
        finally:
            self.ended = True
            self._wake.put(None)
            _running.discard(self)

    def wait(self, seconds: float = float("inf")) -> bool:
        """Wait for the call to end, for at most ``seconds``; returns whether it has ended."""
        until = time.monotonic() + seconds
        while not self.ended:
            left = until - time.monotonic()
            if left <= 0.0:
                return False
            try:
                self._wake.get(timeout=min(left, POLL_INTERVAL))
            except Empty:
                continue
            self._wake.put(None)  # wakes other waiting threads
        return True

    def result(self) -> Any:
        """The function's return value, or raises its exception. The call must have ended."""
        if self._error is not None:
            raise self._error
        return self._value


def run_shielded(function: Callable[[], T]) -> T:
    """Call ``function()`` so that Ctrl-C interrupts the caller at once and never the function.

    Outside the main thread, or if no thread can be started, the function is called directly.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    try:
        call = ShieldedCall(function)
    except RuntimeError:  # no thread can be started, or the interpreter is shutting down
        return function()
    call.wait()
    found: T = call.result()
    return found


@atexit.register
def _finish() -> None:
    until = time.monotonic() + _EXIT_TIMEOUT
    for call in list(_running):
        call.wait(until - time.monotonic())


def after_fork(function: Callable[[], Any]) -> Callable[[], Any]:
    """Have ``function()`` called in every forked child; usable as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


_guarded: weakref.WeakSet[Guarded] = weakref.WeakSet()


class Guarded:
    """Base class with a re-entrant lock, ``_lock``, that is replaced in a forked child."""

    _lock: Any

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _guarded.add(self)


@after_fork
def _after_fork() -> None:
    _running.clear()
    for owner in list(_guarded):
        owner._lock = threading.RLock()


#: What was done by the last call that was interrupted.
_last: Any = None


def raise_interrupted(message: str, part: Any) -> NoReturn:
    """Raise :class:`Interrupted` with what was done, and keep that for `interrupted`."""
    global _last
    _last = part
    kept = "" if part is None else " hf.interrupted() returns what was done."
    raise Interrupted(message + kept, part) from None


def interrupted() -> Any:
    """What the last call that Ctrl-C ended in this process had done up to then, so that nothing is lost.

    Returns
    -------
    object or None
        The usual result of the call, with ``success=False``; None if it had done nothing, or if none was interrupted.

    See Also
    --------
    hpfracc.errors.Interrupted

    Examples
    --------
    >>> import hpfracc as hf
    >>> def fun(t, y):
    ...     if t > 0.5:
    ...         raise KeyboardInterrupt  # as Ctrl-C does
    ...     return -y
    >>> try:
    ...     hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.6, step=0.1)
    ... except KeyboardInterrupt as stop:
    ...     print(stop.solution.t[-1], stop.solution is hf.interrupted())
    0.5 True
    """
    return _last


@contextmanager
def live_bar(title: str, total: float, *texts: str, counts: bool = True, **fields: Any) -> Iterator[Any]:
    """A bar on the standard error, gone when it ends; in a file, its last state. What updates it.

    It shows ``texts``, templates of ``fields``, and, if it ``counts``, how many of ``total`` and the remaining time.
    In a notebook it is a widget. Without ipywidgets, where rich would warn and show nothing, it is text.
    """
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    text = console.is_jupyter and find_spec("ipywidgets") is None
    if text:  # notebooks draw a line again after a carriage return, and ignore the codes that erase one
        console = Console(stderr=True, force_jupyter=False, force_terminal=True, width=100)
    done = progress.MofNCompleteColumn() if counts else progress.TaskProgressColumn()
    columns = [progress.TextColumn("[bold]{task.description}"), progress.BarColumn(bar_width=28), done]
    columns += [*map(progress.TextColumn, texts), *[progress.TimeRemainingColumn()] * counts]
    with progress.Progress(*columns, console=console, transient=console.is_terminal and not text) as bar:
        yield partial(bar.update, bar.add_task(title, total=total, **fields))
