"""Runners for the tasks of a sweep: this process, an executor of the standard library, or a Dask cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, final

from hpfracc._shielded import POLL_INTERVAL
from hpfracc.distributed.tasks import SweepJob, TaskReport, run_payload, run_task
from hpfracc.engine.workers import available_cores
from hpfracc.errors import ClusterError, InvalidInputError

__all__ = ["InProcess", "Pool", "Runner", "TaskOutcome", "is_dask_client", "require_executor"]


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The outcome of a task: its report, deaths of workers, items of a call that did not stop, or a fatal error."""

    key: int
    report: TaskReport | None = None
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
    def submit(self, key: int, indices: Sequence[int], bad: Sequence[int] = (), *, alone: bool = False) -> None:
        """Start a task; ``alone`` marks one that may end its worker."""

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


@final
class InProcess(Runner):
    """Runs one task after another in the caller's thread."""

    def __init__(self, job: SweepJob) -> None:
        self._job = job
        self._queue: deque[tuple[int, Sequence[int], Sequence[int]]] = deque()

    def submit(self, key: int, indices: Sequence[int], bad: Sequence[int] = (), *, alone: bool = False) -> None:
        """Queue it."""
        self._queue.append((key, indices, bad))

    def next(self) -> TaskOutcome | None:
        """Run the next task."""
        key, indices, bad = self._queue.popleft()
        try:
            return TaskOutcome(key, run_task(self._job, indices, bad))
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

    def submit(self, key: int, indices: Sequence[int], bad: Sequence[int] = (), *, alone: bool = False) -> None:
        """Submit it to the executor."""
        try:
            future = self._executor.submit(run_payload, *self._payload, indices, bad)
        except RuntimeError as error:  # shut down, or broken
            broken = any(base.__name__ == "BrokenExecutor" for base in type(error).__mro__)
            told = f"the executor takes no tasks ({error}); give one that was not shut down"
            self._ended.put((key, error if broken else ClusterError(told)))
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
            if any(base.__name__ == "BrokenExecutor" for base in type(error).__mro__):
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


def is_dask_client(executor: Any) -> bool:
    """Whether it is a client of ``distributed``, checked without importing it."""
    return any(
        base.__name__ == "Client" and base.__module__.partition(".")[0] == "distributed"
        for base in type(executor).__mro__
    )


def require_executor(executor: Any) -> None:
    """Raise an error unless it is a client, an address, or an executor."""
    if executor is None or isinstance(executor, str) or is_dask_client(executor):
        return
    if not callable(getattr(executor, "submit", None)) or isinstance(executor, type):
        raise InvalidInputError(
            f"executor={executor!r} cannot run tasks; give a dask.distributed.Client, the address of a scheduler such "
            "as 'tcp://host:8786', a concurrent.futures executor, or None"
        )
