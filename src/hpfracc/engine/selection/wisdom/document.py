"""Wisdom as bytes: the merged file, and the journal's lines.

The merged file is one JSON object, laid out with one record a line, so that what is left of a broken one can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hpfracc._files import parse_json
from hpfracc.engine.selection.wisdom.records import MOST_DEPTH, Entry, parse_entry
from hpfracc.errors import InvalidInputError

__all__ = [
    "MOST_BYTES",
    "SCHEMA",
    "Content",
    "encode_journal_head",
    "encode_lines",
    "encode_merged",
    "read_journal",
    "read_merged",
]

#: Rises when an older hpfracc could no longer read the files; it then leaves them alone.
SCHEMA = 1

#: Bounds of what is read: all that is kept (``retention``) takes some 9 MB, and a journal is merged at 4 MiB. Within
#: them no file takes more than a second or two, or some 300 MB, to read and refuse.
MOST_BYTES = 32 << 20
_MOST_ENTRIES = 100_000
_MOST_VALUES = 32 * _MOST_ENTRIES
#: Less is written than would be read.
_MOST_WRITTEN = MOST_BYTES * 3 // 4


@dataclass(slots=True)
class Content:
    """What a file held.

    Attributes
    ----------
    records : list of Entry
        Those that could be read, a later version's too.
    skipped : int
        Whole lines or entries that are no record.
    damage : str or None
        Why a merged file is broken as a whole; its records are then what was left of it.
    newer : bool
        Whether a later hpfracc wrote it in a way we cannot read: it is not ours to judge, change or remove.
    """

    records: list[Entry] = field(default_factory=list)
    skipped: int = 0
    damage: str | None = None
    newer: bool = False
    #: The first entry that is no record, and why.
    complaint: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the file is to be set aside; None for one in order."""
        if self.damage is None and self.skipped:
            return f"{self.skipped} of its entries are no records, the first because of {self.complaint}"
        return self.damage


def encode_merged(records: Iterable[Entry]) -> bytes:
    """A merged file: the same bytes for the same records, from the oldest to the newest, in the same order."""
    lines = [record.to_line() for record in records]
    size = sum(map(len, lines)) + 2 * len(lines)
    first = 0
    while size > _MOST_WRITTEN:  # the oldest go
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
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MOST_VALUES:
        return Content(damage="it holds too many values")
    try:
        value = parse_json(data, MOST_DEPTH)
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
    """Read a journal; a last line without its end was being written when its process ended, and is left out."""
    head, *lines = data.split(b"\n", _MOST_ENTRIES + 1)
    if _schema_of(head) > SCHEMA:
        return Content(newer=True)
    return _read_entries(lines[:-1] if len(lines) <= _MOST_ENTRIES else lines)


def _read_entries(entries: list[Any]) -> Content:
    content = Content()
    for entry in entries[:_MOST_ENTRIES]:
        _take(content, entry)
    if len(entries) > _MOST_ENTRIES:
        content.damage = f"it holds more than the {_MOST_ENTRIES:,} entries that are read"
    return content


def _left_of(data: bytes, damage: str) -> Content:
    """The records on lines of their own that are whole; others are part of the damage, not counted one by one."""
    content = Content()
    for line in data.split(b"\n", _MOST_ENTRIES)[:_MOST_ENTRIES]:
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
        value = parse_json(head, MOST_DEPTH)
    except (ValueError, RecursionError):
        return SCHEMA
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if isinstance(schema, int) else SCHEMA
