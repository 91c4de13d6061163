"""What can go wrong on a cluster: killed workers, items that kill them, a killed scheduler, no workers at all."""

from __future__ import annotations

import functools
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

import hpfracc as hf
from hpfracc.distributed import dask_runner
from hpfracc.errors import ClusterError
from tests.distributed import work
from tests.distributed.conftest import fork_server

distributed = pytest.importorskip("distributed")
Client, LocalCluster = distributed.Client, distributed.LocalCluster


def serve(pipe: Any) -> None:
    """A scheduler with one worker, until the process is killed; its address is sent."""
    cluster = LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        host="127.0.0.1",
        protocol="tcp://",
        silence_logs=50,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    )
    pipe.send(cluster.scheduler_address)
    pipe.recv()


def test_a_killed_worker_changes_nothing(client: Any):
    """SIGKILL in the middle of a sweep of stacks: the result is equal to the serial one to the bit."""
    items = hf.grid(alpha=np.linspace(0.3, 0.9, 8), rate=[0.5, 1.0, 2.0, 4.0])
    expected = hf.sweep(work.relax_stack, items, batch=4).values
    pids = list(client.run(os.getpid).values())
    killed = []

    def kill(progress: hf.distributed.SweepProgress) -> None:
        if not killed:
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    result = hf.sweep(work.relax_stack, items, batch=4, executor=client, progress=kill)
    assert killed and result.failed == []
    assert np.array_equal(result.values, expected)


def test_a_worker_killed_while_it_is_prepared_changes_nothing(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """SIGKILL while the plugin is set up: its successor is prepared, and the sweep runs."""
    monkeypatch.setattr(dask_runner.workers, "known_records", lambda: work.Deadly(tmp_path / "died"))
    assert hf.sweep(work.square, hf.grid(x=[1.0, 2.0]), executor=client).values.tolist() == [1.0, 4.0]
    assert (tmp_path / "died").exists()


def run_pool(folder: str) -> None:
    with ProcessPoolExecutor(2) as pool:
        hf.sweep(functools.partial(work.sleep_long, folder), hf.grid(x=[1.0, 2.0]), executor=pool, batch=1)


def test_workers_of_a_pool_end_with_their_client(tmp_path: Path):
    """A client that is killed leaves no processes behind, though they wait in a call."""
    client = fork_server().Process(target=run_pool, args=(str(tmp_path),))
    client.start()
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.05)
    pool = [psutil.Process(int(each.name)) for each in tmp_path.iterdir()]
    client.kill()
    client.join()
    _gone, alive = psutil.wait_procs(pool, timeout=60)
    for each in alive:
        each.kill()
    assert not alive


def test_items_that_end_workers_hang_or_raise_are_named(client: Any, tmp_path: Path):
    """Each by number and parameters, and no other; one that ends its worker once has its value, as all others have.

    All are in one task. When its worker dies its items are run alone, one by one.
    """
    items = hf.points(x=np.arange(12.0), folder=[str(tmp_path)] * 12)
    result = hf.sweep(work.misbehave, items, executor=client, batch=12, timeout=2.0, retries=0, on_error="keep")
    assert [each.index for each in result.failed] == [5, 7, 9]
    ended, raised, stuck = result.failed
    assert "its worker died, 1 time" in ended.error and ended.parameters["x"] == 5.0
    assert raised.error == "ValueError: seven"
    assert stuck.error == "TimeoutError: it did not stop within timeout=2 s, and its worker was replaced"
    good = np.setdiff1d(np.arange(12), [5, 7, 9])
    assert np.array_equal(result.values[good], good * 0.1)


def test_a_neighbour_is_not_blamed(client: Any):
    """Items in tasks of their own, of which some wait on a worker that another one ends: only that one is named."""
    result = hf.sweep(
        work.end_worker, hf.grid(x=np.arange(3.0, 7.0)), executor=client, batch=1, retries=0, on_error="keep"
    )
    assert [each.parameters["x"] for each in result.failed] == [5.0]
    assert np.array_equal(result.values[[0, 1, 3]], [3.0, 4.0, 6.0])


def test_a_batch_says_which_items_ended_a_worker(client: Any):
    """With executor=, a batch ends; it neither waits nor tries again."""
    with pytest.raises(ClusterError, match="items from . on ended their worker"):
        hf.batch.run(work.end_worker, np.arange(4.0, 7.0), executor=client)


@pytest.mark.slow
def test_one_death_is_one_attempt(client: Any, monkeypatch: pytest.MonkeyPatch):
    """``retries=1`` is one more attempt, also where the scheduler itself would make three more."""
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 3)
    monkeypatch.setattr("hpfracc.distributed.dask_runner._LOOK_INTERVAL", 0.2)
    items = hf.grid(x=[4.0, 5.0])
    result = hf.sweep(work.end_worker, items, executor=client, batch=2, retries=1, on_error="keep")
    assert [each.error for each in result.failed] == ["ClusterError: its worker died, 2 times"]
    assert result.values[0] == 4.0


def test_a_task_waits_for_a_worker_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """While none is there, nothing is submitted: the scheduler would go on from one dead worker to the next."""
    monkeypatch.setattr(dask_runner, "_LOOK_INTERVAL", 0.0)
    given: list[Any] = []

    class Client(ClientOf):
        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            return {"workers": {each: {} for each in self.threads}}

        def submit(self, *args: Any, workers: str | None, **options: Any) -> Any:
            given.append(workers)
            return SimpleNamespace(add_done_callback=lambda call: None, key=options["key"])

        def cancel(self, futures: Any, force: bool) -> None:
            pass

    client = Client(None)
    runner = dask_runner.DaskRunner(client, "job", b"", None)
    client.threads = {}
    runner.submit(7, [0], [], alone=True)
    assert runner._look() is None and given == []
    client.threads = {"three": 1}
    assert runner._look() is None and given == ["three"]
    client.threads = {"four": 1}
    outcome = runner._look()
    assert outcome is not None and (outcome.key, outcome.deaths) == (7, 1)


def test_a_stuck_process_of_a_pool_is_ended():
    """The pool is broken then, which the error says."""
    with ProcessPoolExecutor(1, mp_context=fork_server()) as pool, pytest.raises(ClusterError, match="died"):
        hf.sweep(work.stuck_soon, hf.grid(x=[1.0]), executor=pool, timeout=0.2)


def test_a_sweep_continues_after_its_scheduler_was_killed(tmp_path: Path):
    """The sweep ends with an error that says how to go on; going on gives what a loop gives."""
    items, store = hf.grid(x=np.arange(40.0)), tmp_path / "store"
    here, there = Pipe()
    process = fork_server().Process(target=serve, args=(there,), daemon=True)
    process.start()
    address = here.recv()

    def kill(progress: hf.distributed.SweepProgress) -> None:
        if progress.done >= 10:
            process.kill()

    with pytest.raises(ClusterError, match="same store= to continue"):
        hf.sweep(work.square, items, executor=address, store=store, batch=2, progress=kill)
    process.join()
    done = hf.distributed.open_sweep(store)
    assert 10 <= done._ended < 40
    assert np.array_equal(hf.sweep(work.square, items, store=store).values, np.arange(40.0) ** 2)


def test_a_client_that_was_closed_is_refused(cluster: Any):
    """By sweeps and batches, with what to do."""
    closed = Client(cluster, set_as_default=False)
    closed.close()
    for call in (
        lambda: hf.sweep(work.square, hf.grid(x=[1.0]), executor=closed),
        lambda: hf.batch.run(work.square, [1.0], executor=closed),
    ):
        with pytest.raises(ClusterError, match=r"status 'closed'; make a new one"):
            call()


def test_a_cluster_without_workers_is_not_waited_for(client: Any, monkeypatch: pytest.MonkeyPatch):
    """Where no worker is left, and none comes, the sweep ends with an error."""
    monkeypatch.setattr("hpfracc.distributed.dask_runner._QUEUE_TIME", 0.2)
    monkeypatch.setattr("hpfracc.distributed.dask_runner._LOOK_INTERVAL", 0.05)
    monkeypatch.setattr(client, "nthreads", dict)
    with pytest.raises(ClusterError, match="no workers for"):
        hf.sweep(work.wait_long, hf.grid(x=[1.0]), executor=client, resources={"nobody": 1})


class SpecCluster:
    """As Dask's own clusters, and those of batch systems: a list of workers that are wanted."""

    def __init__(self) -> None:
        self.plan = {"a", "b", "c"}
        self.asked: list[int] = []

    def scale(self, count: int) -> None:
        self.asked.append(count)


#: One of this machine.
Local = type("LocalCluster", (SpecCluster,), {})


class KubeCluster:
    """As on Kubernetes: ``scale`` would end its adaptive scaling."""

    def scale(self, count: int) -> None:
        raise AssertionError("scaled")


class ClientOf:
    """A client whose workers can be taken away."""

    status, asynchronous = "running", False

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.threads = {"one": 1, "two": 1}

    def nthreads(self) -> dict[str, int]:
        return self.threads

    def register_plugin(self, plugin: Any, name: str) -> None:
        pass

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        pass


@pytest.mark.parametrize(("cluster", "limit"), [(Local(), 120), (SpecCluster(), 3600), (KubeCluster(), 3600)])
def test_lost_workers_are_asked_for_and_waited_for(cluster: Any, limit: int, monkeypatch: pytest.MonkeyPatch):
    """Every ten seconds, with at least what is planned; two minutes on this machine, an hour where jobs are queued."""
    clock = {"now": 1000.0}
    monkeypatch.setattr(dask_runner, "time", SimpleNamespace(monotonic=lambda: clock["now"]))
    client = ClientOf(cluster)
    runner = dask_runner.DaskRunner(client, "job", b"", None)
    assert runner.workers == 2
    client.threads = {}
    for clock["now"] in range(1002, 1000 + limit, 2):
        assert runner._look() is None
    if isinstance(cluster, SpecCluster):
        assert cluster.asked == [3] * len(cluster.asked)
        assert limit // 12 - 2 <= len(cluster.asked) <= limit // 10
    clock["now"] = 1002.0 + limit
    with pytest.raises(ClusterError, match="no workers for .*same store="):
        runner._look()


class BrokenClient(ClientOf):
    """A client whose scheduler is gone."""

    def cancel(self, futures: Any, force: bool) -> None:
        raise OSError("connection closed")

    def unregister_worker_plugin(self, name: str) -> None:
        raise OSError("connection closed")


def test_a_cluster_that_cannot_scale_is_reported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """The sweep waits on, and the log says why no worker comes."""
    clock = {"now": 1000.0}
    monkeypatch.setattr(dask_runner, "time", SimpleNamespace(monotonic=lambda: clock["now"]))

    def refuse(count: int) -> None:
        raise RuntimeError("over quota")

    cluster = SpecCluster()
    monkeypatch.setattr(cluster, "scale", refuse)
    client = ClientOf(cluster)
    runner = dask_runner.DaskRunner(client, "job", b"", None)
    client.threads = {}
    clock["now"] = 1020.0
    with caplog.at_level("WARNING", "hpfracc.distributed"):  # clusters of other tests silence the handler
        assert runner._look() is None
    assert "could not be asked for workers (RuntimeError: over quota)" in caplog.text


def test_closing_without_a_scheduler_is_silent_but_logged(caplog: pytest.LogCaptureFixture):
    """Releasing tasks and payload must not replace the error that ended the sweep."""
    runner = dask_runner.DaskRunner(BrokenClient(None), "job", b"x" * (1 << 17), None)
    runner._tasks[0] = dask_runner._Submitted(None, (0,), (), None, False)
    with caplog.at_level("WARNING", "hpfracc.distributed"):
        runner.close(cancel=True)
    assert "could not be cancelled" in caplog.text
    assert "payload of sweep job could not be dropped" in caplog.text


def test_adaptive_clusters_see_work_for_more_workers(client: Any):
    """A minute of work is in flight for each worker, within bounds; two tasks where they need resources."""
    runner = dask_runner.DaskRunner(client, "job", b"x" * 1000, None)
    assert runner.window(float("nan")) == 5
    assert runner.window(0.25) == 480 and runner.window(1e-6) == 4096 and runner.window(100.0) == 5
    runner.close(cancel=False)
    large = dask_runner.DaskRunner(client, "job", b"x" * 60_000, None)
    assert large.window(1e-6) == (1 << 26) // 60_000
    large.close(cancel=False)
    assert dask_runner.DaskRunner(client, "job", b"", {"GPU": 1.0}).window(0.25) == 5
    in_flight: list[int] = []
    hf.sweep(
        work.square,
        hf.grid(x=np.arange(60.0)),
        executor=client,
        batch=1,
        progress=lambda progress: in_flight.append(len(client.futures)),
    )
    assert max(in_flight) > 40
