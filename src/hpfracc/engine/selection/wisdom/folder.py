"""Reading a wisdom folder, and merging its files into one."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpfracc._files import UnfitFileError, read_plain, write_whole
from hpfracc.engine.selection.wisdom.document import MAX_BYTES, Content, encode_merged, read_journal, read_merged
from hpfracc.engine.selection.wisdom.journal import remove_if_abandoned
from hpfracc.engine.selection.wisdom.location import FileKind, WisdomLayout
from hpfracc.engine.selection.wisdom.records import Entry, unite

__all__ = ["FolderSnapshot", "Source", "list_files", "merge_into_one", "read_folder", "remove_leftovers", "set_aside"]

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
