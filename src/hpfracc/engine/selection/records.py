"""One thing that was measured, as it is written down and read back."""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn, get_args

from hpfracc.engine.workload import Bucket
from hpfracc.errors import InvalidInputError

__all__ = ["KINDS", "Kind", "Record", "new_id", "parse_line", "parse_object"]

#: What was measured: a calibrated point of a curve, a run, a first call's compilation, a copy, a peak of memory.
Kind = Literal["knot", "sample", "compile", "transfer", "memory"]
KINDS: frozenset[str] = frozenset(get_args(Kind))

_LONGEST = 1024
_TEXTS = ("id", "kind", "operation", "arm", "fingerprint", "start", "dtype")

_token = ""
_counter = itertools.count()


def new_id() -> str:
    """An identity that no other sample has, in no other process or machine; rises within one process."""
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
        What was run, and by which arm (its name); a transfer may leave the operation empty.
    fingerprint : str
        Of the arm, from ``engine.hardware``.
    start : str
        Where the operands were when it began.
    dtype : str
        In which the work was done.
    bucket : tuple of two int, optional
        Its size bucket; a sample has one.
    x : float, optional
        The amount of work; for memory, the bytes predicted. Knots and samples have it.
    seconds : float
        What it took; 0 for memory.
    nbytes : int, optional
        Bytes copied, or the peak that was seen. Transfers and memory have it.
    route : str, optional
        From where to where a transfer went, as ``"cpu->cuda:0"``.
    time : float
        When, in seconds since 1970; now by default.
    id : str
        Unique; a new one by default. Uniting records by it makes merging idempotent.
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
        _set(self, "seconds", _number("seconds", self.seconds))
        _set(self, "time", _number("time", self.time))
        if self.x is not None or self.kind in ("knot", "sample"):
            _set(self, "x", _number("x", self.x))
        if self.bucket is not None or self.kind == "sample":
            _set(self, "bucket", _bucket(self.bucket))
        if self.nbytes is not None or self.kind in ("transfer", "memory"):
            _set(self, "nbytes", _whole("nbytes", self.nbytes))
        if self.route is not None or self.kind == "transfer":
            _check_text("route", self.route)

    @property
    def age_order(self) -> tuple[float, str]:
        """Sorts records from the oldest to the newest, the same way everywhere."""
        return self.time, self.id

    @property
    def backend(self) -> str:
        """The backend whose arm it is."""
        return self.arm.partition(":")[0]

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without what is None."""
        pairs = ((name, getattr(self, name)) for name in _NAMES)
        return {name: value for name, value in pairs if value is not None}

    def to_line(self) -> str:
        """As one line of JSON, without its end."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


_NAMES = tuple(f.name for f in fields(Record))
_KNOWN = frozenset(_NAMES)
_REQUIRED = _KNOWN - {"bucket", "x", "nbytes", "route"}
_set = object.__setattr__


def parse_line(line: str | bytes) -> Record:
    """The record that a line holds, or :class:`InvalidInputError`, whatever the line holds."""
    try:
        value = json.loads(line, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise InvalidInputError(f"not a line of JSON ({error}); leave the line out") from None
    return parse_object(value)


def parse_object(value: Any) -> Record:
    """The record that a decoded JSON object holds, or :class:`InvalidInputError`."""
    if not isinstance(value, Mapping):
        _refuse("record", value, "a JSON object")
    if not (_REQUIRED <= value.keys() <= _KNOWN):
        wrong = sorted(map(str, (_REQUIRED - value.keys()) | (value.keys() - _KNOWN)))
        raise InvalidInputError(f"a record lacks {wrong[0]!r}, or should not have it; measure again")
    return Record(**value)


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > _LONGEST:
        _refuse(name, value, f"a text of at most {_LONGEST} characters")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(name, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0.0 <= number < math.inf:  # also refuses nan
        _refuse(name, value, "a finite number of at least 0")
    return number


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        _refuse(name, value, "a whole number of at least 0")
    return value


def _bucket(value: Any) -> Bucket:
    if not isinstance(value, tuple | list) or len(value) != 2:
        _refuse("bucket", value, "two whole numbers")
    return _whole("bucket[0]", value[0]), _whole("bucket[1]", value[1])


def _refuse(name: str, value: Any, wanted: str) -> NoReturn:
    shown = repr(value)
    raise InvalidInputError(f"{name}={shown if len(shown) < 80 else shown[:77] + '...'} in a record; use {wanted}")
