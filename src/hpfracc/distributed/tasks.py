"""Execution of a task by a worker: calls the function on some items, and collects results and failures."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from queue import Empty, SimpleQueue
from typing import Any, cast

import numpy as np

from hpfracc._config import BackendName, Settings, config, current_backend, get_settings, use_backend
from hpfracc._interrupts import start_thread
from hpfracc.distributed import worker as workers
from hpfracc.distributed.functions import load, portable
from hpfracc.distributed.items import ItemFailure, Output, SweepOutcome, SweepParameters, TaskReport, read_outputs
from hpfracc.engine.backends.registry import message_of
from hpfracc.engine.execution.batch.items import item_error, random_stream
from hpfracc.errors import InvalidInputError, ShapeError

#: Exit status of a worker process terminated because a call did not stop.
EXIT_STATUS = 73
#: Shortest time in seconds between the exception and the end of the process.
_GRACE = 5.0
#: Where time limits hold.
NEEDS_PROCESSES = (
    "timeout= holds in processes, which can be ended: give executor= a ProcessPoolExecutor, or a Dask client whose "
    "workers have nannies; or leave it out"
)
_inside: ContextVar[bool] = ContextVar("hpfracc_inside_task", default=False)
#: Jobs recently unpickled by this process.
_jobs: dict[str, tuple[Caller, Callable[..., Any]]] = {}
_MAX_JOBS = 4
#: Seconds that a worker, which is about to be terminated, has to send its last message.
_FLUSH_SECONDS = 1.0
#: Errors after which another attempt may succeed.
_TRANSIENT = (OSError, MemoryError)


def refuse_nesting(what: str) -> None:
    """Raise an error inside a task, because tasks that wait for other tasks can block all workers."""
    if _inside.get():
        raise InvalidInputError(
            f"{what} with an executor inside a task of another one; call it with executor=None there, or sweep over "
            "all parameters at once"
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Settings of the caller, which also apply in the workers."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    backend: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Host and id of the caller's process, to which workers return what they learn.
    process: tuple[str, int] | None = None

    @classmethod
    def here(cls, *, away: bool) -> Caller:
        """The settings of this process; ``away``: for workers in others, which compare versions and share records."""
        usual, found = Settings(), get_settings()
        names = {each.name for each in fields(Settings)} - {"force", "disabled", "version"}
        changed = {name: getattr(found, name) for name in sorted(names) if getattr(found, name) != getattr(usual, name)}
        if changed.get("wisdom") != "off":  # each machine has its own folder
            changed.pop("wisdom", None)
        return cls(
            changed, current_backend(), workers.versions() if away else {}, workers.process_id() if away else None
        )

    @contextlib.contextmanager
    def adopted(self) -> Iterator[None]:
        """Run a task with the caller's settings."""
        if self.versions:
            workers.compare_versions(self.versions, workers.worker_name())
        workers.adopt_limits()
        token = _inside.set(True)
        try:
            with contextlib.ExitStack() as stack:
                if self.settings:
                    stack.enter_context(config(**self.settings))
                if self.backend:
                    stack.enter_context(use_backend(cast(BackendName, self.backend)))
                yield
        except BaseException as error:
            if isinstance(error, Exception) or _is_interrupt(error):
                raise
            # Workers take GeneratorExit and CancelledError for their own, and wait forever.
            raise RuntimeError(f"{type(error).__name__}: {message_of(error)}") from error
        finally:
            _inside.reset(token)


@dataclass(frozen=True, slots=True)
class SweepJob:
    """The function of a sweep with everything that its calls share."""

    func: Callable[..., Any]
    params: SweepParameters
    output: Output
    seed: int | None
    stacked: bool
    timeout: float | None

    def call(self, index: int) -> dict[str, np.ndarray[Any, Any]]:
        """Call one item; for a stacked function, as a stack of one."""
        if self.stacked:
            return {name: array[0] for name, array in self.call_stack([index]).items()}
        options = dict(self.params[index])
        if self.seed is not None:
            options["rng"] = random_stream(self.seed, index)
        return self._outputs(options, [index])

    def call_stack(self, indices: Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
        """Several items in one call."""
        options: dict[str, Any] = dict(self.params.columns(indices))
        if self.seed is not None:
            options["rng"] = [random_stream(self.seed, index) for index in indices]
        found = self._outputs(options, indices)
        for name, array in found.items():
            if array.shape[:1] != (len(indices),):
                raise ShapeError(
                    f"a stack of {len(indices)} items returned {name} of shape {array.shape}; a stacked function "
                    "returns its results with the items along the first axis"
                )
        return found

    def _outputs(self, options: Mapping[str, Any], indices: Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
        if self.timeout is None:
            return read_outputs(self.func(**options), self.output)
        with _limited(self.timeout * len(indices), _reporter(indices)):
            return read_outputs(self.func(**options), self.output)

    def run(self, indices: Sequence[int], bad: Sequence[int] = ()) -> TaskReport:
        """Call some items: one after another, or in one call if the function is stacked.

        ``bad`` are items of a stack that must not be called. They are replaced by another item, so that the stack
        keeps its size.
        """
        begin, found = time.perf_counter(), SweepOutcome(min(indices), max(indices) + 1)
        if self.stacked:
            _stack(self, indices, bad, found)
        else:
            _one_by_one(self, indices, found)
        found.seconds, found.workers = time.perf_counter() - begin, {workers.worker_name()}
        return found.report()

    def failure(self, index: int, error: BaseException, worker: str | None = None) -> ItemFailure:
        """The record of an item that raised, by default here.

        An interrupt is raised again: it is no property of the item.
        """
        if _is_interrupt(error):
            raise error
        wrapped = item_error(index, len(self.params), error)
        wrapped.__cause__ = portable(error)
        text = f"{type(error).__name__}: {message_of(error)}"
        transient = isinstance(error, _TRANSIENT) and not isinstance(error, TimeoutError)
        where = workers.worker_name() if worker is None else worker
        return ItemFailure(index, self.params[index], text, where, wrapped, transient)


class _LimitReached(BaseException):
    """Raised by the timer of a call. Not an ``Exception``, so that handlers inside the call do not catch it."""


@contextlib.contextmanager
def _limited(seconds: float, before_exit: Callable[[], None] | None) -> Iterator[None]:
    """Raises TimeoutError if the block takes longer. In a worker process only, see :func:`refuse_limit`.

    In the main thread, where processes of a pool run their tasks, a timer interrupts Python code; a library call that
    does not return ends with its process after a grace period. In other threads, those of Dask workers, the process is
    ended at once. Its pool or nanny replaces it; ``before_exit`` says why.
    """
    if multiprocessing.parent_process() is None:
        raise InvalidInputError(NEEDS_PROCESSES)
    done: SimpleQueue[None] = SimpleQueue()
    by_timer = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")

    def watch() -> None:
        with contextlib.suppress(Empty):
            return done.get(timeout=seconds + by_timer * max(_GRACE, seconds))
        try:
            if before_exit is not None:
                before_exit()
        finally:
            os._exit(EXIT_STATUS)

    def reached(*_: Any) -> None:
        raise _LimitReached

    start_thread(watch, "hpfracc-timeout")
    try:
        if by_timer:
            before = signal.signal(signal.SIGALRM, reached)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            if by_timer:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, before)
    except _LimitReached:
        raise TimeoutError(f"it took longer than timeout={seconds:g} s") from None
    finally:
        done.put(None)


def refuse_limit(executor: Any) -> None:
    """Raise an error for a time limit of calls in this process or in threads of it, which nothing can end."""
    if not any(base.__name__ == "ProcessPoolExecutor" for base in type(executor).__mro__):
        raise InvalidInputError(NEEDS_PROCESSES)


def _reporter(indices: Sequence[int]) -> Callable[[], None] | None:
    """On a Dask worker: a function that tells the client that a call with these items does not stop."""
    worker = workers.dask_worker()
    if worker is None:
        return None
    key = str(worker.get_current_task())

    def report() -> None:
        worker.log_event(topic_of(key), [key, str(worker.address), list(indices)])
        time.sleep(_FLUSH_SECONDS)

    return report


def topic_of(key: str) -> str:
    """The topic of the events of a sweep, from the key ``NAME-TASK-ATTEMPT`` of one of its tasks."""
    return key.rsplit("-", 2)[0]


def _is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C. In other threads than the main one only the function itself raises KeyboardInterrupt."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _one_by_one(job: SweepJob, indices: Sequence[int], found: SweepOutcome) -> None:
    for index in indices:
        try:
            result = job.call(index)
        except BaseException as error:
            found.failures[index] = job.failure(index, error)
        else:
            found.add([index], {name: array[None] for name, array in result.items()})


def _stack(job: SweepJob, indices: Sequence[int], bad: Sequence[int], found: SweepOutcome) -> None:
    for known in (bool(bad), True):  # whether the items to exclude are known
        good = [index for index in indices if index not in bad and index not in found.failures]
        if not good:
            return
        try:
            # Rows of a stack are independent, but its size and the position of a row affect the last digits.
            arrays = job.call_stack([index if index in good else good[0] for index in indices])
        except BaseException as error:
            if _is_interrupt(error):
                raise
            for index in good if not known else ():
                try:
                    job.call(index)
                except BaseException as alone:
                    found.failures[index] = job.failure(index, alone)
            if known or not found.failures:  # each succeeds alone
                found.failures |= {index: job.failure(index, error) for index in good}
        else:
            rows = [place for place, index in enumerate(indices) if index in good]
            found.add(good, {name: array[rows] for name, array in arrays.items()})
            return


def run_payload(name: str, payload: bytes | None, *given: Any) -> tuple[Any, list[Any]]:
    """The result of a pickled call, which each process unpickles once; and records of what the engine learned.

    There are none in the process of the caller.
    """
    workers.end_with_parent(os.getpid())
    caller, function = job_of(name, payload)
    away = workers.start_sharing(caller.process)
    with caller.adopted():
        found = function(*given)
    return found, workers.take_records() if away else []


def job_of(name: str, payload: bytes | None) -> tuple[Caller, Callable[..., Any]]:
    """The caller and the function of that name, unpickled on first use."""
    known = _jobs.get(name)
    if known is None:
        if payload is None:
            raise KeyError(name)
        known = _jobs[name] = load(payload, workers.worker_name())
        for old in list(_jobs)[:-_MAX_JOBS]:
            _jobs.pop(old, None)
    return known
