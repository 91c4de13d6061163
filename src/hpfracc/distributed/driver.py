"""Runs all items of a sweep on a runner: a window of tasks, retries, and finding the item that ends a worker."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpfracc.distributed.outputs import ItemArrays
from hpfracc.distributed.tasks import ItemFailure, SweepJob, TaskReport
from hpfracc.distributed.worker import merge_records
from hpfracc.errors import BatchItemError, ClusterError

__all__ = ["Runner", "Sink", "SweepDriver", "SweepProgress", "TaskOutcome"]


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
        """Start ``job.run(*given)``; ``alone`` marks a task that may end its worker."""

    @abstractmethod
    def next(self) -> TaskOutcome | None:
        """The outcome of some task, or None if none ends shortly."""

    def outcome(self, key: int, found: tuple[Any, bytes]) -> TaskOutcome:
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


#: Receives the report of the items ``begin`` to ``end``.
Sink = Callable[[int, int, TaskReport], None]


@dataclass(slots=True)
class _Assembly:
    """A task of the sweep, possibly split into several runs."""

    begin: int
    end: int
    reports: list[TaskReport] = field(default_factory=list)
    failures: dict[int, ItemFailure] = field(default_factory=dict)
    #: Number of runs that have not ended.
    open: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of some items of a task. A probe only tests whether an item ends its worker."""

    assembly: _Assembly
    indices: Sequence[int]
    bad: tuple[int, ...] = ()
    deaths: int = 0
    attempts: int = 0
    probe: bool = False
    #: Whether nothing else was running, so that it caused the death of its worker.
    alone: bool = False


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
    """

    def __init__(
        self,
        job: SweepJob,
        runner: Runner,
        keep: bool,
        retries: int,
        advance: Callable[[SweepProgress], None],
        before: tuple[int, int] = (0, 0),
    ) -> None:
        self._job, self._runner = job, runner
        self._sinks: Sequence[Sink] = ()
        self._keep, self._retries, self._advance = keep, retries, advance
        self._runs: dict[int, _Run] = {}
        self._next_key = 0
        self._repeated: deque[_Run] = deque()
        #: Runs that may end their worker; executed one at a time, with nothing else running.
        self._suspects: deque[_Run] = deque()
        self._probed: dict[int, list[int]] = {}
        self._done, self._failed = before
        self._begun, self._at_start = time.perf_counter(), before[0]
        self.seconds = 0.0
        #: Number of tasks whose results were written.
        self._ended = 0

    def run(self, ranges: Iterable[tuple[int, int]], *sinks: Sink) -> None:
        """Run the tasks with items ``(begin, end)``; the sinks receive their results."""
        self._sinks = sinks
        waiting = iter(ranges)
        more = True
        while more or self._runs or self._repeated or self._suspects:
            more = self._fill(waiting, more)
            outcome = self._runner.next() if self._runs else None  # others may have done the rest
            if outcome is not None:
                self._handle(self._runs.pop(outcome.key), outcome)

    def measure(self, indices: Sequence[int]) -> tuple[float, TaskReport]:
        """The seconds that a call of these items takes, and its report, which is not kept."""
        assembly = _Assembly(indices[0], indices[-1] + 1)
        self._submit(_Run(assembly, indices, probe=True), alone=True)
        while True:
            outcome = self._runner.next()
            if outcome is None:
                continue
            self._runs.pop(outcome.key)
            if outcome.error is not None:
                raise outcome.error
            if outcome.report is None:
                return float("inf"), TaskReport([], {}, [], 0.0, "")
            return outcome.report.seconds, outcome.report

    def _fill(self, waiting: Iterator[tuple[int, int]], more: bool) -> bool:
        window = self._runner.window(self.seconds / self._ended if self._ended else float("nan"))
        while len(self._runs) < window:
            if self._repeated:
                self._submit(self._repeated.popleft())
                continue
            found = next(waiting, None) if more else None
            if found is None:
                more = False
                break
            assembly = _Assembly(*found)
            assembly.open = 1
            self._submit(_Run(assembly, range(assembly.begin, assembly.end)))
        if not self._runs and not self._repeated and not more and self._suspects:
            self._submit(replace(self._suspects.popleft(), alone=True), alone=True)
        return more

    def _submit(self, run: _Run, *, alone: bool = False) -> None:
        key, self._next_key = self._next_key, self._next_key + 1
        self._runs[key] = run
        self._runner.submit(key, list(run.indices), list(run.bad), alone=alone)

    def _handle(self, run: _Run, outcome: TaskOutcome) -> None:
        if outcome.error is not None:
            raise outcome.error
        if len(outcome.stuck) == 1:
            self._stuck(run, outcome.stuck[0])
        elif outcome.report is None:
            self._died(run, max(1, outcome.deaths))
        elif run.probe:
            self._end_probe(run, None)
        else:
            self._reported(run, outcome.report)

    # Results.

    def _reported(self, run: _Run, report: TaskReport) -> None:
        assembly = run.assembly
        temporary = [each for each in report.failures if each.transient]
        if temporary and run.attempts < self._retries:
            if self._job.stacked:  # stack it again
                self._repeated.append(_Run(assembly, run.indices, run.bad, run.deaths, run.attempts + 1))
                return
            retried = [each.index for each in temporary]
            report.failures = [each for each in report.failures if not each.transient]
            assembly.open += 1
            self._repeated.append(_Run(assembly, retried, (), run.deaths, run.attempts + 1))
        assembly.reports.append(report)
        for failure in report.failures:
            self._fail(assembly, failure)
        self._close(assembly)

    def _fail(self, assembly: _Assembly, failure: ItemFailure) -> None:
        assembly.failures[failure.index] = failure
        if not self._keep:
            raise _raised(failure, len(self._job.params))

    def _close(self, assembly: _Assembly) -> None:
        """Count the end of one run of a task; after the last one its results are written."""
        assembly.open -= 1
        if assembly.open:
            return
        report = _joined(assembly)
        for sink in self._sinks:
            sink(assembly.begin, assembly.end, report)
        self.seconds += report.seconds
        self._ended += 1
        self._done += assembly.end - assembly.begin
        self._failed += len(report.failures)
        self._advance(self.progress())

    def found(self, count: int) -> None:
        """Count items that another process has done."""
        self._done, self._at_start = self._done + count, self._at_start + count

    def progress(self) -> SweepProgress:
        """The current progress."""
        total = len(self._job.params)
        seconds = time.perf_counter() - self._begun
        fresh = self._done - self._at_start
        rate = fresh / seconds if fresh and seconds > 0.0 else float("nan")
        return SweepProgress(self._done, total, self._failed, seconds, rate, (total - self._done) / rate)

    # Deaths.

    def _died(self, run: _Run, deaths: int) -> None:
        """A worker died during this run, perhaps because of another task: run its items alone, one by one."""
        assembly, total = run.assembly, run.deaths + deaths
        if run.probe:
            if total > self._retries:
                self._end_probe(run, self._dead(run.indices[0], total))
            else:
                self._suspects.append(_Run(assembly, run.indices, (), total, probe=True))
        elif len(run.indices) > 1 and not self._job.stacked:
            assembly.open += len(run.indices) - 1
            self._suspects.extend(_Run(assembly, [index]) for index in run.indices)
        elif len(run.indices) > 1 and not run.bad and run.deaths == 0:
            # A stack stays together; running its items alone shows which must be excluded.
            self._probed[assembly.begin] = []
            self._suspects.extend(_Run(assembly, [index], probe=True) for index in run.indices)
        elif not run.alone:  # it may have run beside the item to blame
            self._suspects.append(_Run(assembly, run.indices, run.bad, run.deaths))
        elif total <= self._retries:
            self._suspects.append(_Run(assembly, run.indices, run.bad, total))
        else:
            for index in run.indices:
                if index not in assembly.failures:
                    self._fail(assembly, self._dead(index, total))
            self._close(assembly)

    def _stuck(self, run: _Run, index: int) -> None:
        """The call of an item did not stop, and its worker is replaced: run the other items of the task again."""
        text = f"it did not stop within timeout={self._job.timeout:g} s, and its worker was replaced"
        failure = self._job.failure(index, TimeoutError(text), "")
        if run.probe:
            self._end_probe(run, failure)
            return
        self._fail(run.assembly, failure)
        others = [each for each in run.indices if each != index]
        if others and not self._job.stacked:
            self._repeated.append(replace(run, indices=others, alone=False))
        else:
            self._close(run.assembly)

    def _end_probe(self, run: _Run, failure: ItemFailure | None) -> None:
        assembly = run.assembly
        if failure is not None:
            self._fail(assembly, failure)
        ended = self._probed[assembly.begin]
        ended.append(run.indices[0])
        whole = range(assembly.begin, assembly.end)
        if len(ended) == len(whole):
            bad = tuple(index for index in whole if index in assembly.failures)
            if len(bad) == len(whole):
                self._close(assembly)
            else:
                self._suspects.append(_Run(assembly, whole, bad, deaths=1))

    def _dead(self, index: int, deaths: int) -> ItemFailure:
        limit = self._job.timeout
        reason = "" if limit is None else f", perhaps because the item did not stop within timeout={limit:g} s"
        error = ClusterError(f"its worker died, {deaths} time{'s' if deaths > 1 else ''}{reason}")
        return self._job.failure(index, error, "")


def _raised(failure: ItemFailure, count: int) -> BatchItemError:
    given = ", ".join(f"{name}={value!r}" for name, value in failure.parameters.items())
    error = BatchItemError(
        f"item {failure.index} of {count} ({given[:200]}): {failure.error}; on_error='keep' goes on", failure.index
    )
    error.__cause__ = None if failure.exception is None else failure.exception.__cause__
    return error


def _joined(assembly: _Assembly) -> TaskReport:
    """Merge the reports of all runs of a task, with the items in order."""
    found = ItemArrays(assembly.begin, assembly.end)
    for each in assembly.reports:
        found.add(each.indices, each.arrays)
    return TaskReport(
        [assembly.begin + int(place) for place in np.flatnonzero(found.present)],
        found.rows(),
        [assembly.failures[index] for index in sorted(assembly.failures)],
        sum(each.seconds for each in assembly.reports),
        assembly.reports[-1].worker if assembly.reports else "",
    )
