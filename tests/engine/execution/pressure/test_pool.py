"""The public pool, spillable arrays without a GPU, and the account of memory."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import memory
from hpfracc.engine.selection.call_memory import forecasts
from hpfracc.errors import InvalidInputError


def test_the_pool_of_the_process_is_one() -> None:
    """And settings give one of your own."""
    assert memory.get_memory_pool() is memory.get_memory_pool()
    own = memory.get_memory_pool(max_bytes="1MiB", pinned=False)
    assert own is not memory.get_memory_pool()
    for _ in range(4):
        buffer = own.allocate((10, 10), "float32")
        own.release(buffer)
    stats = own.get_stats()
    assert stats.hit_rate == 0.75 and not stats.pinned
    assert own.clear() == stats.held_bytes
    with own.borrow(5) as borrowed:
        assert borrowed.shape == (5,)


def test_wrong_requests_are_refused() -> None:
    """A library that cannot be, a buffer that is not ours, a size that is none."""
    pool = memory.get_memory_pool()
    with pytest.raises(InvalidInputError, match="host buffers are NumPy arrays"):
        pool.allocate(3, library="torch")
    with pytest.raises(InvalidInputError, match="'torch' or 'cupy'"):
        pool.allocate(3, device="cuda:0", library="jax")
    with pytest.raises(InvalidInputError, match="not from this pool"):
        pool.release(np.zeros(3))
    with pytest.raises(InvalidInputError, match="max_bytes"):
        memory.get_memory_pool(max_bytes=-1)


def test_a_host_array_cannot_be_spilled() -> None:
    """It takes no memory of a device."""
    with pytest.raises(InvalidInputError, match="host array"):
        memory.Spillable(np.zeros(3))


def test_the_report_is_complete_and_plain() -> None:
    """Limits, predictions and buffers, as text and as JSON."""
    forecasts.observe(("fft", "numpy:default", "cpu", "float64 rfft"), (0, 20), 100 * 2**20, 130 * 2**20)
    with memory.limit("cpu", "1GiB"):
        found = memory.report()
    data = json.loads(json.dumps(found.to_dict()))
    assert data["host"]["free"] > 0 and data["caps"] == {"cpu": 2**30}
    assert data["forecasts"][0]["correction"] == pytest.approx(1.3)
    text = str(found)
    assert "RAM" in text and "numpy:default" in text and "x 1.30" in text and "set for cpu" in text
    assert memory.report().caps == {}


def test_the_peak_of_a_real_call_is_recorded() -> None:
    """A call that leaves a new highest mark is found in the report, near to what was predicted."""
    x = np.ones(24_000_000)
    with hf.config(never={"elementwise": ["torch", "jax", "numba", "cupy"]}, exploration_budget=0.0):
        for _ in range(3):
            result = hf.elementwise("x + 1", x=x)
    assert result[0] == 2.0
    rows = [row for row in memory.report().forecasts if row.operation == "elementwise"]
    assert rows, "no call left a new mark"
    assert rows[0].predicted == pytest.approx(rows[0].actual, rel=0.25)


def test_a_limit_names_a_device() -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidInputError, match="device"), memory.limit("disk", 5):
        pass
