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
from hpfracc.distributed.stores import SweepStore
from hpfracc.errors import BatchItemError, DiskFullError, StoreError, UnsupportedDtypeError
from tests.distributed import work
from tests.helpers.interrupts import part_of

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

    part = part_of(lambda: hf.sweep(third, ITEMS, store=store, batch=2, progress=interrupt), str(store))
    for half in (part, hf.distributed.open_sweep(store)):
        assert not half.complete and np.isnan(half.values[6:]).all()
        assert (half.values[:6] == ITEMS.values["x"][:6] / 3).all()
    before = len(work.CALLS)
    store = store.rename(tmp_path / "moved")  # as to another machine
    result = hf.sweep(third, ITEMS, store=store, batch=2)
    assert before == 6 and work.CALLS[6:] == list(np.arange(6.0, 12.0))
    assert np.array_equal(result.values, ITEMS.values["x"] / 3.0)
    hf.sweep(third, ITEMS, store=store)
    assert len(work.CALLS) == 12
    assert np.array_equal(hf.distributed.open_sweep(store).values, result.values)


def test_an_interrupt_inside_a_solve_ends_the_sweep(tmp_path: Path, interruptible: None):
    """The part of the solver is not kept as the value of the item."""
    armed = {"yes": True}

    def relax(alpha: float) -> float:
        def fun(t: float, y: Any) -> Any:
            if alpha == 0.6 and t > 0.5 and armed["yes"]:
                armed["yes"] = False
                signal.raise_signal(signal.SIGINT)
            return -y

        return float(hf.solve_fode(fun, (0.0, 1.0), [1.0], alpha, step=0.1, compile=False).y[0, -1])

    items = hf.grid(alpha=[0.4, 0.5, 0.6, 0.7, 0.8])
    options: dict[str, Any] = {"store": tmp_path / "store", "batch": 1, "version": 1}
    with pytest.raises(KeyboardInterrupt):
        hf.sweep(relax, items, **options)
    half = hf.distributed.open_sweep(tmp_path / "store")
    assert half._ended == 2 and not half.failed
    assert np.array_equal(hf.sweep(relax, items, **options).values, [relax(alpha) for alpha in items.values["alpha"]])


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
    with pytest.raises(StoreError, match="differs in its function"):
        sweep(work.square)
    with pytest.raises(StoreError, match="differs in its parameters"):
        sweep(items=hf.grid(x=np.arange(13.0)))
    with pytest.raises(StoreError, match="differs in its function and output"):
        sweep(output=float)
    with pytest.raises(StoreError, match=r"differs in its batch \(3 in the store\)"):
        sweep(batch=4)
    with hf.config(deterministic=True), pytest.raises(StoreError, match="differs in its settings"):
        sweep()
    factor = 3.0
    with pytest.raises(StoreError, match="differs in its function"):
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


def test_two_processes_share_one_store(tmp_path: Path):
    """Rows are keyed by items and the first process fixes the batch, so that none is lost.

    The second process starts within the first, after two of its tasks, and finds another batch by its own timing.
    """
    store, other = tmp_path / "store", []

    def start_other(progress: hf.distributed.SweepProgress) -> None:
        if progress.done == 6 and not other:
            other.append(hf.sweep(third, ITEMS, store=store))

    result = hf.sweep(third, ITEMS, store=store, batch=3, progress=start_other)
    for each in (result, *other, hf.distributed.open_sweep(store)):
        assert each.complete and np.array_equal(each.values, ITEMS.values["x"] / 3.0)
    # The first one had submitted its next tasks, and ran those again.
    assert sorted(set(work.CALLS)) == list(ITEMS.values["x"]) and len(work.CALLS) < 24
    with pytest.raises(StoreError, match=r"differs in its batch \(3 in the store\)"):
        hf.sweep(third, ITEMS, store=store, batch=4)


def test_the_first_of_two_manifests_stays(tmp_path: Path):
    """Two processes create a store at the same time: the second joins, with the batch of the first."""
    manifest = {"name": "third", "kind": "grid", "parameters": ITEMS.digest()}
    first = SweepStore.create(tmp_path, {**manifest, "batch": 3}, ITEMS)
    second = SweepStore.create(tmp_path, {**manifest, "batch": 5}, ITEMS)
    assert (second.batch, second.manifest["id"]) == (3, first.manifest["id"])
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_process_that_is_killed_while_it_creates_a_store_leaves_a_usable_folder(tmp_path: Path):
    """Only a temporary file can be there without a manifest."""
    (tmp_path / ".manifest.json.0123.tmp").write_text("{")
    assert np.array_equal(hf.sweep(third, ITEMS, store=tmp_path).values, ITEMS.values["x"] / 3.0)


def test_nothing_outside_the_store_is_written(tmp_path: Path):
    """Names of results are not paths, and links are not followed."""
    folder = tmp_path / "run1"
    folder.mkdir()
    (folder / "precious").write_text("data")
    names = [str(folder), "../../run1", "a/b", "..", "file", "\0", "arr_0"]
    result = hf.sweep(lambda x: dict.fromkeys(names, x), ITEMS, store=tmp_path / "store")
    assert list(result.values) == names
    assert [path.name for path in folder.iterdir()] == ["precious"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run1", "store"]
    linked = tmp_path / "store" / "values"
    shutil.rmtree(linked)
    linked.symlink_to(folder)
    with pytest.raises(StoreError, match="is a link"):
        hf.distributed.open_sweep(tmp_path / "store")
    other = tmp_path / "other"
    other.mkdir()
    (other / "link.tmp").symlink_to(folder / "precious")
    with pytest.raises(StoreError, match="not empty"):
        hf.sweep(third, ITEMS, store=other)
    hf.sweep(third, ITEMS, store=tmp_path / "third", batch=6)
    file = tmp_path / "third" / "values" / "000000000000-000000000006.npz"
    file.unlink()
    file.symlink_to(folder / "precious")
    hf.sweep(third, ITEMS, store=tmp_path / "third")
    assert not file.is_symlink() and (folder / "precious").read_text() == "data"


@pytest.mark.parametrize("how", ["copied", "renamed", "swapped", "overlapping"])
def test_the_file_of_another_task_is_not_taken(tmp_path: Path, how: str):
    """A file says which items it has; under another name it is damaged, and its items are recomputed."""
    hf.sweep(third, ITEMS, store=tmp_path, batch=4)
    first, second = (tmp_path / "values" / f"{begin:012d}-{begin + 4:012d}.npz" for begin in (0, 4))
    if how == "copied":
        shutil.copy(first, second)
    elif how == "renamed":
        first.rename(second)
    elif how == "swapped":
        data = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(data)
    else:
        shutil.copy(first, second.with_name("000000000002-000000000006.npz"))
    with pytest.warns(UserWarning, match="damaged"):
        found = hf.distributed.open_sweep(tmp_path).values
    assert np.array_equal(found[~np.isnan(found)], (ITEMS.values["x"] / 3.0)[~np.isnan(found)])
    assert np.array_equal(hf.sweep(third, ITEMS, store=tmp_path).values, ITEMS.values["x"] / 3.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("id", None), ("id", 3), ("versions", "1.0"), ("uncompared", 4), ("batch", "three"), ("values", []), ("kind", {})],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, name: str, value: Any):
    """Entries that are missing (None here) or of another type."""
    hf.sweep(third, ITEMS, store=tmp_path, batch=4)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest[name] = value
    if value is None:
        del manifest[name]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for attempt in (lambda: hf.distributed.open_sweep(tmp_path), lambda: hf.sweep(third, ITEMS, store=tmp_path)):
        with pytest.raises(StoreError, match=f"manifest of .* cannot be read .*{name}"):
            attempt()


def test_a_folder_in_place_of_a_file(tmp_path: Path):
    """Its items count as not done, and the error of the sweep names what is in the way."""
    hf.sweep(third, ITEMS, store=tmp_path, batch=6)
    file = tmp_path / "values" / "000000000006-000000000012.npz"
    file.unlink()
    file.mkdir()
    with pytest.warns(UserWarning, match="items 6 to 11 .* are damaged"):
        assert np.isnan(hf.distributed.open_sweep(tmp_path).values[6:]).all()
    with pytest.raises(StoreError, match=f"cannot be written .*{file.name}.* move what is in the way"):
        hf.sweep(third, ITEMS, store=tmp_path)


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


@pytest.mark.parametrize("store", [False, True])
def test_results_keep_what_they_are(tmp_path: Path, store: bool):
    """Their digits, their gaps and their dtype, in memory and in a store."""

    def sweep(func: Any, values: Any, **options: Any) -> Any:
        where = {"store": tmp_path / str(len(list(tmp_path.iterdir())))} if store else {}
        return hf.sweep(func, hf.grid(x=values), batch=1, **where, **options)

    def late_float(x: int) -> Any:
        return [3, None, 0.5][x] if x != 1 else 1 // 0

    assert np.array_equal(sweep(late_float, [0, 1, 2], on_error="keep").values, [3.0, np.nan, 0.5], equal_nan=True)
    large = 2**53 + 1
    assert sweep(lambda x: large, [0, 1]).values.tolist() == [large, large]
    for call in (
        lambda: sweep(lambda x: [large, 0.5][x], [0, 1]),
        lambda: sweep(lambda x: 1 // x * large, [0, 1], on_error="keep"),
    ):
        with pytest.raises(UnsupportedDtypeError, match="integers beyond 9,007,199,254,740,992"):
            _ = call().values
    third_part = np.longdouble(1) / 3
    found = sweep(lambda x: x * third_part, [1, 2]).values
    assert found.dtype == np.longdouble and found[0] == third_part
    with pytest.raises(BatchItemError, match="has masked values"):
        sweep(lambda x: np.ma.masked_array([1.0, 2.0], [True, False]), [0])
    assert sweep(lambda x: np.ma.masked_array([1.0, x], False), [3.0]).values.tolist() == [[1.0, 3.0]]


def test_a_store_is_filled_by_a_cluster(tmp_path: Path, client: Any):
    """The values that two workers compute and this process stores are those of a loop."""
    result = hf.sweep(work.relax, hf.grid(alpha=[0.4, 0.6], rate=[1.0, 2.0]), store=tmp_path / "s", executor=client)
    serial = hf.sweep(work.relax, hf.grid(alpha=[0.4, 0.6], rate=[1.0, 2.0]))
    assert np.array_equal(result.values, serial.values)
