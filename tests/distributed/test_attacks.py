"""Many interrupts, kills, damaged files and processes on one store; each test says how many, and none may be lost.

All take long, and the moments of interrupts and kills are random: what must hold does not depend on them.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.distributed.stores import SweepStore
from tests.distributed import work
from tests.distributed.conftest import fork_server

pytestmark = pytest.mark.slow

ITEMS = hf.grid(alpha=np.linspace(0.3, 0.95, 10), rate=[0.5, 1.0, 2.0, 4.0])


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return np.array([work.relax(**ITEMS[index]) for index in range(len(ITEMS))]).reshape(10, 4)


# Python drops an exception that is raised in a destructor.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("batch", [1, 7])
def test_100_interrupts_at_random_moments(tmp_path: Path, expected: np.ndarray, batch: int):
    """A hundred times Ctrl-C: every sweep ends with KeyboardInterrupt or completely, and none stores a wrong number."""
    rng, seen = random.Random(batch), Counter[str]()

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        round_ = 0
        while seen["interrupted"] < 100:
            store = tmp_path / str(round_)
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-3, 0.15))
                    result = hf.sweep(work.relax, ITEMS, store=store, batch=batch)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
            except KeyboardInterrupt:
                seen["interrupted"] += 1
                continue
            seen["complete"] += 1
            assert np.array_equal(result.values, expected)
            round_ += 1
        assert np.array_equal(hf.sweep(work.relax, ITEMS, store=tmp_path / str(round_), batch=batch).values, expected)
    finally:
        signal.signal(signal.SIGALRM, before)


def run(store: str, batch: Any, pipe: Any) -> None:
    pipe.send("started")
    hf.sweep(work.relax, ITEMS, store=store, batch=batch)
    pipe.send("complete")


def started(store: Path, batch: Any) -> tuple[Any, Any]:
    context = fork_server()
    here, there = context.Pipe()
    process = context.Process(target=run, args=(str(store), batch, there), daemon=True)
    process.start()
    assert here.recv() == "started"
    return process, here


def test_100_kills_of_the_process(tmp_path: Path, expected: np.ndarray):
    """SIGKILL, in half of the cases while the store is being created: the folder is usable after each."""
    rng, kills, early = random.Random(1), 0, 0
    while kills < 100:
        store = tmp_path / str(kills // 4)
        process, _pipe = started(store, 3)
        time.sleep(rng.uniform(0.0, 0.02 if kills % 2 else 0.3))
        process.kill()
        process.join()
        kills += 1
        if (store / "manifest.json").exists():
            hf.distributed.open_sweep(store)  # readable, whatever is in it
        else:
            early += 1
        if kills % 4 == 0:
            assert np.array_equal(hf.sweep(work.relax, ITEMS, store=store).values, expected)
    assert early > 0


def test_10_times_three_processes_on_one_store(tmp_path: Path, expected: np.ndarray):
    """Each finds its own batch by timing, or is given it; all items are there once all have ended."""
    for number in range(10):
        store = tmp_path / str(number)
        running = [started(store, "auto") for _ in range(3)]
        for process, pipe in running:
            assert pipe.recv() == "complete"
            process.join()
        found = hf.distributed.open_sweep(store)
        assert found.complete and not found.failed and np.array_equal(found.values, expected)


def part(x: float) -> dict[str, Any]:
    if x == 1.0:
        raise ValueError("one")
    return {"third": x / 3.0, "whole": int(x)}


def same(one: Any, two: Any) -> bool:
    return bool(
        (one.indices, one.failures, one.seconds, one.worker) == (two.indices, two.failures, two.seconds, two.worker)
        and all(np.array_equal(one.arrays[name], two.arrays[name]) for name in two.arrays)
        and all(one.arrays[name].dtype == two.arrays[name].dtype for name in two.arrays)
    )


def test_every_byte_of_a_file_flipped_and_every_length(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A damaged file is noticed, or reads as before: of some 3,000 damages none changes a value."""
    caplog.set_level("ERROR", "hpfracc.distributed")
    hf.sweep(part, hf.grid(x=np.arange(4.0)), store=tmp_path / "store", batch=4, on_error="keep")
    store = SweepStore.open(tmp_path / "store")
    (file,) = (tmp_path / "store" / "values").iterdir()
    data = file.read_bytes()
    [(_, _, right)] = store.reports()
    seen = Counter[str]()
    for at in range(len(data)):
        for damaged in (
            data[:at],
            data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :],
            data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :],
        ):
            file.write_bytes(damaged)
            [(_, _, found)] = store.reports()
            seen["noticed" if found is None else "unchanged" if same(found, right) else "wrong"] += 1
    assert seen["wrong"] == 0 and seen["noticed"] > 2 * seen["unchanged"]
    file.write_bytes(data)
    manifest = tmp_path / "store" / "manifest.json"
    text = manifest.read_bytes()
    for at in range(0, len(text), 3):
        manifest.write_bytes(text[:at] + bytes([text[at] ^ 0x01]) + text[at + 1 :])
        try:
            opened = SweepStore.open(tmp_path / "store")
        except hf.errors.StoreError:
            seen["refused"] += 1
        else:  # a name, a version or a digest, which a sweep compares
            assert opened.params == store.params
    assert seen["refused"] > 100


def sleeps(x: float, folder: str) -> float:
    """Item 1 does not return to the interpreter; each call leaves a mark."""
    (Path(folder) / f"{x}-{os.getpid()}-{time.time_ns()}").touch()
    return work.stuck_soon(x)


def test_an_item_that_sleeps_is_called_once(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the scheduler would try it three more times, elsewhere; and retries are for workers that die."""
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 3)
    items = hf.points(x=np.arange(8.0), folder=[str(tmp_path)] * 8)
    result = hf.sweep(sleeps, items, executor=client, batch=4, timeout=1.0, on_error="keep")
    assert [(each.index, each.error.partition(":")[0]) for each in result.failed] == [(1, "TimeoutError")]
    assert np.array_equal(result.values[[0, 2, 3, 4, 5, 6, 7]], [0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    calls = Counter(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert calls["1.0"] == 1 and max(calls.values()) <= 3


POISONS = [
    "GeneratorExit",
    "CancelledError",
    "SystemExit",
    "KeyboardInterrupt",
    "StopIteration",
    "kill",
    "exit",
    "raise",
]


def poison(x: float, kind: str) -> float:
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        os._exit(3)
    if kind:
        import asyncio
        import builtins

        raise getattr(builtins, kind, asyncio.CancelledError if kind == "CancelledError" else ValueError)(kind)
    return 2.0 * x


@pytest.mark.parametrize("batch", [1, 4, 24])
def test_8_poisons_among_24_items(client: Any, batch: int, tmp_path: Path):
    """Each is named, and no other item is lost, whatever tasks they are in."""
    kinds = [POISONS[place // 3] if place % 3 == 1 else "" for place in range(24)]
    items = hf.points(x=np.arange(24.0), kind=kinds)
    result = hf.sweep(poison, items, executor=client, batch=batch, retries=0, on_error="keep", store=tmp_path / "s")
    bad = np.arange(24) % 3 == 1
    assert [each.index for each in result.failed] == list(np.flatnonzero(bad))
    assert np.array_equal(result.values[~bad], 2.0 * np.arange(24.0)[~bad])
    assert [each.error.partition(":")[0] for each in result.failed] == [
        *POISONS[:5],
        "ClusterError",
        "ClusterError",
        "ValueError",
    ]
