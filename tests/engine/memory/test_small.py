"""Amounts of memory as text, requests that fade, caps on a budget, and spans that remember what they left."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from hpfracc.engine.memory.budget import Budget
from hpfracc.engine.memory.relief import Relief
from hpfracc.engine.memory.spans import SpanLedger, span, spans
from hpfracc.engine.memory.units import parse_bytes
from hpfracc.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2**31),
        ("500 MB", 500_000_000),
        ("1.5k", 1536),
        ("64", 64),
        (4096, 4096),
        (1e6, 10**6),
        ("3 tib", 3 * 2**40),
    ],
)
def test_amounts_are_read(text: Any, size: int) -> None:
    """Units of 1000 and of 1024, capital or not."""
    assert parse_bytes("budget", text) == size


@pytest.mark.parametrize("value", ["2 parsecs", "", -1, 0, float("nan"), True, None, [1], "-5MB"])
def test_other_amounts_are_refused(value: Any) -> None:
    """With the value and what to write instead."""
    with pytest.raises(InvalidInputError, match="budget="):
        parse_bytes("budget", value)


def test_relief_fades() -> None:
    """Chunks are halved for a while, never below a sixteenth, and a device is avoided as long."""
    now = 0.0
    relief = Relief(lambda: now)
    assert relief.chunk_scale() == 1.0 and relief.avoids("cuda:0") is None
    assert [relief.shrink() for _ in range(6)] == [0.5, 0.25, 0.125, 0.0625, 0.0625, 0.0625]
    relief.avoid("cuda:0")
    assert "cuda:0" in str(relief.avoids("cuda:0")) and relief.avoids("cuda:1") is None
    now = 61.0
    assert relief.chunk_scale() == 1.0 and relief.avoids("cuda:0") is None


def test_a_cap_bounds_what_is_free() -> None:
    """It binds where it is lower, also where nobody can tell what is free, and can be taken back."""
    budget = Budget(host=lambda _: 1000)
    assert budget.free() == 1000
    assert budget.cap("cpu", 300) is None
    assert budget.free() == 300 and not budget.fits(400, "cpu", 1.0)
    assert budget.cap("cpu", 5000) == 300
    assert budget.free() == 1000
    budget.cap("cuda:0", 77)
    assert budget.free("cuda:0") == 77 and budget.caps() == {"cpu": 5000, "cuda:0": 77}
    budget.cap("cpu", None)
    assert budget.caps() == {"cuda:0": 77}


def test_spans_know_what_they_left_behind() -> None:
    """What a span inside another left is the inner one's alone; without a watcher nothing is kept."""
    ledger = SpanLedger()
    with span("unwatched"):
        pass
    spans.watch(True)
    try:
        kept = []
        with span("outer"), span("inner"):
            kept.append(np.ones(8_000_000))
        rates = spans.growers(10.0)
        assert rates["inner"] == pytest.approx(6.4e6, rel=0.2)
        assert rates.get("outer", 0.0) < 6e5
        assert "unwatched" not in rates
        spans.record("handed in", 50)
        assert spans.growers(10.0)["handed in"] == 5.0
    finally:
        spans.watch(False)
    ledger.leave("never begun")
    assert ledger.growers(1.0) == {}


def test_spans_of_tasks_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks that take turns in one thread: each span ends with what was in use when it began."""
    used = [100]
    monkeypatch.setattr("hpfracc.engine.memory.spans.resident_bytes", lambda: (used[0], used[0]))
    ledger = SpanLedger()

    async def work(name: str, grown: int) -> None:
        ledger.enter()
        await asyncio.sleep(0)
        used[0] += grown
        ledger.leave(name)

    async def both() -> None:
        await asyncio.gather(work("first", 10), work("second", 5))

    asyncio.run(both())
    assert [(name, grown) for _, name, grown in ledger._ended] == [("first", 10), ("second", 15)]
