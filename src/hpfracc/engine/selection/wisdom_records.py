"""Records of measurements: which of them are retained, and the formats of the files that hold them.

Uniting and trimming commute: ``retain(retain(a) + b) == retain(a + b)``. So the order of merges does not matter.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, get_args

from hpfracc import _reading
from hpfracc._files import parse_json
from hpfracc.engine.workload import Bucket
from hpfracc.errors import InvalidInputError

#: What was measured: a calibrated knot, a run time, a compile time, a copy, or the power of an arm.
Kind = Literal["knot", "sample", "compile", "transfer", "power"]
KINDS: tuple[str, ...] = get_args(Kind)

#: Limits of a valid measurement. They allow any real one, and prevent overflow of sums, logarithms, dates and tables:
#: three years, far more work than a machine does in that time, the year 5138, and the length of a name.
MAX_SECONDS, MAX_WORK, MAX_TIME = 1e8, 1e36, 1e11
MAX_CHARACTERS = 256
#: Limits of a line: its bytes, and its nesting depth. A record has at most half of the bytes and a depth of 2.
MAX_LINE_BYTES = 1 << 16
MAX_DEPTH = 32

#: What each kind requires beside the fields of all.
_NEEDS: dict[str, tuple[str, ...]] = {
    "knot": ("x",),
    "sample": ("x", "bucket"),
    "power": ("x",),
    "transfer": ("nbytes", "route"),
}


def new_id() -> str:
    """A globally unique id."""
    return os.urandom(12).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measurement.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    operation, arm : str
        Name of the operation and of the arm; empty for a transfer.
    fingerprint : str
        The arm's fingerprint, from ``engine.hardware``.
    start : str
        Where the operands were.
    dtype : str
        Dtype of the computation.
    bucket : tuple of two int, optional
        Its size bucket; required for samples.
    x : float, optional
        The amount of work; for power, watts. Required for knots, samples and power.
    seconds : float
        Measured seconds.
    nbytes : int, optional
        Bytes copied. Required for transfers.
    route : str, optional
        Route of a transfer, such as ``"host->cuda:0"``.
    time : float
        Seconds since 1970; now by default.
    id : str
        Unique id, which makes merging idempotent; a new one by default.
    """

    kind: Kind
    operation: str
    arm: str
    fingerprint: str
    start: str
    dtype: str
    seconds: float
    bucket: Bucket | None = None
    x: float | None = None
    nbytes: int | None = None
    route: str | None = None
    time: float = field(default_factory=time.time)
    id: str = field(default_factory=new_id)

    def __post_init__(self) -> None:
        _reading.choice("kind", self.kind, KINDS)
        needed = _NEEDS.get(self.kind, ())
        for name, read in _READERS.items():
            value = getattr(self, name)
            if value is not None or name in _REQUIRED or name in needed:
                found = read(name, value)
                if found is not value:
                    object.__setattr__(self, name, found)

    @property
    def age_order(self) -> tuple[float, str]:
        """The sort key, oldest first; the same on every machine."""
        return self.time, self.id

    @property
    def backend(self) -> str:
        """The backend of the arm."""
        return self.arm.partition(":")[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without fields that are None."""
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}

    def to_line(self) -> str:
        """One line of JSON, without the line end."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


_NAMES = tuple(f.name for f in fields(Record))
_REQUIRED = frozenset(_NAMES) - {"bucket", "x", "nbytes", "route"}


def _text(name: str, value: Any) -> str:
    wrong = not isinstance(value, str) or len(value) > MAX_CHARACTERS or not value.isprintable()
    if wrong or (name in ("id", "fingerprint") and not value):
        shown = _reading.shown(value)
        raise InvalidInputError(f"{name}={shown} of a record; use a printable text of at most {MAX_CHARACTERS}")
    return str(value)


def _pair(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidInputError(f"{name}={_reading.shown(value)} of a record; use two whole numbers")
    return tuple(_count(name, each) for each in value)


_count = partial(_reading.whole, least=0, most=2**63 - 1)
#: How each field is read.
_READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("id", "operation", "arm", "fingerprint", "start", "dtype", "route"), _text),
    "seconds": partial(_reading.number, least=0.0, most=MAX_SECONDS),
    "time": partial(_reading.number, least=0.0, most=MAX_TIME),
    "x": partial(_reading.number, least=0.0, most=MAX_WORK),
    "bucket": _pair,
    "nbytes": _count,
}


def parse_record(entry: Any) -> Record:
    """The record in a line of JSON (text or bytes), or in a decoded object.

    Raises
    ------
    InvalidInputError
        If it is anything else.
    """
    if isinstance(entry, str | bytes):
        data = entry.encode(errors="surrogatepass") if isinstance(entry, str) else entry
        if len(data) > MAX_LINE_BYTES:
            raise InvalidInputError(f"a line of {len(data):,} bytes is not a record; use at most {MAX_LINE_BYTES:,}")
        try:
            entry = parse_json(data)
        except ValueError as error:  # UnicodeDecodeError is one
            raise InvalidInputError(f"not a line of JSON ({error}); omit the line") from None
    if not isinstance(entry, dict) or not (_REQUIRED <= entry.keys() <= frozenset(_NAMES)):
        raise InvalidInputError(f"{_reading.shown(entry)} is not a record, or lacks a field; measure again")
    return Record(**entry)


#: Number of newest records kept of each group (see :func:`retain`): those that the cost model uses, and a few others.
PER_GROUP: dict[Kind, int] = {"sample": 32, "knot": 4, "compile": 8, "transfer": 8, "power": 4}

#: Number of newest records kept in total; samples are counted separately, so that they cannot displace a calibration.
#: Reading them takes about 0.3 s.
MAX_SAMPLES = 20_000
MAX_OTHERS = 10_000


def unite(*collections: Iterable[Record]) -> dict[str, Record]:
    """All records by id. Two with one id (only by tampering) are resolved in the same way in any order."""
    united: dict[str, Record] = {}
    for record in itertools.chain(*collections):
        known = united.setdefault(record.id, record)
        if known is not record and known != record:
            united[record.id] = max(known, record, key=lambda each: (each.time, each.to_line()))
    return united


def retain(records: Iterable[Record]) -> list[Record]:
    """The records to retain, oldest first."""
    groups: Counter[Any] = Counter()
    kept = {True: 0, False: 0}
    found: list[Record] = []
    for record in sorted(records, key=lambda record: record.age_order, reverse=True):
        group = (
            *(record.kind, record.fingerprint, record.operation, record.arm, record.start, record.dtype, record.bucket),
            *(record.x if record.kind == "knot" else None, record.route, (record.nbytes or 0).bit_length()),
        )
        is_sample = record.kind == "sample"
        groups[group] += 1
        if groups[group] <= PER_GROUP[record.kind] and kept[is_sample] < (MAX_SAMPLES if is_sample else MAX_OTHERS):
            kept[is_sample] += 1
            found.append(record)
    return found[::-1]


#: Incremented when a kind or a field of records is added: older versions then do not touch the files.
SCHEMA = 1
#: The first line of a journal, and the first and last of a merged file, which is one JSON object.
JOURNAL_HEAD = f'{{"hpfracc":"journal","schema":{SCHEMA}}}\n'.encode()
_MERGED_HEAD, _MERGED_END = f'{{"hpfracc":"wisdom","schema":{SCHEMA},"records":[\n'.encode(), b"\n]}\n"

#: Limits of a file: its bytes and its lines. All stored records take about 9 MB, and a journal is merged at 4 MiB.
MAX_BYTES = 32 << 20
_MAX_ENTRIES = 100_000
#: The limit for writing is lower than that for reading.
_MAX_WRITTEN = MAX_BYTES * 3 // 4


@dataclass(slots=True)
class Content:
    """The content of a file.

    Attributes
    ----------
    records : list of Record
        The readable ones.
    fault : str or None
        Why the file should be set aside; None if it is intact.
    skipped : int
        Number of complete lines that are not records.
    newer : bool
        Whether a later version of hpfracc wrote it in an unknown format; it is not touched then.
    """

    records: list[Record] = field(default_factory=list)
    fault: str | None = None
    skipped: int = 0
    newer: bool = False


def encode_merged(records: Iterable[Record]) -> bytes:
    """A merged file of ``records``, oldest first; deterministic."""
    lines = [record.to_line() for record in records]
    size = sum(map(len, lines)) + 2 * len(lines)
    first = 0
    while size > _MAX_WRITTEN:  # drop the oldest
        size -= len(lines[first]) + 2
        first += 1
    return _MERGED_HEAD + ",\n".join(lines[first:]).encode() + _MERGED_END


def encode_lines(records: Iterable[Record]) -> bytes:
    """Lines of a journal."""
    return "".join(f"{record.to_line()}\n" for record in records).encode()


def read_content(data: bytes, *, journal: bool) -> Content:
    """Read a journal or a merged file line by line; never raises, see :attr:`Content.fault`.

    An incomplete last line of a journal, of a process that was killed, is ignored.
    """
    content, first = Content(), ""
    head, *lines = data.split(b"\n", _MAX_ENTRIES + 3)
    try:
        value = parse_json(head + b"]}" if head.endswith(b"[") else head)
    except (ValueError, RecursionError):
        value = None
    schema = value.get("schema") if isinstance(value, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        return Content(newer=True)
    lines = lines[:-1] if journal else [line.removesuffix(b",") for line in lines if line not in (b"", b"]}")]
    if len(lines) > _MAX_ENTRIES:
        content.fault = f"it has more than {_MAX_ENTRIES:,} entries"
    elif not (journal or data.startswith(_MERGED_HEAD)):
        content.fault = "it is not a wisdom file, or its first line is damaged"
    elif not (journal or data.rstrip().endswith(_MERGED_END.strip())):
        content.fault = "its end is missing"
    for line in lines[:_MAX_ENTRIES]:
        try:
            content.records.append(parse_record(line))
        except InvalidInputError as error:
            content.skipped += 1
            first = first or str(error)
    if content.fault is not None:
        content.skipped = 0  # the file is damaged as a whole
    elif content.skipped:
        content.fault = f"{content.skipped} of its entries are not records, the first because of {first}"
    return content
