"""``hpfracc wisdom`` shows, exports, imports and clears stored measurements."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import hpfracc as hf
from hpfracc.cli import main
from hpfracc.engine.execution import state
from hpfracc.engine.execution.calibration import calibrate


def wisdom(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["wisdom", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def learned() -> int:
    """Stores some measurements and returns the number of records."""
    return calibrate(["bitwise_xor"], backends=["numpy"]).kept


def move_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch to another wisdom folder, as another machine would have."""
    monkeypatch.setenv("HPFRACC_WISDOM", str(folder))
    state.reset()


def test_export_and_import_are_idempotent(
    learned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The first import adds all records, a second one adds none, and decisions use them."""
    file = tmp_path / "shared.json"
    assert wisdom(capsys, "export", str(file))["records"] == learned
    move_to(tmp_path / "elsewhere", monkeypatch)
    assert wisdom(capsys, "show")["records"] == 0
    assert wisdom(capsys, "import", str(file)) == {"file": str(file), "new": learned, "records": learned}
    assert wisdom(capsys, "import", str(file))["new"] == 0
    assert wisdom(capsys, "show")["records"] == learned
    state.reset()
    row = hf.explain("bitwise_xor", shape=(1000,), dtype="int64", backend="numpy").decision.chosen
    assert row is not None
    assert row.source == "knots"


def test_show_names_backend_and_operation(learned: int, capsys: pytest.CaptureFixture[str]):
    """The table counts the records of each backend and operation."""
    assert main(["wisdom", "show"]) == 0
    text = capsys.readouterr().out
    for word in (f"{learned} records", "numpy", "bitwise_xor", "numpy:default@cpu"):
        assert word in text


def test_an_empty_place_says_how_to_fill_it(capsys: pytest.CaptureFixture[str]):
    """An empty folder is not an error."""
    assert main(["wisdom", "show"]) == 0
    assert "hpfracc calibrate" in capsys.readouterr().out


def test_clear_asks_first(learned: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Without a terminal it is an error, "n" changes nothing, "y" or ``--yes`` deletes everything."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["wisdom", "clear"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert wisdom(capsys, "show")["records"] == learned
    for answer, left in (("n\n", learned), ("y\n", 0)):
        typed = io.StringIO(answer)
        typed.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", typed)
        assert main(["wisdom", "clear"]) == 0
        assert "? [y/N]" in capsys.readouterr().err
        assert wisdom(capsys, "show")["records"] == left
    assert wisdom(capsys, "clear", "--yes") == {"removed": 0}


@pytest.mark.parametrize(
    ("content", "words"), [(None, "missing.json"), ("{not json", "missing.json"), ('{"version": 1}', "missing.json")]
)
def test_importing_a_file_that_is_not_wisdom(
    content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A missing or foreign file is an error that names it, and nothing is stored."""
    file = tmp_path / "missing.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert main(["wisdom", "import", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert wisdom(capsys, "show")["records"] == 0


def test_exporting_to_a_missing_folder(learned: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The error names the file."""
    assert main(["wisdom", "export", str(tmp_path / "no" / "such.json")]) == 2
    assert "such.json" in capsys.readouterr().err


@pytest.mark.parametrize("action", [["export", "x.json"], ["import", "x.json"], ["clear", "--yes"]])
def test_wisdom_that_is_off_is_said(
    action: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Export, import and clear are errors while wisdom is off, and ``show`` reports that state."""
    monkeypatch.setenv("HPFRACC_WISDOM", "off")
    state.reset()
    assert main(["wisdom", *action]) == 2
    assert "wisdom is off" in capsys.readouterr().err
    assert wisdom(capsys, "show")["state"] == "off"
