"""What is remembered of orders, shapes and functions is bounded in number: a long program does not grow."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import memory
from hpfracc.engine.execution import custom
from hpfracc.engine.execution.prepared import MAX_ENTRIES, PreparedOperands, prepared_operands
from hpfracc.engine.memory.host import HostMemory, HostProbe, MemoryLimit
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection import rent_or_buy

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


def test_one_entry_may_be_larger_than_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, and up to 1/32 of the memory: the next call would compute it again."""
    monkeypatch.setattr(HostProbe, "read", lambda _: HostMemory((MemoryLimit("ram", 32 * 1000, 0),)))
    cache = PreparedOperands(capacity=500)
    for size, held in ((400, 400), (960, 960), (400, 400), (1040, 400)):
        assert cache.get(size, np.zeros, size // 8).nbytes == size
        assert cache.bytes == held


def test_lengths_share_one_limit() -> None:
    """Weights, transforms, tables and matrices of many lengths stay below what the user allows, all together."""
    assert memory.cache_limit() == 256 * 2**20
    assert memory.cache_limit("2MiB") == 2**21
    for n in range(2000, 6000, 250):
        x = np.linspace(0.0, 1.0, n)
        for apply in (hf.caputo, hf.riemann_liouville, hf.riesz):
            apply(x, step=0.01, alpha=0.6)
        hf.frft(x, 0.3)
        assert 2**20 < memory.report().kept <= 2**21 or n < 3000
    memory.cache_limit("64KiB")
    assert memory.report().kept <= 2**16


def test_new_orders_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the weights of operators nor their transforms."""
    monkeypatch.setattr(prepared_operands, "most", 20)
    with hf.config(deterministic=True, wisdom="off"):
        new_orders(60)
    assert 0 < len(prepared_operands) <= 20


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
    monkeypatch.setattr(prepared_operands, "most", 200)
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
