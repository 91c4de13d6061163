"""What is known, in figures: for ``hpfracc wisdom show`` and ``hpfracc info``."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpfracc.engine.selection.records import Entry, Record
from hpfracc.engine.selection.wisdom.folder import list_files
from hpfracc.engine.selection.wisdom.location import FileKind, Layout

__all__ = ["describe_files", "describe_records"]


def describe_records(entries: Sequence[Entry]) -> dict[str, Any]:
    """Counts by kind, and a row for each fingerprint, backend and operation, the most recent first.

    Records of a later version are counted apart, as ``unknown``.
    """
    records = [entry for entry in entries if isinstance(entry, Record)]
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
        for (fingerprint, backend, operation), group in groups.items()
    ]
    rows.sort(key=lambda row: (-row["newest"], row["fingerprint"], row["backend"], row["operation"]))
    return {
        "records": len(records),
        "unknown": len(entries) - len(records),
        "kinds": dict(Counter(record.kind for record in records)),
        "rows": rows,
    }


def describe_files(layout: Layout | None) -> dict[str, Any]:
    """Names, sizes and times of last change of the files on disk; ``changed`` is None where there are none."""
    files: list[dict[str, Any]] = []
    found: list[tuple[Path, FileKind]] = []
    if layout is not None:
        with contextlib.suppress(OSError):  # a folder that cannot be read; ``state`` says so
            found = list_files(layout)
    for path, kind in found:
        try:
            status = path.stat()
        except OSError:  # merged away meanwhile
            continue
        files.append({"name": path.name, "kind": kind, "bytes": status.st_size, "changed": status.st_mtime})
    return {
        "files": files,
        "bytes": sum(file["bytes"] for file in files),
        "changed": max((file["changed"] for file in files), default=None),
    }
