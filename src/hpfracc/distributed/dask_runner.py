"""Dask clusters: the plugin that prepares workers, and the runner of tasks on them.

The plugin prepares every worker, including those that start later or are restarted. The runner submits a window of
tasks, counts deaths of workers, and does not wait for lost tasks.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import pickle
import sys
import time
from asyncio import CancelledError
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, final
from weakref import WeakSet

from hpfracc._interrupts import POLL_INTERVAL
from hpfracc._optional import import_optional
from hpfracc.distributed import worker as workers
from hpfracc.distributed.driver import Runner, TaskOutcome
from hpfracc.distributed.tasks import NEEDS_PROCESSES, job_of, run_payload, topic_of
from hpfracc.errors import ClusterError, InvalidInputError

logger = logging.getLogger("hpfracc.distributed")

#: Seconds to wait for a scheduler to answer.
_CONNECT_TIMEOUT = 30.0
#: Seconds between two checks of the cluster.
_LOOK_INTERVAL = 1.0
#: Seconds without a worker after which the cluster is asked for workers, and between two requests: a cluster notices
#: the loss of a worker only after ``distributed.deploy.lost-worker-timeout``, 15 s by default.
_ASK_INTERVAL = 10.0
#: Seconds without a worker after which the sweep ends.
_GIVE_UP_AFTER = 120.0
#: Seconds to wait for a worker that a batch system may start late: the first one, or a replacement.
_QUEUE_TIME = 3600.0
#: A larger payload is sent to each worker once, with its plugin, instead of with every task.
_LARGE_PAYLOAD = 1 << 16
#: Seconds of work in flight per worker. Adaptive clusters ask for enough workers to do all work in flight within their
#: ``target-duration``, 5 s by default: for 12 times as many as there are, until their maximum is reached. With 10 s the
#: target changed from check to check, and jobs of a batch system were cancelled while they started.
_SECONDS_AHEAD = 60.0
#: Largest number of tasks in flight, unless the workers need more, and of bytes of their payloads.
_MAX_AHEAD, _MAX_BYTES_AHEAD = 4096, 1 << 26
_LOST_SCHEDULER = (
    "the scheduler was lost; start a new cluster and call sweep with the same store= to continue where it was"
)
#: How often a task that the scheduler lost is resubmitted, and a plugin registered while workers die.
_MAX_LOSSES = 5

#: Seconds of scheduler CPU time per task, and in addition per worker: 1.05 ms with 50 workers and 1.34 ms with 200,
#: by ``benchmarks/clusters.py --farm 50,200`` on a quiet machine of two cores with distributed 2026.8.
_TASK_COST, _COST_A_WORKER = 0.95e-3, 2.0e-6
_NAME = "hpfracc"
#: Clients whose workers were prepared.
_prepared: WeakSet[Any] = WeakSet()


@functools.cache
def _plugin_class() -> type:
    """The class of the plugins; created on first use, because its base class is Dask's."""
    from distributed import WorkerPlugin

    class WorkerSetup(WorkerPlugin):
        """Sets the engine's cores, memory, GPU and wisdom, compares versions, and caches a large job."""

        def __init__(self, job: str | None, payload: bytes | None, known: Sequence[Any] = ()) -> None:
            self.name = _NAME if job is None else f"{_NAME}-{job}"
            self.job, self.payload = job, payload
            self.known = pickle.dumps(known)  # read after the versions were compared
            self.versions, self.process = workers.versions(), workers.process_id()

        def setup(self, worker: Any) -> None:
            _set_up(self, worker)

    return WorkerSetup


def _set_up(plugin: Any, worker: Any) -> None:
    """The set-up of a worker, here because the class is sent by value, with globals of its own."""
    workers.compare_versions(plugin.versions, str(worker.address))
    workers.use_own_gpu()
    workers.adopt_limits(worker)
    if workers.start_sharing(plugin.process):
        workers.merge_records(pickle.loads(plugin.known))
    if plugin.payload is not None:
        job_of(plugin.job, plugin.payload)


@contextlib.contextmanager
def _best_effort(what: str) -> Iterator[None]:
    """Log an error that the sweep does not depend on: of a worker, a scheduler or a batch system that is gone."""
    try:
        yield
    except Exception as error:
        logger.warning("%s (%s: %s)", what, type(error).__name__, error)


def current_client() -> Any:
    """The default Dask client of this process, or None; never an asynchronous one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:  # none
        return None
    return None if client.asynchronous or client.status != "running" else client


def prepare_workers() -> None:
    """Prepare the workers of the default client, once, for tasks of Dask arrays, which it does not submit itself."""
    client = current_client()
    if client is not None and workers.dask_worker() is None:
        _prepare(client, renew=False)


def _prepare(client: Any, *jobs: tuple[str, bytes], renew: bool = True) -> None:
    """Prepare all workers, present and future, also with a large job.

    With ``renew``, workers that were prepared before get what is known by now.
    """
    import_optional("distributed")
    try:
        if renew or client not in _prepared:
            _register(client, _plugin_class()(None, None, workers.known_records()))
            _prepared.add(client)
        for name, payload in jobs:
            _register(client, _plugin_class()(name, payload))
    except ClusterError:
        raise
    except Exception as error:
        raise ClusterError(
            f"the workers could not be prepared ({type(error).__name__}: {error}); install the same versions of "
            "hpfracc and of your own modules on all of them"
        ) from error


def _register(client: Any, plugin: Any) -> None:
    """Register a plugin; again if a worker dies in the meantime, which the scheduler reports as a lost connection."""
    for losses in range(_MAX_LOSSES + 1):
        try:
            client.register_plugin(plugin, name=plugin.name)
            return
        except OSError:
            if losses == _MAX_LOSSES or client.status != "running":
                raise


def is_dask_client(executor: Any) -> bool:
    """Whether it is a client of ``distributed``, checked without importing it."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(executor, distributed.Client)


@contextlib.contextmanager
def _connect(executor: Any) -> Iterator[Any]:
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


def scheduler_cost(workers: int) -> float:
    """Scheduler seconds per task. Measured with up to 200 workers; extrapolated linearly beyond."""
    return _TASK_COST + _COST_A_WORKER * workers


def _asks_others(cluster: Any) -> bool:
    """Whether the workers are started by a batch system or Kubernetes, which may take long."""
    if cluster is None or any(base.__name__ == "LocalCluster" for base in type(cluster).__mro__):
        return False
    return type(cluster).__module__.partition(".")[0] != "distributed"


@dataclass(frozen=True, slots=True)
class _Submitted:
    """An attempt at a task."""

    future: Any
    given: tuple[Any, ...]
    #: The only worker that may run it, or None.
    worker: str | None
    alone: bool
    #: Items of a call that did not stop.
    stuck: Sequence[int] = ()


@final
class DaskRunner(Runner):
    """Tasks on the workers of a Dask client.

    Parameters
    ----------
    executor : Client or str
        The client, or the address of its scheduler.
    name, payload : str, bytes
        The pickled job and a name for it.
    resources : mapping or None
        Resources that a task needs on a worker, such as ``{"GPU": 1}``.
    limited : bool
        Whether calls have a time limit, so that workers may tell that one does not stop.
    """

    def __init__(
        self, executor: Any, name: str, payload: bytes, resources: Mapping[str, float] | None, limited: bool = False
    ) -> None:
        self._name = name
        self._ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._tasks: dict[int, _Submitted] = {}
        #: Tasks to run alone, while no worker is there.
        self._held: dict[int, tuple[Any, ...]] = {}
        self._losses: Counter[int] = Counter()
        self._attempt = 0
        self.overhead = scheduler_cost(self.workers)
        self._resources = dict(resources) if resources else None
        #: The largest number of workers so far.
        self._seen = 0
        self._next_look = self._asked = 0.0
        self._alone_since, self._warned = time.monotonic(), False
        large = len(payload) > _LARGE_PAYLOAD
        self._payload = None if large else payload
        with contextlib.ExitStack() as closing:  # an interrupt too disconnects the client
            self._client = closing.enter_context(_connect(executor))
            if large:
                closing.callback(self._forget_job)
            _prepare(self._client, *([(name, payload)] if large else []))
            self._look()
            if limited:
                if not all(each.get("nanny") for each in self._client.scheduler_info(n_workers=-1)["workers"].values()):
                    raise InvalidInputError(NEEDS_PROCESSES)
                topic = topic_of(self._key(0))
                self._client.subscribe_topic(topic, self._hear)
                closing.callback(self._client.unsubscribe_topic, topic)
            self._closing = closing.pop_all()

    def _forget_job(self) -> None:
        """Drop the payload of a sweep that has ended."""
        with _best_effort(f"the payload of sweep {self._name} could not be dropped"):
            self._client.unregister_worker_plugin(f"{_NAME}-{self._name}")

    def window(self, seconds: float) -> int:
        """Enough tasks for some seconds of work per worker, so that an adaptive cluster can tell how many it could use.

        The scheduler queues tasks that workers cannot start yet, except for those that need resources: they are
        assigned to workers immediately, and many of them would be blamed for the death of one worker.
        """
        usual = super().window(seconds)
        if self._resources is not None or not seconds > 0.0:
            return usual
        most = min(_MAX_AHEAD, _MAX_BYTES_AHEAD // max(1, len(self._payload or b"")))
        return max(usual, min(most, math.ceil(self.workers * _SECONDS_AHEAD / seconds)))

    def submit(self, key: int, *given: Any, alone: bool = False) -> None:
        """Submit it to the scheduler; ``alone`` to one worker, once there is one, so that its death is one attempt."""
        worker = self._any_worker() if alone else None
        if alone and worker is None:  # any worker would be several: the scheduler goes on with the next one
            self._held[key] = given
            return
        self._attempt += 1
        future = self._client.submit(
            run_payload, self._name, self._payload, *given, key=self._key(key), resources=self._resources,
            workers=worker, pure=False, retries=0,
        )  # fmt: skip
        self._tasks[key] = _Submitted(future, given, worker, alone)
        future.add_done_callback(lambda ended: self._ended.put((key, ended)))

    def _key(self, key: int) -> str:
        return f"hpfracc-{self._name}-{key}-{self._attempt}"

    def _any_worker(self) -> str | None:
        """A worker with the resources of a task."""
        wanted = (self._resources or {}).items()
        for address, worker in self._client.scheduler_info(n_workers=-1)["workers"].items():
            if all(worker.get("resources", {}).get(name, 0) >= amount for name, amount in wanted):
                return str(address)
        return None

    def _hear(self, event: Any) -> None:
        """Handle a worker's message that a call does not stop. Called in the thread of the client's event loop."""
        self._ended.put((int(event[1][0].rsplit("-", 2)[1]), event[1]))

    def next(self) -> TaskOutcome | None:
        """Wait for an outcome, and check the cluster."""
        trouble = self._look()
        if trouble is not None and (trouble.deaths or self._ended.empty()):
            return trouble
        try:
            key, ended = self._ended.get(timeout=POLL_INTERVAL)
        except Empty:
            return None
        task = self._tasks.get(key)
        if task is None or task.stuck:
            return None  # an abandoned attempt
        if task.future is not ended:
            if not hasattr(ended, "key") and task.future.key == ended[0]:  # a message
                self._tasks[key] = replace(task, worker=ended[1], stuck=ended[2])  # ends when its worker is gone
                self._drop(task)
            return None
        del self._tasks[key]
        try:
            # A finished future can still be lost if its worker dies before the result is fetched.
            return self.outcome(key, ended.result(timeout=_GIVE_UP_AFTER))
        except (Exception, CancelledError) as error:  # of the user's function, or of the cluster: told apart there
            return self._failed(key, task, error)
        finally:
            ended.release()

    def _drop(self, *tasks: _Submitted) -> None:
        """Cancel attempts, so that the scheduler does not repeat them elsewhere."""
        with _best_effort("the remaining tasks could not be cancelled"):
            self._client.cancel([task.future for task in tasks], force=True)

    def _failed(self, key: int, task: _Submitted, error: BaseException) -> TaskOutcome | None:
        name = type(error).__name__
        if name == "KilledWorker":
            return TaskOutcome(key, deaths=int(getattr(error, "allowed_failures", 0)) + 1)
        # Errors of the function are in the report of its task; an OSError is that of a connection, or a time limit.
        lost = name in ("FutureCancelledError", "CancelledError", "CommClosedError") or isinstance(error, OSError)
        if not lost or type(error).__module__.startswith("hpfracc"):
            return TaskOutcome(key, error=error)
        if self._client.status != "running":
            return TaskOutcome(key, error=ClusterError(_LOST_SCHEDULER))
        self._losses[key] += 1
        if self._losses[key] > _MAX_LOSSES:
            told = f"the cluster lost a task {_MAX_LOSSES} times ({error}); call sweep with the same store= to continue"
            return TaskOutcome(key, error=ClusterError(told))
        self.submit(key, *task.given, alone=task.alone)
        return None

    def _look(self) -> TaskOutcome | None:
        """Count the workers from time to time; a cluster without any would keep the caller waiting forever."""
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + _LOOK_INTERVAL
        try:
            if self._client.status != "running":
                raise OSError("not connected")
            threads = self._client.nthreads()
        except Exception as error:  # anything that a broken connection raises
            return self._ended_by(ClusterError(_LOST_SCHEDULER), error)
        dead = [key for key, task in self._tasks.items() if task.worker is not None and task.worker not in threads]
        if dead:
            self._next_look = now  # more may have died
            task = self._tasks.pop(dead[0])
            self._drop(task)
            return TaskOutcome(dead[0], deaths=1, stuck=task.stuck)
        if threads:
            self.workers, self._seen = sum(threads.values()), max(self._seen, len(threads))
            self.overhead = scheduler_cost(self.workers)
            self._alone_since, self._warned = now, False
            held, self._held = self._held, {}
            for key, given in held.items():
                self.submit(key, *given, alone=True)
            return None
        self.workers = max(1, self.workers)
        waited = now - self._alone_since
        if self._seen and now - max(self._alone_since, self._asked) > _ASK_INTERVAL:
            self._asked = now
            self._scale()
        queued = not self._seen or _asks_others(getattr(self._client, "cluster", None))
        if queued and waited > _GIVE_UP_AFTER and not self._warned:
            self._warned = True
            logger.warning("no workers for %.0f s; waiting up to %.0f s for new ones", waited, _QUEUE_TIME)
        if waited > (_QUEUE_TIME if queued else _GIVE_UP_AFTER):
            lost = ClusterError(
                f"the cluster has had no workers for {waited:.0f} s; see whether its jobs wait or fail (their output "
                "says why), start some, and call sweep with the same store= to continue where it was"
            )
            return self._ended_by(lost)
        return None

    def _ended_by(self, error: ClusterError, cause: BaseException | None = None) -> TaskOutcome:
        """An outcome that ends the sweep; raised at once if no task is in flight."""
        error.__cause__ = cause
        if not self._tasks and not self._held:
            raise error
        return TaskOutcome(next(iter({**self._tasks, **self._held})), error=error)

    def _scale(self) -> None:
        """Ask clusters that keep a list of their workers for new ones: Dask's own and those of batch systems.

        Other clusters replace workers themselves, and ``scale`` would end adaptive scaling on Kubernetes.
        """
        cluster: Any = getattr(self._client, "cluster", None)
        if any(base.__name__ == "SpecCluster" for base in type(cluster).__mro__):
            with _best_effort("the cluster could not be asked for workers"):
                cluster.scale(max(self._seen, len(cluster.plan)))  # not fewer than an adaptive cluster has requested

    def close(self, *, cancel: bool) -> None:
        """Release the remaining tasks on the cluster."""
        with self._closing:
            if cancel and self._tasks:
                self._drop(*self._tasks.values())
            self._tasks.clear()
            self._held.clear()
