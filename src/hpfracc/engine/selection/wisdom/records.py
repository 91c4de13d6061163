"""Records of measurements: their format, and which of them are retained.

Uniting and trimming commute: ``retain(retain(a) + b) == retain(a + b)``. So the order of merges does not matter.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from reprlib import Repr
from typing import Any, Literal, NoReturn, get_args

from hpfracc._files import parse_json
from hpfracc.engine.workload import Bucket
from hpfracc.errors import InvalidInputError

__all__ = [
    "KINDS",
    "MAX_DEPTH",
    "Entry",
    "Kind",
    "Record",
    "UnknownRecord",
    "new_id",
    "parse_entry",
    "parse_line",
    "parse_object",
    "retain",
    "unite",
]

#: What was measured: a calibrated knot, a run time, a compile time, a copy, a memory peak, or the power of an arm.
Kind = Literal["knot", "sample", "compile", "transfer", "memory", "power"]
KINDS: frozenset[str] = frozenset(get_args(Kind))

#: Limits of a valid measurement. They allow any real one, and prevent overflow of sums, logarithms, dates and tables:
#: three years, far more work than a machine does in that time, the year 5138, and the length of a name.
MAX_SECONDS, MAX_WORK, MAX_TIME = 1e8, 1e36, 1e11
MAX_CHARACTERS = 256
#: Limits of a line: its bytes, and its nesting depth. A record of this version has at most half of the bytes and a
#: depth of 2; those of later versions may have more.
MAX_LINE_BYTES = 1 << 16
MAX_DEPTH = 32

_TEXTS = ("id", "kind", "operation", "arm", "fingerprint", "start", "dtype")

_token = ""
_counter = itertools.count()


def new_id() -> str:
    """A globally unique id; ids increase within one process."""
    global _token
    if not _token:
        _token = os.urandom(8).hex()
    return f"{_token}-{next(_counter):010x}"


def _forget_token() -> None:
    global _token
    _token = ""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_token)


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
        The amount of work; for memory, the predicted bytes; for power, watts. Required for knots, samples and power.
    seconds : float
        Measured seconds; 0 for memory.
    nbytes : int, optional
        Bytes copied, or the measured peak. Required for transfers and memory.
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
        for name in _TEXTS:
            _check_text(name, getattr(self, name))
        if self.kind not in KINDS:
            _refuse("kind", self.kind, f"one of {', '.join(sorted(KINDS))}")
        for name in ("id", "fingerprint"):
            if not getattr(self, name):
                _refuse(name, "", "a text that is not empty")
        _set(self, "seconds", _number("seconds", self.seconds, MAX_SECONDS))
        _set(self, "time", _number("time", self.time, MAX_TIME))
        if self.x is not None or self.kind in ("knot", "sample", "power"):
            _set(self, "x", _number("x", self.x, MAX_WORK))
        if self.bucket is not None or self.kind == "sample":
            _set(self, "bucket", _bucket(self.bucket))
        if self.nbytes is not None or self.kind in ("transfer", "memory"):
            _set(self, "nbytes", _whole("nbytes", self.nbytes))
        if self.route is not None or self.kind == "transfer":
            _check_text("route", self.route)

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
        pairs = ((name, getattr(self, name)) for name in _NAMES)
        return {name: value for name, value in pairs if value is not None}

    def to_line(self) -> str:
        """One line of JSON, without the line end."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


_NAMES = tuple(f.name for f in fields(Record))
_KNOWN = frozenset(_NAMES)
_REQUIRED = _KNOWN - {"bucket", "x", "nbytes", "route"}
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a later version, with an unknown kind or field. Kept unchanged, and not used.

    Attributes
    ----------
    id, time
        As in :class:`Record`; if missing, the line itself and 0.
    line : str
        The record as JSON.
    """

    id: str
    time: float
    line: str

    @property
    def age_order(self) -> tuple[float, str]:
        """As :attr:`Record.age_order`."""
        return self.time, self.id

    def to_line(self) -> str:
        """One line of JSON, without the line end."""
        return self.line


#: The content of a file.
Entry = Record | UnknownRecord


def parse_line(line: str | bytes) -> Record:
    """The record on a line; raises :class:`InvalidInputError` for any other content."""
    return parse_object(_decode(line))


def parse_object(value: Any) -> Record:
    """The record in a decoded JSON object; raises :class:`InvalidInputError` if it is not one."""
    if not isinstance(value, Mapping):
        _refuse("record", value, "a JSON object")
    if not (_REQUIRED <= value.keys() <= _KNOWN):
        wrong = sorted(map(str, (_REQUIRED - value.keys()) | (value.keys() - _KNOWN)))
        raise InvalidInputError(f"a record lacks {_show(wrong[0])}, or should not have it; measure again")
    return Record(**value)


def parse_entry(entry: Any) -> Entry:
    """The record in a line (bytes) or a decoded JSON object, of this version or a later one.

    Raises
    ------
    InvalidInputError
        If it is neither.
    """
    value = _decode(entry) if isinstance(entry, bytes) else entry
    if not isinstance(value, dict):
        _refuse("record", value, "a JSON object")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind in KINDS:
        if _REQUIRED <= value.keys() <= _KNOWN:
            return Record(**value)
        if not isinstance(kind, str) or value.keys() <= _KNOWN:
            return parse_object(value)  # raises
    try:
        line = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InvalidInputError(f"a record cannot be stored as JSON ({error}); omit it") from None
    _check_line(line.encode())
    own, when = value.get("id"), value.get("time")
    moment = float(when) if isinstance(when, int | float) and 0.0 <= when <= MAX_TIME else 0.0
    return UnknownRecord(own if isinstance(own, str) and own else line, moment, line)


def _decode(line: str | bytes) -> Any:
    data = line.encode(errors="surrogatepass") if isinstance(line, str) else line
    _check_line(data)
    try:
        return parse_json(data, MAX_DEPTH)
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidInputError(f"not a line of JSON ({error}); omit the line") from None


def _check_line(data: bytes) -> None:
    if len(data) > MAX_LINE_BYTES:
        raise InvalidInputError(f"a line of {len(data):,} bytes is not a record; use at most {MAX_LINE_BYTES:,} bytes")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS or not value.isprintable():
        _refuse(name, value, f"a printable text of at most {MAX_CHARACTERS} characters")


def _number(name: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(name, value, "a number")
    if not 0.0 <= value <= most:  # also rejects nan, and integers too large for a float
        _refuse(name, value, f"a number from 0 to {most:g}")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        _refuse(name, value, "an integer from 0 to 2^63")
    return value


def _bucket(value: Any) -> Bucket:
    if not isinstance(value, tuple | list) or len(value) != 2:
        _refuse("bucket", value, "two whole numbers")
    return _whole("bucket[0]", value[0]), _whole("bucket[1]", value[1])


#: Abbreviates any decoded JSON.
_brief = Repr()
_brief.maxlevel, _brief.maxstring, _brief.maxother = 3, 70, 70


def _show(value: Any) -> str:
    # repr() raises an error for integers with thousands of digits.
    shown = f"2^{value.bit_length()}" if isinstance(value, int) and value.bit_length() > 128 else _brief.repr(value)
    return shown if len(shown) < 80 else shown[:77] + "..."


def _refuse(name: str, value: Any, wanted: str) -> NoReturn:
    raise InvalidInputError(f"{name}={_show(value)} in a record; use {wanted}")


#: Number of newest records kept of each group (see :func:`_group`): those that the cost model uses, and a few others.
PER_GROUP: dict[Kind, int] = {"sample": 32, "knot": 4, "compile": 8, "transfer": 8, "memory": 8, "power": 4}

#: Number of newest records kept in total; samples are counted separately, so that they cannot displace a calibration.
#: Reading them takes about 0.3 s.
MAX_SAMPLES = 20_000
MAX_OTHERS = 10_000
#: The same for records of later versions, whose groups are unknown.
MAX_UNKNOWN = 10_000


def unite(*collections: Iterable[Entry]) -> dict[str, Entry]:
    """All records by id. Two with one id (only by tampering) are resolved in the same way in any order."""
    united: dict[str, Entry] = {}
    for records in collections:
        for record in records:
            known = united.setdefault(record.id, record)
            if known is not record and known != record:
                united[record.id] = max(known, record, key=lambda each: (each.time, each.to_line()))
    return united


def retain(records: Iterable[Entry]) -> list[Entry]:
    """The records to retain, oldest first."""
    groups: dict[Any, list[Record]] = defaultdict(list)
    samples: list[Entry] = []
    others: list[Entry] = []
    unknown: list[Entry] = []
    for record in records:
        if isinstance(record, UnknownRecord):
            unknown.append(record)
        else:
            groups[_group(record)].append(record)
    for group in groups.values():
        kind = group[0].kind
        group.sort(key=lambda record: record.age_order)
        (samples if kind == "sample" else others).extend(group[-PER_GROUP[kind] :])
    for kept, most in ((samples, MAX_SAMPLES), (others, MAX_OTHERS), (unknown, MAX_UNKNOWN)):
        kept.sort(key=lambda record: record.age_order)
        del kept[: max(0, len(kept) - most)]
    return sorted(samples + others + unknown, key=lambda record: record.age_order)


def _group(record: Record) -> tuple[Any, ...]:
    common = (record.kind, record.fingerprint, record.operation, record.arm, record.start, record.dtype)
    if record.kind == "knot":
        return (*common, record.bucket, record.x)
    if record.kind == "transfer":
        return (*common, record.route, (record.nbytes or 0).bit_length())
    return (*common, record.bucket)
