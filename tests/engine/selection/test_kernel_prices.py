"""Kernels that solvers and lattices compile for themselves: one rule, and prices that are measured."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

import hpfracc as hf
from hpfracc.engine.selection import rent_or_buy
from hpfracc.engine.selection.rent_or_buy import KernelPrice, compile_account


@pytest.fixture
def price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelPrice:
    """Kernels without a copy in the cache; Numba is there and imported."""
    monkeypatch.setattr(rent_or_buy, "import_cost", lambda name: 0.0)
    monkeypatch.setattr(rent_or_buy, "is_installed", lambda name: True)
    source = tmp_path / "loops.py"
    source.touch()
    return KernelPrice("loops", "one loop", cold=4.0, cached=0.5, source=source, function="run")


def add_copy(price: KernelPrice, age: float = 0.0) -> None:
    """A copy in Numba's cache, older than the source by ``age`` seconds."""
    folder = price.source.parent / "__pycache__"
    folder.mkdir()
    file = folder / "loops.run-12.py312.nbi"
    file.touch()
    written = price.source.stat().st_mtime - age
    os.utime(file, (written, written))


def test_savings_past_or_ahead_cover_the_price(price: KernelPrice) -> None:
    """Rent or buy; once bought, the kernels are used always."""
    assert price.seconds() == 4.0
    assert not price.pays(3.9) and price.pays(4.0)
    price.credit(3.0)
    assert not price.pays()
    price.credit(1.0)
    assert price.pays()
    compile_account.clear()
    assert not price.pays()
    price.buy()
    assert price.is_bought and price.seconds() == 0.0 and price.pays()


def test_without_numba_nothing_pays(price: KernelPrice, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a deterministic run neither."""
    monkeypatch.setattr(rent_or_buy, "is_installed", lambda name: False)
    assert not price.pays(100.0)
    with hf.config(deterministic=True):
        assert not price.pays(100.0)


def test_a_deterministic_run_ignores_what_was_measured(price: KernelPrice) -> None:
    """It compares with a constant, and records nothing."""
    with hf.config(deterministic=True):
        price.credit(100.0)
        assert compile_account.saved(price.item) == 0.0
        assert price.pays(0.5) and not price.pays(0.4)
        compile_account.credit(price.item, 100.0)
        price.buy()
        assert price.pays(0.5) and not price.pays(0.4)


def test_a_copy_for_other_types_does_not_count(price: KernelPrice, caplog: pytest.LogCaptureFixture) -> None:
    """Numba keeps the copies of all types in one place; until a variant was compiled, it counts as not there."""
    single, double = (dataclasses.replace(price, item=kind, variant=kind) for kind in ("complex64", "complex128"))
    add_copy(price)
    assert price.find_copy() and not double.find_copy()
    assert double.seconds() == 4.0 and not double.pays(0.5)
    double.time_first(abs)(-1.0)
    assert caplog.messages == ["Numba compiles loops, once on this machine: about 4 s"]
    assert double.find_copy() and not single.find_copy()
    os.utime(price.source, (os.stat(price.source).st_mtime + 10.0,) * 2)
    assert not double.find_copy()


def test_a_long_compilation_is_told(price: KernelPrice, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the notes of the call that waited for it."""
    clock = iter([10.0, 92.0])
    monkeypatch.setattr(rent_or_buy.time, "perf_counter", lambda: next(clock))
    notes: list[str] = []
    run = price.time_first(abs, notes)
    assert run(-1.0) == run(-1.0) == 1.0
    assert notes == ["this call took 82 s longer, because Numba compiled its steps"]
