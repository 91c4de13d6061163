"""The files of a wisdom folder: their names and formats, journals, reading a folder, and merging its files into one.

A folder has one *journal* per process (append-only lines of JSON), *generations* (immutable merged files, each with
a unique name), and ``wisdom.json``, a copy of the newest generation for reading and for other machines. A merged file
is one JSON object with one record per line, so that the rest of a damaged one can be read.

Concurrent merges lose nothing. A process removes a generation only after it has read it and has written a newer one
that contains it, under a name never used before. It removes a journal only while no process writes to it, and if all of
it is in a generation. So each removed file is contained in a newer one, and by induction in one that still exists.
``wisdom.json`` may be overwritten by a slower process with less; no removal relies on it, and the next merge completes
it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from hpfracc._files import OPEN_FLAGS, UnfitFileError, read_plain, write_whole
from hpfracc.engine.selection.wisdom_records import (
    JOURNAL_HEAD,
    MAX_BYTES,
    Content,
    Record,
    encode_merged,
    read_journal,
    read_merged,
    unite,
)
from hpfracc.errors import ConfigurationError, WisdomWarning

if sys.platform != "win32":
    import fcntl

_given: set[tuple[str, str]] = set()


def warn_once(what: str, where: str, message: str) -> None:
    """Warn about ``what`` at ``where`` once per process."""
    if (what, where) not in _given:
        _given.add((what, where))
        warnings.warn(message, WisdomWarning, stacklevel=4)


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

_STEM = "wisdom"


def resolve_path(setting: str | None) -> Path | None:
    """The path of the setting ``wisdom`` (or ``HPFRACC_WISDOM``).

    Parameters
    ----------
    setting : str or None
        ``"off"``; a folder; a ``.json`` file, which is then the merged file, with the others in its folder; None for
        the user's cache folder.

    Returns
    -------
    Path or None
        An absolute path; None for ``"off"``, and for an account without a home folder.
    """
    if setting is None or not setting.strip():
        return _default()
    if setting.strip().lower() == "off":
        return None
    text = os.path.expanduser(setting.strip())
    if text.startswith("~"):
        raise ConfigurationError(f"wisdom={setting!r}: the home folder is unknown; write the full path")
    with contextlib.suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(text):
            return Path(text).absolute()
    raise ConfigurationError(f"wisdom={setting!r} has characters that are invalid in a path; name another folder")


def _default() -> Path | None:
    from platformdirs import user_cache_path  # takes 20 ms, and only the default needs it

    try:
        path = user_cache_path("hpfracc") / _STEM
    except RuntimeError:  # later versions signal a missing home folder in this way
        path = Path("~")
    if str(path).startswith("~"):
        words = "this account has no home folder, so what hpfracc learns is not stored; set HPFRACC_WISDOM to a folder "
        warn_once("homeless", "", f"{words}that can be written, or to 'off'")
        return None
    return path.absolute()


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
    stem: str = _STEM

    @classmethod
    def of(cls, path: Path) -> WisdomLayout:
        """The layout for a path from :func:`resolve_path`."""
        if path.suffix == ".json" and not os.path.isdir(path):  # unlike Path.is_dir, does not raise
            return cls(path.parent, path.stem)
        return cls(path)

    @property
    def merged(self) -> Path:
        """The merged file."""
        return self.folder / f"{self.stem}.json"

    def new_generation(self) -> Path:
        """A new, unique name for a merged file."""
        return self.folder / f"{self.stem}-{_random()}.json"

    def new_journal(self) -> Path:
        """A new, unique name for a journal."""
        return self.folder / f"{self._journal_prefix}{host_name()}-{os.getpid()}-{_random()}.jsonl"

    def aside(self, path: Path) -> Path:
        """The new name of a damaged file."""
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        return path.with_name(f"{path.name}.damaged-{moment}-{_random()[:4]}")

    def kind_of(self, name: str) -> FileKind | None:
        """The kind of a file, by its name; None if it is not a wisdom file."""
        stem, prefix = re.escape(self.stem), re.escape(self._journal_prefix)
        patterns: dict[FileKind, str] = {
            "merged": rf"{stem}\.json",
            "generation": rf"{stem}-[0-9a-f]{{16}}\.json",
            "journal": rf"{prefix}[^-]+-\d+-[0-9a-f]{{16}}\.jsonl",
            "leftover": rf"\.{stem}(-[0-9a-f]{{16}})?\.json\.[0-9a-f]{{16}}\.tmp",
            "damaged": rf"({stem}(-[0-9a-f]{{16}})?\.json|{prefix}[^-]+-\d+-[0-9a-f]{{16}}\.jsonl)\.damaged-.+",
        }
        return next((kind for kind, pattern in patterns.items() if re.fullmatch(pattern, name)), None)

    def is_from_here(self, journal: Path) -> bool:
        """Whether a journal was written on this machine, by its name."""
        return journal.name.startswith(f"{self._journal_prefix}{host_name()}-")

    @property
    def _journal_prefix(self) -> str:
        return "journal-" if self.stem == _STEM else f"{self.stem}.journal-"


def host_name() -> str:
    """The machine's name, as part of a file name."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:64] or "host"


def _random() -> str:
    return os.urandom(8).hex()


#: Without locks, or from another machine, a journal unchanged for this long has no writer.
UNTOUCHED_SECONDS = 86_400.0
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | OPEN_FLAGS


def append_to_journal(path: Path, lines: bytes) -> int:
    """Append complete lines to a journal, which then survive any end of the process; returns its size.

    The lock (``flock``) shows others that it is being written. A journal that was merged and removed begins anew.

    Raises
    ------
    OSError
        If not all lines were written, or the journal was removed meanwhile; then write them to another one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, _APPEND, 0o666)
    try:
        if _try_lock(fd) is False:
            raise BlockingIOError(f"{path} is being removed")
        size = os.fstat(fd).st_size
        data = lines if size else JOURNAL_HEAD + lines
        written = os.write(fd, data)
        if written != len(data):
            raise OSError(f"{path}: {written} of {len(data)} bytes written; is the disk full?")
        if os.fstat(fd).st_nlink == 0:
            raise FileNotFoundError(f"{path} was removed while in use")
        return size + written
    finally:
        os.close(fd)


def remove_journal(path: Path, size: int, layout: WisdomLayout, aside: Path | None = None) -> bool:
    """Remove a journal of ``size`` bytes that was merged, unless it grew or another process may be writing to it.

    With ``aside`` it is renamed to that name instead.
    """
    try:
        fd = os.open(path, os.O_RDWR | OPEN_FLAGS | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        locked, status = _try_lock(fd), os.fstat(fd)
        # Some file systems have no locks, or do not show those of other machines: there, age decides.
        sure = locked is True and layout.is_from_here(path)
        old = time.time() - status.st_mtime >= UNTOUCHED_SECONDS
        if locked is False or status.st_size != size or not (sure or old):
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


class Source(NamedTuple):
    """A file that was read: its bytes and content. An unreadable one (a FIFO, or too large) has no bytes."""

    path: Path
    kind: FileKind
    data: bytes
    content: Content
    status: os.stat_result


class FolderSnapshot:
    """The content of a folder at one moment: its files, and all their records by id."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.records = unite(*(source.content.records for source in sources))
        #: The files to set aside.
        self.damaged = [source for source in sources if source.content.fault is not None]
        #: Number of lines and entries that are not records.
        self.skipped = sum(source.content.skipped for source in sources)

    def of_kind(self, kind: FileKind) -> list[Source]:
        """The files of one kind that this version may change."""
        return [source for source in self.sources if source.kind == kind and not source.content.newer]


def read_folder(layout: WisdomLayout, *, merged_only: bool = False) -> FolderSnapshot:
    """Read the merged file, and unless ``merged_only`` generations and journals; a missing folder is empty.

    Raises
    ------
    OSError
        If the folder exists but cannot be read.
    """
    wanted = ("merged",) if merged_only else ("merged", "generation", "journal")
    for _ in range(_ATTEMPTS):
        sources, complete = [], True
        contents: dict[tuple[bool, bytes], Content] = {}
        for path, kind in list_files(layout):
            try:
                if kind in wanted:
                    sources.append(_read_file(path, kind, contents))
            except FileNotFoundError:
                complete = False
            except OSError:  # perhaps another user's; a file that is not read is not removed
                continue
        if complete:
            break
    return FolderSnapshot(sources)


def _read_file(path: Path, kind: FileKind, contents: dict[tuple[bool, bytes], Content]) -> Source:
    try:
        data, status = read_plain(path, MAX_BYTES)
    except UnfitFileError as error:
        return Source(path, kind, b"", Content(damage=error.strerror), os.stat(path))
    key = kind == "journal", data
    if key not in contents:  # the merged file is mostly a copy of a generation, and decoding is slow
        contents[key] = read_journal(data) if kind == "journal" else read_merged(data)
    return Source(path, kind, data, contents[key], status)


def list_files(layout: WisdomLayout) -> list[tuple[Path, FileKind]]:
    """Every wisdom file in the folder, including temporary and damaged ones; none if the folder is missing."""
    try:
        names = sorted(os.listdir(layout.folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(layout.folder / name, kind) for name in names if (kind := layout.kind_of(name)) is not None]


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


def merge_into_one(layout: WisdomLayout, records: Sequence[Record], snapshot: FolderSnapshot) -> list[str]:
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
    generations = snapshot.of_kind("generation")
    superseded = [source.data for source in generations] != [data]
    if superseded:
        write_whole(layout.new_generation(), [data])
    notes = [_put_away(source, layout) for source in snapshot.damaged]
    for source in generations if superseded else []:
        if source.content.fault is None:
            with contextlib.suppress(OSError):
                source.path.unlink()
    if not any(source.content.newer or source.data == data for source in snapshot.sources if source.kind == "merged"):
        write_whole(layout.merged, [data])
    for source in snapshot.of_kind("journal"):
        if source.content.fault is None:
            remove_journal(source.path, len(source.data), layout)
    for path, kind in list_files(layout):
        with contextlib.suppress(OSError):
            if kind == "leftover" and time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
    return notes


def _put_away(source: Source, layout: WisdomLayout) -> str:
    """Rename a damaged file, unless it changed since it was read or is a journal whose writer may still be running."""
    aside, moved = layout.aside(source.path), False
    if source.kind == "journal" and stat.S_ISREG(source.status.st_mode):
        moved = remove_journal(source.path, source.status.st_size, layout, aside)
    else:
        with contextlib.suppress(OSError):
            if _identity(os.stat(source.path)) == _identity(source.status):  # otherwise repaired in the meantime
                os.rename(source.path, aside)
                moved = True
    where = f"set aside as {aside.name}" if moved else "left where it is"
    return (
        f"{source.path} is damaged ({source.content.fault}) and was {where}; {len(source.content.records)} records "
        "could still be read from it; the others come from other files or are measured again"
    )
