"""The cleanup ladder: every rung reports, no failure stops it, and there is no deadlock."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from hpfracc.engine.backends import registry
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.execution.pressure import ladder as module
from hpfracc.engine.execution.pressure.ladder import RUNGS, ladder
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.memory.buffers import host_buffers


def test_each_rung_says_what_it_freed() -> None:
    """Own caches are emptied and accounted for; a host has no device buffers to move."""
    prepared_operands.get("a", lambda: np.ones(100_000))
    host_buffers.release(host_buffers.allocate(100_000))
    report = ladder.climb("cpu")
    assert [rung.name for rung in report.rungs] == list(RUNGS[:3])
    assert report.rungs[0].released >= 1_600_000
    assert len(prepared_operands) == 0 and host_buffers.stats().held_bytes == 0
    assert all(rung.freed >= 0 and rung.seconds >= 0 and not rung.error for rung in report.rungs)
    assert report.to_dict()["rungs"][1]["name"] == "garbage"


def test_it_climbs_no_higher_than_it_must() -> None:
    """Where the first rung gives room, the others are left alone."""
    report = ladder.climb("cpu", enough=lambda: True)
    assert report.enough and len(report.rungs) == 1


def test_buffers_of_a_device_are_moved_in_the_end() -> None:
    """For a GPU the last rung moves buffers to the host."""
    get_budget().register("test", lambda device: 10)
    try:
        report = ladder.climb("cuda:7", enough=lambda: False)
        assert [rung.name for rung in report.rungs] == list(RUNGS)
        assert not report.enough
    finally:
        get_budget().register("test", None)


def test_callbacks_are_called_and_may_fail() -> None:
    """One that raises is noted and the others are still called; an int is bytes."""
    calls = []

    def failing() -> None:
        calls.append("failing")
        raise RuntimeError("mine")

    ladder.register(failing)
    ladder.register(lambda: calls.append("other") or 123)
    report = ladder.climb("cpu", highest="own caches")
    assert calls == ["failing", "other"]
    assert "mine" in report.rungs[0].note and report.rungs[0].released == 123


def test_a_callback_may_wait_for_a_thread_that_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """That thread gives up waiting: there is no deadlock."""
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    answers = []

    def callback() -> None:
        thread = threading.Thread(target=lambda: answers.append(ladder.climb("cpu")))
        thread.start()
        thread.join(300.0)
        assert not thread.is_alive()

    ladder.register(callback)
    report = ladder.climb("cpu", highest="own caches")
    assert not report.rungs[0].note
    assert answers[0].skipped == "another thread is cleaning up"


def test_libraries_caches_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the libraries that are loaded, on the device that is short."""
    calls = []
    monkeypatch.setattr(registry, "is_loaded", lambda name: name == "torch")
    monkeypatch.setattr(registry.adapter("torch"), "release_memory", lambda device: calls.append(device))
    ladder.climb("cuda:3", highest="library caches")
    assert calls == ["cuda:3"]
    gc.collect()
