"""How much is kept: the newest of each kind of measurement, and not more than so many in all.

Uniting and trimming commute: ``retain(retain(a) + b) == retain(a + b)``. So it does not matter who merges what first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from hpfracc.engine.selection.records import Entry, Kind, Record, UnknownRecord

__all__ = ["retain", "unite"]

#: The newest that are kept of each group (see :func:`_group`): what the cost model reads, and some for the others.
PER_GROUP: dict[Kind, int] = {"sample": 32, "knot": 4, "compile": 8, "transfer": 8, "memory": 8}

#: The newest that are kept in all, runs and everything else apart, so that runs cannot push a calibration out.
#: Reading as many takes some 0.3 s.
MOST_SAMPLES = 20_000
MOST_OTHERS = 10_000
#: The same of records that a later version wrote, whose groups are not known here.
MOST_UNKNOWN = 10_000


def unite(*collections: Iterable[Entry]) -> dict[str, Entry]:
    """All records by id. Of two that share one, which only tampering makes, the same is kept whatever the order."""
    united: dict[str, Entry] = {}
    for records in collections:
        for record in records:
            known = united.setdefault(record.id, record)
            if known is not record and known != record:
                united[record.id] = max(known, record, key=lambda each: (each.time, each.to_line()))
    return united


def retain(records: Iterable[Entry]) -> list[Entry]:
    """Those worth keeping, from the oldest to the newest."""
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
    for kept, most in ((samples, MOST_SAMPLES), (others, MOST_OTHERS), (unknown, MOST_UNKNOWN)):
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
