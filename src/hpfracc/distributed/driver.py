"""Runs all items of a sweep on a runner: a window of tasks, retries, and finding the item that ends a worker."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpfracc.distributed.items import ItemFailure, SweepOutcome, TaskReport
from hpfracc.distributed.stores import SweepStore
from hpfracc.distributed.tasks import SweepJob
from hpfracc.distributed.worker import merge_records
from hpfracc.errors import BatchItemError, ClusterError


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
    #: Measurements of the workers' engines that were new to this process.
    learned: int = 0

    @abstractmethod
    def submit(self, key: int, *given: Any, alone: bool = False) -> None:
        """Start a call with these arguments; ``alone`` marks a task that may end its worker."""

    @abstractmethod
    def next(self) -> TaskOutcome | None:
        """The outcome of some task, or None if none ends shortly."""

    def outcome(self, key: int, found: tuple[Any, Sequence[Any]]) -> TaskOutcome:
        """The outcome of a task that returned a report and records, which are merged."""
        self.learned += merge_records(found[1])
        return TaskOutcome(key, found[0])

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


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Progress of a sweep.

    Attributes
    ----------
    done, total, failed : int
        Number of completed items, of all items, and of failed ones.
    seconds : float
        Time since the start.
    rate : float
        Items per second since the start; nan before the first.
    remaining : float
        Estimate of the remaining seconds; nan before the first.
    """

    done: int
    total: int
    failed: int
    seconds: float
    rate: float
    remaining: float


class _Run(NamedTuple):
    """Items for one call of a worker; ``alone`` with nothing else running, so that a death of the worker is theirs."""

    indices: Sequence[int]
    #: Items of a stack that must not be called.
    bad: Sequence[int]
    alone: bool


#: Yields what to run next, and is sent its outcome.
_Task = Generator[_Run, TaskOutcome, None]


@dataclass(eq=False)
class SweepDriver:
    """Executes one sweep on one runner.

    Parameters
    ----------
    job : SweepJob
        The function with the data common to all calls.
    runner : Runner
        Runs the tasks.
    keep : bool
        Whether failures are kept; otherwise the first one is raised.
    retries : int
        Further attempts for an item whose worker died, or which raised OSError or MemoryError.
    advance : callable
        Called with the progress after each task.
    before : (int, int)
        Number of items that ended before, and of those that failed.
    """

    job: SweepJob
    runner: Runner
    keep: bool
    retries: int
    advance: Callable[[SweepProgress], None]
    before: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._keys = itertools.count()
        self._done, self._failed = self.before
        self._begun, self._at_start = time.perf_counter(), self._done
        self.seconds = 0.0
        #: Number of tasks whose results were written.
        self._ended = 0

    def run(self, ranges: Iterable[tuple[int, int]], whole: SweepOutcome, store: SweepStore | None) -> None:
        """Run the tasks with items ``(begin, end)``; ``whole`` and the store get their results."""
        waiting, running = iter(ranges), dict[int, _Task]()
        #: Runs that can start, and those that may end their worker: one at a time, after all others.
        ready, suspects = deque[tuple[_Task, _Run]](), deque[tuple[_Task, _Run]]()

        def proceed(task: _Task, outcome: Any) -> None:
            with contextlib.suppress(StopIteration):  # it has ended
                run = task.send(outcome)
                (suspects if run.alone else ready).append((task, run))

        while True:
            window = self.runner.window(self.seconds / self._ended if self._ended else math.nan)
            while len(running) < window:
                if ready:
                    task, run = ready.popleft()
                    running[self._submit(run)] = task
                elif (found := next(waiting, None)) is not None:
                    proceed(self._task(*found, whole, store), None)
                else:
                    break
            if not running and suspects:
                task, run = suspects.popleft()
                running[self._submit(run)] = task
            if not running:
                return
            outcome = self.runner.next()
            if outcome is not None:
                proceed(running.pop(outcome.key), outcome)

    def _submit(self, run: _Run) -> int:
        key = next(self._keys)
        self.runner.submit(key, list(run.indices), list(run.bad), alone=run.alone)
        return key

    def measure(self, indices: Sequence[int]) -> tuple[float, TaskReport]:
        """The seconds that a call of these items takes, and its report, which is not kept."""
        self._submit(_Run(indices, (), alone=True))
        while (outcome := self.runner.next()) is None:
            pass
        if outcome.error is not None:
            raise outcome.error
        report = outcome.report or TaskReport([], {}, [], math.inf, "")
        return report.seconds, report

    def _task(self, begin: int, end: int, whole: SweepOutcome, store: SweepStore | None) -> _Task:
        """All runs of a task; then its results are written."""
        found = SweepOutcome(begin, end)
        yield from self._runs(found, range(begin, end), False)
        report = found.report()
        whole.write(report)  # compares shapes first
        if store is not None:
            store.write(begin, end, report)
        self.seconds += report.seconds
        self._ended += 1
        self._done += end - begin
        self._failed += len(report.failures)
        self.advance(self.progress())

    def _runs(self, found: SweepOutcome, left: Sequence[int], alone: bool) -> _Task:
        """Run items until each has a result or a failure, which ``found`` gets."""
        stacked, attempts, deaths = self.job.stacked, 0, 0
        while left:
            outcome = yield _Run(left, tuple(found.failures) if stacked else (), alone)
            if outcome.error is not None:
                raise outcome.error
            if len(outcome.stuck) == 1:  # its worker is replaced
                text = f"it did not stop within timeout={self.job.timeout:g} s, and its worker was replaced"
                self._fail(found, self.job.failure(outcome.stuck[0], TimeoutError(text), ""))
                left = [] if stacked else [each for each in left if each != outcome.stuck[0]]
            elif outcome.report is not None:
                report: TaskReport = outcome.report
                retried = [each.index for each in report.failures if each.transient and attempts < self.retries]
                attempts += 1
                if retried and stacked:
                    continue
                report.failures = [each for each in report.failures if each.index not in retried]
                found.write(report)
                for failure in report.failures:
                    self._fail(found, failure)
                left = retried
            # A worker died, perhaps because of another task.
            elif len(left) > 1 and not deaths:
                # A stack stays together; running its items alone shows which must be excluded.
                each_alone = SweepOutcome(found.begin, found.end) if stacked else found
                for index in left:
                    yield from self._runs(each_alone, [index], True)
                found.failures |= each_alone.failures
                left = left if stacked and len(found.failures) < len(left) else []
                alone, deaths = True, 1
            elif not alone:  # it may have run beside the item to blame
                alone = True
            else:
                deaths += max(1, outcome.deaths)
                if deaths > self.retries:
                    for index in left:
                        if index not in found.failures:
                            self._fail(found, self._dead(index, deaths))
                    left = []

    def _fail(self, found: SweepOutcome, failure: ItemFailure) -> None:
        found.failures[failure.index] = failure
        if not self.keep:
            given = ", ".join(f"{name}={value!r}" for name, value in failure.parameters.items())
            raise BatchItemError(
                f"item {failure.index} of {len(self.job.params)} ({given[:200]}): {failure.error}; on_error='keep' "
                "goes on",
                failure.index,
            ) from (None if failure.exception is None else failure.exception.__cause__)

    def _dead(self, index: int, deaths: int) -> ItemFailure:
        limit = self.job.timeout
        reason = "" if limit is None else f", perhaps because the item did not stop within timeout={limit:g} s"
        error = ClusterError(f"its worker died, {deaths} time{'s' if deaths > 1 else ''}{reason}")
        return self.job.failure(index, error, "")

    def found(self, count: int) -> None:
        """Count items that another process has done."""
        self._done, self._at_start = self._done + count, self._at_start + count

    def progress(self) -> SweepProgress:
        """The current progress."""
        total = len(self.job.params)
        seconds = time.perf_counter() - self._begun
        fresh = self._done - self._at_start
        rate = fresh / seconds if fresh and seconds > 0.0 else math.nan
        return SweepProgress(self._done, total, self._failed, seconds, rate, (total - self._done) / rate)
