"""The engine's own threads.

Kernels that release the interpreter's lock spread their blocks over this pool. The pool is made at first use, grows to
the largest number of workers asked for, is forgotten by a forked child (whose copies of the threads do not run), and
runs each block in a copy of the caller's context, so that ``use_backend`` holds inside workers too.
"""

from __future__ import annotations

import contextvars
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["available_cores", "even_blocks", "machine_load", "run_blocks", "started_workers"]

T = TypeVar("T")
B = TypeVar("B")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = _started = 0
_inside = threading.local()


def available_cores() -> int:
    """Cores this process may run on (its affinity, not what the machine has)."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return max(1, os.cpu_count() or 1)


def machine_load() -> float:
    """Threads of all processes that want to run, for each core of the machine; 0 where the system does not say."""
    try:
        return os.getloadavg()[0] / max(1, os.cpu_count() or 1)
    except (AttributeError, OSError):  # not on every system
        return 0.0


def even_blocks(total: int, parts: int, least: int = 1) -> list[tuple[int, int]]:
    """``[0, total)`` cut into at most ``parts`` ranges of almost equal length, none shorter than ``least``."""
    parts = max(1, min(parts, total // max(1, least)))
    edges = [total * part // parts for part in range(parts + 1)]
    return [(low, high) for low, high in itertools.pairwise(edges) if high > low]


def run_blocks(function: Callable[[B], T], blocks: Sequence[B], workers: int) -> list[T]:
    """``[function(block) for block in blocks]`` on at most ``workers`` threads, the caller's among them.

    Each thread takes the next block that nobody has taken: where the system lets no more threads be started, those that
    there are do the work of all. The first error is raised once all blocks have ended. Called from inside a worker it
    runs in that worker, so nested use cannot deadlock.
    """
    if workers <= 1 or len(blocks) <= 1 or getattr(_inside, "worker", False):
        return [function(block) for block in blocks]
    left = deque(range(len(blocks)))
    found: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def drain() -> None:
        while True:
            try:
                number = left.popleft()
            except IndexError:
                return
            try:
                found[number] = function(blocks[number])
            except BaseException as error:
                errors[number] = error
                if not isinstance(error, Exception):  # an interrupt: nobody wants the rest
                    left.clear()

    crew = _Crew(drain)
    pool = _get_pool(workers - 1)
    for _ in range(min(workers, len(blocks)) - 1):
        try:
            pool.submit(contextvars.copy_context().run, crew.help)
        except RuntimeError:  # no room for another stack, or the interpreter is shutting down
            break
    interrupt: BaseException | None = None
    try:
        drain()
    except BaseException as error:  # an interrupt between two blocks
        left.clear()
        interrupt = error
    while True:
        try:
            crew.dismiss()
            break
        except BaseException as error:  # an interrupt while others still write into the caller's arrays
            left.clear()
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if errors:
        raise errors[min(errors)]
    return [found[number] for number in range(len(blocks))]


def started_workers() -> int:
    """Threads of the pool that have been started."""
    return 0 if _pool is None else _started


class _Crew:
    """The pool's threads that are at work for one caller.

    Not the futures of what was submitted: what the pool could start no thread for stays in its queue all the same, and
    a thread that another caller leaves free takes it.
    """

    def __init__(self, drain: Callable[[], None]) -> None:
        self._drain = drain
        self._changed = threading.Condition(threading.Lock())
        self._at_work = 0
        self._dismissed = False

    def help(self) -> None:
        """Join in, unless the work is done."""
        _inside.worker = True
        with self._changed:
            if self._dismissed:
                return
            self._at_work += 1
        try:
            self._drain()
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def dismiss(self) -> None:
        """Let nobody join any more, and wait for those who did."""
        with self._changed:
            self._dismissed = True
            self._changed.wait_for(lambda: not self._at_work)


def _begin() -> None:
    global _started
    with _lock:
        _started += 1


def _get_pool(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size, _started
    with _lock:
        if _pool is None or _pool_size < size:
            # The smaller pool is left to finish what it was given; its idle threads end with it.
            _pool = ThreadPoolExecutor(size, thread_name_prefix="hpfracc", initializer=_begin)
            _pool_size, _started = size, 0
        return _pool


def _forget_pool() -> None:
    global _pool, _pool_size, _started, _lock
    _pool, _pool_size, _started, _lock = None, 0, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
