"""The file formats of wisdom: merged files, and the lines of journals.

A merged file is one JSON object with one record per line, so that the rest of a damaged one can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hpfracc._files import parse_json
from hpfracc.engine.selection.wisdom.records import MAX_DEPTH, Entry, parse_entry
from hpfracc.errors import InvalidInputError

__all__ = [
    "MAX_BYTES",
    "SCHEMA",
    "Content",
    "encode_journal_head",
    "encode_lines",
    "encode_merged",
    "read_journal",
    "read_merged",
]

#: Incremented when older versions of hpfracc can no longer read the files; they then do not touch them.
SCHEMA = 1

#: Limits for reading. All stored records take about 9 MB, and a journal is merged at 4 MiB. Within these limits no file
#: takes more than two seconds, or about 300 MB, to read or reject.
MAX_BYTES = 32 << 20
_MAX_ENTRIES = 100_000
_MAX_VALUES = 32 * _MAX_ENTRIES
#: Limits for writing are lower than those for reading.
_MAX_WRITTEN = MAX_BYTES * 3 // 4


@dataclass(slots=True)
class Content:
    """The content of a file.

    Attributes
    ----------
    records : list of Entry
        The readable ones, including those of later versions.
    skipped : int
        Number of complete lines or entries that are not records.
    damage : str or None
        Why a merged file as a whole is damaged; ``records`` are then those that could be recovered.
    newer : bool
        Whether a later version of hpfracc wrote it in an unknown format; it is not touched then.
    """

    records: list[Entry] = field(default_factory=list)
    skipped: int = 0
    damage: str | None = None
    newer: bool = False
    #: Why the first invalid entry was rejected.
    complaint: str | None = None

    @property
    def fault(self) -> str | None:
        """Reason why the file should be set aside; None if it is intact."""
        if self.damage is None and self.skipped:
            return f"{self.skipped} of its entries are not records, the first because of {self.complaint}"
        return self.damage


def encode_merged(records: Iterable[Entry]) -> bytes:
    """A merged file of ``records``, oldest first; deterministic."""
    lines = [record.to_line() for record in records]
    size = sum(map(len, lines)) + 2 * len(lines)
    first = 0
    while size > _MAX_WRITTEN:  # drop the oldest
        size -= len(lines[first]) + 2
        first += 1
    body = ",\n".join(lines[first:])
    return f'{{"hpfracc":"wisdom","schema":{SCHEMA},"records":[\n{body}\n]}}\n'.encode()


def encode_journal_head() -> bytes:
    """The first line of a journal."""
    return f'{{"hpfracc":"journal","schema":{SCHEMA}}}\n'.encode()


def encode_lines(records: Iterable[Entry]) -> bytes:
    """Lines of a journal."""
    return "".join(f"{record.to_line()}\n" for record in records).encode()


def read_merged(data: bytes) -> Content:
    """Read a merged file; never raises, see :attr:`Content.damage`."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        return Content(damage="it holds too many values")
    try:
        value = parse_json(data, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        return _left_of(data, str(error))
    if not isinstance(value, dict) or value.get("hpfracc") != "wisdom":
        return _left_of(data, "it is not a wisdom file")
    schema, entries = value.get("schema"), value.get("records")
    if isinstance(schema, int) and schema > SCHEMA:
        return Content(newer=True)
    if schema != SCHEMA or not isinstance(entries, list):
        return _left_of(data, "its schema or its records are missing")
    return _read_entries(entries)


def read_journal(data: bytes) -> Content:
    """Read a journal. An incomplete last line, of a process that was killed, is ignored."""
    head, *lines = data.split(b"\n", _MAX_ENTRIES + 1)
    if _schema_of(head) > SCHEMA:
        return Content(newer=True)
    return _read_entries(lines[:-1] if len(lines) <= _MAX_ENTRIES else lines)


def _read_entries(entries: list[Any]) -> Content:
    content = Content()
    for entry in entries[:_MAX_ENTRIES]:
        _take(content, entry)
    if len(entries) > _MAX_ENTRIES:
        content.damage = f"it has more than {_MAX_ENTRIES:,} entries"
    return content


def _left_of(data: bytes, damage: str) -> Content:
    """The records of a damaged file that can be recovered: those on complete lines."""
    content = Content()
    for line in data.split(b"\n", _MAX_ENTRIES)[:_MAX_ENTRIES]:
        _take(content, line.strip().rstrip(b","))
    return Content(content.records, damage=damage)


def _take(content: Content, entry: Any) -> None:
    try:
        content.records.append(parse_entry(entry))
    except InvalidInputError as error:
        content.skipped += 1
        content.complaint = content.complaint or str(error)


def _schema_of(head: bytes) -> int:
    try:
        value = parse_json(head, MAX_DEPTH)
    except (ValueError, RecursionError):
        return SCHEMA
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if isinstance(schema, int) else SCHEMA
