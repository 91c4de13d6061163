"""Runners for the tasks of a sweep, and functions mapped over items, as for ``batch.run(executor=)``."""

from __future__ import annotations

import contextlib
import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, final

from hpfracc._optional import import_optional
from hpfracc._shielded import POLL_INTERVAL
from hpfracc.distributed.functions import dump
from hpfracc.distributed.tasks import Caller, refuse_nesting, run_payload
from hpfracc.distributed.worker import merge_records
from hpfracc.engine.execution.batch.items import item_error
from hpfracc.engine.workers import available_cores
from hpfracc.errors import ClusterError, InvalidInputError

__all__ = [
    "InProcess", "Mapper", "Pool", "Runner", "TaskOutcome", "connect", "is_cluster", "make_runner", "mapper",
    "require_executor", "run_pieces",
]  # fmt: skip

#: Seconds to wait for a scheduler to answer.
_CONNECT_TIMEOUT = 30.0
#: Pieces per worker: enough to balance the load.
_PIECES_A_WORKER = 4


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The outcome of a task: its report, deaths of workers, items of a call that did not stop, or a fatal error."""

    key: int
    report: Any = None
    deaths: int = 0
    stuck: Sequence[int] = ()
    error: BaseException | None = None


class Runner(ABC):
    """Runs tasks. ``submit`` never blocks; ``next`` waits for one to end."""

    #: Number of tasks that can run at the same time.
    workers: int = 1
    #: Seconds of overhead per task.
    overhead: float = 0.0
    #: Whether workers that start later should be told what was learned since the others were prepared.
    knows_more: bool = False

    @abstractmethod
    def submit(self, key: int, *given: Any, alone: bool = False) -> None:
        """Start ``job.run(*given)``; ``alone`` marks a task that may end its worker."""

    @abstractmethod
    def next(self) -> TaskOutcome | None:
        """The outcome of some task, or None if none ends shortly."""

    def window(self, seconds: float) -> int:
        """Number of tasks to keep in flight, given the seconds that one takes (nan: not known yet).

        By default one running and one waiting task per worker.
        """
        return 2 * self.workers + 1

    def close(self, *, cancel: bool) -> None:
        """Shut down; with ``cancel`` remaining tasks are dropped."""
        return None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close(cancel=kind is not None)


@final
class InProcess(Runner):
    """Runs one task after another in the caller's thread."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self._queue: deque[tuple[int, tuple[Any, ...]]] = deque()

    def submit(self, key: int, *given: Any, alone: bool = False) -> None:
        """Queue it."""
        self._queue.append((key, given))

    def next(self) -> TaskOutcome | None:
        """Run the next task."""
        key, given = self._queue.popleft()
        try:
            return TaskOutcome(key, self._job.run(*given))
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
        future.add_done_callback(partial(self._tell, key))

    def _tell(self, key: int, future: Any) -> None:
        self._ended.put((key, future))

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
            return TaskOutcome(key, future.result())
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


def make_runner(executor: Any, job: Any, what: str, resources: Any = None) -> Runner:
    """The runner of a job on a checked executor."""
    if executor is None:
        return InProcess(job)
    payload = dump(job, f"the function {what!r}")
    name = f"{what}-{os.urandom(16).hex()}"
    if not is_cluster(executor):
        return Pool(executor, name, payload)
    from hpfracc.distributed.dask_runner import DaskRunner

    return DaskRunner(executor, name, payload, resources, getattr(job, "timeout", None) is not None)


def is_cluster(executor: Any) -> bool:
    """Whether it is a client of a Dask cluster, or an address: work may be done on other machines."""
    return isinstance(executor, str) or is_dask_client(executor)


def is_dask_client(executor: Any) -> bool:
    """Whether it is a client of ``distributed``, checked without importing it."""
    return any(
        base.__name__ == "Client" and base.__module__.partition(".")[0] == "distributed"
        for base in type(executor).__mro__
    )


def require_executor(executor: Any) -> None:
    """Raise an error unless it is a client, an address, or an executor."""
    if executor is None or is_cluster(executor):
        return
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise InvalidInputError(
            f"executor={executor!r} cannot run tasks; give a dask.distributed.Client, the address of a scheduler such "
            "as 'tcp://host:8786', a concurrent.futures executor, or None"
        )


@contextlib.contextmanager
def connect(executor: Any) -> Iterator[Any]:
    """The client itself, or one for an address, closed at the end."""
    if not isinstance(executor, str):
        if getattr(executor, "asynchronous", False):
            raise ClusterError("an asynchronous client has to be awaited; give a plain Client, or its address")
        if getattr(executor, "status", "running") != "running":
            raise ClusterError(f"the client has the status {executor.status!r}; make a new one with Client(...)")
        yield executor
        return
    distributed = import_optional("distributed")
    try:
        client = distributed.Client(executor, timeout=_CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no scheduler answers at executor={executor!r} ({type(error).__name__}: {error}); start one with 'dask "
            "scheduler', and give the address that it prints"
        ) from error
    try:
        yield client
    finally:
        client.close()


def mapper(executor: Any) -> Mapper:
    """A function ``map(func, items)`` that runs on a cluster, for ``workers=`` of SciPy's optimisers.

    Parameters
    ----------
    executor : Client or executor
        A ``dask.distributed.Client``, or an executor of ``concurrent.futures``.

    Returns
    -------
    Mapper
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
    return Mapper(executor)


@final
class Mapper:
    """``map`` on an executor; created by :func:`mapper`."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def __call__(self, func: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """``[func(item) for item in items]``."""
        given = list(items)
        return run_pieces(self._executor, partial(_each, func), given, getattr(func, "__name__", "function"))

    def __reduce__(self) -> Any:
        raise TypeError("a Mapper belongs to the process of its client; make one there with hf.distributed.mapper")


def _each(func: Callable[..., Any], items: Sequence[Any], first: int, count: int) -> list[Any]:
    found = []
    for number, item in enumerate(items):
        try:
            found.append(func(item))
        except Exception as error:
            raise item_error(first + number, count, error) from error
    return found


@dataclass(slots=True)
class _PieceReport:
    """The results of a piece, and the records that the worker learned."""

    values: list[Any]
    learned: bytes = b""


@dataclass(frozen=True, slots=True)
class _PieceJob:
    """A function of pieces."""

    call: Callable[..., list[Any]]
    caller: Caller

    def run(self, items: Sequence[Any], first: int, count: int) -> _PieceReport:
        """Run one piece."""
        with self.caller.adopted():
            return _PieceReport(self.call(items, first, count))


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
    with make_runner(executor, _PieceJob(run, Caller.here(away=True)), what) as runner:
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
            found[outcome.key] = outcome.report.values
            merge_records(outcome.report.learned)
            if advance is not None:
                advance(len(found[outcome.key]))
    return [each for first in starts for each in found[first]]
