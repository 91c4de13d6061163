"""One small cluster for all tests of this folder: two worker processes, on the loopback."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

# Without Dask nothing of this folder is collected; to skip here would leave out all other folders too.
try:
    import distributed
except ImportError:
    collect_ignore_glob = ["test_*.py"]

#: What workers import, once for all of them: they are forked from a server process, in a few milliseconds.
PRELOADED = [
    "dask.array",
    "hpfracc.batch",
    "hpfracc.distributed.chunked",
    "hpfracc.distributed.dask_runner",
    "hpfracc.operators.core.values",
    "hpfracc.solvers.ode.auto",
]


@functools.cache
def fork_server() -> Any:
    """The context of processes that are forked from a server, which has imported Dask and the library."""
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        context = get_mp_context()  # sets what Dask itself would import
    context.set_forkserver_preload(["distributed", "scipy.fft", "scipy.signal", *PRELOADED])
    return context


def start_cluster(wisdom: Path, workers: int = 2, **options: Any) -> Any:
    import dask

    fork_server()
    # Without these a worker that is being restarted, or that spills, would decide how long the tests take.
    settings = {
        "distributed.worker.multiprocessing-method": "forkserver",
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.scheduler.allowed-failures": 0,
        "distributed.comm.timeouts.connect": "120s",
        "distributed.comm.timeouts.tcp": "120s",
        "distributed.admin.tick.limit": "1h",
        # What only costs processor time here: what every process does fifty times a second while it waits, samples of
        # the stack a hundred times a second, and monitors.
        "distributed.admin.tick.interval": "1s",
        "distributed.worker.profile.enabled": False,
        "distributed.admin.system-monitor.interval": "1h",
        "distributed.worker.memory.monitor-interval": "10s",
        # Nor what the user's own programs learned on this machine.
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": "1", "HPFRACC_WISDOM": str(wisdom)},
    }
    with dask.config.set(settings):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
            # Any free port: two processes may run these tests at once.
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            silence_logs=50,
            **{"memory_limit": "600MiB", **options},
        )


@contextmanager
def running_cluster(wisdom: Path) -> Iterator[Any]:
    import dask

    before = {each.pid for each in psutil.Process().children(recursive=True)}
    # A worker that dies twice within this time would not be restarted: the cluster looks once, this long after.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}), start_cluster(wisdom) as made:
        yield made
    # No worker outlives its cluster.
    left = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
    # A fork has the command of the server, which is itself a child of this process.
    own = psutil.Process().pid
    workers = [each for each in left if "forkserver" in " ".join(each.cmdline()) and each.ppid() != own]
    _gone, alive = psutil.wait_procs(workers, timeout=300)
    assert not alive


#: The cluster, from the first test that asks for it to the last test of this folder.
_RUNNING = ExitStack()
_STARTED: list[Any] = []


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close the cluster when other folders follow: its processes would take turns with their tests."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        _STARTED.clear()
        _RUNNING.close()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if not _STARTED:
        wisdom = tmp_path_factory.mktemp("workers") / "wisdom"
        _STARTED.append(_RUNNING.enter_context(running_cluster(wisdom)))
    return _STARTED[0]


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster, set_as_default=False, timeout=300) as made:
        made.wait_for_workers(2, timeout=300)
        yield made
