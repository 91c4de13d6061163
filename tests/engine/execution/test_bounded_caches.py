"""What is remembered of orders, shapes and functions is bounded in number: a long program does not grow."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.execution import custom
from hpfracc.engine.execution.prepared import MAX_ENTRIES, PreparedOperands, prepared_operands
from hpfracc.engine.memory.host import HostMemory, HostProbe, MemoryLimit
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection import rent_or_buy
from hpfracc.operators.core.weights import weight_cache

X = np.linspace(0.0, 1.0, 16)


def new_orders(count: int, first: float = 0.2) -> None:
    """Apply operators of ``count`` new orders."""
    for order in np.linspace(first, first + 0.09, count):
        hf.caputo(X, X, float(order))
        hf.riemann_liouville(X, X, float(order))


def test_entries_are_counted_as_well_as_bytes() -> None:
    """Thousands of entries of a few bytes each are dropped in the order in which they were used last."""
    cache = PreparedOperands()
    for number in range(MAX_ENTRIES + 500):
        cache.get(number, lambda: np.zeros(2))
        cache.get(0, lambda: np.zeros(2))
    assert len(cache) == MAX_ENTRIES and cache.bytes == 16 * MAX_ENTRIES
    misses = cache.misses
    cache.get(0, lambda: np.zeros(2))
    assert cache.misses == misses


def test_capacity_follows_the_memory_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 MiB, more where 1/32 of the memory is more, 1 GiB at most."""
    for gigabytes, expected in ((4, 2**28), (16, 2**29), (256, 2**30)):
        memory = HostMemory((MemoryLimit("ram", gigabytes * 2**30, 0),))
        monkeypatch.setattr(HostProbe, "read", lambda _, memory=memory: memory)
        assert PreparedOperands().capacity == expected


def test_new_orders_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the weights of operators nor their transforms."""
    monkeypatch.setattr(prepared_operands, "most", 20)
    monkeypatch.setattr(weight_cache, "most", 20)
    with hf.config(deterministic=True, wisdom="off"):
        new_orders(60)
    assert len(prepared_operands) <= 20 and 0 < len(weight_cache) <= 20


def test_new_shapes_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilations, the accounts of what they would save, and probes of functions."""
    account = rent_or_buy.RentOrBuy()
    for number in range(20_000):
        account.buy("family", number, 1.0)
        account.credit(number, 1.0)
    assert len(account._quotes["family"]) == rent_or_buy._MAX_QUOTES and len(account._bought) == rent_or_buy._MAX_BOUGHT
    assert account.is_bought(19_999) and not account.is_bought(0)
    assert len(account._savings) == rent_or_buy._MAX_SAVINGS
    assert (account.saved(19_999), account.saved(0)) == (1.0, 0.0)

    monkeypatch.setattr(custom.Probe, "_try", lambda *_: None)
    probe = custom.Probe(np.sin)
    for number in range(1000):
        probe.bytes_for((ArraySpec((4,)),), {"order": number})
    assert len(probe._lines) <= custom._MAX_LINES


@pytest.mark.slow
def test_memory_does_not_grow_with_the_orders_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 calls with new orders nothing is left but what the bounded caches hold."""
    for cache in (prepared_operands, weight_cache):
        monkeypatch.setattr(cache, "most", 200)
    with hf.config(deterministic=True, wisdom="off"):
        new_orders(2000)
        gc.collect()
        tracemalloc.start()
        try:
            new_orders(1000, 0.3)
            before = _held()
            new_orders(10_000, 0.4)
            grown = _held() - before
        finally:
            tracemalloc.stop()
    assert grown < 20 * 10_000, f"{grown / 10_000:.0f} bytes for each new order"


def _held() -> Any:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
