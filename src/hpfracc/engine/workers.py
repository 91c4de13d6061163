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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["available_cores", "even_blocks", "run_blocks"]

T = TypeVar("T")
B = TypeVar("B")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_inside = threading.local()


def available_cores() -> int:
    """Cores this process may run on (its affinity, not what the machine has)."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return max(1, os.cpu_count() or 1)


def even_blocks(total: int, parts: int, least: int = 1) -> list[tuple[int, int]]:
    """``[0, total)`` cut into at most ``parts`` ranges of almost equal length, none shorter than ``least``."""
    parts = max(1, min(parts, total // max(1, least)))
    edges = [total * part // parts for part in range(parts + 1)]
    return [(low, high) for low, high in itertools.pairwise(edges) if high > low]


def run_blocks(function: Callable[[B], T], blocks: Sequence[B], workers: int) -> list[T]:
    """``[function(block) for block in blocks]`` on at most ``workers`` threads, the caller's among them.

    The first error is raised once all blocks have ended. Called from inside a worker it runs in that worker, so nested
    use cannot deadlock.
    """
    if workers <= 1 or len(blocks) <= 1 or getattr(_inside, "worker", False):
        return [function(block) for block in blocks]
    pool = _get_pool(workers - 1)
    try:
        futures = [pool.submit(contextvars.copy_context().run, _as_worker, function, block) for block in blocks[1:]]
    except RuntimeError:  # the interpreter is shutting down: no new work for threads, but blocks are pure
        return [function(block) for block in blocks]
    error: BaseException | None = None
    results: list[T] = []
    try:
        results.append(function(blocks[0]))
    except BaseException as first:
        error = first
    for future in futures:
        try:
            results.append(future.result())
        except BaseException as other:
            error = error or other
    if error is not None:
        raise error
    return results


def _as_worker(function: Callable[[B], T], block: B) -> T:
    _inside.worker = True
    return function(block)


def _get_pool(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            # The smaller pool is left to finish what it was given; its idle threads end with it.
            _pool, _pool_size = ThreadPoolExecutor(size, thread_name_prefix="hpfracc"), size
        return _pool


def _forget_pool() -> None:
    global _pool, _pool_size, _lock
    _pool, _pool_size, _lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
