"""Reading everything that lies in a wisdom folder, and writing merged files that are whole or not there at all."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from hpfracc.engine.selection.records import Record
from hpfracc.engine.selection.wisdom.document import Content, read_journal, read_merged
from hpfracc.engine.selection.wisdom.location import PLAIN, FileKind, Layout, temporary
from hpfracc.engine.selection.wisdom.retention import unite

__all__ = ["Snapshot", "Source", "list_files", "read_folder", "remove_leftovers", "set_aside", "write_whole"]

#: Times a folder is read again because a file went away meanwhile, which means that somebody merged.
_ATTEMPTS = 16
#: Seconds after which a file that was being written belongs to a process that was killed.
_ABANDONED = 3600.0


@dataclass(frozen=True, slots=True)
class Source:
    """One file that was read: all of its bytes, and what they hold."""

    path: Path
    kind: FileKind
    data: bytes
    content: Content


@dataclass(slots=True)
class Snapshot:
    """Everything in a folder at one moment."""

    sources: list[Source] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)

    def of_kind(self, kind: FileKind) -> list[Source]:
        """The files of one kind."""
        return [source for source in self.sources if source.kind == kind]

    @property
    def damaged(self) -> list[Source]:
        """The files that are broken as a whole."""
        return [source for source in self.sources if source.content.damage is not None]

    @property
    def skipped(self) -> int:
        """Lines and entries that are no record."""
        return sum(source.content.skipped for source in self.sources)


def read_folder(layout: Layout, *, merged_only: bool = False) -> Snapshot:
    """Read the merged file, and generations and journals unless told otherwise; a folder that is not there is empty.

    Raises
    ------
    OSError
        If the folder is there but cannot be read.
    """
    for _ in range(_ATTEMPTS):
        snapshot, complete = _read_once(layout, merged_only)
        if complete:
            break
    return snapshot


def _read_once(layout: Layout, merged_only: bool) -> tuple[Snapshot, bool]:
    snapshot, complete = Snapshot(), True
    contents: dict[tuple[FileKind, bytes], Content] = {}
    for path, kind in list_files(layout):
        if kind not in (("merged",) if merged_only else ("merged", "generation", "journal")):
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            complete = False
            continue
        except OSError:  # another user's, perhaps: it is neither read nor, therefore, removed
            continue
        form: FileKind = "journal" if kind == "journal" else "merged"
        content = contents.get((form, data))
        if content is None:  # the merged file mostly is a copy of a generation: decoding is what takes time
            content = read_journal(data) if form == "journal" else read_merged(data)
            contents[form, data] = content
        snapshot.sources.append(Source(path, kind, data, content))
    snapshot.records = unite(*(content.records for content in contents.values()))
    return snapshot, complete


def list_files(layout: Layout) -> list[tuple[Path, FileKind]]:
    """Every file of ours in the folder, leftovers and damaged ones too; none if it is not there."""
    try:
        names = sorted(os.listdir(layout.folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(layout.folder / name, kind) for name in names if (kind := layout.kind_of(name)) is not None]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that whoever opens it, also after a crash, finds all of ``data`` or what was there before."""
    new = temporary(path)
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o666)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a loss of power, before anything is removed that it replaces."""
    with contextlib.suppress(OSError):  # some systems cannot open a folder
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def set_aside(source: Source, layout: Layout) -> Path | None:
    """Rename a damaged file, if it still is what was read; the new path, or None if it is gone or must stay."""
    aside = layout.aside(source.path)
    try:
        if source.path.read_bytes() != source.data:  # someone has mended it meanwhile
            return None
        os.rename(source.path, aside)
    except OSError:
        return None
    return aside


def remove_leftovers(layout: Layout) -> None:
    """Remove files whose writer was killed before it could rename them."""
    for path, kind in list_files(layout):
        if kind == "leftover":
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()
