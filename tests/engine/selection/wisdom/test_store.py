"""Wisdom in one process: what is appended comes back, from where it should, and nothing else happens."""

from __future__ import annotations

import json
import os
import subprocess
import threading

import pytest

from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, list_files, reset_warnings
from hpfracc.engine.selection.wisdom_sharing import clear_wisdom, export_wisdom, import_wisdom, summarize
from hpfracc.errors import WisdomError
from tests.helpers.forked import run_in_child
from tests.helpers.measured import ids, sample, samples
from tests.helpers.processes import start_python


@pytest.fixture(autouse=True)
def unwarned():
    reset_warnings()


def kinds(folder):
    """How many files of each kind lie in a folder."""
    found: dict[str, int] = {}
    for _, kind in list_files(WisdomLayout.of(folder)):
        found[kind] = found.get(kind, 0) + 1
    return found


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_appended_flushed_loaded(tmp_path):
    """Records are there at once in their own process, and for others after flush."""
    mine, other = Wisdom(tmp_path / "w"), Wisdom(tmp_path / "w")
    records = samples(5)
    mine.append(records)
    assert mine.load() == records
    assert other.load() == []
    assert not (tmp_path / "w").exists()
    assert mine.flush()
    assert other.load() == records
    assert kinds(tmp_path / "w") == {"journal": 1}


def test_off_keeps_nothing(tmp_path):
    """Without a path every method works and nothing is kept or written."""
    off = Wisdom(None)
    off.append(samples(3))
    assert off.flush()
    assert (off.merge(), off.load(), clear_wisdom(off)) == (0, [], 0)
    assert summarize(off)["state"] == "off"
    assert summarize(off)["records"] == 0
    source = tmp_path / "export.json"
    assert export_wisdom(off, source) == 0
    assert import_wisdom(off, source) == 0


def test_merging_leaves_one_generation_and_its_copy(tmp_path):
    """Journals of those who have ended go into one file; merging again changes nothing, not even a time stamp."""
    records = samples(6)
    for part in (records[:2], records[2:4], records[4:]):
        wisdom = Wisdom(tmp_path)
        wisdom.append(part)
        wisdom.flush()
    assert kinds(tmp_path) == {"journal": 3}
    assert Wisdom(tmp_path).merge() == 6
    assert kinds(tmp_path) == {"generation": 1, "merged": 1}
    assert len(set(contents(tmp_path).values())) == 1
    assert Wisdom(tmp_path).load() == records
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert Wisdom(tmp_path).merge() == 6
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_export_and_import(tmp_path):
    """An export is taken once: the second time nothing in it is new."""
    source, target = Wisdom(tmp_path / "a"), Wisdom(tmp_path / "b")
    source.append(samples(40))
    assert export_wisdom(source, tmp_path / "lab.json") == 40
    assert import_wisdom(target, tmp_path / "lab.json") == 40
    before = contents(tmp_path / "b")
    assert import_wisdom(target, tmp_path / "lab.json") == 0
    assert contents(tmp_path / "b") == before
    source.flush()
    assert import_wisdom(target, tmp_path / "a") == 0
    assert target.load() == source.load()


def test_clear(tmp_path):
    """All our files are removed, and the records in memory; other files stay; a running writer starts over."""
    wisdom, living = Wisdom(tmp_path), Wisdom(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    living.append(samples(2))
    living.flush()
    wisdom.append(samples(3))
    wisdom.merge()
    (tmp_path / "wisdom.json.damaged-20240101T000000-abcd").write_text("")
    wisdom.append(samples(1))
    assert clear_wisdom(wisdom) == 3
    assert wisdom.load() == []
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    later = samples(2)
    living.append(later)
    assert living.flush()
    assert ids(wisdom.load()) == ids(later)


def test_summary(tmp_path):
    """Counts per fingerprint, backend and operation; files with sizes; the last change; all as JSON."""
    wisdom = Wisdom(tmp_path)
    wisdom.append(samples(3))
    wisdom.append([sample(9, kind="knot", arm="torch:fft@cpu", operation="matmul", fingerprint="e" * 16)])
    wisdom.merge()
    wisdom.append(samples(2))
    summary = json.loads(json.dumps(summarize(wisdom)))
    assert summary["path"] == str(tmp_path)
    assert (summary["state"], summary["records"], summary["unwritten"], summary["skipped"]) == ("kept", 6, 2, 0)
    assert summary["kinds"] == {"sample": 5, "knot": 1}
    newest, oldest = summary["rows"]
    assert (newest["fingerprint"], newest["backend"], newest["operation"]) == ("e" * 16, "torch", "matmul")
    assert (oldest["records"], oldest["arms"]) == (5, ["numpy:default@cpu"])
    assert summary["bytes"] == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert summary["changed"] == max(path.stat().st_mtime for path in tmp_path.iterdir())
    assert {file["kind"] for file in summary["files"]} == {"merged", "generation"}


def test_read_only_changes_nothing(tmp_path):
    """A place opened for reading is never written, whatever is asked; a .json file is read alone."""
    wisdom = Wisdom(tmp_path)
    known = samples(4)
    wisdom.append(known)
    wisdom.merge()
    wisdom.append(samples(2))
    wisdom.flush()
    before = contents(tmp_path)
    frozen = Wisdom(tmp_path / "wisdom.json", read_only=True)
    frozen.append(samples(3))
    assert frozen.flush()
    assert frozen.merge() == 4
    assert frozen.load() == known
    assert len(Wisdom(tmp_path, read_only=True).load()) == 6
    assert summarize(frozen)["state"] == "read-only"
    with pytest.raises(WisdomError, match="reading only"):
        clear_wisdom(frozen)
    export_wisdom(wisdom, tmp_path.parent / "lab.json")
    with pytest.raises(WisdomError, match="reading only"):
        import_wisdom(frozen, tmp_path.parent / "lab.json")
    frozen.flush()
    assert contents(tmp_path) == before


def test_what_is_left_is_written_when_the_process_ends(tmp_path):
    """A program that never calls flush() keeps what it learned, without a word on its way out."""
    code = """
import sys
from pathlib import Path
from hpfracc.engine.selection.wisdom_records import parse_record
from hpfracc.engine.selection.wisdom import Wisdom
kept, refused = Wisdom(Path(sys.argv[1]) / "w"), Wisdom(Path(sys.argv[1]) / "file" / "w")
for wisdom in (kept, refused):
    wisdom.append([parse_record(sys.argv[2])])
"""
    (tmp_path / "file").write_text("")
    record = sample()
    with start_python(code, tmp_path, record.to_line(), stderr=subprocess.PIPE) as process:
        assert process.communicate(timeout=500)[1] == ""
    assert process.returncode == 0
    assert Wisdom(tmp_path / "w").load() == [record]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_fork_while_another_thread_is_at_work(tmp_path):
    """A lock held by a thread that the child does not have does not stop the child."""
    wisdom = Wisdom(tmp_path)
    held, done = threading.Event(), threading.Event()

    def hold():
        with wisdom._lock:
            held.set()
            done.wait(300.0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(300.0)

    def in_child():
        wisdom.append(samples(2))
        assert wisdom.flush()

    try:
        run_in_child(in_child, timeout=500)
    finally:
        done.set()
        thread.join()
    assert len(wisdom.load()) == 2
