"""``hpfracc sweep``: stores, continued, shown and exported."""

from __future__ import annotations

import csv
import errno
import importlib
import json
import os
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.cli import main
from tests.helpers.interrupts import part_of

MODULE = """import os


def relax(alpha, rate):
    return {"value": alpha * rate, "rate": rate}


def once(k, mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        raise KeyboardInterrupt
    return 2 * k


def fails(k):
    return 1 / k
"""


@pytest.fixture
def relaxing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of the user's, which is the current one."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "relaxing.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(home)
    monkeypatch.setattr("sys.path", [str(home), *sys.path])
    monkeypatch.delitem(sys.modules, "relaxing", raising=False)
    return home


def test_a_store_is_continued_shown_and_exported(
    relaxing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Ctrl-C in Python; the rest on the command line, with the settings of the store, and the values of a loop."""
    once = importlib.import_module("relaxing").once
    store, items = tmp_path / "s", hf.grid(k=[1, 2], mark=[str(tmp_path / "mark")])
    with hf.config(deterministic=True):
        part = part_of(lambda: hf.sweep(once, items, store=store, batch=1, seed=None))
    assert not part.complete
    monkeypatch.delitem(sys.modules, "relaxing")
    assert main(["sweep", "status", str(store), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["done"] == 0
    assert main(["sweep", "resume", str(store), "relaxing:once"]) == 0
    assert "2 of 2 done, 0 failed" in capsys.readouterr().out
    assert hf.distributed.open_sweep(store).values[:, 0].tolist() == [2, 4]
    for call, words in (
        ("relaxing:fails", "differs in its function"),
        ("relaxing:nothing", "cannot be imported"),
        ("relaxing", "MODULE:FUNCTION"),
    ):
        assert main(["sweep", "resume", str(store), call]) == 2
        assert words in capsys.readouterr().err


def test_a_store_that_cannot_be_continued_here(relaxing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The output is a function; the settings are damaged."""
    store = tmp_path / "s"
    hf.sweep(lambda k: k, hf.grid(k=[1]), store=store, output=lambda k: k)
    assert main(["sweep", "resume", str(store), "relaxing:fails"]) == 2
    assert "continue it in Python" in capsys.readouterr().err
    manifest = json.loads((store / "manifest.json").read_text())
    for damage, words in (
        ({"settings": {"no such": 1}}, "unknown setting"),
        ({"settings": {"wisdom": str(tmp_path / "elsewhere")}}, "differs"),
        ({"settings": 3}, "damaged"),
        ({"function": 3}, "damaged"),
    ):
        (store / "manifest.json").write_text(json.dumps({**manifest, "output": None, **damage}))
        assert main(["sweep", "resume", str(store), "relaxing:fails"]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_an_interrupted_command_says_what_is_kept(relaxing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Status 130; what was done is in the store."""
    once = importlib.import_module("relaxing").once
    store, mark = tmp_path / "s", tmp_path / "mark"
    part_of(lambda: hf.sweep(once, hf.grid(k=[1, 2], mark=[str(mark)]), store=store, batch=1))
    mark.unlink()
    assert main(["sweep", "resume", str(store), "relaxing:once"]) == 130
    assert capsys.readouterr().err == f"hpfracc: interrupted; completed items are in {store}\n"
    assert main(["sweep", "resume", str(store), "relaxing:once"]) == 0


def test_failed_items_are_tried_again(relaxing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """They give status 1, and are listed; so does a function that is sent to workers by value."""
    fails = importlib.import_module("relaxing").fails
    hf.sweep(fails, hf.grid(k=[1, 0]), store=tmp_path / "s", on_error="keep")
    assert main(["sweep", "resume", str(tmp_path / "s"), "relaxing:fails", "--failed", "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failed"]
    assert failure["index"] == 1 and "ZeroDivisionError" in failure["error"]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The store of a sweep that ended."""
    hf.sweep(
        lambda alpha, rate: alpha * rate, hf.grid(alpha=[0.5, 0.7, 0.9], rate=[0.5, 1.0]), store=tmp_path / "store"
    )
    return tmp_path / "store"


def test_exported_tables_have_parameters_and_values(stored: Path, tmp_path: Path):
    """As CSV and as arrays."""
    assert main(["sweep", "export", str(stored), str(tmp_path / "table.csv")]) == 0
    found = np.loadtxt(tmp_path / "table.csv", delimiter=",", skiprows=1)
    assert found.shape == (6, 3) and found[3].tolist() == [0.7, 1.0, 0.7]
    assert main(["sweep", "export", str(stored), str(tmp_path / "all.npz")]) == 0
    with np.load(tmp_path / "all.npz") as arrays:
        assert sorted(arrays.files) == ["parameter_alpha", "parameter_rate", "value"]


def test_a_failed_export_leaves_the_earlier_table(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A full disk gives an error, keeps the file of an earlier export, and leaves no temporary file."""
    table = tmp_path / "table.csv"
    table.write_text("earlier\n", encoding="utf-8")

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert main(["sweep", "export", str(stored), str(table)]) != 0
    assert "No space left on device" in capsys.readouterr().err
    assert table.read_text(encoding="utf-8") == "earlier\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["store", "table.csv"]


def test_names_of_results_and_parameters_are_not_paths(tmp_path: Path):
    """Any name can be stored and exported: of a path, of an argument of NumPy, with a comma."""
    names = [str(tmp_path / "elsewhere"), "../up", "file", "a,b"]
    store = tmp_path / "store"
    hf.sweep(lambda file: dict.fromkeys(names, 2.0 * file), hf.grid(file=[1.0, 2.0]), store=store)
    assert main(["sweep", "export", str(store), str(tmp_path / "all.npz")]) == 0
    with np.load(tmp_path / "all.npz") as found:
        assert [unquote(name) for name in found.files] == ["parameter_file", *names]
        assert found["file"].tolist() == [2.0, 4.0]
    with zipfile.ZipFile(tmp_path / "all.npz") as archive:
        assert not any("/" in name for name in archive.namelist())
    assert main(["sweep", "export", str(store), str(tmp_path / "all.csv")]) == 0
    with open(tmp_path / "all.csv", encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == ["parameter_file", *names]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["all.csv", "all.npz", "store"]
    pytest.importorskip("xarray")
    table = hf.distributed.open_sweep(store).to_xarray()
    assert table["file_result"].values.tolist() == [2.0, 4.0] and table["file"].values.tolist() == [1.0, 2.0]


def test_text_is_no_formula_of_a_spreadsheet(tmp_path: Path):
    """Names and texts that begin like a formula get an apostrophe; numbers stay numbers."""
    bad = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+1", "-1", "\t=1", "fine"]
    hf.sweep(lambda **item: {"=1+1": -2.0}, hf.grid(**{"=x": bad}), store=tmp_path / "store")
    assert main(["sweep", "export", str(tmp_path / "store"), str(tmp_path / "all.csv")]) == 0
    with open(tmp_path / "all.csv", encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    assert names == ["'=x", "'=1+1"]
    assert rows == [[each if each == "fine" else f"'{each}", "-2.0"] for each in bad]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status"], "required: DIR"),
        (["status", "nowhere"], "no manifest"),
        (["export", "a"], "required: FILE"),
        (["resume", "a"], "required: MODULE:FUNCTION"),
        (["resume", "nowhere", "math:sqrt"], "no manifest"),
    ],
)
def test_wrong_commands(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    """Status 2 and a sentence."""
    assert main(["sweep", *arguments]) == 2
    assert words in capsys.readouterr().err
