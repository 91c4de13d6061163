"""Stores: a sweep continues where it was, and only if it is the same sweep."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import pickle
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import DiskFullError, StoreError
from tests.distributed import work

ITEMS = hf.grid(x=np.arange(12.0))


class Poison:
    """An object whose pickle creates a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def third(x: float) -> float:
    """A function whose source does not change, and whose calls can be counted."""
    work.CALLS.append(x)
    return x / 3.0


@pytest.fixture(autouse=True)
def no_calls() -> None:
    work.CALLS.clear()


def test_a_sweep_continues_after_an_interrupt(tmp_path: Path, interruptible: None):
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


def broken(how: str, path: Path) -> None:
    """Break a file in one of the ways that disks, crashes and people do."""
    data = path.read_bytes()
    path.unlink()
    if how == "empty":
        path.touch()
    elif how == "torn":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        at = data.index(np.float64(4.0 / 3.0).tobytes())
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "pickle":
        path.write_bytes(pickle.dumps(object()))
    elif how == "other":
        np.savez(path, x=np.arange(3.0))


@pytest.mark.parametrize("how", ["missing", "empty", "torn", "flipped", "fifo", "pickle", "other"])
def test_a_damaged_file_counts_as_not_done(tmp_path: Path, how: str):
    """Other items are read, with a warning; the sweep recomputes the items of that file alone."""
    store = tmp_path / "store"
    expected = hf.sweep(third, ITEMS, store=store, batch=3).values
    broken(how, store / "values" / "000000000003-000000000006.npz")
    work.CALLS.clear()
    with pytest.warns(UserWarning, match="items 3 to 5 .* are damaged") if how != "missing" else nullcontext():
        found = hf.distributed.open_sweep(store)
    assert not found.complete
    assert np.array_equal(found.values[:3], expected[:3]) and np.isnan(found.values[3:6]).all()
    assert np.array_equal(hf.sweep(third, ITEMS, store=store).values, expected)
    assert work.CALLS == [3.0, 4.0, 5.0]
    assert hf.distributed.open_sweep(store).complete


def test_the_file_of_another_store_is_not_mixed_in(tmp_path: Path):
    """Even if it has the same items."""
    for name, func in (("one", third), ("two", work.square)):
        hf.sweep(func, ITEMS, store=tmp_path / name, batch=6)
    name = "values/000000000000-000000000006.npz"
    shutil.copy(tmp_path / "two" / name, tmp_path / "one" / name)
    assert np.array_equal(hf.sweep(third, ITEMS, store=tmp_path / "one").values, ITEMS.values["x"] / 3.0)


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The device says that it is full; with room again the sweep continues, and no temporary file stays."""
    store = tmp_path / "store"
    full = {"now": False}

    def maybe_full(path: Any, mode: str) -> Any:
        if full["now"] and "values" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return open(path, mode)

    def fill(progress: hf.distributed.SweepProgress) -> None:
        full["now"] = True

    monkeypatch.setattr("hpfracc.distributed.stores.open", maybe_full, raising=False)
    with pytest.raises(DiskFullError, match="is full; make room"):
        hf.sweep(third, ITEMS, store=store, batch=4, progress=fill)
    full["now"] = False
    work.CALLS.clear()
    assert np.array_equal(hf.sweep(third, ITEMS, store=store, batch=4).values, ITEMS.values["x"] / 3.0)
    assert len(work.CALLS) == 8
    assert sorted(path.name for path in store.iterdir()) == ["manifest.json", "values"]


def test_stores_hold_arrays_and_json_alone(tmp_path: Path):
    """Nothing in the folder is a pickle, and arrays with objects are not loaded, from no file."""
    store = tmp_path / "store"
    hf.sweep(third, ITEMS, store=store, batch=12)
    assert {path.suffix for path in store.rglob("*") if path.is_file()} == {".json", ".npz"}
    poison = Poison(tmp_path / "ran")
    (file,) = (store / "values").iterdir()
    with np.load(file) as found:
        document = found["arr_0"]
    np.savez(file, document, np.array([poison] * 12))
    with pytest.warns(UserWarning, match="damaged"):
        hf.distributed.open_sweep(store)
    manifest = json.loads((store / "manifest.json").read_text())
    buffer = io.BytesIO()
    np.save(buffer, np.array([poison]))
    manifest["values"]["x"] = base64.b64encode(buffer.getvalue()).decode()
    (store / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match="manifest of .* cannot be read"):
        hf.distributed.open_sweep(store)
    assert not (tmp_path / "ran").exists()


def test_a_store_is_filled_by_a_cluster(tmp_path: Path, client: Any):
    """The values that two workers compute and this process stores are those of a loop."""
    result = hf.sweep(work.relax, hf.grid(alpha=[0.4, 0.6], rate=[1.0, 2.0]), store=tmp_path / "s", executor=client)
    serial = hf.sweep(work.relax, hf.grid(alpha=[0.4, 0.6], rate=[1.0, 2.0]))
    assert np.array_equal(result.values, serial.values)
