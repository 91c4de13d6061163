"""Spans measure the memory that they leave behind."""

from __future__ import annotations

import asyncio

import pytest

from hpfracc.engine.memory.host import memory_spans, span


def test_spans_know_what_they_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a span inside another left is the inner one's alone; without a watcher nothing is kept."""
    used = [100]
    monkeypatch.setattr("hpfracc.engine.memory.host.resident_bytes", lambda: (used[0], used[0]))
    with span("unwatched"):
        used[0] += 1000
    memory_spans.watch(True)
    try:
        with span("outer"):
            used[0] += 30
            with span("inner"):
                used[0] += 500
        rates = memory_spans.growers(10.0)
        assert rates == {"inner": pytest.approx(50.0), "outer": pytest.approx(3.0)}
    finally:
        memory_spans.watch(False)


def test_spans_of_tasks_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks that take turns in one thread: each span ends with what was in use when it began."""
    used = [100]
    monkeypatch.setattr("hpfracc.engine.memory.host.resident_bytes", lambda: (used[0], used[0]))
    memory_spans.watch(True)

    async def work(name: str, grown: int) -> None:
        with span(name):
            await asyncio.sleep(0)
            used[0] += grown

    async def both() -> None:
        await asyncio.gather(work("first", 10), work("second", 5))

    asyncio.run(both())
    assert [(name, grown) for _, name, grown in memory_spans._ended] == [("first", 10), ("second", 15)]
