"""The records of all processes that share a wisdom folder, including unwritten ones of this process.

A folder has one *journal* per process (append-only lines of JSON), *generations* (immutable merged files, each with
a unique name), and ``wisdom.json``, a copy of the newest generation for reading and for other machines. A merged file
is one JSON object with one record per line, so that the rest of a damaged one can be read.

Concurrent merges lose nothing, and need no lock. A process removes a file only after it has read it and has written a
generation that contains it, under a name never used before. It renames a journal before it reads it; a writer that
finds its journal renamed writes the same lines again, into another one. So the content of each removed file is in a
newer one, and by induction in one that still exists. ``wisdom.json`` may be overwritten by a slower process with less;
no removal relies on it, and the next merge completes it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from hpfracc._files import OPEN_FLAGS, UnfitFileError, read_plain, write_whole
from hpfracc._interrupts import Guarded
from hpfracc.engine.selection.wisdom_records import (
    JOURNAL_HEAD,
    MAX_BYTES,
    Content,
    Record,
    encode_lines,
    encode_merged,
    read_content,
    retain,
    unite,
)
from hpfracc.errors import WisdomWarning, warn

_given: set[tuple[str, str]] = set()


def warn_once(what: str, where: str, message: str) -> None:
    """Warn about ``what`` at ``where`` once per process."""
    if (what, where) not in _given:
        _given.add((what, where))
        warn(message, WisdomWarning)


@contextlib.contextmanager
def continuing(where: object, consequence: str) -> Iterator[None]:
    """Turn any error in the block into a warning, so that the caller's computation continues.

    The files are read strictly, so no known fault gets here. But they are written by other processes, versions and
    machines, and a computation must not fail because of them.
    """
    try:
        yield
    except Warning:  # the user turned warnings into errors
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warn_once(
            "unexpected", str(where), f"wisdom at {where} could not be used ({reason}): {consequence}; please report it"
        )


def reset_warnings() -> None:
    """Allow all warnings to be given again."""
    _given.clear()


FileKind = Literal["merged", "generation", "journal", "leftover", "damaged"]

#: Name of the merged file, and of the default folder.
STEM = "wisdom"
#: Seconds after which a temporary file counts as left by a killed process, and a journal of another machine as ended.
_ABANDONED, UNTOUCHED_SECONDS = 3600.0, 86_400.0
#: Maximum number of times a folder is read, or lines are written, because a file disappeared: another process merged.
_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class WisdomLayout:
    """The names of the files in a wisdom folder.

    Attributes
    ----------
    folder : Path
        The folder.
    stem : str
        Name of the merged file without ``.json``; several stems may share a folder.
    """

    folder: Path
    stem: str = STEM

    @classmethod
    def of(cls, path: Path) -> WisdomLayout:
        """The layout for a folder or a ``.json`` file."""
        if path.suffix == ".json" and not os.path.isdir(path):  # unlike Path.is_dir, does not raise
            return cls(path.parent, path.stem)
        return cls(path)

    @property
    def merged(self) -> Path:
        """The merged file."""
        return self.folder / f"{self.stem}.json"

    @property
    def own_journals(self) -> str:
        """The beginning of the names of journals of this machine."""
        name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
        return f"{self._prefix}{re.sub(r'[^A-Za-z0-9_.]+', '_', name)[:64] or 'host'}-"

    def new_generation(self) -> Path:
        """A new, unique name for a merged file."""
        return self.folder / f"{self.stem}-{_random()}.json"

    def new_journal(self) -> Path:
        """A new, unique name for a journal."""
        return self.folder / f"{self.own_journals}{os.getpid()}-{_random()}.jsonl"

    def kind_of(self, name: str) -> FileKind | None:
        """The kind of a file, by its name; None if it is not a wisdom file."""
        merged = rf"{re.escape(self.stem)}(-[0-9a-f]{{16}})?\.json"
        journal = rf"{re.escape(self._prefix)}[^-]+-\d+-[0-9a-f]{{16}}\.jsonl"
        if found := re.fullmatch(merged, name):
            return "generation" if found[1] else "merged"
        patterns: dict[FileKind, str] = {
            "journal": journal,
            "leftover": rf"\.{merged}\.[0-9a-f]{{16}}\.tmp",
            "damaged": rf"({merged}|{journal})\.damaged-.+",
        }
        return next((kind for kind, pattern in patterns.items() if re.fullmatch(pattern, name)), None)

    @property
    def _prefix(self) -> str:
        return "journal-" if self.stem == STEM else f"{self.stem}.journal-"


def _random() -> str:
    return os.urandom(8).hex()


def append_to_journal(path: Path, lines: bytes) -> int:
    """Append complete lines to a journal, which then survive any end of the process; returns its size.

    Raises
    ------
    OSError
        If not all lines were written, or a merge has taken the journal meanwhile; then write them to another one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o666)
    try:
        size = os.fstat(fd).st_size
        data = lines if size else JOURNAL_HEAD + lines
        written = os.write(fd, data)
        if written != len(data):
            raise OSError(f"{path}: {written} of {len(data)} bytes written; is the disk full?")
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            raise FileNotFoundError(f"{path} was taken by a merge")
        return size + written
    finally:
        os.close(fd)


class Source(NamedTuple):
    """A file that was read, its bytes and its content. An unreadable one (a FIFO, or too large) has no bytes."""

    path: Path
    kind: FileKind
    data: bytes
    content: Content


def list_files(layout: WisdomLayout) -> list[tuple[Path, FileKind]]:
    """Every wisdom file in the folder, including temporary and damaged ones; none if the folder is missing."""
    try:
        names = sorted(os.listdir(layout.folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(layout.folder / name, kind) for name in names if (kind := layout.kind_of(name)) is not None]


def read_folder(layout: WisdomLayout, *, merged_only: bool = False) -> list[Source]:
    """Read the merged file, and unless ``merged_only`` generations and journals; a missing folder is empty.

    Raises
    ------
    OSError
        If the folder exists but cannot be read.
    """
    wanted = ("merged",) if merged_only else ("merged", "generation", "journal")
    contents: dict[
        tuple[bool, bytes], Content
    ] = {}  # the merged file is mostly a copy of a generation, and decoding is slow
    for _ in range(_ATTEMPTS):
        sources, complete = [], True
        for path, kind in list_files(layout):
            try:
                data = read_plain(path, MAX_BYTES) if kind in wanted else None
            except UnfitFileError as error:
                sources.append(Source(path, kind, b"", Content(fault=error.strerror)))
                continue
            except FileNotFoundError:
                complete = False
                continue
            except OSError:  # perhaps another user's; a file that is not read is not removed
                continue
            if data is not None:
                key = kind == "journal", data
                if key not in contents:
                    contents[key] = read_content(data, journal=key[0])
                sources.append(Source(path, kind, data, contents[key]))
        if complete:
            break
    return sources


def take_journals(layout: WisdomLayout) -> set[Path]:
    """Rename the journals, so that nothing is added to them any more; those of other machines once they are old."""
    taken = set()
    for path, kind in list_files(layout):
        with contextlib.suppress(OSError):  # gone, in use on a system that does not rename then, or read-only
            own = path.name.startswith(layout.own_journals)
            if kind == "journal" and (own or time.time() - path.stat().st_mtime >= UNTOUCHED_SECONDS):
                renamed = path.with_name(f"{path.name.rpartition('-')[0]}-{_random()}.jsonl")
                os.rename(path, renamed)
                taken.add(renamed)
    return taken


def merge_folder(
    layout: WisdomLayout, sources: Sequence[Source], records: Sequence[Record], taken: set[Path]
) -> list[str]:
    """Write ``records``, which include all of ``sources``, and remove those but journals that were not ``taken``.

    Returns
    -------
    list of str
        A sentence for each damaged file.

    Raises
    ------
    OSError
        If the folder cannot be written; no record is lost then.
    """
    data = encode_merged(records)
    generations = [source for source in sources if source.kind == "generation" and not source.content.newer]
    superseded = [source.data for source in generations] != [data]
    if superseded:
        write_whole(layout.new_generation(), [data])
    notes = []
    for source in sources:
        fault, where = source.content.fault, "left where it is"
        with contextlib.suppress(OSError):
            if fault is not None and (source.kind != "journal" or source.path in taken):
                aside = f"{source.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{_random()[:4]}"
                os.rename(source.path, source.path.with_name(aside))
                where = f"set aside as {aside}"
            elif (source.path in taken and not source.content.newer) or (superseded and source in generations):
                source.path.unlink()
        if fault is not None:
            kept = f"{len(source.content.records)} records could still be read from it"
            notes.append(f"{source.path} is damaged ({fault}) and was {where}; {kept}")
    if not any(source.content.newer or source.data == data for source in sources if source.kind == "merged"):
        write_whole(layout.merged, [data])
    for path, kind in list_files(layout):
        with contextlib.suppress(OSError):
            if kind == "leftover" and time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
    return notes


#: Number of records after which they are written, and maximum number in memory if that is impossible.
_GATHERED, _KEPT_IN_MEMORY = 256, 8192
#: Journal size in bytes at which a process merges: about 16,000 records.
_LONG_JOURNAL = 4 << 20
#: Number of files above which a process merges at its end. Always merging would slow down short scripts.
_SCATTERED = 12
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
        A folder, or a ``.json`` file with the others in its folder; None stores nothing.
    read_only : bool
        Never write or rename anything, and learn nothing: for reproducible decisions. A ``.json`` file is then read
        without the others in its folder.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        super().__init__()
        self.path = path
        self.read_only = read_only
        self.layout = None if path is None else WisdomLayout.of(path)
        self._alone = read_only and path is not None and path == WisdomLayout.of(path).merged
        self.pending: deque[Record] = deque(maxlen=_KEPT_IN_MEMORY)
        #: Number of records at which they are written; more after a failure.
        self._write_at = _GATHERED
        self._journal: Path | None = None
        _every.add(self)

    def append(self, records: Iterable[Record], *, own: bool = True) -> None:
        """Add records; they are on disk after the next :meth:`flush`. ``own``: measured in this process."""
        if self.layout is None or self.read_only:
            return
        with self._lock:
            given = list(records)
            self.pending.extend(given)
            if _shared is not None and own:
                _shared.extend(given)
        if len(self.pending) >= self._write_at:
            with continuing(self.path, "what is learned stays in memory only"):
                self.flush()

    def flush(self) -> bool:
        """Write the added records; returns whether they are on disk and survive any end of the process.

        False means that the folder cannot be written (with a warning, once); the records stay in memory.
        """
        with self._lock:
            if self.layout is None or self.read_only or not self.pending:
                return True
            try:
                size = self.write(encode_lines(self.pending))
            except OSError as error:
                self._give_up(error)
                return False
            self.pending.clear()
            self._write_at = _GATHERED
            if size > _LONG_JOURNAL:
                self.merge()
            return True

    def merge(self) -> int:
        """Merge all files into one and remove those it supersedes; returns the number of records."""
        with self._lock:
            if self.layout is None or self.read_only or not self.flush():
                return len(self.everything()[0])
            taken: set[Path] = set()
            with contextlib.suppress(OSError):  # said when the folder is read, next
                taken = take_journals(self.layout)
            records, sources = self.everything()
            if sources:
                self._merge_files(self.layout, sources, records, taken)
            return len(records)

    def tidy(self) -> None:
        """Write the added records, and merge if there are many files; called at the end of a process."""
        self.flush()
        with contextlib.suppress(OSError):  # a folder that cannot be read is not tidied
            if self.layout is not None and len(list_files(self.layout)) > _SCATTERED:
                self.merge()

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed; the records are in memory then."""
        return self._write_at > _GATHERED

    def load(self) -> list[Record]:
        """All records of this version, oldest first. Damaged files are set aside once their readable ones are saved."""
        with self._lock:
            records, sources = self.everything()
            damaged = [source for source in sources or () if source.content.fault is not None]
            if damaged and self.layout is not None and not self.read_only:
                taken = take_journals(self.layout)
                records, sources = self.everything()
                self._merge_files(self.layout, sources or [], records, taken)
            for source in damaged if self.read_only else ():
                kept = len(source.content.records)
                self._warn("damaged", f"is damaged ({source.content.fault}); {kept} records could be read from it")
        return records

    def everything(self) -> tuple[list[Record], list[Source] | None]:
        """The records on disk and in memory, trimmed, and the files; None if they cannot be read."""
        if self.layout is None:
            return [], None
        try:
            sources = read_folder(self.layout, merged_only=self._alone)
        except OSError as error:
            self._warn("unreadable", f"cannot be read ({error.strerror or error}), so nothing is known from it")
            return retain(self.pending), None
        if self._alone and not sources:
            self._warn("missing", "does not exist, so nothing is known from it; name a file that `export` wrote")
        for source in sources:
            if source.content.newer:
                self._warn("newer", f"has {source.path.name}, which a later hpfracc wrote: it is not used")
        return retain(unite(*(source.content.records for source in sources), self.pending).values()), sources

    def write(self, lines: bytes) -> int:
        """Append to this process's journal, or to a new one if that fails; returns its size."""
        assert self.layout is not None  # only called if there is a folder
        if self._journal is not None:
            with contextlib.suppress(OSError):
                return append_to_journal(self._journal, lines)
        self._journal, attempts = None, 1
        while True:
            journal = self.layout.new_journal()
            try:
                size = append_to_journal(journal, lines)
            except FileNotFoundError:  # another process took it before the lines were in it
                if attempts == _ATTEMPTS:
                    raise
                attempts += 1
            else:
                self._journal = journal
                return size

    def _merge_files(
        self, layout: WisdomLayout, sources: list[Source], records: list[Record], taken: set[Path]
    ) -> None:
        """Merge the files on disk, then warn about damaged ones."""
        try:
            notes = merge_folder(layout, sources, records, taken)
        except OSError as error:
            self._give_up(error)
            return
        if notes:
            more = f"; so are {len(notes) - 1} other files there" if len(notes) > 1 else ""
            warn_once("damaged", notes[0], f"{notes[0]}{more}")

    def _give_up(self, error: OSError) -> None:
        """After a failed write, keep records in memory until there are more of them."""
        self._write_at = len(self.pending) + _GATHERED
        self._warn(
            "unwritable",
            f"cannot be written ({error.strerror or error}): what is learned stays in memory only; "
            "set HPFRACC_WISDOM to a folder that can be written, or to 'off'",
        )

    def _warn(self, what: str, words: str) -> None:
        warn_once(what, str(self.path), f"wisdom at {self.path} {words}")

    def _forked(self) -> None:
        """Called in a forked child. Records added before the fork are written by the parent."""
        self._journal = None
        self.pending.clear()


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
