"""Damaged files, full and read-only disks, vanished journals: no error reaches the user, nothing whole is lost."""

from __future__ import annotations

import errno
import os
import warnings

import pytest

from hpfracc.engine.selection import wisdom as store
from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, list_files, reset_warnings
from hpfracc.engine.selection.wisdom_records import encode_merged
from hpfracc.engine.selection.wisdom_sharing import summarize
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
