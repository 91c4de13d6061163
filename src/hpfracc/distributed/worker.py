"""A worker process: its name, versions, share of the machine and GPU, and what its engine learns.

Workers of one machine do not know of each other and may be restarted in any order. Each takes the first unclaimed GPU
by a lock file, which the system releases when the process ends. If there are more workers than GPUs, several share one.

Each worker chooses with timings of its own hardware, because a record carries the fingerprint of the arm it was
measured on. New records are returned with the results of a sweep. The client keeps them in its wisdom, and prepares
workers with what is known of all machines. The engine is imported only if there is something to learn from: a worker
whose function does not use it starts sooner.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpfracc._config import get_settings
from hpfracc._interrupts import start_thread
from hpfracc.engine import hardware
from hpfracc.engine.hardware import GPU
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.workers import limit_cores
from hpfracc.errors import ClusterError

if TYPE_CHECKING:
    from hpfracc.engine.selection.wisdom_records import Record

logger = logging.getLogger("hpfracc.distributed")

#: Libraries whose numerical results and pickles depend on their version.
_COMPARED = ("hpfracc", "numpy", "scipy", "numba", "cloudpickle", "dask", "distributed")
#: A call may always take one part in this many of a worker's limit, even if its process holds most of it.
_MIN_SHARE = 8
#: The memory of a process is rounded up to a multiple of this, so that limits do not change from task to task.
_ROUNDING = 16 << 20
#: The limits adopted from the Dask worker that this process belongs to.
_adopted: tuple[Any, ...] | None = None


def dask_worker() -> Any:
    """The Dask worker in which the calling task runs, or None."""
    dask = sys.modules.get("distributed")
    if dask is None:
        return None
    try:
        return dask.get_worker()
    except (ValueError, AttributeError):  # no worker, or an import in progress
        return None


def worker_name() -> str:
    """Address of the Dask worker, or host and process id."""
    worker = dask_worker()
    return f"{platform.node()}:{os.getpid()}" if worker is None else str(worker.address)


def adopt_limits(worker: Any = None) -> None:
    """Make the engine use the cores and the memory of its Dask worker instead of those of the machine.

    The cores are the worker's threads. The memory of one call is what remains until Dask pauses the worker, by default
    at 80 % of its limit, given all that its process holds (data and libraries), divided by the number of threads; but
    at least an eighth of the limit. Outside a worker nothing changes.
    """
    global _adopted
    worker = dask_worker() if worker is None else worker
    if worker is None:
        return
    threads = int(worker.state.nthreads)
    limit = worker.memory_manager.memory_limit
    cap = None
    if limit is not None:
        usable = int(limit * (worker.memory_manager.memory_pause_fraction or 1.0))
        cap = max(int(limit) // _MIN_SHARE, usable - _process_bytes(worker)) // threads
    if _adopted == (worker.address, threads, cap):
        return
    limit_cores(threads)
    get_budget().cap(HOST, cap)
    if _adopted is None or _adopted[1] != threads:
        _limit_numba(threads)
    _adopted = (worker.address, threads, cap)


def _process_bytes(worker: Any) -> int:
    """Bytes that Dask counts against the limit of a worker: those of its process, without data on disk."""
    held = int(worker.monitor.get_process_memory())
    return -(-held // _ROUNDING) * _ROUNDING


def _limit_numba(threads: int) -> None:
    numba = sys.modules.get("numba")
    if numba is None:
        os.environ["NUMBA_NUM_THREADS"] = str(threads)
    elif hasattr(numba, "set_num_threads"):
        numba.set_num_threads(min(threads, int(numba.config.NUMBA_NUM_THREADS)))


@functools.cache  # it takes milliseconds, and every task compares them
def versions() -> Mapping[str, str]:
    """Versions of Python and of the libraries that client and workers must share."""
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in _COMPARED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            if name == "hpfracc":  # run from a source tree
                found[name] = str(sys.modules["hpfracc"].__version__)
    return found


def compare_versions(wanted: Mapping[str, str], where: str) -> None:
    """Raise :class:`ClusterError` if a library that the caller has is missing here or has another version."""
    here = versions()
    other = [
        f"{name} {here.get(name, '(none)')} instead of {number}"
        for name, number in wanted.items()
        if here.get(name) != number and (name in here or name != "numba")
    ]
    if other:
        raise ClusterError(
            f"worker {where} has {', '.join(other)}; install the same versions there, or results may differ"
        )


#: Largest number of workers that share one GPU.
_MAX_SHARERS = 16
#: The GPU of this process, and the file whose lock is its claim: the system releases it when the process ends.
_claim: tuple[GPU, int] | None = None


def claim_gpu(gpus: Sequence[GPU], folder: Path | None = None) -> tuple[GPU, int] | None:
    """Claim an unclaimed GPU, or the one with the fewest claims, by an open file; None if locks are not available."""
    place = Path(tempfile.gettempdir()) / f"hpfracc-gpus-{os.getuid()}" if folder is None else folder
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        for slot in range(_MAX_SHARERS):
            for gpu in gpus:
                file = _lock(place / f"{(gpu.uuid or gpu.bus).replace('/', '-')}-{slot}.lock")
                if file is not None:
                    return gpu, file
    except OSError as error:
        logger.info("no GPU could be claimed (%s); all workers of this machine see all GPUs", error)
    return None


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock of a file, or None if another process holds it."""
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def use_own_gpu() -> GPU | None:
    """Give this worker process a GPU of several. In the process of a client, nothing changes."""
    global _claim
    gpus = hardware.machine().gpus
    if _claim is None and len(gpus) > 1 and multiprocessing.parent_process() is not None and sys.platform != "win32":
        if _cuda_is_used():
            logger.info("%s already uses CUDA; it keeps its current GPUs", worker_name())
            return None
        _claim = claim_gpu(gpus)
        if _claim is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = _claim[0].uuid
            hardware.reset()
    return None if _claim is None else _claim[0]


def _cuda_is_used() -> bool:
    """Whether a library of this process has initialised CUDA, which reads the variable only once."""
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "cuda") and torch.cuda.is_initialized():
        return True
    return "cupy" in sys.modules or "jax" in sys.modules


#: Seconds between two looks whether the parent of a worker process is alive.
_PARENT_INTERVAL = 1.0


@functools.cache
def end_with_parent(process: int) -> None:
    """End this worker process of a pool, whose id is given, when its parent is gone.

    A pool tells its workers to end, but a parent that was killed does not; a worker then waits for its next task
    forever. Dask's nannies and schedulers do this for theirs.
    """
    parent = multiprocessing.parent_process()
    if parent is None or dask_worker() is not None:
        return
    pid, forked = parent.pid, os.getppid() == parent.pid

    def watch() -> None:
        # The sentinel of a forked process stays open in processes that were forked after it.
        while not wait([parent.sentinel], timeout=_PARENT_INTERVAL) and not (forked and os.getppid() != pid):
            pass
        os._exit(1)

    start_thread(watch, "hpfracc-parent")


#: Largest number of records that a worker is prepared with, newest first.
_MAX_SENT = 2000


def process_id() -> tuple[str, int]:
    """Host name and id of this process."""
    return platform.node(), os.getpid()


def start_sharing(caller: tuple[str, int] | None) -> bool:
    """Collect what this process learns for the caller; False if it is the caller's own process."""
    away = caller is not None and tuple(caller) != process_id()
    if away:
        from hpfracc.engine.selection.wisdom import share_records

        share_records(True)
    return away


def take_records() -> list[Record]:
    """The records learned since the last call."""
    from hpfracc.engine.selection.wisdom import take_shared

    return take_shared()


def known_records() -> list[Record]:
    """The records of this process for workers."""
    settings = get_settings()
    if settings.deterministic or not settings.enable_learning:
        return []
    from hpfracc.engine.selection.knowledge import knowledge_for

    # Samples are dropped first: calibrations are few, and most valuable.
    found = knowledge_for(settings).records()
    return sorted(found, key=lambda record: (record.kind in ("knot", "power"), record.time))[-_MAX_SENT:]


def merge_records(records: Sequence[Record]) -> int:
    """Add records of another process to this one's knowledge; returns the number of new ones."""
    settings = get_settings()
    if not records or settings.deterministic or not settings.enable_learning:
        return 0
    from hpfracc.engine.selection.knowledge import knowledge_for

    return knowledge_for(settings).learn_from(list(records))
