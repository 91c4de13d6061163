"""The engine's thread pool.

Kernels that release the GIL distribute their blocks over this pool. The pool starts at first use, grows to the largest
requested number of workers, and is dropped in a forked child, where its threads do not run. Each block runs in a copy
of the caller's context, so ``use_backend`` applies inside workers too.

An interrupt can reach the caller between any two instructions, so it shares no lock with its helpers. Blocks are
claimed by ``dict.setdefault``, results go into a preallocated list, and the caller polls a queue implemented in C; each
of these is atomic. The caller always waits for blocks that have started, since they write into its arrays; others are
dropped.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from hpfracc._interrupts import POLL_INTERVAL, after_fork, start_thread

T = TypeVar("T")
B = TypeVar("B")

_lock = threading.Lock()
_tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
_started = 0
_inside = threading.local()
#: Maximum number of cores of this process, if it shares the machine with similar ones.
_most_cores: int | None = None


def affinity() -> tuple[int, ...]:
    """The hardware threads this process may run on."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return tuple(range(os.cpu_count() or 1))


def available_cores() -> int:
    """Number of cores this process may use: its affinity, or the limit of :func:`limit_cores`."""
    cores = len(affinity())
    return cores if _most_cores is None else min(cores, _most_cores)


def limit_cores(most: int | None) -> None:
    """Use at most ``most`` cores in this process; None for all of them."""
    global _most_cores
    _most_cores = None if most is None else max(1, most)


def even_blocks(total: int, parts: int, least: int = 1) -> list[tuple[int, int]]:
    """``[0, total)`` split into at most ``parts`` ranges of almost equal length, none shorter than ``least``."""
    parts = max(1, min(parts, total // max(1, least)))
    edges = [total * part // parts for part in range(parts + 1)]
    return [(low, high) for low, high in itertools.pairwise(edges) if high > low]


def run_blocks(function: Callable[[B], T], blocks: Sequence[B], workers: int) -> list[T]:
    """``[function(block) for block in blocks]`` on at most ``workers`` threads, including the caller's.

    Each thread takes the next free block, so fewer threads than requested (if the system starts no more) still do all
    the work. The first error is raised after all blocks have ended; an interrupt after the started ones have. A call
    from inside a worker runs in that worker, so nested use cannot deadlock.
    """
    if workers <= 1 or len(blocks) <= 1 or getattr(_inside, "worker", False):
        return [function(block) for block in blocks]
    job = _Job(function, blocks)
    return job.run(lambda: _ask_pool(job, min(workers, len(blocks)) - 1))


def run_items(
    function: Callable[[B], T],
    items: Sequence[B],
    workers: int,
    *,
    advance: Callable[[int], None] | None = None,
    until_error: bool = False,
) -> list[T]:
    """Like :func:`run_blocks` in new threads, for long calls that may use the pool themselves.

    Parameters
    ----------
    function, items, workers
        As in :func:`run_blocks`.
    advance : callable, optional
        Called in the caller's thread with the number of items done since the last call.
    until_error : bool
        Whether no further items are started after an error.
    """
    job = _Job(function, items, advance, until_error)
    # In a copy of the context here too, because timing decides which items run in this thread.
    return contextvars.copy_context().run(job.run, lambda: _ask_new_threads(job, min(workers, len(items)) - 1))


#: The owner of blocks that must not start.
_NOBODY = object()


class _Job(Generic[B, T]):
    """Blocks shared by a caller and its helpers."""

    def __init__(
        self,
        function: Callable[[B], T],
        blocks: Sequence[B],
        advance: Callable[[int], None] | None = None,
        until_error: bool = False,
    ) -> None:
        self._function = function
        self._blocks = blocks
        self._advance = advance
        self._until_error = until_error
        self._told = 0
        #: The thread that claimed each block.
        self._takers: dict[int, object] = {}
        #: Result and error (one of them None) of each block.
        self._ends: list[tuple[Any, BaseException | None] | None] = [None] * len(blocks)
        self._count: SimpleQueue[None] = SimpleQueue()
        self._wake: SimpleQueue[None] = SimpleQueue()

    def run(self, ask: Callable[[], None]) -> list[T]:
        """Run the blocks with the helpers that ``ask`` starts, and wait for them."""
        interrupt: BaseException | None = None
        try:
            ask()
            self._work(self)
        except BaseException as error:  # between two blocks
            interrupt = error
        while True:
            try:
                if interrupt is not None:
                    self._advance = None
                    self._stop()
                self._wait()
                break
            except BaseException as error:  # helpers may still write into the caller's arrays
                interrupt = error
        ends = self._ends
        # A task that is still in the pool's queue must not keep the caller's arrays alive.
        self._blocks, self._ends, self._function = (), [], _nothing
        if interrupt is not None:
            raise interrupt
        for end in ends:
            if end is not None and end[1] is not None:
                raise end[1]
        return [end[0] for end in ends if end is not None]

    def help(self) -> None:
        """Run blocks, in a helper's thread."""
        try:
            self._work(object())
        except MemoryError:  # no block could be claimed; the caller does the rest
            pass
        finally:
            self._wake.put(None)

    def _work(self, me: object) -> None:
        for number, block in enumerate(self._blocks):
            if self._takers.setdefault(number, me) is not me:
                continue
            end: tuple[Any, BaseException | None]
            try:
                end = self._function(block), None
            except BaseException as error:
                end = None, error
            self._ends[number] = end
            if end[1] is not None and (self._until_error or not isinstance(end[1], Exception)):
                self._stop()
            if self._advance is not None:
                self._count.put(None)
                self._wake.put(None)
                if me is self:
                    self._tell()

    def _stop(self) -> None:
        """Start no further block."""
        for number in range(len(self._ends)):
            self._takers.setdefault(number, _NOBODY)

    def _wait(self) -> None:
        """Wait until every block claimed by a helper is done."""
        number = 0
        while number < len(self._ends):
            if self._ends[number] is not None or self._takers[number] in (self, _NOBODY):
                number += 1
                continue
            try:
                self._wake.get(timeout=POLL_INTERVAL)
            except Empty:
                continue
            self._tell()
        self._tell()

    def _tell(self) -> None:
        done = self._count.qsize()
        if self._advance is not None and done > self._told:
            more, self._told = done - self._told, done
            self._advance(more)


def _nothing(block: Any) -> Any:
    """Replaces the function of a finished job."""


def _ask_pool(job: _Job[B, T], helpers: int) -> None:
    global _started
    with _lock, contextlib.suppress(RuntimeError):  # no memory for another stack, or the interpreter is shutting down
        while _started < helpers:
            start_thread(partial(_serve, _tasks), f"hpfracc_{_started}")
            _started += 1
    for _ in range(min(helpers, _started)):
        _tasks.put(partial(contextvars.copy_context().run, job.help))


def _ask_new_threads(job: _Job[B, T], helpers: int) -> None:
    with contextlib.suppress(RuntimeError):  # no further thread can be started; the others do the work
        for number in range(helpers):
            start_thread(partial(contextvars.copy_context().run, job.help), f"hpfracc-batch_{number}")


def _serve(tasks: SimpleQueue[Callable[[], None]]) -> None:
    """A thread of the pool."""
    _inside.worker = True
    while True:
        tasks.get()()


@after_fork
def _forget_pool() -> None:
    global _tasks, _started, _lock
    _tasks, _started, _lock = SimpleQueue(), 0, threading.Lock()
