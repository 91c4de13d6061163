"""The store of a sweep: a folder from which it can be continued after any interruption.

``manifest.json`` identifies the sweep and has its parameters. ``values/BEGIN-END.npz`` has the results of the items
BEGIN to END - 1 of one task: first a JSON document with the range, the names, failures and times, then one array per
name.

Each file is written under a temporary name and renamed. A task has ended if its file is there and whole; any number of
processes may write to one store. There are only arrays and JSON: a pickle in a shared folder could run arbitrary code.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._files import parse_json, read_arrays, read_plain, temporary
from hpfracc._interrupts import run_shielded
from hpfracc.distributed.items import (
    ItemFailure,
    ParameterGrid,
    ParameterPoints,
    SweepOutcome,
    SweepParameters,
    TaskReport,
)
from hpfracc.errors import DiskFullError, StoreError, warn

logger = logging.getLogger("hpfracc.distributed")

#: Version of the layout.
FORMAT = 2
#: Largest size of a file that is read, in bytes.
_MAX_BYTES = 1 << 38
_TASK = re.compile(r"(\d{12,})-(\d{12,})\.npz")
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
#: Entries of a manifest that are used without another look at them, and their types.
_REQUIRED = {"id": str, "kind": str, "values": dict, "batch": int, "versions": dict, "uncompared": list}


@final
@dataclass(frozen=True, slots=True)
class SweepStore:
    """The folder of one sweep.

    Parameters
    ----------
    path : path
        The folder.
    manifest : mapping
        The entries that identify the sweep.
    params : SweepParameters
        Its parameters.
    """

    path: Path
    manifest: Mapping[str, Any]
    params: SweepParameters

    @property
    def batch(self) -> int:
        """Number of items per task."""
        return int(self.manifest["batch"])

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> SweepStore | None:
        """The store in a folder, or None if it is new or empty."""
        folder = Path(path)
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            found = list(folder.iterdir())
        if folder / "manifest.json" in found:
            return cls.open(folder)
        # A killed process may leave a temporary file.
        if any(each.is_symlink() or each.suffix != ".tmp" for each in found):
            raise StoreError(f"store={str(folder)!r} is not empty and not the store of a sweep; name a new folder")
        return None

    @classmethod
    def create(cls, path: str | os.PathLike[str], manifest: Mapping[str, Any], params: SweepParameters) -> SweepStore:
        """A new store, or the one that another process created in the meantime."""
        kept = {"format": FORMAT, "id": os.urandom(8).hex(), **manifest}
        kept["values"] = {name: _encode(values) for name, values in params.values.items()}
        kept["created"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with _explained(Path(path)), contextlib.suppress(FileExistsError):
            data = json.dumps(kept, indent=1).encode()
            run_shielded(lambda: _write(Path(path) / "manifest.json", data, new=True))
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SweepStore:
        """The store in a folder."""
        folder = _reading.path("store", path)
        file = folder / "manifest.json"
        try:
            manifest = parse_json(read_plain(file, min(file.stat().st_size, _MAX_BYTES)))
            found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
            if found != FORMAT:
                raise StoreError(
                    f"store {str(folder)!r} has format {_reading.shown(found)}, not {FORMAT}; use the version that "
                    "made it"
                )
            manifest = {"versions": {}, "uncompared": [], **manifest}
            for name, kind in _REQUIRED.items():
                if not isinstance(manifest[name], kind):
                    raise TypeError(f"its {name} is {_reading.shown(manifest[name])}")
            values = {name: _decode(each) for name, each in manifest["values"].items()}
            params = (ParameterGrid if manifest["kind"] == "grid" else ParameterPoints)(values)
            if params.digest() != manifest["parameters"] or not int(manifest["batch"]) > 0:
                raise ValueError("its parameters are not those that were written")
        except FileNotFoundError:
            raise StoreError(
                f"{str(folder)!r} is not the store of a sweep: it has no manifest.json; check the path"
            ) from None
        except StoreError:
            raise
        except Exception as error:  # a damaged manifest may raise anything
            raise StoreError(f"the manifest of {str(folder)!r} cannot be read ({error}); use a new store") from error
        if (folder / "values").is_symlink():
            raise StoreError(f"'values' in {str(folder)!r} is a link; results are only written to the store itself")
        return cls(folder, manifest, params)

    def require(self, manifest: Mapping[str, Any]) -> None:
        """Raise an error unless this is the store of the same sweep."""
        other = [words for name, words in _COMPARED.items() if self.manifest.get(name) != manifest.get(name)]
        if manifest["batch"] not in (None, self.batch):
            other.append(f"batch ({self.batch} in the store)")
        if other:
            raise StoreError(
                f"store={str(self.path)!r} belongs to another sweep, which differs in its {' and '.join(other)}; "
                "use another folder, or call sweep with the original arguments"
            )
        versions, before = manifest["versions"], self.manifest["versions"]
        changed = [
            f"{name} {before[name]} -> {versions.get(name)}" for name in before if before[name] != versions.get(name)
        ]
        if changed:
            warn(
                f"the sweep in {str(self.path)!r} continues with other versions ({', '.join(changed)}); the last "
                "digits of the new items may differ",
                UserWarning,
            )

    def _file(self, begin: int, end: int) -> Path:
        return self.path / "values" / f"{begin:012d}-{end:012d}.npz"

    def has(self, begin: int, end: int) -> bool:
        """Whether there are results of the task with these items."""
        return self._file(begin, end).exists()

    def write(self, begin: int, end: int, report: TaskReport) -> None:
        """Store the results of a task."""
        document = {
            "sweep": self.manifest["id"],
            "items": [begin, end],
            "names": list(report.arrays),
            "failed": [[each.index, each.error, each.worker] for each in report.failures],
            "seconds": report.seconds,
            "worker": report.worker,
        }
        # By position: names are the user's, and may be paths.
        arrays = [np.frombuffer(json.dumps(document).encode(), np.uint8), *report.arrays.values()]
        with _explained(self.path):
            (self.path / "values").mkdir(exist_ok=True)
            buffer = io.BytesIO()
            np.savez(buffer, *arrays)
            run_shielded(lambda: _write(self._file(begin, end), buffer.getvalue()))

    def outcome(self, *, keep: bool) -> SweepOutcome:
        """All that is known; with ``keep`` also the results."""
        found = SweepOutcome(0, len(self.params), keep=keep)

        def read() -> None:
            for begin, end, report in self.reports():
                if report is None:
                    found.damaged.append((begin, end))
                else:
                    found.write(report)

        run_shielded(read)
        return found

    def reports(self) -> Iterator[tuple[int, int, TaskReport | None]]:
        """Items and report of each task with a file, in the order of the items; None if the file is damaged."""
        if not (self.path / "values").is_dir():
            return
        for name in sorted(os.listdir(self.path / "values")):
            matched = _TASK.fullmatch(name)
            if matched is None:
                continue
            begin, end = map(int, matched.groups())
            if not begin < end <= len(self.params):
                continue
            try:
                report = self._read(begin, end)
            except Exception as error:  # a damaged file may raise anything
                logger.warning("items %d to %d in %s are damaged (%s)", begin, end - 1, self.path, error)
                report = None
            yield begin, end, report

    def _read(self, begin: int, end: int) -> TaskReport:
        found = read_arrays(self._file(begin, end), _MAX_BYTES)
        document = parse_json(found["arr_0"].tobytes())
        arrays = {str(name): found[f"arr_{place}"] for place, name in enumerate(document["names"], 1)}
        if document["sweep"] != self.manifest["id"]:
            raise ValueError("it belongs to another store")
        if document.get("items", [begin, end]) != [begin, end]:  # files of version 0.2.0 do not say which they have
            raise ValueError("it has other items than its name says")
        failures = [
            ItemFailure(int(index), self.params[index], str(error), str(worker))
            for index, error, worker in document["failed"]
        ]
        failed = {each.index for each in failures}
        indices = [index for index in range(begin, end) if index not in failed]
        if len(indices) + len(failed) != end - begin or (not arrays and indices):
            raise ValueError("it does not have all items")
        for name, array in arrays.items():
            if array.dtype.kind not in "biufc" or array.shape[:1] != (len(indices),):
                raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
        return TaskReport(indices, arrays, failures, float(document["seconds"]), str(document["worker"]))


def _write(path: Path, data: bytes, *, new: bool = False) -> None:
    """Write a file under a temporary name and rename it; ``new`` raises FileExistsError if there is one."""
    written = temporary(path)
    try:
        with open(written, "xb") as file:
            file.write(data)
            if new:
                file.flush()
                os.fsync(file.fileno())
        if not new:
            os.replace(written, path)
            return
        try:
            os.link(written, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.rename(written, path)
    finally:
        with contextlib.suppress(OSError):  # renamed; or the error of the write says more than this one
            os.unlink(written)


def _encode(values: np.ndarray[Any, Any]) -> str:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _decode(text: str) -> np.ndarray[Any, Any]:
    return np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Convert errors of the file system to ours, with advice."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"the disk of store={str(folder)!r} is full; make room and call sweep with the same store: existing "
                "results are kept"
            ) from error
        raise StoreError(
            f"store={str(folder)!r} cannot be written ({error}); check the folder and its permissions, or move what is "
            "in the way"
        ) from error
