"""``hpfracc sweep``: problem files, checked first; stores, continued, shown and exported."""

from __future__ import annotations

import csv
import errno
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
from hpfracc.distributed.functions import dump, load
from hpfracc.distributed.problems import parse_problem
from hpfracc.errors import InvalidInputError

PROBLEM = """
[function]
equation = "relaxation"
options = { step = 0.5 }
[grid]
alpha = { start = 0.5, stop = 0.9, count = 3 }
rate = [0.5, 1.0]
[sweep]
batch = 2
"""


def test_a_problem_is_run_shown_continued_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The values are those of the library's own calls."""
    (tmp_path / "problem.toml").write_text(PROBLEM, encoding="utf-8")
    store, table = str(tmp_path / "store"), str(tmp_path / "table.csv")
    assert main(["sweep", str(tmp_path / "problem.toml"), "--store", store]) == 0
    assert "6 of 6 done, 0 failed" in capsys.readouterr().out
    assert main(["sweep", "status", store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] is True
    assert main(["sweep", "resume", store]) == 0
    assert main(["sweep", "export", store, table]) == 0
    found = np.loadtxt(table, delimiter=",", skiprows=1)
    equation = hf.solvers.ode.problems.relaxation(alpha=0.7, rate=1.0)
    right = hf.solve_fode(equation.fun, equation.t_span, equation.y0, equation.alpha, step=0.5).y[0, -1]
    assert found.shape == (6, 3) and found[3].tolist() == [0.7, 1.0, right]
    assert main(["sweep", "export", store, str(tmp_path / "all.npz")]) == 0
    with np.load(tmp_path / "all.npz") as arrays:
        assert sorted(arrays.files) == ["parameter_alpha", "parameter_rate", "value"]


def test_a_failed_export_leaves_the_earlier_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A full disk gives an error, keeps the file of an earlier export, and leaves no temporary file."""
    (tmp_path / "problem.toml").write_text(PROBLEM, encoding="utf-8")
    store, table = str(tmp_path / "store"), tmp_path / "table.csv"
    assert main(["sweep", str(tmp_path / "problem.toml"), "--store", store]) == 0
    table.write_text("earlier\n", encoding="utf-8")
    capsys.readouterr()

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert main(["sweep", "export", store, str(table)]) != 0
    assert "No space left on device" in capsys.readouterr().err
    assert table.read_text(encoding="utf-8") == "earlier\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["problem.toml", "store", "table.csv"]


def test_outputs_of_an_equation():
    """The last state by default; fields of the solution by name."""
    problem = parse_problem(PROBLEM.replace("batch = 2", 'output = ["t", "y"]'))
    found = hf.sweep(problem.func, problem.params, **problem.options).values
    assert found["t"].shape == (3, 2, 21) and found["y"].shape == (3, 2, 1, 21)
    last = parse_problem(PROBLEM)
    assert np.array_equal(hf.sweep(last.func, last.params).values[..., 0], found["y"][..., 0, -1])


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


def test_functions_of_the_users_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """``module:function`` beside the problem file; a failed item is kept, and told by the exit status."""
    (tmp_path / "half_life.py").write_text("def decay(k):\n    return 1.0 / k\n", encoding="utf-8")
    text = '[function]\ncall = "half_life:decay"\n[points]\nk = [1, 0, 2]\n'
    (tmp_path / "problem.toml").write_text(text, encoding="utf-8")
    assert main(["sweep", str(tmp_path / "problem.toml"), "--store", str(tmp_path / "s"), "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failed"]
    assert failure["index"] == 1 and "ZeroDivisionError" in failure["error"]


def test_a_sweep_that_did_nothing_yet_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The problem file is in the store before the first item, with the folder of its module."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    (home / "interrupting.py").write_text(
        "import os\n\n\ndef once(k, mark):\n    if not os.path.exists(mark):\n        open(mark, 'w').close()\n"
        "        raise KeyboardInterrupt\n    return 2 * k\n",
        encoding="utf-8",
    )
    text = f'[function]\ncall = "interrupting:once"\n[grid]\nk = [1, 2]\nmark = ["{tmp_path / "mark"}"]\n'
    (home / "problem.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr("sys.path", list(sys.path))
    assert main(["sweep", str(home / "problem.toml"), "--store", str(tmp_path / "s")]) == 130
    assert capsys.readouterr().err.endswith("/s; run the same command again to continue\n")
    monkeypatch.chdir(away)
    monkeypatch.setattr("sys.path", [each for each in sys.path if each != str(home)])
    monkeypatch.delitem(sys.modules, "interrupting")
    assert main(["sweep", "resume", str(tmp_path / "s")]) == 2  # a store may come from anyone
    assert "interrupting" not in sys.modules and "add --trust" in capsys.readouterr().err
    assert main(["sweep", "resume", str(tmp_path / "s"), "--trust"]) == 0
    assert hf.distributed.open_sweep(tmp_path / "s").values[:, 0].tolist() == [2, 4]
    # What is pickled by value needs no import where it is unpickled.
    func = parse_problem(text, home).func
    payload = dump(func, "the function")
    monkeypatch.delitem(sys.modules, "interrupting")
    monkeypatch.setattr("sys.path", [each for each in sys.path if each != str(home)])
    assert load(payload, "here")(k=3, mark=str(tmp_path / "mark")) == 6


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("[function]", "[function", "not valid TOML"),
        ("[sweep]", "[sweeep]", "did you mean 'sweep'"),
        ('equation = "relaxation"', "", "needs either equation"),
        ('"relaxation"', '"relaxing"', "did you mean 'relaxation'"),
        ("step = 0.5", "stepp = 0.5", "did you mean 'step'"),
        ("[grid]", "[points]", "differ in length"),
        ("rate = [0.5, 1.0]", "rat = [0.5]", "does not take the parameters"),
        ("count = 3", "count = 0", "count=0"),
        ("count = 3", "count = 1000000000000", "at least 1 and at most 1e.07"),
        (", count = 3", "", "has no count"),
        ("count = 3", "count = 3, log = true", None),
        ("start = 0.5", "start = inf", "finite number"),
        ("batch = 2", "bach = 2", "did you mean 'batch'"),
        ("batch = 2", "batch = 0", "batch=0"),
        ("batch = 2", "timeout = -1", "timeout=-1"),
        ("batch = 2", "seed = -1", "seed=-1"),
        ("batch = 2", 'output = "yy"', "did you mean 'y'"),
        ('equation = "relaxation"\noptions = { step = 0.5 }', 'call = "nowhere_at_all:f"', "cannot be imported"),
        ('equation = "relaxation"\noptions = { step = 0.5 }', 'call = "math"', "module:function"),
    ],
)
def test_problem_files_are_checked_first(before: str, after: str, words: str | None):
    """Each mistake is named before anything runs."""
    text = PROBLEM.replace(before, after)
    assert text != PROBLEM
    if words is None:
        assert parse_problem(text).params.values["alpha"][1] == pytest.approx(np.sqrt(0.45))
        return
    with pytest.raises(InvalidInputError, match=words):
        parse_problem(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.toml", "--store", "s"], "cannot be read"),
        (["nothing.toml"], "needs --store"),
        (["status"], "takes the store"),
        (["status", "nowhere"], "no manifest"),
        (["status", "a", "--store", "b"], "--store is for"),
        (["export", "a"], "the file to write"),
    ],
)
def test_wrong_commands(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    """Status 2 and a sentence."""
    assert main(["sweep", *arguments]) == 2
    assert words in capsys.readouterr().err
