"""What workers learn comes back, and reaches other workers; each worker has its own GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._config import get_settings
from hpfracc.distributed import worker
from hpfracc.distributed.worker import known_records, merge_records, process_id, start_sharing, take_records
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.hardware import GPU
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.engine.selection.wisdom import share_records
from hpfracc.engine.selection.wisdom_records import Record
from tests.distributed import work


@pytest.fixture(autouse=True)
def not_shared() -> Iterator[None]:
    yield
    share_records(False)


def knot(fingerprint: str | None = None) -> Record:
    """A time of an arm that no machine takes."""
    arm = next(each for each in registry.arms("causal_convolution") if each.name == "numpy:fft@cpu")
    return Record(
        kind="knot",
        operation="causal_convolution",
        arm=arm.name,
        fingerprint=fingerprint or registry.fingerprint("causal_convolution", arm),
        start="host",
        dtype="float64",
        seconds=123.0,
        bucket=(10, 10),
        x=1e5,
    )


def test_records_travel_once():
    """A message holds what was learned since the last one; merging it twice adds nothing, and plans follow it."""
    assert start_sharing(("elsewhere", 1)) and not start_sharing(process_id()) and not start_sharing(None)
    record = knot()
    knowledge = knowledge_for(get_settings())
    knowledge.wisdom.append([record])
    message = take_records()
    assert message and take_records() == []
    with hf.config(wisdom=str(Path(knowledge.wisdom.path or "").parent / "other")):
        signal = np.ones(4096)
        before = hf.explain(hf.causal_convolution, signal, signal).decisions[0]
        assert merge_records(message) == 1 and merge_records(message) == 0
        after = hf.explain(hf.causal_convolution, signal, signal).decisions[0]
        known = knowledge_for(get_settings())
        assert [each.id for each in known.wisdom.load()] == [record.id]
        assert take_records() == []  # not its own

    def seconds(decision: Any) -> float:
        return next(row.total for row in decision.candidates if row.arm == "numpy:fft@cpu")

    # The key was in use before: the time of the worker on the same hardware counts at once.
    assert seconds(before) < 1.0 < seconds(after)


def test_nothing_is_learned_where_decisions_are_fixed():
    """Deterministic runs and switched-off learning take and send nothing."""
    share_records(True)
    knowledge_for(get_settings()).wisdom.append([knot()])
    message = take_records()
    for options in ({"deterministic": True}, {"enable_learning": False}):
        with hf.config(**options):
            assert merge_records(message) == 0 and known_records() == []


def test_workers_send_and_get_what_is_known(client: Any):
    """Samples of the workers' engines are new to the client; workers get the records of another machine."""
    foreign = knot("another machine")
    assert knowledge_for(get_settings()).learn_from([foreign]) == 1
    result = hf.sweep(work.convolve_often, hf.grid(x=np.arange(4.0)), executor=client, batch=1)
    assert result.learned > 0
    here = {each.id for each in knowledge_for(get_settings()).wisdom.load()}
    assert foreign.id in here and len(here) > 1
    for known in client.run(work.known_ids).values():
        assert foreign.id in known


def test_memory_of_a_call_is_what_the_process_leaves(monkeypatch: pytest.MonkeyPatch):
    """Until Dask pauses the worker, for each thread; an eighth of the limit at least. Data on disk does not count."""
    caps: list[tuple[str, int]] = []
    monkeypatch.setattr(worker, "_adopted", None)
    monkeypatch.setattr(worker, "limit_cores", lambda threads: None)
    monkeypatch.setattr(worker, "_limit_numba", lambda threads: None)
    monkeypatch.setattr(worker, "get_budget", lambda: SimpleNamespace(cap=lambda *given: caps.append(given)))
    held = {"bytes": 230 << 20}
    dask_worker = SimpleNamespace(
        address="tcp://127.0.0.1:1",
        state=SimpleNamespace(nthreads=2, nbytes=1 << 40),
        memory_manager=SimpleNamespace(memory_limit=600 << 20, memory_pause_fraction=0.8),
        monitor=SimpleNamespace(get_process_memory=lambda: held["bytes"]),
    )
    for held["bytes"] in (230 << 20, 231 << 20, 300 << 20, 590 << 20):
        worker.adopt_limits(dask_worker)
    assert caps == [("cpu", 120 << 20), ("cpu", 88 << 20), ("cpu", (75 << 20) // 2)]


def gpus(count: int) -> list[GPU]:
    return [GPU(f"cuda:{i}", "simulated", "1", f"GPU-{i}", f"0000:0{i}", 80 << 30) for i in range(count)]


def test_each_worker_claims_a_gpu(tmp_path: Path):
    """The first free one; when all are taken, the one with the fewest; a process that ends gives its own back."""
    made = [worker.claim_gpu(gpus(2), tmp_path) for _ in range(3)]
    assert [each[0].uuid for each in made if each] == ["GPU-0", "GPU-1", "GPU-0"]
    first, second, third = (each[1] for each in made if each)
    os.close(first)
    again = worker.claim_gpu(gpus(2), tmp_path)
    assert again and again[0].uuid == "GPU-0"
    for each in (second, third, again[1]):
        os.close(each)


def test_a_worker_sees_its_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the variable that CUDA reads, once; a library that has read it already keeps what it has."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("multiprocessing.parent_process", object)
    monkeypatch.setattr(worker, "_claim", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(hardware, "machine", lambda: SimpleNamespace(gpus=tuple(gpus(2))))
    monkeypatch.setattr(worker, "_cuda_is_used", lambda: True)
    assert worker.use_own_gpu() is None
    monkeypatch.setattr(worker, "_cuda_is_used", lambda: False)
    mine = worker.use_own_gpu()
    assert mine is not None and mine.uuid == "GPU-0" and worker.use_own_gpu() is mine
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert worker._claim is not None
    os.close(worker._claim[1])
