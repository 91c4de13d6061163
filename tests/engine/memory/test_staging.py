"""The staging ring and the ledger of pinned memory, on a device that is played by a thread."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from hpfracc.engine.memory.buffers import pinned_buffers
from hpfracc.engine.memory.staging import PinnedLedger, StagingRing, release_idle


class FakeLink:
    """A device as a thread that copies later, in order: a slot that is touched too early gives wrong bytes."""

    def __init__(self) -> None:
        self.pinned_bytes = 0
        self.exhausted = False
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

    def pinned(self, size: int) -> np.ndarray | None:
        self.pinned_bytes += size
        return None if self.exhausted else np.zeros(size, np.uint8)

    def view(self, buffer: np.ndarray) -> np.ndarray:
        return buffer

    def marker(self) -> list[threading.Event]:
        return []

    def wait(self, marker: list[threading.Event]) -> None:
        for event in marker:
            assert event.wait(300.0)

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


@pytest.fixture(autouse=True)
def _a_pool_of_its_own():
    pinned_buffers.reset()
    yield
    pinned_buffers.reset()


def random_bytes(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 16384, 64000])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_everything_arrives(size: int, slots: int):
    """Whatever the size, below, at and above a chunk and the whole ring, the bytes that go in come out."""
    link = FakeLink()
    ring = StagingRing(link, slots=slots, chunk=4096)
    source, device, back = random_bytes(size), np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    ring.upload(source, device, size)
    ring.download(device, back, size)
    assert (back == source).all()


def test_pinned_memory_is_bounded():
    """However much goes through, the ring holds its slots and nothing else."""
    link = FakeLink()
    ring = StagingRing(link, slots=3, chunk=4096)
    for seed in range(5):
        source, back = random_bytes(64000, seed), np.zeros(64000, np.uint8)
        ring.download(source, back, 64000)
        assert (back == source).all()
    assert link.pinned_bytes == 3 * 4096


def test_threads_share_a_ring():
    """Eight threads that send and fetch through two slots all get their own bytes, and none hangs."""
    link = FakeLink()
    ring = StagingRing(link, slots=2, chunk=4096)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for turn in range(5):
            source = random_bytes(45000, 100 * seed + turn)
            device, back = np.zeros(45000, np.uint8), np.zeros(45000, np.uint8)
            ring.upload(source, device, 45000)
            ring.download(device, back, 45000)
            if (back != source).any():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300.0)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


@pytest.mark.parametrize("way", ["upload", "download"])
def test_a_failure_gives_the_slots_back(way: str):
    """After a copy failed half-way the ring still serves, with all its slots."""
    link = FakeLink()
    ring = StagingRing(link, slots=2, chunk=4096)
    source, target = random_bytes(64000), np.zeros(64000, np.uint8)
    link.fail_after = 5
    with pytest.raises(RuntimeError, match="the device is gone"):
        getattr(ring, way)(source, target, 64000)
    link.fail_after = None
    ring.download(source, target, 64000)
    assert (target == source).all()
    assert link.pinned_bytes == 2 * 4096


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


# The slots' memory is the pool's.


def test_cleanup_during_transfers_breaks_nothing():
    """Slots are emptied repeatedly while threads use them: all bytes arrive, and there is no deadlock."""
    link = FakeLink()
    ring = StagingRing(link, slots=2, chunk=4096)
    wrong, done = [], threading.Event()

    def send(seed: int) -> None:
        for turn in range(6):
            source, device, back = random_bytes(20000, 10 * seed + turn), *np.zeros((2, 20000), np.uint8)
            ring.upload(source, device, 20000)
            ring.download(device, back, 20000)
            if (back != source).any():
                wrong.append(seed)

    def clean() -> None:
        while not done.is_set():
            release_idle()
            pinned_buffers.clear()

    cleaners = [threading.Thread(target=clean, daemon=True) for _ in range(2)]
    senders = [threading.Thread(target=send, args=(seed,), daemon=True) for seed in range(4)]
    for thread in (*cleaners, *senders):
        thread.start()
    for thread in senders:
        thread.join(300.0)
    done.set()
    for thread in cleaners:
        thread.join(300.0)
    assert not any(thread.is_alive() for thread in (*senders, *cleaners)) and wrong == []


def test_without_page_locked_memory_pageable_memory_does():
    """Where the driver has no more of it, transfers are slower, not impossible."""
    link = FakeLink()
    link.exhausted = True
    ring = StagingRing(link, slots=2, chunk=4096)
    source, target = random_bytes(20000), np.zeros(20000, np.uint8)
    ring.download(source, target, 20000)
    assert (target == source).all()
