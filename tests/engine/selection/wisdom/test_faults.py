"""Damaged files, full and read-only disks, vanished journals: no error reaches the user, nothing whole is lost."""

from __future__ import annotations

import errno
import os
import time
import warnings

import pytest

from hpfracc._files import temporary
from hpfracc.engine.selection import wisdom as store
from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, list_files, reset_warnings
from hpfracc.engine.selection.wisdom_records import JOURNAL_HEAD, encode_lines, encode_merged
from hpfracc.engine.selection.wisdom_sharing import clear_wisdom, summarize
from hpfracc.errors import WisdomWarning
from tests.helpers.measured import ids, samples
from tests.helpers.warned import collected


@pytest.fixture(autouse=True)
def unwarned():
    reset_warnings()


def files(folder, kind):
    return [path for path, found in list_files(WisdomLayout.of(folder)) if found == kind]


@pytest.mark.parametrize("left", [0.0, 0.1, 0.5, 0.9, 0.995])
def test_a_truncated_merged_file(tmp_path, left):
    """It is set aside with a warning, what is left of it is kept, journals complete it, and it is whole again."""
    old, new = samples(3), samples(2)
    data = encode_merged(old)
    broken = data[: int(len(data) * left)]
    (tmp_path / "wisdom.json").write_bytes(broken)
    writer = Wisdom(tmp_path)
    writer.append(new)
    writer.flush()
    with pytest.warns(WisdomWarning, match="set aside") as caught:
        found = Wisdom(tmp_path).load()
    assert len(caught) == 1
    whole = [record for record in old if record.to_line().encode() in broken]
    assert ids(found) == ids([*whole, *new])
    (aside,) = files(tmp_path, "damaged")
    assert aside.read_bytes() == broken
    assert ids(Wisdom(tmp_path / "wisdom.json", read_only=True).load()) == ids(found)


@pytest.mark.parametrize("name", ["merged", "generation"])
def test_nothing_merged_is_lost_when_one_file_is_truncated(tmp_path, name):
    """Generation and merged file hold the same: either may be emptied, even in place."""
    records = samples(20)
    wisdom = Wisdom(tmp_path)
    wisdom.append(records)
    wisdom.merge()
    (path,) = files(tmp_path, name)
    os.truncate(path, 0)
    with pytest.warns(WisdomWarning, match="set aside"):
        assert ids(Wisdom(tmp_path).load()) == ids(records)
    assert ids(Wisdom(tmp_path).load()) == ids(records)
    assert len(files(tmp_path, "damaged")) == 1


@pytest.mark.parametrize(
    "data",
    [b"\x00" * 4096, b"[]", b'{"hpfracc":"something else"}', os.urandom(1000)],
    ids=["zeros", "a list", "another file", "noise"],
)
def test_garbage_in_the_merged_file(tmp_path, data):
    """Whatever is in it, there is a warning and no error, and learning goes on."""
    (tmp_path / "wisdom.json").write_bytes(data)
    wisdom = Wisdom(tmp_path)
    with pytest.warns(WisdomWarning, match="damaged"):
        assert wisdom.load() == []
    wisdom.append(samples(2))
    assert wisdom.merge() == 2
    assert len(Wisdom(tmp_path).load()) == 2


def test_a_bad_line_in_a_journal_is_counted(tmp_path):
    """Its neighbours are read, the summary counts it, and the journal is set aside with a warning once it is merged."""
    records = samples(2)
    path = WisdomLayout(tmp_path).new_journal()
    path.write_bytes(JOURNAL_HEAD + encode_lines(records[:1]) + b"{bad\n" + encode_lines(records[1:]) + b'{"to')
    data = path.read_bytes()
    wisdom = Wisdom(tmp_path)
    assert summarize(wisdom)["skipped"] == 1
    with pytest.warns(WisdomWarning, match="1 of its entries are not records"):
        assert wisdom.load() == records
    assert [aside.read_bytes() for aside in files(tmp_path, "damaged")] == [data]
    assert wisdom.load() == records


def _fail_when_written(monkeypatch, code):
    real = os.open

    def refuse(path, flags, *rest, **options):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_place_that_cannot_be_written(tmp_path, monkeypatch, code):
    """No error, one warning in all, and everything works in memory; when the place recovers, so does wisdom."""
    known = samples(2)
    before = Wisdom(tmp_path)
    before.append(known)
    before.merge()
    wisdom, records = Wisdom(tmp_path), samples(3)
    wisdom.append(records)
    with monkeypatch.context() as patch:
        _fail_when_written(patch, code)
        with collected() as messages:
            assert not wisdom.flush()
            assert not wisdom.flush()
            assert wisdom.merge() == 5
            Wisdom(tmp_path).append(samples(store._GATHERED))
        assert len(messages) == 1
        assert "memory only" in messages[0]
        assert ids(wisdom.load()) == ids(known + records)
        assert summarize(wisdom)["state"] == "memory only"
    assert wisdom.flush()
    assert summarize(wisdom)["state"] == "kept"
    assert ids(Wisdom(tmp_path).load()) == ids(known + records)


def test_a_folder_that_cannot_be_made(tmp_path):
    """Below a regular file there can be no folder: one warning, memory only, also where root may do anything."""
    (tmp_path / "file").write_text("")
    wisdom = Wisdom(tmp_path / "file" / "wisdom")
    wisdom.append(samples(2))
    with collected() as messages:
        assert not wisdom.flush()
        assert wisdom.merge() == 2
        wisdom.flush()
    assert len(messages) == 1
    assert "HPFRACC_WISDOM" in messages[0]
    assert len(wisdom.load()) == 2
    assert clear_wisdom(wisdom) == 0


def test_a_folder_that_cannot_be_read(tmp_path, monkeypatch):
    """One warning, and what this process learned is still there."""

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    wisdom = Wisdom(tmp_path)
    wisdom.append(samples(2))
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.warns(WisdomWarning, match="cannot be read"):
        assert len(wisdom.load()) == 2
    assert len(wisdom.load()) == 2


def test_memory_is_bounded_where_nothing_can_be_written(tmp_path):
    """A process that learns for weeks without a place to write does not grow."""
    (tmp_path / "file").write_text("")
    wisdom = Wisdom(tmp_path / "file")
    with collected() as messages:
        for step in range(5):
            wisdom.append(samples(4000, time=float(step)))
    assert len(messages) == 1
    assert len(wisdom.pending) <= store._KEPT_IN_MEMORY
    assert max(record.time for record in wisdom.load()) == 4.0


def test_a_disk_that_fills_in_the_middle_of_a_line(tmp_path, monkeypatch):
    """What did not get to disk whole is written again, elsewhere, once there is room; no line is counted twice."""
    wisdom = Wisdom(tmp_path)
    first, second = samples(2), samples(2)
    wisdom.append(first)
    wisdom.flush()
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) * 3 // 4]))
        wisdom.append(second)
        with pytest.warns(WisdomWarning, match="memory only"):
            assert not wisdom.flush()
    assert wisdom.flush()
    assert [record.id for record in Wisdom(tmp_path).load()] == sorted(
        ids(first + second), key=_time_of(first + second)
    )
    assert summarize(Wisdom(tmp_path))["skipped"] == 0


def _time_of(records):
    return {record.id: record.age_order for record in records}.__getitem__


def test_a_journal_removed_under_its_writer(tmp_path):
    """The writer notices at its next flush and begins another one with the same lines."""
    wisdom = Wisdom(tmp_path)
    wisdom.append(samples(2))
    wisdom.flush()
    (path,) = files(tmp_path, "journal")
    path.unlink()
    records = samples(2)
    wisdom.append(records)
    assert wisdom.flush()
    assert ids(Wisdom(tmp_path).load()) == ids(records)


@pytest.mark.parametrize(
    ("host", "age", "removed"),
    [("here", 0.0, True), ("elsewhere", 0.0, False), ("elsewhere", 2 * store.UNTOUCHED_SECONDS, True)],
)
def test_when_a_journal_is_removed(tmp_path, host, age, removed):
    """Another machine's only when it was untouched for a day; its records stay."""
    records = samples(2)
    layout = WisdomLayout(tmp_path)
    path = layout.new_journal()
    if host == "elsewhere":
        path = path.with_name(f"journal-elsewhere-1-{'0' * 16}.jsonl")
    path.write_bytes(JOURNAL_HEAD + encode_lines(records))
    os.utime(path, (time.time() - age,) * 2)
    Wisdom(tmp_path).merge()
    assert path.exists() is not removed
    assert ids(Wisdom(tmp_path).load()) == ids(records)


def test_a_journal_that_is_taken_while_it_is_written(tmp_path, monkeypatch):
    """The writer notices that its journal was renamed, and writes the same lines into another one."""
    wisdom, first, second = Wisdom(tmp_path), samples(1), samples(1)
    wisdom.append(first)
    wisdom.flush()
    (path,) = files(tmp_path, "journal")
    real = os.write

    def write(fd, data):
        monkeypatch.setattr(os, "write", real)
        Wisdom(tmp_path).merge()
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    wisdom.append(second)
    assert wisdom.flush()
    assert not path.exists()
    assert ids(Wisdom(tmp_path).load()) == ids(first + second)


def test_leftovers_of_killed_writers_go_when_they_are_old(tmp_path):
    """A file that was never renamed is removed after an hour; a fresh one may still be renamed."""
    old, fresh = temporary(WisdomLayout(tmp_path).merged), temporary(WisdomLayout(tmp_path).new_generation())
    for path in (old, fresh):
        path.write_text("{")
    os.utime(old, (0, 0))
    wisdom = Wisdom(tmp_path)
    wisdom.append(samples(1))
    wisdom.merge()
    assert not old.exists()
    assert fresh.exists()


def test_another_user_s_file_is_neither_read_nor_removed(tmp_path, monkeypatch):
    """A generation that cannot be opened stays, and the others are merged."""
    parts = [samples(2), samples(3), samples(4)]
    theirs, *ours = [WisdomLayout(tmp_path).new_generation() for _ in parts]
    for path, records in zip((theirs, *ours), parts, strict=True):
        path.write_bytes(encode_merged(records))
    real = store.read_plain

    def read_plain(path, most):
        if path == theirs:
            raise PermissionError(errno.EACCES, "not yours")
        return real(path, most)

    with monkeypatch.context() as patch:
        patch.setattr(store, "read_plain", read_plain)
        assert Wisdom(tmp_path).merge() == 7
    assert theirs.exists()
    assert not any(path.exists() for path in ours)
    assert ids(Wisdom(tmp_path).load()) == ids(record for part in parts for record in part)


def test_warnings_made_errors_do_not_lose_records(tmp_path):
    """If warnings are errors, the error is raised, and the wisdom is still in order."""
    (tmp_path / "wisdom.json").write_bytes(b"broken")
    writer = Wisdom(tmp_path)
    writer.append(samples(2))
    writer.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WisdomWarning):
            Wisdom(tmp_path).load()
        assert len(Wisdom(tmp_path).load()) == 2
