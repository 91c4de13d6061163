"""The files of a wisdom folder: their formats, journals, reading a folder, and merging its files into one.

A merged file is one JSON object with one record per line, so that the rest of a damaged one can be read. A journal is
appended to by one process, and removed by others only after it has ended.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpfracc._files import OPEN_FLAGS, UnfitFileError, parse_json, read_plain, write_whole
from hpfracc.engine.selection.wisdom import FileKind, WisdomLayout
from hpfracc.engine.selection.wisdom.records import MAX_DEPTH, Entry, parse_entry, unite
from hpfracc.errors import InvalidInputError

if sys.platform != "win32":
    import fcntl

__all__ = [
    "MAX_BYTES",
    "SCHEMA",
    "Content",
    "FolderSnapshot",
    "Journal",
    "Source",
    "encode_journal_head",
    "encode_lines",
    "encode_merged",
    "list_files",
    "merge_into_one",
    "read_folder",
    "read_journal",
    "read_merged",
    "remove_if_abandoned",
    "remove_leftovers",
    "set_aside",
]

#: Incremented when older versions of hpfracc can no longer read the files; they then do not touch them.
SCHEMA = 1

#: Limits for reading. All stored records take about 9 MB, and a journal is merged at 4 MiB. Within these limits no file
#: takes more than two seconds, or about 300 MB, to read or reject.
MAX_BYTES = 32 << 20
_MAX_ENTRIES = 100_000
_MAX_VALUES = 32 * _MAX_ENTRIES
#: Limits for writing are lower than those for reading.
_MAX_WRITTEN = MAX_BYTES * 3 // 4


@dataclass(slots=True)
class Content:
    """The content of a file.

    Attributes
    ----------
    records : list of Entry
        The readable ones, including those of later versions.
    skipped : int
        Number of complete lines or entries that are not records.
    damage : str or None
        Why a merged file as a whole is damaged; ``records`` are then those that could be recovered.
    newer : bool
        Whether a later version of hpfracc wrote it in an unknown format; it is not touched then.
    """

    records: list[Entry] = field(default_factory=list)
    skipped: int = 0
    damage: str | None = None
    newer: bool = False
    #: Why the first invalid entry was rejected.
    complaint: str | None = None

    @property
    def fault(self) -> str | None:
        """Reason why the file should be set aside; None if it is intact."""
        if self.damage is None and self.skipped:
            return f"{self.skipped} of its entries are not records, the first because of {self.complaint}"
        return self.damage


def encode_merged(records: Iterable[Entry]) -> bytes:
    """A merged file of ``records``, oldest first; deterministic."""
    lines = [record.to_line() for record in records]
    size = sum(map(len, lines)) + 2 * len(lines)
    first = 0
    while size > _MAX_WRITTEN:  # drop the oldest
        size -= len(lines[first]) + 2
        first += 1
    body = ",\n".join(lines[first:])
    return f'{{"hpfracc":"wisdom","schema":{SCHEMA},"records":[\n{body}\n]}}\n'.encode()


def encode_journal_head() -> bytes:
    """The first line of a journal."""
    return f'{{"hpfracc":"journal","schema":{SCHEMA}}}\n'.encode()


def encode_lines(records: Iterable[Entry]) -> bytes:
    """Lines of a journal."""
    return "".join(f"{record.to_line()}\n" for record in records).encode()


def read_merged(data: bytes) -> Content:
    """Read a merged file; never raises, see :attr:`Content.damage`."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        return Content(damage="it holds too many values")
    try:
        value = parse_json(data, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        return _left_of(data, str(error))
    if not isinstance(value, dict) or value.get("hpfracc") != "wisdom":
        return _left_of(data, "it is not a wisdom file")
    schema, entries = value.get("schema"), value.get("records")
    if isinstance(schema, int) and schema > SCHEMA:
        return Content(newer=True)
    if schema != SCHEMA or not isinstance(entries, list):
        return _left_of(data, "its schema or its records are missing")
    return _read_entries(entries)


def read_journal(data: bytes) -> Content:
    """Read a journal. An incomplete last line, of a process that was killed, is ignored."""
    head, *lines = data.split(b"\n", _MAX_ENTRIES + 1)
    if _schema_of(head) > SCHEMA:
        return Content(newer=True)
    return _read_entries(lines[:-1] if len(lines) <= _MAX_ENTRIES else lines)


def _read_entries(entries: list[Any]) -> Content:
    content = Content()
    for entry in entries[:_MAX_ENTRIES]:
        _take(content, entry)
    if len(entries) > _MAX_ENTRIES:
        content.damage = f"it has more than {_MAX_ENTRIES:,} entries"
    return content


def _left_of(data: bytes, damage: str) -> Content:
    """The records of a damaged file that can be recovered: those on complete lines."""
    content = Content()
    for line in data.split(b"\n", _MAX_ENTRIES)[:_MAX_ENTRIES]:
        _take(content, line.strip().rstrip(b","))
    return Content(content.records, damage=damage)


def _take(content: Content, entry: Any) -> None:
    try:
        content.records.append(parse_entry(entry))
    except InvalidInputError as error:
        content.skipped += 1
        content.complaint = content.complaint or str(error)


def _schema_of(head: bytes) -> int:
    try:
        value = parse_json(head, MAX_DEPTH)
    except (ValueError, RecursionError):
        return SCHEMA
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if isinstance(schema, int) else SCHEMA


#: A journal idle for this long is closed and a new one begun, ...
IDLE_SECONDS = 3600.0
#: ... so a journal unchanged for this long has no writer, even if locks cannot show that.
UNTOUCHED_SECONDS = 86_400.0


class Journal:
    """A journal open for appending. The lock (``flock``) held while it is open shows that its writer is running."""

    def __init__(self, layout: WisdomLayout) -> None:
        layout.folder.mkdir(parents=True, exist_ok=True)
        self.size = 0
        self._last = time.time()  # the monotonic clock stops while a laptop sleeps
        self._fd = -1
        while self._fd < 0:
            self.path = layout.new_journal()
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o666)
            if _hold(fd):
                self._fd = fd
            else:  # another process locked it first, and may be removing it
                os.close(fd)

    @property
    def is_idle(self) -> bool:
        """Whether it has been idle so long that other processes may soon consider it abandoned."""
        return abs(time.time() - self._last) > IDLE_SECONDS

    def write(self, lines: bytes) -> None:
        """Append complete lines, which then survive any end of the process.

        Raises
        ------
        OSError
            If not all lines were written, or the journal was removed; then write them to a new one.
        """
        data = lines if self.size else encode_journal_head() + lines
        written = os.write(self._fd, data)
        if written != len(data):
            raise OSError(f"{self.path}: {written} of {len(data)} bytes written; is the disk full?")
        self.size += written
        self._last = time.time()
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(f"{self.path} was removed while in use")

    def close(self) -> None:
        """Close it; any process may then merge and remove it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def remove_if_abandoned(path: Path, size: int, layout: WisdomLayout, aside: Path | None = None) -> bool:
    """Remove a journal of ``size`` bytes that was merged, unless it grew or its writer may still be running.

    With ``aside`` it is renamed to that name instead.
    """
    try:
        fd = os.open(path, os.O_RDWR | OPEN_FLAGS | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        locked = _try_lock(fd)
        if locked is False:
            return False
        status = os.fstat(fd)
        if status.st_size != size:
            return False
        # Some file systems have no locks, or do not show those of other machines: there, age decides.
        sure = locked is True and layout.is_from_here(path)
        if not sure and time.time() - status.st_mtime < UNTOUCHED_SECONDS:
            return False
        if aside is None:
            os.unlink(path)
        else:
            os.rename(path, aside)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _hold(fd: int) -> bool:
    """Lock a new journal; False if another process locked it first."""
    return _try_lock(fd) is not False and os.fstat(fd).st_nlink > 0


def _try_lock(fd: int) -> bool | None:
    """Whether the lock was acquired; None if there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


#: Maximum number of times a folder is read again because a file disappeared, which means that another process merged.
_ATTEMPTS = 16
#: Seconds after which a temporary file counts as left by a process that was killed.
_ABANDONED = 3600.0


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read: its bytes and content. An unreadable one (a FIFO, or too large) has no bytes."""

    path: Path
    kind: FileKind
    data: bytes
    content: Content
    status: os.stat_result

    @property
    def is_plain(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.status.st_mode)


@dataclass(slots=True)
class FolderSnapshot:
    """The content of a folder at one moment."""

    sources: list[Source] = field(default_factory=list)
    records: dict[str, Entry] = field(default_factory=dict)

    def of_kind(self, kind: FileKind) -> list[Source]:
        """The files of one kind."""
        return [source for source in self.sources if source.kind == kind]

    @property
    def damaged(self) -> list[Source]:
        """The files to set aside."""
        return [source for source in self.sources if source.content.fault is not None]

    @property
    def skipped(self) -> int:
        """Number of lines and entries that are not records."""
        return sum(source.content.skipped for source in self.sources)


def read_folder(layout: WisdomLayout, *, merged_only: bool = False) -> FolderSnapshot:
    """Read the merged file, and unless ``merged_only`` generations and journals; a missing folder is empty.

    Raises
    ------
    OSError
        If the folder exists but cannot be read.
    """
    for _ in range(_ATTEMPTS):
        snapshot, complete = _read_once(layout, merged_only)
        if complete:
            break
    return snapshot


def _read_once(layout: WisdomLayout, merged_only: bool) -> tuple[FolderSnapshot, bool]:
    snapshot, complete = FolderSnapshot(), True
    contents: dict[tuple[FileKind, bytes], Content] = {}
    for path, kind in list_files(layout):
        if kind not in (("merged",) if merged_only else ("merged", "generation", "journal")):
            continue
        try:
            snapshot.sources.append(_read_file(path, kind, contents))
        except FileNotFoundError:
            complete = False
        except OSError:  # perhaps another user's; a file that is not read is not removed
            continue
    snapshot.records = unite(*(content.records for content in contents.values()))
    return snapshot, complete


def _read_file(path: Path, kind: FileKind, contents: dict[tuple[FileKind, bytes], Content]) -> Source:
    try:
        data, status = read_plain(path, MAX_BYTES)
    except UnfitFileError as error:
        return Source(path, kind, b"", Content(damage=error.strerror), os.stat(path))
    form: FileKind = "journal" if kind == "journal" else "merged"
    content = contents.get((form, data))
    if content is None:  # the merged file is mostly a copy of a generation, and decoding is slow
        content = read_journal(data) if form == "journal" else read_merged(data)
        contents[form, data] = content
    return Source(path, kind, data, content, status)


def list_files(layout: WisdomLayout) -> list[tuple[Path, FileKind]]:
    """Every wisdom file in the folder, including temporary and damaged ones; none if the folder is missing."""
    try:
        names = sorted(os.listdir(layout.folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(layout.folder / name, kind) for name in names if (kind := layout.kind_of(name)) is not None]


def set_aside(source: Source, layout: WisdomLayout) -> Path | None:
    """Rename a damaged file if it did not change since it was read; returns the new path, or None if not renamed."""
    aside = layout.aside(source.path)
    try:
        if _identity(os.stat(source.path)) != _identity(source.status):  # repaired in the meantime
            return None
        os.rename(source.path, aside)
    except OSError:
        return None
    return aside


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


def remove_leftovers(layout: WisdomLayout) -> None:
    """Remove temporary files whose writer was killed."""
    for path, kind in list_files(layout):
        if kind == "leftover":
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()


def merge_into_one(layout: WisdomLayout, records: Sequence[Entry], snapshot: FolderSnapshot) -> list[str]:
    """Write ``records``, which include all of ``snapshot``, and remove the files that this supersedes.

    The order makes it safe (see the package's docstring): the new generation is on disk before anything is removed,
    generations are removed only if a new one was written, journals only if no process can append to them.

    Returns
    -------
    list of str
        A sentence for each damaged file.

    Raises
    ------
    OSError
        If the folder cannot be written; no record is lost then.
    """
    if not snapshot.sources:
        return []
    data = encode_merged(records)
    generations = [source for source in snapshot.of_kind("generation") if not source.content.newer]
    superseded = [source.data for source in generations] != [data]
    if superseded:
        write_whole(layout.new_generation(), [data])
    notes = [_put_away(source, layout) for source in snapshot.damaged]
    for source in generations if superseded else []:
        if source.content.fault is None:
            with contextlib.suppress(OSError):
                source.path.unlink()
    if not any(source.content.newer or source.data == data for source in snapshot.of_kind("merged")):
        write_whole(layout.merged, [data])
    for source in snapshot.of_kind("journal"):
        if not source.content.newer and source.content.fault is None:
            remove_if_abandoned(source.path, len(source.data), layout)
    remove_leftovers(layout)
    return notes


def _put_away(source: Source, layout: WisdomLayout) -> str:
    if source.kind == "journal" and source.is_plain:  # its writer may still be running
        aside: Path | None = layout.aside(source.path)
        if not remove_if_abandoned(source.path, source.status.st_size, layout, aside):
            aside = None
    else:
        aside = set_aside(source, layout)
    where = f"set aside as {aside.name}" if aside is not None else "left where it is"
    return (
        f"{source.path} is damaged ({source.content.fault}) and was {where}; {len(source.content.records)} records "
        "could still be read from it; the others come from other files or are measured again"
    )
