"""Bounded reads and atomic writes of regular files.

Reads never block: a FIFO, a device or a file that is too large raises an error and is not opened. Writes are atomic:
readers see the old content or the new one, even after a crash.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import math
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

#: Flags for opening any file: binary, and not inherited by child processes.
OPEN_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
#: Opening must not block on a FIFO, nor take over a terminal.
_READ_FLAGS = os.O_RDONLY | OPEN_FLAGS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

#: Characters of a file's name that its temporary name repeats, so that it stays below 255 bytes.
_TEMPORARY_PREFIX = 100

_TYPES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnfitFileError(OSError):
    """A path that is not a regular file, or a file that is too large to read."""


def read_plain(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The content of a regular file of at most ``max_bytes`` bytes.

    Raises
    ------
    OSError
        If it cannot be read; :class:`UnfitFileError` if it is not a regular file or is too large.
    """
    with open_plain(path, max_bytes) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:  # the file is growing
        raise _too_large(len(data), max_bytes)
    return data


@contextlib.contextmanager
def open_plain(path: str | os.PathLike[str], max_bytes: int) -> Iterator[BinaryIO]:
    """A regular file of at most ``max_bytes`` bytes, open for reading; raises the errors of :func:`read_plain`."""
    with _valid_path(path):
        _check_readable(os.stat(path), max_bytes)  # before opening, because opening a device can have side effects
        fd = os.open(path, _READ_FLAGS)
    with os.fdopen(fd, "rb") as file:
        _check_readable(os.fstat(file.fileno()), max_bytes)
        yield file


def read_arrays(path: str | os.PathLike[str], max_bytes: int) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an ``.npz`` file without compression and pickles, which take no more memory than the file has.

    Raises the errors of :func:`read_plain`; another or a damaged file may raise any other error.
    """
    with open_plain(path, max_bytes) as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(each.compress_type or each.flag_bits & 1 for each in entries):  # its size could be anything
            raise ValueError("it is compressed or encrypted")
        if sum(each.file_size for each in entries) > os.fstat(file.fileno()).st_size:
            raise ValueError("its entries overlap")
        return {each.filename.removesuffix(".npy"): _read_entry(archive, each) for each in entries}


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    """An array of an archive, unless it claims to be larger than its entry, or holds objects."""
    with archive.open(entry) as file:
        if np.lib.format.read_magic(file) != (1, 0):  # NumPy writes others for records alone
            raise ValueError(f"{entry.filename} is no plain array")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > entry.file_size:
        raise ValueError(f"{entry.filename} does not hold {shape} values of type {dtype}")
    with archive.open(entry) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _check_readable(status: os.stat_result, max_bytes: int) -> None:
    _check_plain(status)
    if status.st_size > max_bytes:
        raise _too_large(status.st_size, max_bytes)


def _check_plain(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _TYPES.get(stat.S_IFMT(status.st_mode), "a special file")
        raise UnfitFileError(errno.EINVAL, f"it is {kind}, not a regular file")


def _too_large(size: int, max_bytes: int) -> UnfitFileError:
    return UnfitFileError(errno.EFBIG, f"it has {size:,} bytes, more than the limit of {max_bytes:,}")


def parse_json(data: bytes) -> Any:
    """Decode JSON in UTF-8 whose numbers are finite, and whose brackets do not nest without end.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    try:
        return _DECODER.decode(data.removeprefix(codecs.BOM_UTF8).decode())
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None


def to_json(value: Any) -> Any:
    """``value`` as plain JSON: numbers that are not finite become None, complex numbers and other objects text."""
    if hasattr(value, "tolist"):  # of NumPy; a long double stays one
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): to_json(each) for name, each in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large for a float")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def write_whole(path: str | os.PathLike[str], pieces: Iterable[bytes]) -> Path:
    """Write a file atomically: under a temporary name, which is then renamed.

    A symlink is followed: its target is replaced, and the link stays. The permissions of an existing file are kept.

    Raises
    ------
    OSError
        If it cannot be written, or the path is not a regular file. An existing file is then unchanged.
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
    except BaseException:  # an interrupt too leaves no temporary file behind
        with contextlib.suppress(OSError):  # it may not exist; the error of the write says more than one of its removal
            os.unlink(new)
        raise
    _sync_folder(target.parent)
    return target


def temporary(path: Path) -> Path:
    """Temporary name in the same folder as ``path``."""
    return path.with_name(f".{path.name[:_TEMPORARY_PREFIX]}.{os.urandom(8).hex()}.tmp")


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a power failure."""
    with contextlib.suppress(OSError):  # some systems cannot open a folder
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _valid_path(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the ValueError of an invalid name (a null byte, a lone surrogate) into an OSError."""
    try:
        yield
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None
