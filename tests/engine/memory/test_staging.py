"""The staging ring and the ledger of pinned memory, on a device that is played by a thread."""

from __future__ import annotations

import gc
import threading
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from hpfracc.engine.memory.staging import PinnedLedger, StagingRing


class FakeLink:
    """A device as a thread that copies later, in order: a slot that is touched too early gives wrong bytes."""

    def __init__(self) -> None:
        self.pinned_bytes = 0
        self.fail_after: int | None = None
        self.queued = 0
        self._work: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            target, source, marker = self._work.get()
            for _ in range(50):  # let the host run ahead
                threading.Event().wait(0)
            target[...] = source
            marker.set()

    def pinned(self, size: int) -> np.ndarray:
        self.pinned_bytes += size
        return np.zeros(size, np.uint8)

    def marker(self) -> list[threading.Event]:
        return []

    def wait(self, marker: list[threading.Event]) -> None:
        for event in marker:
            assert event.wait(30)

    def enqueue(self, target: Any, source: Any, marker: list[threading.Event]) -> None:
        self.queued += 1
        if self.fail_after is not None and self.queued > self.fail_after:
            raise RuntimeError("the device is gone")
        done = threading.Event()
        marker[:] = [done]
        self._work.put((target, source, done))

    def host_copy(self, target: np.ndarray, source: np.ndarray) -> None:
        target[...] = source

    def finish(self) -> None:
        marker: list[threading.Event] = []
        self.enqueue(np.empty(1, np.uint8), np.zeros(1, np.uint8), marker)
        self.wait(marker)


def random_bytes(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 256, 1000])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_everything_arrives(size: int, slots: int):
    """Whatever the size, below, at and above a chunk and the whole ring, the bytes that go in come out."""
    link = FakeLink()
    ring = StagingRing(link, slots=slots, chunk=64)
    source, device, back = random_bytes(size), np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    ring.upload(source, device, size)
    ring.download(device, back, size)
    assert (back == source).all()


def test_source_may_change_once_upload_returns():
    """The caller's array is read before ``upload`` returns, though the device copies later."""
    link = FakeLink()
    ring = StagingRing(link, slots=4, chunk=64)
    source, device = random_bytes(1000), np.zeros(1000, np.uint8)
    expected = source.copy()
    ring.upload(source, device, 1000)
    source[:] = 0
    link.finish()
    assert (device == expected).all()


def test_pinned_memory_is_bounded():
    """However much goes through, the ring holds its slots and nothing else."""
    link = FakeLink()
    ring = StagingRing(link, slots=3, chunk=64)
    for seed in range(5):
        source, back = random_bytes(1000, seed), np.zeros(1000, np.uint8)
        ring.download(source, back, 1000)
        assert (back == source).all()
    assert link.pinned_bytes == 3 * 64


def test_threads_share_a_ring():
    """Eight threads that send and fetch through two slots all get their own bytes, and none waits for ever."""
    link = FakeLink()
    ring = StagingRing(link, slots=2, chunk=64)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for turn in range(5):
            source = random_bytes(700, 100 * seed + turn)
            device, back = np.zeros(700, np.uint8), np.zeros(700, np.uint8)
            ring.upload(source, device, 700)
            ring.download(device, back, 700)
            if (back != source).any():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


@pytest.mark.parametrize("way", ["upload", "download"])
def test_a_failure_gives_the_slots_back(way: str):
    """After a copy failed half-way the ring still serves, with all its slots."""
    link = FakeLink()
    ring = StagingRing(link, slots=2, chunk=64)
    source, target = random_bytes(1000), np.zeros(1000, np.uint8)
    link.fail_after = 5
    with pytest.raises(RuntimeError, match="the device is gone"):
        getattr(ring, way)(source, target, 1000)
    link.fail_after = None
    ring.download(source, target, 1000)
    assert (target == source).all()
    assert link.pinned_bytes == 2 * 64


def test_ledger_refuses_beyond_its_bound():
    """What is held never exceeds the bound, and what is given back can be had again."""
    ledger = PinnedLedger(100)
    assert ledger.reserve(60)
    assert ledger.reserve(40)
    assert not ledger.reserve(1)
    ledger.release(40)
    assert ledger.held == 60
    assert ledger.reserve(40)
    assert not ledger.reserve(1)


def test_ledger_bears_a_release_inside_its_lock():
    """A result that dies while the lock is held (garbage collection runs anywhere) is counted, not deadlocked."""
    ledger = PinnedLedger(100)
    assert ledger.reserve(100)

    class Result:
        def __del__(self) -> None:
            ledger.release(100)

    cycle = [Result()]
    cycle.append(cycle)  # type: ignore[arg-type]
    del cycle
    with ledger._lock:
        gc.collect()
    assert ledger.reserve(100)
