"""The monitor sees, tells, remembers and cleans up; callbacks may do what they like."""

from __future__ import annotations

import threading
import time

import pytest

from hpfracc.engine.execution.pressure import monitor as module
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.pressure.monitor import (
    MemoryMonitor,
    Reading,
    get_memory_monitor,
    read_memory,
    watched_device,
)
from hpfracc.engine.memory.host import span
from hpfracc.errors import InvalidInputError


class Memory:
    """A memory of 1000 bytes of which a test says how much is used."""

    def __init__(self, used: int = 100) -> None:
        self.used = used

    def __call__(self, device: str) -> Reading:
        return Reading(1000, self.used, 1000 - self.used, self.used, self.used / 1000)


def test_the_host_is_read() -> None:
    """Where there is no GPU the host is watched: its size, what is free, what this process holds."""
    seen = read_memory("cpu")
    assert 0 < seen.free < seen.total and 2**20 < seen.allocated < seen.total and 0.0 < seen.usage < 1.0
    assert watched_device(12) == "cpu" and watched_device("cpu") == "cpu"


def test_a_callback_may_raise_or_look_again() -> None:
    """Its error does not reach the caller; a reading from inside works, and is not passed on."""
    memory, seen = Memory(700), []
    monitor = MemoryMonitor(read=memory, enable_auto_cleanup=False)

    def raising(snapshot: object) -> None:
        raise RuntimeError("mine")

    def looking(snapshot: object) -> None:
        memory.used = 950
        seen.append(str(monitor.get_pressure()))
        monitor.cleanup_memory()
        monitor.get_stats()

    monitor.register_pressure_callback(raising)
    monitor.register_pressure_callback(looking)
    assert str(monitor.get_snapshot().pressure) == "moderate"
    assert seen == ["critical"]


def test_it_cleans_up_above_the_threshold() -> None:
    """By itself, until there is room or the ladder ends, and not at every look."""
    memory, calls = Memory(900), []
    monitor = MemoryMonitor(read=memory)

    def free() -> int:
        calls.append(1)
        memory.used = 300
        return 600

    monitor.register_cleanup_callback(free)
    monitor.get_snapshot()
    assert calls == [1] and monitor.get_stats().cleanups == 1
    memory.used = 900
    monitor.get_snapshot()
    assert calls == [1]  # a moment later it is not tried again
    monitor.close()
    ladder.climb("cpu", highest="own caches")
    assert calls == [1]


def test_a_clean_up_from_many_threads() -> None:
    """Several threads look, clean up and ask at once, with callbacks that look as well."""
    memory = Memory(900)
    monitor = MemoryMonitor(read=memory)
    monitor.register_cleanup_callback(lambda: monitor.get_stats() and 0)
    monitor.register_pressure_callback(lambda snapshot: monitor.get_pressure())
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for step in range(5):
                memory.used = 300 + 150 * (step % 5)
                monitor.get_snapshot()
                monitor.can_allocate(1)
            monitor.cleanup_memory()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300.0)
    assert errors == [] and not any(thread.is_alive() for thread in threads)


def test_the_sampler_is_off_until_asked() -> None:
    """Then it looks by itself, and ends when it is told to, from a callback too."""
    memory = Memory()
    monitor = MemoryMonitor(read=memory, enable_auto_cleanup=False)
    assert not monitor.is_sampling
    monitor.start_sampling(0.01)
    monitor.start_sampling(0.01)
    deadline = time.monotonic() + 300
    while len(monitor.get_snapshot_history()) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(monitor.get_snapshot_history()) >= 5
    stopped = threading.Event()

    def stop(snapshot: object) -> None:
        monitor.stop_sampling()
        stopped.set()

    monitor.register_pressure_callback(stop)
    memory.used = 700
    assert stopped.wait(300.0)
    assert not monitor.is_sampling


def test_growth_names_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of readings that rise, and the span that left the memory behind."""
    now = 1000.0
    monkeypatch.setattr(module.time, "time", lambda: now)
    memory = Memory()
    monitor = MemoryMonitor(read=memory, enable_auto_cleanup=False)
    assert monitor.detect_growth().verdict == "unknown"
    monitor.start_sampling(1000.0)
    kept = []
    for second in range(100):
        now = 1000.0 + second
        memory.used = 10**6 * second
        if second % 10 == 0:
            with span("load"):
                kept.append(bytearray(b"1") * 2_000_000)
            with span("compute"):
                pass
        monitor.get_snapshot()
    found = monitor.detect_growth()
    monitor.stop_sampling()
    assert found.is_leak and found.bytes_per_second == pytest.approx(1e6, rel=0.05)
    assert next(iter(found.growers)) == "load"
    assert found.to_dict()["verdict"] == "growing"


def test_room_is_asked_of_the_budget() -> None:
    """A megabyte fits and a petabyte does not; a margin is kept."""
    monitor = get_memory_monitor()
    assert monitor.can_allocate(size_mb=1.0, safety_margin=0.1)
    assert not monitor.can_allocate(size_mb=1e9)
    for bad in ({"size_mb": -1}, {"size_mb": float("nan")}, {"size_mb": 1, "safety_margin": 1.0}):
        with pytest.raises(InvalidInputError):
            monitor.can_allocate(**bad)


def test_one_monitor_a_device() -> None:
    """The same object for the same device, with the settings given last; nonsense is refused."""
    monitor = get_memory_monitor(device_id=0, enable_auto_cleanup=False, cleanup_threshold=0.7)
    assert get_memory_monitor("cpu") is monitor
    assert monitor.cleanup_threshold == 0.85 and monitor.enable_auto_cleanup
    for bad in (0.0, 1.5):
        with pytest.raises(InvalidInputError, match="cleanup_threshold"):
            get_memory_monitor(cleanup_threshold=bad)
    for device in (-1, True, 1.5):
        with pytest.raises(InvalidInputError, match="device_id"):
            get_memory_monitor(device)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="interval"):
        monitor.start_sampling(0)
    for register in (monitor.register_cleanup_callback, monitor.register_pressure_callback):
        with pytest.raises(InvalidInputError, match="not a function"):
            register(3)  # type: ignore[arg-type]
