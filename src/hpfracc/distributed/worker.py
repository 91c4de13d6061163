"""The identity and limits of a worker process: its name, its share of the machine, its versions."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hpfracc.distributed.claims import limit_gpu
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.workers import limit_cores
from hpfracc.errors import ClusterError

__all__ = ["adopt_limits", "compare_versions", "dask_worker", "versions", "worker_name"]

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
    limit_gpu()
    threads = int(worker.state.nthreads)
    limit = worker.memory_manager.memory_limit
    cap = None
    if limit is not None:
        usable = int(limit * (worker.memory_manager.memory_pause_fraction or 1.0))
        cap = max(int(limit) // _MIN_SHARE, usable - _held(worker)) // threads
    if _adopted == (worker.address, threads, cap):
        return
    limit_cores(threads)
    get_budget().cap(HOST, cap)
    if _adopted is None or _adopted[1] != threads:
        _limit_numba(threads)
    _adopted = (worker.address, threads, cap)


def _held(worker: Any) -> int:
    """Bytes that Dask counts against the limit of a worker: those of its process, without data on disk."""
    held = int(worker.monitor.get_process_memory())
    return -(-held // _ROUNDING) * _ROUNDING


def _limit_numba(threads: int) -> None:
    numba = sys.modules.get("numba")
    if numba is None:
        os.environ["NUMBA_NUM_THREADS"] = str(threads)
    elif hasattr(numba, "set_num_threads"):
        numba.set_num_threads(min(threads, int(numba.config.NUMBA_NUM_THREADS)))


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that client and workers must share."""
    return dict(_read_versions())


@functools.cache
def _read_versions() -> dict[str, str]:
    """Read once, because it takes milliseconds and every task compares them."""
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
