"""Wisdom as bytes: the merged file, and the journal's lines.

The merged file is one JSON object, laid out with one record a line, so that what is left of a broken one can be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hpfracc.engine.selection.records import Record, parse_line, parse_object
from hpfracc.errors import InvalidInputError

__all__ = ["SCHEMA", "Content", "encode_journal_head", "encode_lines", "encode_merged", "read_journal", "read_merged"]

#: Rises when an older hpfracc could no longer read the files; it then leaves them alone.
SCHEMA = 1


@dataclass(slots=True)
class Content:
    """What a file held.

    Attributes
    ----------
    records : list of Record
        Those that could be read.
    skipped : int
        Whole lines or entries that are no record.
    damage : str or None
        Why a merged file is broken as a whole; its records are then what was left of it.
    newer : bool
        Whether a later hpfracc wrote it in a way we cannot read: it is not ours to judge, change or remove.
    """

    records: list[Record] = field(default_factory=list)
    skipped: int = 0
    damage: str | None = None
    newer: bool = False
    #: The first entry that is no record, and why.
    complaint: str | None = None


def encode_merged(records: Iterable[Record]) -> bytes:
    """A merged file: the same bytes for the same records in the same order."""
    body = ",\n".join(record.to_line() for record in records)
    return f'{{"hpfracc":"wisdom","schema":{SCHEMA},"records":[\n{body}\n]}}\n'.encode()


def encode_journal_head() -> bytes:
    """The first line of a journal."""
    return f'{{"hpfracc":"journal","schema":{SCHEMA}}}\n'.encode()


def encode_lines(records: Iterable[Record]) -> bytes:
    """Lines of a journal."""
    return "".join(f"{record.to_line()}\n" for record in records).encode()


def read_merged(data: bytes) -> Content:
    """Read a merged file; never raises, see :attr:`Content.damage`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        return _left_of(data, str(error))
    if not isinstance(value, dict) or value.get("hpfracc") != "wisdom":
        return _left_of(data, "it is not a wisdom file")
    schema, entries = value.get("schema"), value.get("records")
    if isinstance(schema, int) and schema > SCHEMA:
        return Content(newer=True)
    if schema != SCHEMA or not isinstance(entries, list):
        return _left_of(data, "its schema or its records are missing")
    content = Content()
    for entry in entries:
        _take(content, entry)
    return content


def read_journal(data: bytes) -> Content:
    """Read a journal; a last line without its end was being written when its process ended, and is left out."""
    content = Content()
    head, *lines = data.split(b"\n")
    if _schema_of(head) > SCHEMA:
        return Content(newer=True)
    for line in lines[:-1]:
        _take(content, line)
    return content


def _left_of(data: bytes, damage: str) -> Content:
    """The records on lines of their own that are whole; others are part of the damage, not counted one by one."""
    content = Content()
    for line in data.split(b"\n"):
        _take(content, line.strip().rstrip(b","))
    return Content(content.records, damage=damage)


def _take(content: Content, entry: Any) -> None:
    try:
        content.records.append(parse_line(entry) if isinstance(entry, bytes) else parse_object(entry))
    except InvalidInputError as error:
        content.skipped += 1
        content.complaint = content.complaint or str(error)


def _schema_of(head: bytes) -> int:
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        return SCHEMA
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if isinstance(schema, int) else SCHEMA
