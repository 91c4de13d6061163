"""Stored measurements as users see them: a summary, exports and imports of files, and clearing."""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpfracc._files import read_plain, write_whole
from hpfracc.engine.selection.wisdom import Source, Wisdom, WisdomLayout, list_files, read_folder
from hpfracc.engine.selection.wisdom_records import (
    MAX_BYTES,
    Record,
    encode_lines,
    encode_merged,
    read_content,
    retain,
    unite,
)
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
        for path, kind in list_files(layout) if layout is not None else ():
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
            sources = read_folder(WisdomLayout.of(path))
        else:
            sources = [Source(path, "merged", b"", read_content(read_plain(path, MAX_BYTES), journal=False))]
    except OSError as error:
        raise _failure(f"{path} cannot be imported", error, _REMEDY) from error
    if not sources:
        raise WisdomError(f"{path} has no wisdom to import; {_REMEDY}")
    for source in sources:
        if source.content.newer:
            raise WisdomError(f"{source.path} was written by a later hpfracc; upgrade hpfracc to import it")
        if source.content.fault is not None:
            raise WisdomError(f"{source.path} cannot be imported: {source.content.fault}; {_REMEDY}")
    return [record for source in sources for record in source.content.records]


def _failure(what: str, error: OSError, remedy: str) -> WisdomError:
    return WisdomError(f"{what} ({error.strerror or error}); {remedy}")


def export_wisdom(wisdom: Wisdom, path: str | os.PathLike[str]) -> int:
    """Write all records into one file for :func:`import_wisdom`; returns their number."""
    data, count = encode_wisdom(wisdom)
    try:
        write_whole(path, [data])
    except OSError as error:
        remedy = "name a file in a folder that exists and can be written"
        raise _failure(f"wisdom cannot be exported to {path}", error, remedy) from error
    return count


def encode_wisdom(wisdom: Wisdom) -> tuple[bytes, int]:
    """The content of an exported file, and the number of its records."""
    with wisdom._lock:
        records, sources = wisdom.everything()
    if wisdom.layout is not None and sources is None:
        raise WisdomError(
            f"wisdom at {wisdom.path} cannot be read, so it cannot be exported; let this user read the folder"
        )
    return encode_merged(records), len(records)


def import_wisdom(wisdom: Wisdom, path: str | os.PathLike[str]) -> int:
    """Add the records of an exported file or a wisdom folder; returns the number of new ones."""
    imported = _read_import(Path(path))
    size = sum(len(record.to_line()) for record in imported)
    if size > MAX_BYTES // 2:
        raise WisdomError(f"{path} cannot be imported: its records have {size:,} bytes; export fewer at a time")
    with wisdom._lock:
        if wisdom.read_only:
            raise WisdomError(f"wisdom at {wisdom.path} is open for reading only; import {path} without deterministic=")
        if wisdom.layout is None:
            return 0
        known = {record.id: record for record in wisdom.everything()[0]}
        new = [record for record in retain(unite(known.values(), imported).values()) if record.id not in known]
        try:
            if new:
                wisdom.write(encode_lines(new))
        except OSError as error:
            what = f"{path} was not imported: wisdom at {wisdom.path} cannot be written"
            raise _failure(what, error, "set HPFRACC_WISDOM to a folder that can be written") from error
        wisdom.merge()
    return len(new)


def clear_wisdom(wisdom: Wisdom) -> int:
    """Remove all files in this folder, including journals of other processes; returns their number.

    Running processes continue to learn, and write what they have in memory.
    """
    with wisdom._lock:
        if wisdom.read_only:
            raise WisdomError(f"wisdom at {wisdom.path} is open for reading only; clear it without deterministic=")
        wisdom.pending.clear()
        try:
            files = list_files(wisdom.layout) if wisdom.layout is not None else []
            for path, _ in files:
                path.unlink(missing_ok=True)
        except OSError as error:
            what = f"wisdom at {wisdom.path} cannot be cleared: {error.filename}"
            raise _failure(what, error, "let this user read and change the folder, or remove it by hand") from error
        return len(files)


def summarize(wisdom: Wisdom) -> dict[str, Any]:
    """Counts per fingerprint, backend and operation, the files with their sizes, and the last change.

    ``state`` is ``"off"``, ``"unreadable"``, ``"read-only"``, ``"memory only"`` (the folder cannot be written) or
    ``"kept"``.
    """
    with wisdom._lock:
        records, sources = wisdom.everything()
        state = "memory only" if wisdom.is_failing else "read-only" if wisdom.read_only else "kept"
        if wisdom.layout is None or sources is None:
            state = "off" if wisdom.layout is None else "unreadable"
        return {
            "path": None if wisdom.path is None else str(wisdom.path),
            "state": state,
            "unwritten": len(wisdom.pending),
            "skipped": sum(source.content.skipped for source in sources or ()),
            **_describe_records(records),
            **_describe_files(wisdom.layout),
        }
