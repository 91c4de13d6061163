"""Runners for the tasks of a sweep, and functions mapped over items, as for ``batch.run(executor=)``."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, final

from hpfracc._interrupts import POLL_INTERVAL, raise_interrupted
from hpfracc.distributed.dask_runner import DaskRunner, is_dask_client
from hpfracc.distributed.driver import Runner, TaskOutcome
from hpfracc.distributed.functions import dump
from hpfracc.distributed.tasks import Caller, refuse_nesting, run_payload
from hpfracc.engine.execution.batch.items import item_error
from hpfracc.engine.workers import available_cores
from hpfracc.errors import ClusterError, InvalidInputError

#: Pieces per worker: enough to balance the load.
_PIECES_A_WORKER = 4


@final
class InProcess(Runner):
    """Runs one task after another in the caller's thread."""

    def __init__(self, caller: Caller, function: Callable[..., Any]) -> None:
        self._caller, self._function = caller, function
        self._queue: deque[tuple[int, tuple[Any, ...]]] = deque()

    def submit(self, key: int, *given: Any, alone: bool = False) -> None:
        """Queue it."""
        self._queue.append((key, given))

    def next(self) -> TaskOutcome | None:
        """Run the next task."""
        key, given = self._queue.popleft()
        try:
            with self._caller.adopted():
                return TaskOutcome(key, self._function(*given))
        except Exception as error:  # raised by the sweep
            return TaskOutcome(key, error=error)


@final
class Pool(Runner):
    """Uses an executor with ``submit``, such as ``concurrent.futures.ProcessPoolExecutor``."""

    #: Measured with ProcessPoolExecutor: pickling and two pipes.
    overhead = 3e-4

    def __init__(self, executor: Any, name: str, payload: bytes) -> None:
        self._executor = executor
        self._payload = (name, payload)
        self._ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._futures: dict[int, Any] = {}
        self.workers = available_cores()

    def submit(self, key: int, *given: Any, alone: bool = False) -> None:
        """Submit it to the executor."""
        try:
            future = self._executor.submit(run_payload, *self._payload, *given)
        except RuntimeError as error:  # shut down, or broken
            told = f"the executor takes no tasks ({error}); give one that was not shut down"
            self._ended.put((key, error if _is_broken(error) else ClusterError(told)))
            return
        self._futures[key] = future
        future.add_done_callback(lambda ended: self._ended.put((key, ended)))

    def next(self) -> TaskOutcome | None:
        """Wait for a task to end."""
        try:
            key, future = self._ended.get(timeout=POLL_INTERVAL)
        except Empty:
            return None
        self._futures.pop(key, None)
        try:
            if isinstance(future, BaseException):
                raise future
            return self.outcome(key, future.result())
        except Exception as error:
            if _is_broken(error):
                error = ClusterError(
                    f"a process of the executor died ({error}); make a new executor. With store= the sweep continues "
                    "where it was; a Dask client replaces workers that die and names the item"
                )
            return TaskOutcome(key, error=error)

    def close(self, *, cancel: bool) -> None:
        """Drop tasks that have not started."""
        if cancel:
            for future in list(self._futures.values()):
                future.cancel()


def _is_broken(error: BaseException) -> bool:
    """Whether a process of an executor died, checked without importing ``concurrent.futures``."""
    return any(base.__name__ == "BrokenExecutor" for base in type(error).__mro__)


def make_runner(
    executor: Any, caller: Caller, function: Callable[..., Any], what: str, resources: Any = None, limited: bool = False
) -> Runner:
    """The runner of calls of a function on a checked executor; ``limited`` if they have a time limit."""
    if executor is None:
        return InProcess(caller, function)
    payload = dump((caller, function), f"the function {what!r}")
    name = f"{what}-{os.urandom(16).hex()}"
    if not is_cluster(executor):
        return Pool(executor, name, payload)
    return DaskRunner(executor, name, payload, resources, limited)


def is_cluster(executor: Any) -> bool:
    """Whether it is a client of a Dask cluster, or an address: work may be done on other machines."""
    return isinstance(executor, str) or is_dask_client(executor)


def require_executor(executor: Any) -> None:
    """Raise an error unless it is a client, an address, or an executor."""
    if executor is None or is_cluster(executor):
        return
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise InvalidInputError(
            f"executor={executor!r} cannot run tasks; give a dask.distributed.Client, the address of a scheduler such "
            "as 'tcp://host:8786', a concurrent.futures executor, or None"
        )


def mapper(executor: Any) -> Callable[[Callable[..., Any], Iterable[Any]], list[Any]]:
    """A function ``map(func, items)`` that runs on a cluster, for ``workers=`` of SciPy's optimisers.

    Parameters
    ----------
    executor : Client or executor
        A ``dask.distributed.Client``, or an executor of ``concurrent.futures``.

    Returns
    -------
    callable
        Called as ``mapped(func, items)``; returns the list of results in the order of the items.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import hpfracc as hf
    >>> from scipy.optimize import differential_evolution, rosen
    >>> with ThreadPoolExecutor(2) as pool:
    ...     found = differential_evolution(
    ...         rosen, [(0, 2), (0, 2)], rng=1, workers=hf.distributed.mapper(pool), updating="deferred"
    ...     )
    >>> bool(abs(found.x - 1).max() < 1e-4)
    True
    """
    if executor is None or isinstance(executor, str):
        raise InvalidInputError(f"executor={executor!r}: mapper needs a client or an executor, which stays open")
    require_executor(executor)

    def mapped(func: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        return run_pieces(executor, partial(_each, func), list(items), getattr(func, "__name__", "function"))

    return mapped


def _each(func: Callable[..., Any], items: Sequence[Any], first: int, count: int) -> list[Any]:
    found = []
    for number, item in enumerate(items):
        try:
            found.append(func(item))
        except Exception as error:
            raise item_error(first + number, count, error) from error
    return found


def run_pieces(
    executor: Any,
    run: Callable[..., list[Any]],
    items: Sequence[Any],
    what: str,
    advance: Callable[[int], None] | None = None,
) -> list[Any]:
    """The results of ``run(items[a:b], a, count)`` for all pieces, joined; the pieces run on the executor."""
    refuse_nesting(what)
    require_executor(executor)
    if not len(items):
        return []
    found: dict[int, list[Any]] = {}
    starts, size = range(0), 1
    try:
        with make_runner(executor, Caller.here(away=True), run, what) as runner:
            size = max(1, math.ceil(len(items) / (_PIECES_A_WORKER * runner.workers)))
            starts = range(0, len(items), size)
            for first in starts:
                runner.submit(first, items[first : first + size], first, len(items))
            while len(found) < len(starts):
                outcome = runner.next()
                if outcome is None:
                    continue
                if outcome.error is not None:
                    raise outcome.error
                if outcome.report is None:
                    raise ClusterError(f"items from {outcome.key} on ended their worker; try them alone")
                found[outcome.key] = outcome.report
                if advance is not None:
                    advance(len(found[outcome.key]))
    except KeyboardInterrupt:
        done = sum(map(len, found.values()))
        part = [each for first in starts for each in found.get(first, [None] * len(items[first : first + size]))]
        raise_interrupted(f"Interrupted after {done:,} of {len(items):,} items; the others are None.", part or None)
    return [each for first in starts for each in found[first]]
