"""``hpfracc profile`` runs scripts, writes pages and compares profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpfracc.cli import main
from hpfracc.profiling import Profiler, load_profile

SCRIPT = """
import sys
import numpy as np
import hpfracc as hf
hf.causal_convolution(np.ones(8), np.arange(8.0), backend="numpy")
print("arguments:", *sys.argv[1:])
assert __name__ == "__main__"
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "work.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@pytest.mark.parametrize("action", [[], ["run"]])
def test_a_script_is_run_and_shown(script: Path, action: list[str], capsys: pytest.CaptureFixture[str]):
    """The script gets its arguments, and the page, named after the script, shows its engine calls."""
    assert main(["profile", *action, "work.py", "--fast", "-o", "x", "page"]) == 0
    out = capsys.readouterr().out
    assert "arguments: --fast -o x page" in out
    assert "causal_convolution" in out
    page = script.with_suffix(".html").read_text(encoding="utf-8")
    assert "causal_convolution" in page and "<h1>work.py --fast -o x page</h1>" in page


def test_json_and_names_of_files(script: Path, capsys: pytest.CaptureFixture[str]):
    """``--json`` prints a summary after the script's own output; ``--json-out`` writes the profile."""
    assert main(["profile", "run", "--json", "--json-out", "run.json", "-o", "run.html", "--no-memory", "work.py"]) == 0
    out = capsys.readouterr().out
    summary = json.loads(out[out.index("{") :])
    assert summary["status"] == 0 and summary["recorded"] >= 2
    assert Path(summary["page"]).name == "run.html" and Path("run.html").is_file()
    profile = load_profile("run.json")
    assert [span["name"] for span in profile["spans"] if span["parent"] is None] == ["work.py"]
    assert not any("memory" in span for span in profile["spans"])


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('stopped')", 1, "stopped"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_exit_status_of_the_script(
    code: str, status: int, words: str, script: Path, capsys: pytest.CaptureFixture[str]
):
    """The script's exit status is returned, its traceback has no frames of ours, and the page is written."""
    script.write_text(code, encoding="utf-8")
    assert main(["profile", "work.py"]) == status
    err = capsys.readouterr().err
    assert words in err
    assert "runpy" not in err
    assert script.with_suffix(".html").is_file()


def test_the_ring_can_be_made_small(script: Path, capsys: pytest.CaptureFixture[str]):
    """``--capacity`` limits the number of spans; dropped ones are counted."""
    assert main(["profile", "--capacity", "1", "work.py"]) == 0
    assert "older spans were dropped" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["missing.py"], ["page", "missing.json"], ["compare", "a.json", "b.json"]])
def test_missing_files(arguments: list[str], script: Path, capsys: pytest.CaptureFixture[str]):
    """A missing file is an error of one line that names it."""
    assert main(["profile", *arguments]) == 2
    err = capsys.readouterr().err
    assert arguments[-1] in err or "a.json" in err
    assert len(err.splitlines()) == 1


def test_a_page_from_a_file(script: Path, capsys: pytest.CaptureFixture[str]):
    """``page run.json -o run.html`` writes the page of a profile; without a file, an empty page."""
    profiler = Profiler()
    with profiler.profile("only"):
        pass
    profiler.export_json("run.json")
    assert main(["profile", "page", "run.json", "-o", "shown.html"]) == 0
    assert '"only"' in Path("shown.html").read_text(encoding="utf-8")
    assert main(["profile", "page", "run.json"]) == 0
    assert Path("run.html").is_file()
    assert main(["profile", "page", "--json"]) == 0
    assert 'id="data">null<' in Path("profile.html").read_text(encoding="utf-8")


def write(path: Path, factor: float, offset: int) -> None:
    profiler = Profiler()
    with profiler.profile("run"):
        pass
    document: dict[str, Any] = profiler.document().to_dict()
    template = document["spans"][0]
    document["begun_unix_ns"] = 0
    document["spans"] = [
        template
        | {
            "id": number + 1,
            "start_ns": number * 10**9 + offset,
            "duration_ns": int(factor * 10**6 * (1 + number * 0.001)),
        }
        for number in range(8)
    ]
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("factor", "flags", "status"),
    [
        (1.3, ["--fail-on-regression"], 1),
        (1.3, [], 0),
        (0.7, ["--fail-on-regression"], 0),
        (1.0, ["--fail-on-regression"], 0),
    ],
)
def test_compare_says_so_by_its_status(
    factor: float, flags: list[str], status: int, script: Path, capsys: pytest.CaptureFixture[str]
):
    """The exit status is 1 only if a span is slower and ``--fail-on-regression`` is given."""
    write(Path("a.json"), 1.0, 0)
    write(Path("b.json"), factor, 5 * 10**8)
    assert main(["profile", "compare", "a.json", "b.json", *flags]) == status
    assert "slower" in capsys.readouterr().out
    assert main(["profile", "compare", "a.json", "b.json", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"][0]["verdict"] == {1.3: "slower", 0.7: "faster", 1.0: "inconclusive"}[factor]


def test_runs_kept_in_folders_can_be_compared(script: Path, capsys: pytest.CaptureFixture[str]):
    """Seven alternating runs of each side are enough for a comparison."""
    script.write_text("sum(range(20000))", encoding="utf-8")
    for _ in range(7):
        assert main(["profile", "--keep", "a", "--no-memory", "work.py"]) == 0
        assert main(["profile", "--keep", "b", "--no-memory", "work.py"]) == 0
    assert len(list(Path("a").glob("*.json"))) == 7
    capsys.readouterr()
    assert main(["profile", "compare", "a", "b", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["path"] == ["work.py"]
    assert row["repeats"] == [7, 7]
