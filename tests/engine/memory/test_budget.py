"""The budget: one formula, cheap readings, backends that say how they count, amounts as text, requests that fade."""

from __future__ import annotations

import os
import timeit
from typing import Any

import pytest

from hpfracc.engine.memory.budget import HOST, Budget, fits, parse_bytes
from hpfracc.errors import InvalidInputError
from tests.helpers.forked import run_in_child


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Reader:
    """A device whose free bytes a test sets, and which counts how often it is asked."""

    def __init__(self, value):
        self.value = value
        self.asked = 0

    def __call__(self, device):
        self.asked += 1
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    ("need", "free", "share", "expected"),
    [(80, 100, 0.8, True), (81, 100, 0.8, False), (0, 0, 0.5, True), (1, 0, 1.0, False), (10**15, None, 0.1, True)],
)
def test_the_formula(need, free, share, expected):
    """A need fits when it is at most the share of what is free; unknown memory refuses nothing."""
    assert fits(need, free, share) is expected


def test_a_reading_is_trusted_for_a_moment():
    """Within its time to live a device is asked once; later, or when invalidated, again."""
    clock, reader = Clock(), Reader(1000)
    budget = Budget(time_to_live=0.1, clock=clock)
    budget.register("torch", reader)
    assert [budget.free("cuda:0", "torch") for _ in range(5)] == [1000] * 5
    assert budget.fits(800, "cuda:0", 0.8, "torch")
    assert reader.asked == 1
    reader.value = 500
    clock.now += 0.11
    assert not budget.fits(800, "cuda:0", 0.8, "torch")
    assert budget.allowed("cuda:0", 0.5, "torch") == 250
    reader.value = 100
    budget.invalidate("cuda:1")
    assert budget.free("cuda:0", "torch") == 500
    budget.invalidate("cuda:0")
    assert budget.free("cuda:0", "torch") == 100
    assert reader.asked == 3


def test_a_reader_that_fails_knows_nothing():
    """An error while reading is no error of the call that asked; the others still count."""
    budget = Budget()
    budget.register("torch", Reader(RuntimeError("driver shut down")))
    assert budget.free("cuda:0", "torch") is None
    assert budget.fits(10**18, "cuda:0", 0.8, "torch")
    budget.register("cupy", Reader(7))
    assert budget.free("cuda:0") == 7


@pytest.mark.bench
def test_asking_is_cheap_enough_for_every_call():
    """The guard costs under a microsecond while its reading is fresh, for the host and for a device."""
    budget = Budget(time_to_live=1e9)
    budget.register("torch", Reader(10**9))
    for device, owner in ((HOST, None), ("cuda:0", "torch")):
        budget.read(device, owner)
        calls = 2000
        spent = min(timeit.repeat(budget.guard(1000, device, 0.8, owner), number=calls, repeat=50))
        assert spent / calls < 1e-6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_reads_for_itself():
    """What the parent read is not taken over, and a lock held at the fork does not stop the child."""
    clock, reader = Clock(), Reader(1000)
    budget = Budget(clock=clock)
    budget.register("torch", reader)
    assert budget.free("cuda:0") == 1000

    def in_child():
        reader.value = 10
        budget.register("jax", Reader(20))
        assert budget.free("cuda:0") == 10

    with budget._lock:
        run_in_child(in_child)
    assert budget.free("cuda:0") == 1000


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


def test_a_cap_bounds_what_is_free() -> None:
    """A cap applies if it is lower, also if free memory is unknown, and can be removed."""
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
