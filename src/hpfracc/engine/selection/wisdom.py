"""The records of all processes that share a wisdom folder, including unwritten ones of this process."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import warnings
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hpfracc._files import read_plain, write_whole
from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection import wisdom_files, wisdom_records
from hpfracc.engine.selection.wisdom_files import FolderSnapshot, WisdomLayout, append_to_journal, continuing, warn_once
from hpfracc.engine.selection.wisdom_records import MAX_BYTES, Record, encode_lines, encode_merged, retain, unite
from hpfracc.errors import WisdomError


def _describe_records(records: Sequence[Record]) -> dict[str, Any]:
    """Counts by kind, and a row for each fingerprint, backend and operation, the most recent first."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.fingerprint, record.backend, record.operation].append(record)
    rows: list[dict[str, Any]] = [
        {
            "fingerprint": fingerprint,
            "backend": backend,
            "operation": operation,
            "arms": sorted({record.arm for record in group}),
            "records": len(group),
            "kinds": dict(Counter(record.kind for record in group)),
            "oldest": min(record.time for record in group),
            "newest": max(record.time for record in group),
        }
        for (fingerprint, backend, operation), group in sorted(groups.items())
    ]
    rows.sort(key=lambda row: -row["newest"])
    return {"records": len(records), "kinds": dict(Counter(record.kind for record in records)), "rows": rows}


def _describe_files(layout: WisdomLayout | None) -> dict[str, Any]:
    """Names, sizes and modification times of the files; ``changed`` is None if there are none."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):  # a folder that cannot be read; ``state`` says so
        for path, kind in wisdom_files.list_files(layout) if layout is not None else ():
            with contextlib.suppress(OSError):  # removed by a merge
                status = path.stat()
                found.append({"name": path.name, "kind": kind, "bytes": status.st_size, "changed": status.st_mtime})
    changed = max((file["changed"] for file in found), default=None)
    return {"files": found, "bytes": sum(file["bytes"] for file in found), "changed": changed}


_REMEDY = "export it again with `hpfracc wisdom export FILE` on the machine that measured it"


def _read_import(path: Path) -> list[Record]:
    """All records of an exported file or a wisdom folder; :class:`WisdomError` if any is damaged."""
    try:
        if os.path.isdir(path):
            files = [
                (source.path, source.content) for source in wisdom_files.read_folder(WisdomLayout.of(path)).sources
            ]
            if not files:
                raise WisdomError(f"{path} has no wisdom to import; {_REMEDY}")
        else:
            files = [(path, wisdom_records.read_merged(read_plain(path, MAX_BYTES).data))]
    except OSError as error:
        raise _failure(f"{path} cannot be imported", error, _REMEDY) from error
    for name, content in files:
        if content.newer:
            raise WisdomError(f"{name} was written by a later hpfracc; upgrade hpfracc to import it")
        if content.fault is not None:
            raise WisdomError(f"{name} cannot be imported: {content.fault}; {_REMEDY}")
    return [record for _, content in files for record in content.records]


def _failure(what: str, error: OSError, remedy: str) -> WisdomError:
    return WisdomError(f"{what} ({error.strerror or error}); {remedy}")


#: Number of records after which they are written, and maximum number in memory if that is impossible.
_GATHERED = 256
_KEPT_IN_MEMORY = 8192
#: Journal size in bytes at which a process merges: about 16,000 records.
_LONG_JOURNAL = 4 << 20
#: Number of files above which a process merges at its end. Always merging would slow down short scripts.
_SCATTERED = 12
#: Seconds until the next attempt to write to a folder that could not be written.
_RETRY = 60.0

#: Maximum number of records kept for another process between two :func:`take_shared`.
_MAX_SHARED = 256

_every: weakref.WeakSet[Wisdom] = weakref.WeakSet()
#: Records of this process that another one takes; None if none does.
_shared: deque[Record] | None = None


def share_records(on: bool) -> None:
    """Set whether records of this process are also kept for another one, which gets them by :func:`take_shared`."""
    global _shared
    if on is not shares_records():
        _shared = deque(maxlen=_MAX_SHARED) if on else None


def shares_records() -> bool:
    """Whether :func:`share_records` is on."""
    return _shared is not None


def take_shared() -> list[Record]:
    """Records that were measured in this process since the last call."""
    return [] if _shared is None else [_shared.popleft() for _ in range(len(_shared))]


class Wisdom(Guarded):
    """The wisdom in one folder. Safe to share between threads and processes, and through ``fork``.

    Parameters
    ----------
    path : Path or None
        A folder, or a ``.json`` file with the others in its folder, from :func:`resolve_path`; None stores nothing.
    read_only : bool
        Never write or rename anything, and learn nothing: for reproducible decisions. A ``.json`` file is then read
        without the others in its folder.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        super().__init__()
        self.path = path
        self.read_only = read_only
        self._layout = None if path is None else WisdomLayout.of(path)
        self._alone = read_only and path is not None and path == WisdomLayout.of(path).merged
        self._pending: list[Record] = []
        self._journal: Path | None = None
        self._retry_at: float | None = None  # set while the folder cannot be written
        _every.add(self)

    def append(self, records: Iterable[Record], *, own: bool = True) -> None:
        """Add records; they are on disk after the next :meth:`flush`. ``own``: measured in this process."""
        if self._layout is None or self.read_only:
            return
        with self._lock:
            given = list(records)
            self._pending.extend(given)
            if _shared is not None and own:
                _shared.extend(given)
        if len(self._pending) >= _GATHERED:
            with continuing(self.path, "what is learned stays in memory only"):
                self.flush()

    def flush(self) -> bool:
        """Write the added records; returns whether they are on disk and survive any end of the process.

        False means that the folder cannot be written (with a warning, once); the records stay in memory.
        """
        with self._lock:
            if self._layout is None or self.read_only or not self._pending:
                return True
            if self._is_resting():
                self._trim_memory()
                return False
            try:
                size = self._write(self._layout, encode_lines(self._pending))
            except OSError as error:
                self._give_up(error)
                return False
            self._pending = []
            self._retry_at = None
            if size > _LONG_JOURNAL:
                self.merge()
            return True

    def merge(self) -> int:
        """Merge all files into one and remove those it supersedes; returns the number of records."""
        with self._lock:
            if self._layout is None or self.read_only:
                return len(self._everything()[0])
            self.flush()
            records, snapshot = self._everything()
            if snapshot is not None and not self._is_resting():
                self._unite_files(self._layout, records, snapshot)
            return len(records)

    def tidy(self) -> None:
        """Write the added records, and merge if there are many files; called at the end of a process."""
        self.flush()
        with contextlib.suppress(OSError):  # a folder that cannot be read is not tidied
            if self._layout is not None and len(wisdom_files.list_files(self._layout)) > _SCATTERED:
                self.merge()

    def load(self) -> list[Record]:
        """All records of this version, oldest first."""
        with self._lock:
            entries, snapshot = self._everything()
            if self._layout is not None and snapshot is not None and snapshot.damaged:
                # Damaged files are set aside once their readable records are saved.
                if not self.read_only:
                    self._unite_files(self._layout, entries, snapshot)
                for source in snapshot.damaged if self.read_only else ():
                    kept = len(source.content.records)
                    self._warn("damaged", f"is damaged ({source.content.fault}); {kept} records could be read from it")
        return entries

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write all records into one file for :meth:`import_`; returns their number."""
        data, count = self.encode()
        try:
            write_whole(path, [data])
        except OSError as error:
            remedy = "name a file in a folder that exists and can be written"
            raise _failure(f"wisdom cannot be exported to {path}", error, remedy) from error
        return count

    def encode(self) -> tuple[bytes, int]:
        """The content of an exported file, and the number of its records."""
        with self._lock:
            entries, snapshot = self._everything()
        if self._layout is not None and snapshot is None:
            raise WisdomError(
                f"wisdom at {self.path} cannot be read, so it cannot be exported; let this user read the folder"
            )
        return encode_merged(entries), len(entries)

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Add the records of an exported file or a wisdom folder; returns the number of new ones."""
        imported = _read_import(Path(path))
        size = sum(len(record.to_line()) for record in imported)
        if size > MAX_BYTES // 2:
            raise WisdomError(f"{path} cannot be imported: its records have {size:,} bytes; export fewer at a time")
        with self._lock:
            if self.read_only:
                raise WisdomError(
                    f"wisdom at {self.path} is open for reading only; import {path} without deterministic="
                )
            if self._layout is None:
                return 0
            known = {record.id: record for record in self._everything()[0]}
            united = retain(unite(known.values(), imported).values())
            new = [record for record in united if record.id not in known]
            if new:
                try:
                    self._write(self._layout, encode_lines(new))
                except OSError as error:
                    what = f"{path} was not imported: wisdom at {self.path} cannot be written"
                    remedy = "set HPFRACC_WISDOM to a folder that can be written"
                    raise _failure(what, error, remedy) from error
            self.merge()
        return len(new)

    def clear(self) -> int:
        """Remove all files in this folder, including journals of other processes; returns their number.

        Running processes continue to learn, and write what they have in memory.
        """
        with self._lock:
            if self.read_only:
                raise WisdomError(f"wisdom at {self.path} is open for reading only; clear it without deterministic=")
            self._pending = []
            try:
                files = wisdom_files.list_files(self._layout) if self._layout is not None else []
                for path, _ in files:
                    path.unlink(missing_ok=True)
            except OSError as error:
                what = f"wisdom at {self.path} cannot be cleared: {error.filename}"
                raise _failure(what, error, "let this user read and change the folder, or remove it by hand") from error
            return len(files)

    def summary(self) -> dict[str, Any]:
        """Counts per fingerprint, backend and operation, the files with their sizes, and the last change.

        ``state`` is ``"off"``, ``"unreadable"``, ``"read-only"``, ``"memory only"`` (the folder cannot be written) or
        ``"kept"``.
        """
        with self._lock:
            records, snapshot = self._everything()
            state = "kept" if self._retry_at is None else "memory only"
            if self._layout is None or snapshot is None:
                state = "off" if self._layout is None else "unreadable"
            return {
                "path": None if self.path is None else str(self.path),
                "state": "read-only" if self.read_only and snapshot is not None else state,
                "unwritten": len(self._pending),
                "skipped": 0 if snapshot is None else snapshot.skipped,
                **_describe_records(records),
                **_describe_files(self._layout),
            }

    def _everything(self) -> tuple[list[Record], FolderSnapshot | None]:
        """The records on disk and in memory, trimmed, and a snapshot of the disk; None if it cannot be read."""
        if self._layout is None:
            return [], None
        try:
            snapshot = wisdom_files.read_folder(self._layout, merged_only=self._alone)
        except OSError as error:
            self._warn("unreadable", f"cannot be read ({error.strerror or error}), so nothing is known from it")
            return retain(self._pending), None
        if self._alone and not snapshot.sources:
            self._warn("missing", "does not exist, so nothing is known from it; name a file that `export` wrote")
        for source in snapshot.sources:
            if source.content.newer:
                self._warn("newer", f"has {source.path.name}, which a later hpfracc wrote: it is not used")
        return retain(unite(snapshot.records.values(), self._pending).values()), snapshot

    def _write(self, layout: WisdomLayout, lines: bytes) -> int:
        """Append to this process's journal, or to a new one if that fails; returns its size."""
        if self._journal is not None:
            with contextlib.suppress(OSError):
                return append_to_journal(self._journal, lines)
        self._journal, journal = None, layout.new_journal()
        size = append_to_journal(journal, lines)
        self._journal = journal
        return size

    def _unite_files(self, layout: WisdomLayout, records: list[Record], snapshot: FolderSnapshot) -> None:
        """Merge the files on disk, then warn about damaged ones."""
        try:
            notes = wisdom_files.merge_into_one(layout, records, snapshot)
            self._retry_at = None
        except OSError as error:
            self._give_up(error)
            return
        if notes:
            more = f"; so are {len(notes) - 1} other files there" if len(notes) > 1 else ""
            warn_once("damaged", notes[0], f"{notes[0]}{more}")

    def _is_resting(self) -> bool:
        """Whether a write failed a short while ago."""
        return self._retry_at is not None and time.monotonic() < self._retry_at

    def _give_up(self, error: OSError) -> None:
        """After a failed write, keep records in memory for a while."""
        self._retry_at = time.monotonic() + _RETRY
        self._trim_memory()
        self._warn(
            "unwritable",
            f"cannot be written ({error.strerror or error}): what is learned stays in memory only; "
            "set HPFRACC_WISDOM to a folder that can be written, or to 'off'",
        )

    def _trim_memory(self) -> None:
        if len(self._pending) > _KEPT_IN_MEMORY:
            self._pending = retain(self._pending)[-_KEPT_IN_MEMORY // 2 :]

    def _warn(self, what: str, words: str) -> None:
        warn_once(what, str(self.path), f"wisdom at {self.path} {words}")

    def _forked(self) -> None:
        """Called in a forked child. Records added before the fork are written by the parent."""
        self._journal = None
        if self._retry_at is None:
            self._pending = []


def _after_fork() -> None:
    take_shared()  # the parent hands them on
    for wisdom in list(_every):
        wisdom._forked()


@atexit.register
def _at_exit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at exit, so nothing can react to it
        for wisdom in list(_every):
            with continuing(wisdom.path, "what it held is not kept"):
                wisdom.tidy()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
