"""Reading and writing plain files.

Reads are bounded and never wait: a FIFO, a device or a file of gigabytes under a name of ours is refused, not opened.
Writes replace a file as a whole: whoever opens it, also after a crash, finds the old content or the new one.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

__all__ = ["OPEN_FLAGS", "PlainFile", "UnfitFileError", "parse_json", "read_plain", "temporary", "write_whole"]

#: Flags for opening any file: bytes as they are, and not passed on to programs that are started.
OPEN_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
#: Opening must not wait for a writer, nor make a terminal ours.
_READ_FLAGS = os.O_RDONLY | OPEN_FLAGS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

#: Characters of a file's name that its temporary name repeats: both must stay below 255 bytes.
_NAME_KEPT = 100

_TYPES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnfitFileError(OSError):
    """A path that leads to no plain file, or to one that is too large to read."""


class PlainFile(NamedTuple):
    """The bytes of a file, and its status when they were read."""

    data: bytes
    status: os.stat_result


def read_plain(path: str | os.PathLike[str], most: int) -> PlainFile:
    """All bytes of a plain file of at most ``most`` bytes.

    Raises
    ------
    OSError
        If it cannot be read; :class:`UnfitFileError` if it is no plain file or is larger.
    """
    with _valid_path(path):
        _check_readable(os.stat(path), most)  # opening some devices has effects of its own, so look first
        fd = os.open(path, _READ_FLAGS)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(file.fileno())
        _check_readable(status, most)
        data = file.read(most + 1)
    if len(data) > most:  # it is growing
        raise _too_large(len(data), most)
    return PlainFile(data, status)


def _check_readable(status: os.stat_result, most: int) -> None:
    _check_plain(status)
    if status.st_size > most:
        raise _too_large(status.st_size, most)


def _check_plain(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _TYPES.get(stat.S_IFMT(status.st_mode), "something else")
        raise UnfitFileError(errno.EINVAL, f"it is {kind}, not a plain file")


def _too_large(size: int, most: int) -> UnfitFileError:
    return UnfitFileError(errno.EFBIG, f"it has {size:,} bytes, more than the {most:,} that are read")


def parse_json(data: bytes, most_depth: int) -> Any:
    """The JSON value in ``data``: UTF-8, every number finite, brackets at most ``most_depth`` deep.

    Raises
    ------
    ValueError
        If it is something else. The depth is checked first: decoding takes stack for every level.
    """
    if _nesting(data, most_depth) > most_depth:
        raise ValueError(f"it is nested more than {most_depth} deep")
    return _DECODER.decode(data.removeprefix(codecs.BOM_UTF8).decode())


def _nesting(data: bytes, most: int) -> int:
    """An upper bound of the brackets of a JSON text that are open at once, exact where that matters.

    By whole-array operations alone: a loop over the characters would take longer than decoding does.
    """
    count = data.count(b"[") + data.count(b"{")
    if count <= most:
        return count
    # Without escaped quotes, every quote begins or ends a string, and two in a row may go: the rest stays in or out.
    quoted = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_ONE_KIND, _NOT_STRUCTURE).replace(b'""', b"")
    brackets = b"".join(quoted.split(b'"')[::2])
    for depth in range(most + 1):
        inner = brackets.replace(b"[]", b"")  # the innermost pairs, one level less
        if len(inner) == len(brackets):
            return depth + inner.count(b"[")
        brackets = inner
    return most + 1


_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is larger than any number")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def write_whole(path: str | os.PathLike[str], pieces: Iterable[bytes]) -> Path:
    """Write a file under a new name, then rename it.

    A symlink is followed: what it points to is replaced, and the link stays. The permissions of a file that was there
    are kept.

    Raises
    ------
    OSError
        If it cannot be written, or something that is no plain file has its name; what was there is then untouched.
    """
    with _valid_path(path):
        target = Path(os.path.realpath(path))
        try:
            before = os.stat(target)
        except FileNotFoundError:
            mode = None
        else:
            _check_plain(before)
            mode = stat.S_IMODE(before.st_mode)
    new = temporary(target)
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o666)
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                with contextlib.suppress(OSError):  # some file systems have no permissions
                    os.chmod(new, mode)
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    _sync_folder(target.parent)
    return target


def temporary(path: Path) -> Path:
    """A name beside ``path`` under which it is written before it is renamed."""
    return path.with_name(f".{path.name[:_NAME_KEPT]}.{os.urandom(8).hex()}.tmp")


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a loss of power, before anything is removed that it replaces."""
    with contextlib.suppress(OSError):  # some systems cannot open a folder
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _valid_path(path: str | os.PathLike[str]) -> Iterator[None]:
    """A name that no file system can hold (a null byte, a lone surrogate) is an OSError like any other."""
    try:
        yield
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None
