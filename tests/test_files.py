"""Bounded reads and atomic writes; only regular files are opened or replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hpfracc._files import UnfitFileError, parse_json, read_plain, write_whole


def test_written_and_read_back(tmp_path: Path):
    """A file is written and read back, an existing one is replaced with its permissions kept, no temporary is left."""
    path = tmp_path / "a"
    write_whole(path, [b"one"])
    path.chmod(0o640)
    write_whole(path, [b"two", b" three"])
    assert read_plain(path, 9) == b"two three"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UnfitFileError, match="9 bytes, more than the limit of 8"):
        read_plain(path, 8)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, there: bool):
    """Holds for two links in a row, and for a target that does not exist yet."""
    folder = tmp_path / "real"
    folder.mkdir()
    if there:
        (folder / "target").write_bytes(b"old")
    (tmp_path / "second").symlink_to(folder / "target")
    (tmp_path / "first").symlink_to("second")
    write_whole(tmp_path / "first", [b"new"])
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert (folder / "target").read_bytes() == b"new"
    assert os.listdir(folder) == ["target"]


def test_special_files_are_left_alone(tmp_path: Path):
    """Folders, FIFOs and devices, even behind a link, are neither opened nor replaced."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(os.listdir(tmp_path))
    for name in ("folder", "pipe", "null"):
        for attempt in (lambda path: read_plain(path, 100), lambda path: write_whole(path, [b"new"])):
            with pytest.raises(UnfitFileError, match="not a regular file"):
                attempt(tmp_path / name)
    for name in ("loop", "nul\0byte", "lone\ud800"):
        for attempt in (lambda path: read_plain(path, 100), lambda path: write_whole(path, [b"new"])):
            with pytest.raises(OSError, match="."):
                attempt(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


def test_a_failure_leaves_the_old_file(tmp_path: Path):
    """An error while the new content is produced changes nothing."""
    path = tmp_path / "a"
    write_whole(path, [b"old"])

    def pieces():
        yield b"new"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_whole(path, pieces())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("data", [b"NaN", b"[1, Infinity]", b"1e999", b"[" * 100_000, b"\xff", b"[1", b""])
def test_invalid_json(data: bytes):
    """Nonstandard constants, infinite numbers and excessive nesting raise an error."""
    with pytest.raises(ValueError, match="."):
        parse_json(data)


def test_valid_json():
    """Brackets in strings are text; a byte order mark is skipped."""
    assert parse_json(b'\xef\xbb\xbf["[[[[\\"[[[[", [1.5]]') == ['[[[["[[[[', [1.5]]
