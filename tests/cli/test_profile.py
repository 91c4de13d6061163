"""``hpfracc profile``: runs a script as Python would, writes the page, compares, and says so by its exit status."""

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
    """Its own arguments are its own; the engine's call is in the page, which is named after the script."""
    assert main(["profile", *action, "work.py", "--fast", "-o", "x", "page"]) == 0
    out = capsys.readouterr().out
    assert "arguments: --fast -o x page" in out
    assert "causal_convolution" in out
    page = script.with_suffix(".html").read_text(encoding="utf-8")
    assert "causal_convolution" in page and "<h1>work.py --fast -o x page</h1>" in page


def test_json_and_names_of_files(script: Path, capsys: pytest.CaptureFixture[str]):
    """``--json`` prints a summary after what the script printed; ``--json-out`` keeps the profile."""
    assert main(["profile", "run", "--json", "--json-out", "run.json", "-o", "run.html", "--no-memory", "work.py"]) == 0
    out = capsys.readouterr().out
    told = json.loads(out[out.index("{") :])
    assert told["status"] == 0 and told["recorded"] >= 2
    assert Path(told["page"]).name == "run.html" and Path("run.html").is_file()
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
def test_the_scripts_end_is_ours(code: str, status: int, words: str, script: Path, capsys: pytest.CaptureFixture[str]):
    """Its exit status comes out, its traceback is shown without our frames, and the page is written all the same."""
    script.write_text(code, encoding="utf-8")
    assert main(["profile", "work.py"]) == status
    err = capsys.readouterr().err
    assert words in err
    assert "runpy" not in err
    assert script.with_suffix(".html").is_file()


def test_the_ring_can_be_made_small(script: Path, capsys: pytest.CaptureFixture[str]):
    """``--capacity`` drops and counts."""
    assert main(["profile", "--capacity", "1", "work.py"]) == 0
    assert "older spans were dropped" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["missing.py"], ["page", "missing.json"], ["compare", "a.json", "b.json"]])
def test_what_is_not_there_is_refused(arguments: list[str], script: Path, capsys: pytest.CaptureFixture[str]):
    """In one line, with its name."""
    assert main(["profile", *arguments]) == 2
    err = capsys.readouterr().err
    assert arguments[-1] in err or "a.json" in err
    assert len(err.splitlines()) == 1


def test_a_page_from_a_file(script: Path, capsys: pytest.CaptureFixture[str]):
    """``page run.json -o run.html``; without a file a page that waits for one."""
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
    """1 only where a span is slower and that is to count."""
    write(Path("a.json"), 1.0, 0)
    write(Path("b.json"), factor, 5 * 10**8)
    assert main(["profile", "compare", "a.json", "b.json", *flags]) == status
    assert "slower" in capsys.readouterr().out
    assert main(["profile", "compare", "a.json", "b.json", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"][0]["verdict"] == {1.3: "slower", 0.7: "faster", 1.0: "inconclusive"}[factor]


def test_runs_kept_in_folders_can_be_compared(script: Path, capsys: pytest.CaptureFixture[str]):
    """Seven runs of each side in turns are enough repeats to be judged."""
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
