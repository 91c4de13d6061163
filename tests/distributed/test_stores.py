"""Stores: a sweep continues where it was, and only if it is the same sweep."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import DiskFullError, StoreError
from tests.distributed import work

ITEMS = hf.grid(x=np.arange(12.0))


def third(x: float) -> float:
    """A function whose source does not change, and whose calls can be counted."""
    work.CALLS.append(x)
    return x / 3.0


@pytest.fixture(autouse=True)
def no_calls() -> None:
    work.CALLS.clear()


@pytest.fixture(params=["zarr", "npz"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "npz":
        monkeypatch.setattr("hpfracc.distributed.stores.is_installed", lambda name: False)
    else:
        pytest.importorskip("zarr")
    return str(request.param)


def test_a_sweep_continues_after_an_interrupt(tmp_path: Path, kind: str, interruptible: None):
    """Ctrl-C in the middle: what was done is kept, the rest is computed once, elsewhere; the values are a loop's."""
    store = tmp_path / "store"

    def interrupt(progress: hf.distributed.SweepProgress) -> None:
        if progress.done == 6:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        hf.sweep(third, ITEMS, store=store, batch=2, progress=interrupt)
    assert str(store) in caught.value.__notes__[0]
    half = hf.distributed.open_sweep(store)
    assert (
        not half.complete and np.isnan(half.values[6:]).all() and (half.values[:6] == ITEMS.values["x"][:6] / 3).all()
    )
    assert json.loads((store / "manifest.json").read_text())["arrays"] == kind
    before = len(work.CALLS)
    store = store.rename(tmp_path / "moved")  # as to another machine
    result = hf.sweep(third, ITEMS, store=store, batch=2)
    assert before == 6 and work.CALLS[6:] == list(np.arange(6.0, 12.0))
    assert np.array_equal(result.values, ITEMS.values["x"] / 3.0)
    hf.sweep(third, ITEMS, store=store)
    assert len(work.CALLS) == 12
    assert np.array_equal(hf.distributed.open_sweep(store).values, result.values)


def test_failures_are_stored_and_can_be_retried(tmp_path: Path):
    """Failures are read back; ``resume(failed=True)`` runs them when what was missing is there."""
    needed = tmp_path / "needed"

    def careful(x: float) -> float:
        if x == 3.0 and not needed.exists():
            raise ValueError("no file")
        return x

    result = hf.sweep(careful, ITEMS, store=tmp_path / "store", on_error="keep", batch=4)
    stored = hf.distributed.open_sweep(tmp_path / "store")
    assert stored.failed == result.failed
    assert (stored.failed[0].index, stored.failed[0].parameters) == (3, {"x": 3.0})
    needed.touch()
    assert result.resume().failed
    again = result.resume(failed=True)
    assert again.failed == [] and np.array_equal(again.values, ITEMS.values["x"])
    with pytest.raises(StoreError, match="call hf.sweep"):
        stored.resume()


def test_a_store_of_another_sweep_is_refused(tmp_path: Path):
    """Another function, captured value, parameters, seed, output, settings or batch; the same one is accepted."""
    store = tmp_path / "store"
    factor = 2.0

    def scaled(x: float) -> float:
        return factor * x

    def sweep(func: Any = scaled, items: Any = ITEMS, **options: Any) -> Any:
        return hf.sweep(func, items, store=store, **{"batch": 3, **options})

    sweep()
    sweep()
    with pytest.raises(StoreError, match="its function differ"):
        sweep(work.square)
    with pytest.raises(StoreError, match="its parameters differ"):
        sweep(items=hf.grid(x=np.arange(13.0)))
    with pytest.raises(StoreError, match="its function and output differ"):
        sweep(output=float)
    with pytest.raises(StoreError, match=r"its batch \(3 in the store\) differ"):
        sweep(batch=4)
    with hf.config(deterministic=True), pytest.raises(StoreError, match="its settings differ"):
        sweep()
    factor = 3.0
    with pytest.raises(StoreError, match="its function differ"):
        sweep()
    with pytest.raises(StoreError, match="not empty"):
        hf.sweep(work.square, ITEMS, store=tmp_path)
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        hf.distributed.open_sweep(tmp_path)


def test_other_versions_are_warned_of(tmp_path: Path):
    """A store made with another NumPy can be continued, with a warning."""
    store = tmp_path / "store"
    hf.sweep(third, ITEMS, store=store, batch=12)
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["versions"]["numpy"] = "1.0"
    (store / "manifest.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match=r"numpy 1\.0 -> "):
        hf.sweep(third, ITEMS, store=store)


def test_torn_lines_and_damaged_chunks_are_recomputed(tmp_path: Path, kind: str):
    """A line that a crash cut off, and a chunk whose checksum differs, count as not done."""
    store = tmp_path / "store"
    expected = hf.sweep(third, ITEMS, store=store, batch=3).values
    (journal,) = (store / "journal").glob("*.jsonl")
    journal.write_bytes(journal.read_bytes()[:-20])
    chunk = next(iter(sorted((store / "values").rglob("c/1" if kind == "zarr" else "*1.npz"))))
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 0x40
    chunk.write_bytes(data)
    work.CALLS.clear()
    with pytest.raises(StoreError, match="items 3 to 5 .* are damaged"):
        _ = hf.distributed.open_sweep(store).values
    assert np.array_equal(hf.sweep(third, ITEMS, store=store).values, expected)
    assert work.CALLS == [3.0, 4.0, 5.0, 9.0, 10.0, 11.0]


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The device says that it is full; with room again the sweep continues."""
    store = tmp_path / "store"
    real = open
    full = {"now": False}

    def maybe_full(path: Any, mode: str = "r", **options: Any) -> Any:
        return real("/dev/full" if full["now"] and "journal" in str(path) else path, mode, **options)

    def fill(progress: hf.distributed.SweepProgress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hpfracc.distributed.stores.open", maybe_full, raising=False)
    with pytest.raises(KeyboardInterrupt):
        hf.sweep(third, ITEMS, store=store, batch=4, progress=fill)
    full["now"] = True
    with pytest.raises(DiskFullError, match="is full; make room"):
        hf.sweep(third, ITEMS, store=store, batch=4)
    full["now"] = False
    work.CALLS.clear()
    assert np.array_equal(hf.sweep(third, ITEMS, store=store, batch=4).values, ITEMS.values["x"] / 3.0)
    assert len(work.CALLS) == 8


def test_stores_hold_arrays_and_json_alone(tmp_path: Path):
    """Nothing in the folder is a pickle, and arrays with objects are not loaded."""
    store = tmp_path / "store"
    hf.sweep(third, ITEMS, store=store, batch=12)
    assert not [path for path in store.rglob("*") if path.is_file() and path.read_bytes()[:2] == b"\x80\x05"]
    with open(store / "parameters.npz", "wb") as file:
        np.savez(file, x=np.array([object()]))
    with pytest.raises(StoreError, match=r"parameters\.npz"):
        hf.distributed.open_sweep(store)


def test_a_store_is_filled_by_a_cluster(tmp_path: Path, client: Any):
    """The values that two workers compute and this process stores are those of a loop."""
    result = hf.sweep(work.relax, hf.grid(alpha=[0.4, 0.6], rate=[1.0, 2.0]), store=tmp_path / "s", executor=client)
    serial = hf.sweep(work.relax, hf.grid(alpha=[0.4, 0.6], rate=[1.0, 2.0]))
    assert np.array_equal(result.values, serial.values)
