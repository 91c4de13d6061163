"""Wisdom in one process: what is appended comes back, from where it should, and nothing else happens."""

from __future__ import annotations

import json
import os
import subprocess
import threading

import pytest

from hpfracc.engine.selection import wisdom as store
from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, list_files, reset_warnings
from hpfracc.engine.selection.wisdom_records import SCHEMA, encode_merged
from hpfracc.engine.selection.wisdom_sharing import clear_wisdom, export_wisdom, import_wisdom, summarize
from hpfracc.errors import WisdomError, WisdomWarning
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


def test_many_records_are_written_of_themselves(tmp_path):
    """Records in memory are written before they take much space."""
    wisdom = Wisdom(tmp_path)
    for record in samples(store._GATHERED):
        wisdom.append([record])
    assert len(Wisdom(tmp_path).load()) == store._GATHERED


def test_a_long_journal_merges_of_itself(tmp_path, monkeypatch):
    """A process that runs for weeks does not grow its journal without end."""
    monkeypatch.setattr(store, "_LONG_JOURNAL", 10_000)
    wisdom = Wisdom(tmp_path)
    for step in range(20):
        wisdom.append(samples(32, bucket=(0, 0), time=float(step)))
        wisdom.flush()
    assert len(wisdom.load()) == 32
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 100_000


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


def test_a_living_process_loses_nothing_to_a_merge(tmp_path):
    """Its journal is merged and removed; what it adds later is in another one of the same name."""
    living, other = Wisdom(tmp_path), Wisdom(tmp_path)
    first, second = samples(2), samples(2)
    living.append(first)
    living.flush()
    assert other.merge() == 2
    assert kinds(tmp_path) == {"generation": 1, "merged": 1}
    living.append(second)
    living.flush()
    assert kinds(tmp_path) == {"generation": 1, "merged": 1, "journal": 1}
    assert ids(other.load()) == ids(first + second)
    living.merge()
    assert kinds(tmp_path) == {"generation": 1, "merged": 1}
    assert ids(Wisdom(tmp_path).load()) == ids(first + second)


def test_only_the_last_32_are_kept(tmp_path):
    """A bucket's older samples go, in memory, in the file and in what is loaded."""
    wisdom = Wisdom(tmp_path)
    records = [sample(bucket=(1, 1), time=float(number)) for number in range(50)]
    wisdom.append(records)
    assert wisdom.merge() == 32
    assert Wisdom(tmp_path).load() == records[-32:]


def test_a_json_file_as_the_place(tmp_path):
    """The file named is the merged one, its journals lie beside it, and two such files do not mix."""
    first, second = Wisdom(tmp_path / "a.json"), Wisdom(tmp_path / "b.json")
    first.append(samples(2))
    second.append(samples(3))
    assert (first.merge(), second.merge()) == (2, 3)
    assert len(json.loads((tmp_path / "a.json").read_text())["records"]) == 2
    assert len(Wisdom(tmp_path / "b.json").load()) == 3
    assert clear_wisdom(first) == 2
    assert len(second.load()) == 3


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


def test_importing_old_samples_is_idempotent_too(tmp_path):
    """Samples older than the last 32 are not imported, and are not counted as new each time."""
    wisdom, lab = Wisdom(tmp_path / "a"), Wisdom(tmp_path / "b")
    wisdom.append([sample(bucket=(0, 0), time=1000.0 + number) for number in range(30)])
    lab.append([sample(bucket=(0, 0), time=float(number)) for number in range(10)])
    export_wisdom(lab, tmp_path / "lab.json")
    assert import_wisdom(wisdom, tmp_path / "lab.json") == 2
    assert import_wisdom(wisdom, tmp_path / "lab.json") == 0


def test_two_hosts_merged_in_both_orders(tmp_path):
    """Whichever export comes first, the file is the same to the byte."""
    exports = []
    for host, arm in (("one", "torch:fft@cuda:0"), ("two", "numpy:fft@cpu")):
        wisdom = Wisdom(tmp_path / host)
        wisdom.append([*samples(50, fingerprint=host), *samples(50, bucket=(0, 0)), *samples(3, arm=arm)])
        export_wisdom(wisdom, tmp_path / f"{host}.json")
        exports.append(tmp_path / f"{host}.json")
    merged = []
    for name, order in (("x", exports), ("y", exports[::-1])):
        wisdom = Wisdom(tmp_path / name)
        for path in order:
            import_wisdom(wisdom, path)
        merged.append((tmp_path / name / "wisdom.json").read_bytes())
    assert merged[0] == merged[1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cannot be imported"),
        (b"not json", "cannot be imported"),
        (b'{"records": []}', "not a wisdom file"),
        (encode_merged(samples(3))[:-20], "cannot be imported"),
        (encode_merged(samples(3)).replace(b'"seconds":1e-06', b'"seconds":-1'), "seconds"),
        (f'{{"hpfracc":"wisdom","schema":{SCHEMA + 1},"records":[]}}'.encode(), "upgrade"),
        (None, "No such file"),
    ],
    ids=map(str, range(7)),
)
def test_importing_garbage_is_an_error(tmp_path, data, words):
    """The file and the remedy are named, and nothing of it is taken."""
    wisdom = Wisdom(tmp_path / "w")
    path = tmp_path / "lab.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(WisdomError, match=words) as caught:
        import_wisdom(wisdom, path)
    assert "lab.json" in str(caught.value)
    assert "export" in str(caught.value) or "upgrade" in str(caught.value)
    assert wisdom.load() == []


def test_importing_an_empty_folder_is_an_error(tmp_path):
    """A folder without wisdom is a mistake, not an empty lesson."""
    with pytest.raises(WisdomError, match="has no wisdom"):
        import_wisdom(Wisdom(tmp_path / "w"), tmp_path)


def test_exporting_where_nothing_can_be_written(tmp_path):
    """The user asked for a file and does not get it: that is an error."""
    with pytest.raises(WisdomError, match="missing"):
        export_wisdom(Wisdom(None), tmp_path / "missing" / "lab.json")


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


def test_read_only_and_missing_or_damaged(tmp_path):
    """A file that should be there and is not, or is broken, is warned of, and left as it is."""
    with pytest.warns(WisdomWarning, match="does not exist"):
        assert Wisdom(tmp_path / "lab.json", read_only=True).load() == []
    assert Wisdom(tmp_path / "nowhere", read_only=True).load() == []
    records = samples(3)
    broken = encode_merged(records)[:-3]
    (tmp_path / "lab.json").write_bytes(broken)
    with pytest.warns(WisdomWarning, match="damaged"):
        assert Wisdom(tmp_path / "lab.json", read_only=True).load() == records
    assert contents(tmp_path) == {"lab.json": broken}


def test_files_of_a_later_version_are_left_alone(tmp_path):
    """They are neither read, changed nor removed; one warning tells of them."""
    later = f'{{"hpfracc":"wisdom","schema":{SCHEMA + 1},"records":[]}}\n'.encode()
    journal = f'{{"hpfracc":"journal","schema":{SCHEMA + 1}}}\n'.encode()
    layout = WisdomLayout(tmp_path)
    kept = {layout.merged: later, layout.new_generation(): later, layout.new_journal(): journal}
    for path, data in kept.items():
        path.write_bytes(data)
    wisdom = Wisdom(tmp_path)
    wisdom.append(samples(2))
    with pytest.warns(WisdomWarning, match="later hpfracc"):
        wisdom.merge()
    wisdom.merge()
    contents = [(layout.kind_of(path.name), path.read_bytes()) for path in tmp_path.iterdir()]
    found = {kind: data for kind, data in contents if data in (later, journal)}
    assert found == {"merged": later, "generation": later, "journal": journal}
    assert len(Wisdom(tmp_path).load()) == 2


def test_eight_threads(tmp_path):
    """Threads that append, flush, load and merge one object lose nothing."""
    wisdom = Wisdom(tmp_path)
    parts = [samples(60, arm=f"numpy:{number}@cpu") for number in range(8)]
    errors = []

    def work(number):
        try:
            for step, record in enumerate(parts[number]):
                wisdom.append([record])
                if step % 7 == number % 7:
                    wisdom.flush()
                if step % 20 == number:
                    wisdom.merge()
                    wisdom.load()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wisdom.flush()
    assert errors == []
    assert ids(Wisdom(tmp_path).load()) == ids(record for part in parts for record in part)


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
def test_fork_after_append(tmp_path):
    """Each side writes its own records into a journal of its own, and each record stands on disk once."""
    wisdom = Wisdom(tmp_path)
    before, unwritten = samples(2), samples(2)
    wisdom.append(before)
    wisdom.flush()
    wisdom.append(unwritten)

    def in_child():
        wisdom.append(samples(3))
        assert wisdom.flush()
        assert len(wisdom.load()) == 5
        wisdom.merge()

    run_in_child(in_child)
    later = samples(1)
    wisdom.append(later)
    assert wisdom.flush()
    found = Wisdom(tmp_path).load()
    assert len(found) == 8
    assert ids(found) >= ids(before + unwritten + later)
    text = b"".join(path.read_bytes() for path in tmp_path.glob("journal-*"))
    assert all(text.count(record.id.encode()) == 1 for record in unwritten)


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
