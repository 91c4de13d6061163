"""Records as the engine would write them."""

from __future__ import annotations

from typing import Any

from hpfracc.engine.selection.wisdom_records import Record


def sample(number: int = 0, **changes: Any) -> Record:
    """A run; every 32 of them fill a bucket, and higher numbers are later."""
    facts: dict[str, Any] = {
        "kind": "sample",
        "operation": "fft",
        "arm": "numpy:default@cpu",
        "fingerprint": "f" * 16,
        "start": "host",
        "dtype": "float64",
        "bucket": (0, number // 32),
        "x": 100.0 + number,
        "seconds": 1e-6 * (1 + number),
        "time": 1.7e9 + number,
    }
    return Record(**{**facts, **changes})


def samples(count: int, **changes: Any) -> list[Record]:
    """``count`` samples."""
    return [sample(number, **changes) for number in range(count)]


def ids(records: Any) -> set[str]:
    """The ids of records."""
    return {record.id for record in records}
