"""Calls spread over threads, or over processes, so many at a time that sending them is nothing beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from hpfracc._optional import import_optional
from hpfracc.engine.execution.batching.items import item_error
from hpfracc.engine.workers import run_items
from hpfracc.errors import BatchItemError

__all__ = ["map_items"]

#: Seconds that one task should take: long enough to hide what sending it costs, short enough to share work evenly.
BEST = 0.5


def calls_together(seconds: float, left: int, workers: int) -> int:
    """How many calls of ``seconds`` each make one task."""
    if seconds <= 0.0:
        return max(1, left // workers)
    fair = max(1, -(-left // workers))
    return max(1, min(fair, int(BEST / seconds) or 1))


def map_items(
    call: Callable[[int], Any], indices: Sequence[int], workers: int, processes: bool, advance: Callable[[int], None]
) -> list[Any]:
    """``[call(i) for i in indices]`` on several threads or processes; an error names its item.

    A call that runs out of memory beside others is made again alone, once they are done.
    """
    if not indices:
        return []
    begin = time.perf_counter()
    results: dict[int, Any] = {indices[0]: _one(call, indices[0], len(indices))}
    advance(1)
    seconds = time.perf_counter() - begin
    rest = list(indices[1:])
    if workers <= 1 or not rest:
        for index in rest:
            results[index] = _one(call, index, len(indices))
            advance(1)
        return [results[index] for index in indices]
    if processes:
        short = _by_processes(call, rest, workers, seconds, results, advance, len(indices))
    else:
        short = _by_threads(call, rest, workers, results, advance, len(indices))
    for index in short:
        results[index] = _one(call, index, len(indices))
        advance(1)
    return [results[index] for index in indices]


def _one(call: Callable[[int], Any], index: int, count: int) -> Any:
    try:
        return call(index)
    except Exception as error:
        raise item_error(index, count, error) from error


def _several(call: Callable[[int], Any], task: Sequence[int]) -> tuple[list[tuple[int, Any]], list[int], float]:
    """Results, items whose memory ran out, and seconds; the first other error ends the task."""
    begin = time.perf_counter()
    done: list[tuple[int, Any]] = []
    short: list[int] = []
    for index in task:
        try:
            done.append((index, call(index)))
        except MemoryError:
            short.append(index)
        except Exception as error:
            raise _ItemFailedError(index, error) from error
    return done, short, time.perf_counter() - begin


class _ItemFailedError(Exception):
    """An item failed: carries its number, and can be sent between processes."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


def _by_threads(
    call: Callable[[int], Any],
    rest: list[int],
    workers: int,
    results: dict[int, Any],
    advance: Callable[[int], None],
    count: int,
) -> list[int]:
    short: list[int] = []

    def one(index: int) -> None:
        try:
            results[index] = call(index)
        except MemoryError:
            short.append(index)
        except Exception as error:
            raise _ItemFailedError(index, error) from error

    try:
        run_items(one, rest, workers, advance=advance, until_error=True)
    except _ItemFailedError as failed:
        raise _named(failed, count) from failed.error
    return short


def _by_processes(
    call: Callable[[int], Any],
    rest: list[int],
    workers: int,
    seconds: float,
    results: dict[int, Any],
    advance: Callable[[int], None],
    count: int,
) -> list[int]:
    joblib = import_optional("joblib")
    size = calls_together(seconds, len(rest), workers)
    tasks = [rest[begin : begin + size] for begin in range(0, len(rest), size)]
    short: list[int] = []
    try:
        parallel = joblib.Parallel(n_jobs=workers, backend="loky", return_as="generator")
        for done, missing, _ in parallel(joblib.delayed(_several)(call, task) for task in tasks):
            results.update(done)
            short += missing
            advance(len(done))
    except _ItemFailedError as failed:
        raise _named(failed, count) from failed.error
    return short


def _named(failed: _ItemFailedError, count: int) -> BatchItemError:
    return item_error(failed.index, count, failed.error)
