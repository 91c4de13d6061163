"""The store of a sweep: a folder from which it can be continued after any interruption.

``manifest.json`` identifies the sweep; ``parameters.npz`` has the values; ``values/`` has the results, one chunk per
task, as zarr arrays or ``.npz`` files; ``journal/`` has a line of JSON for each task whose data are complete, in one
file per writer. There are only arrays and JSON: a pickle in a shared folder could run arbitrary code.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import time
import warnings
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from hpfracc._files import parse_json, read_plain, temporary, write_whole
from hpfracc._optional import import_optional, is_installed
from hpfracc.distributed.outputs import require_like
from hpfracc.distributed.parameters import SweepParameters, load_parameters
from hpfracc.distributed.tasks import ItemFailure, TaskReport
from hpfracc.errors import DiskFullError, StoreError, UnsupportedDtypeError

__all__ = ["PROBLEM_FILE", "SweepStore", "plain"]

#: The problem file of the command line, with which a sweep is resumed.
PROBLEM_FILE = "problem.toml"
#: Version of the layout.
FORMAT = 1
_MAX_MANIFEST = 1 << 24
_MAX_JOURNAL = 1 << 32
#: Entries that must agree when a sweep is continued, and their names in errors.
_COMPARED = {
    "function": "function",
    "parameters": "parameters",
    "seed": "seed",
    "output": "output",
    "settings": "settings",
    "stacked": "kind of the function (stacked or not)",
    "backend": "backend",
}


@final
class SweepStore:
    """The folder of one sweep.

    Parameters
    ----------
    path : path
        The folder.
    manifest : mapping
        The entries that identify the sweep.
    """

    def __init__(self, path: str | os.PathLike[str], manifest: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.manifest = dict(manifest)
        self._journal: Any = None
        self._arrays: _Arrays | None = None
        self._like: dict[str, np.ndarray[Any, Any]] | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], manifest: Mapping[str, Any], params: SweepParameters) -> SweepStore:
        """A new store, or the existing one if it belongs to the same sweep."""
        folder = Path(path)
        if (folder / "manifest.json").exists():
            found = cls.open(folder)
            found._require(manifest)
            return found
        with _explained(folder):
            # The command line puts its problem file there first.
            if folder.exists() and any(each.name != PROBLEM_FILE for each in folder.iterdir()):
                raise StoreError(f"store={str(folder)!r} is not empty and not the store of a sweep; name a new folder")
            (folder / "journal").mkdir(parents=True, exist_ok=True)
            new = temporary(folder / "parameters.npz")
            with open(new, "wb") as file:
                np.savez(file, **params.values)  # type: ignore[arg-type]
            os.replace(new, folder / "parameters.npz")
            kept = {"format": FORMAT, "arrays": "zarr" if is_installed("zarr") else "npz", **manifest}
            kept["created"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            write_whole(folder / "manifest.json", [json.dumps(kept, indent=1).encode()])
        return cls(folder, kept)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SweepStore:
        """The store in a folder."""
        folder = Path(path)
        try:
            manifest = parse_json(read_plain(folder / "manifest.json", _MAX_MANIFEST).data, 20)
        except FileNotFoundError:
            raise StoreError(
                f"{str(folder)!r} is not the store of a sweep: it has no manifest.json; check the path"
            ) from None
        except (OSError, ValueError) as error:
            raise StoreError(f"the manifest of {str(folder)!r} cannot be read ({error}); use a new store") from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
            raise StoreError(f"store {str(folder)!r} has format {found!r}, not {FORMAT}; use the version that made it")
        return cls(folder, manifest)

    def _require(self, manifest: Mapping[str, Any]) -> None:
        """Raise an error unless this is the store of the same sweep."""
        other = [words for name, words in _COMPARED.items() if self.manifest.get(name) != manifest.get(name)]
        if manifest.get("batch") is not None and manifest["batch"] != self.manifest.get("batch"):
            other.append(f"batch ({self.manifest.get('batch')} in the store)")
        if other:
            raise StoreError(
                f"store={str(self.path)!r} belongs to another sweep: its {' and '.join(other)} differ; use another "
                "folder, or call sweep with the original arguments"
            )
        versions, before = manifest.get("versions", {}), self.manifest.get("versions", {})
        changed = [
            f"{name} {before[name]} -> {versions.get(name)}" for name in before if before[name] != versions.get(name)
        ]
        if changed:
            warnings.warn(
                f"the sweep in {str(self.path)!r} continues with other versions ({', '.join(changed)}); the last "
                "digits of the new items may differ",
                UserWarning,
                stacklevel=4,
            )

    def parameters(self) -> SweepParameters:
        """The parameters of the sweep."""
        try:
            with np.load(self.path / "parameters.npz", allow_pickle=False) as found:
                values = {name: found[name] for name in found.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise StoreError(
                f"parameters.npz of {str(self.path)!r} cannot be read ({error}); use a new store"
            ) from error
        return load_parameters(str(self.manifest["kind"]), values)

    # Writing.

    def write(self, task: int, begin: int, end: int, report: TaskReport) -> None:
        """Store the results of a task, then the journal line for it."""
        with _explained(self.path):
            if report.indices:
                self._write_arrays(task, begin, end, report)
            self._append(
                {
                    "task": task,
                    "begin": begin,
                    "end": end,
                    "crc": {name: _checksum(array) for name, array in report.arrays.items()},
                    "failed": [_plain_failure(each) for each in report.failures],
                    "seconds": report.seconds,
                    "worker": report.worker,
                }
            )

    def _write_arrays(self, task: int, begin: int, end: int, report: TaskReport) -> None:
        rows = {name: array[0] for name, array in report.arrays.items()}
        if self._like is None:
            self._like = self._schema() or rows
        require_like(0, self._like, report.indices[0], rows)
        whole = {}
        for name, array in report.arrays.items():
            dtype = self._like[name].dtype
            if not np.can_cast(array.dtype, dtype):
                raise UnsupportedDtypeError(
                    f"item {report.indices[0]} returned {name} as {array.dtype}, and earlier items {dtype}; return "
                    "one dtype for all items"
                )
            filled = np.zeros((end - begin, *array.shape[1:]), dtype)
            if dtype.kind in "fc":
                filled[...] = np.nan
            filled[[index - begin for index in report.indices]] = array
            whole[name] = filled
        # Checksums refer to the stored arrays.
        report.arrays = {name: array[[index - begin for index in report.indices]] for name, array in whole.items()}
        self._opened(whole).write(task, begin, end, whole)

    def _schema(self) -> dict[str, np.ndarray[Any, Any]] | None:
        path = self.path / "schema.json"
        if not path.exists():
            return None
        found = parse_json(read_plain(path, _MAX_MANIFEST).data, 10)
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in found.items()}

    def _opened(self, whole: Mapping[str, np.ndarray[Any, Any]] | None = None) -> _Arrays:
        if self._arrays is None:
            kind = _Zarr if self.manifest["arrays"] == "zarr" else _Files
            self._arrays = kind(self.path / "values", int(self.manifest["count"]), int(self.manifest["batch"] or 1))
        if whole is not None and not (self.path / "schema.json").exists():
            schema = {name: (list(array.shape[1:]), array.dtype.str) for name, array in whole.items()}
            self._arrays.create({name: (array.shape[1:], array.dtype) for name, array in whole.items()})
            write_whole(self.path / "schema.json", [json.dumps(schema).encode()])
        return self._arrays

    def pin_batch(self, batch: int) -> None:
        """Record the number of items per task, once it is known."""
        if self.manifest.get("batch") != batch:
            self.manifest["batch"] = batch
            with _explained(self.path):
                write_whole(self.path / "manifest.json", [json.dumps(self.manifest, indent=1).encode()])

    def _append(self, row: Mapping[str, Any]) -> None:
        if self._journal is None:
            name = f"{platform.node() or 'host'}-{os.getpid()}-{os.urandom(4).hex()}.jsonl"
            self._journal = open(self.path / "journal" / name, "ab")  # noqa: SIM115  # closed by close()
        self._journal.write(json.dumps(plain(row)).encode() + b"\n")
        self._journal.flush()

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._journal.fileno())
            with contextlib.suppress(OSError):
                self._journal.close()
            self._journal = None

    # Reading.

    def rows(self) -> dict[int, dict[str, Any]]:
        """The newest line of each task. A line truncated by a crash is skipped."""
        found: dict[int, dict[str, Any]] = {}
        for path in sorted((self.path / "journal").glob("*.jsonl"), key=lambda each: each.stat().st_mtime):
            for line in read_plain(path, _MAX_JOURNAL).data.split(b"\n"):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    row = parse_json(line, 20)
                    found[int(row["task"])] = row
        return found

    def failures(self) -> list[ItemFailure]:
        """The failed items."""
        found = [
            ItemFailure(int(each["index"]), each["parameters"], str(each["error"]), str(each["worker"]))
            for row in self.rows().values()
            for each in row["failed"]
        ]
        return sorted(found, key=lambda each: each.index)

    def read(self) -> dict[str, np.ndarray[Any, Any]]:
        """All results by name, nan (or 0 for integers) where items are missing."""
        schema = self._schema()
        if schema is None:
            return {}
        count = int(self.manifest["count"])
        whole = {}
        for name, like in schema.items():
            whole[name] = np.zeros((count, *like.shape), like.dtype)
            if like.dtype.kind in "fc":
                whole[name][...] = np.nan
        for row in self.rows().values():
            begin, end = int(row["begin"]), int(row["end"])
            for name, array in self._read_task(row).items():
                whole[name][begin:end] = array
        return whole

    def _read_task(self, row: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        begin, end, crc = int(row["begin"]), int(row["end"]), row["crc"]
        failed = {int(each["index"]) for each in row["failed"]}
        good = [index - begin for index in range(begin, end) if index not in failed]
        if not good:
            return {}
        try:
            found = self._opened().read(int(row["task"]), begin, end, list(crc))
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise self._damaged(row, str(error)) from error
        for name, array in found.items():
            if _checksum(array[good]) != crc[name]:
                raise self._damaged(row, f"the checksum of {name} differs")
        return found

    def _damaged(self, row: Mapping[str, Any], why: str) -> StoreError:
        return StoreError(
            f"items {row['begin']} to {row['end'] - 1} in {str(self.path)!r} are damaged ({why}); call sweep with "
            "this store to recompute them"
        )

    def intact(self) -> dict[int, dict[str, Any]]:
        """Lines of the tasks whose data can be read and match the checksum of the line."""
        found = {}
        for task, row in self.rows().items():
            with contextlib.suppress(StoreError):
                self._read_task(row)
                found[task] = row
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "manifest": self.manifest}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["path"], state["manifest"])


class _Arrays(ABC):
    """Arrays of ``count`` items, in chunks of ``batch``."""

    def __init__(self, folder: Path, count: int, batch: int) -> None:
        self.folder, self.count, self.batch = folder, count, batch

    @abstractmethod
    def create(self, schema: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
        """Create the arrays, from shape and dtype of an item."""

    @abstractmethod
    def write(self, task: int, begin: int, end: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write one chunk of each array."""

    @abstractmethod
    def read(self, task: int, begin: int, end: int, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        """Read one chunk of each array."""


@final
class _Zarr(_Arrays):
    """One zarr array per name. A task writes whole chunks of its own: two tasks in one chunk would lose data."""

    def __init__(self, folder: Path, count: int, batch: int) -> None:
        super().__init__(folder, count, batch)
        self._known: dict[str, Any] = {}

    def _array(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = import_optional("zarr").open_array(str(self.folder / name), mode="r+")
        return self._known[name]

    def create(self, schema: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
        zarr = import_optional("zarr")
        for name, (shape, dtype) in schema.items():
            zarr.create_array(
                str(self.folder / name),
                shape=(self.count, *shape),
                chunks=(self.batch, *(max(1, length) for length in shape)),
                dtype=dtype,
                fill_value=math.nan if np.dtype(dtype).kind in "fc" else 0,
                overwrite=True,
            )

    def write(self, task: int, begin: int, end: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for name, array in arrays.items():
            self._array(name)[begin:end] = array

    def read(self, task: int, begin: int, end: int, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        return {name: np.asarray(self._array(name)[begin:end]) for name in names}


@final
class _Files(_Arrays):
    """One ``.npz`` file per task, if zarr is not installed."""

    def create(self, schema: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, task: int, begin: int, end: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        target = self.folder / f"{task:09d}.npz"
        new = temporary(target)
        with open(new, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(new, target)

    def read(self, task: int, begin: int, end: int, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        with np.load(self.folder / f"{task:09d}.npz", allow_pickle=False) as found:
            return {name: found[name] for name in names}


def _checksum(array: np.ndarray[Any, Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _plain_failure(failure: ItemFailure) -> dict[str, Any]:
    return {
        "index": failure.index,
        "parameters": plain(dict(failure.parameters)),
        "error": failure.error,
        "worker": failure.worker,
    }


def plain(value: Any) -> Any:
    """``value`` as plain JSON; complex numbers and other objects as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Convert errors of the file system to ours, with advice."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskFullError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"the disk of store={str(folder)!r} is full; make room and call sweep with the same store: existing "
                "results are kept"
            ) from error
        raise StoreError(
            f"store={str(folder)!r} cannot be written ({error.strerror or error}); check the folder and its permissions"
        ) from error
