"""What the engines of workers learn, brought to the client and from there to workers that start later.

Each worker chooses with the times of its own hardware: a record carries the fingerprint of the arm it was measured on.
New records travel back beside the results of a sweep, and as events of the cluster from tasks of Dask arrays. The
client keeps them in its wisdom, and prepares workers with what is known of all machines. The engine is imported only
where there is something to learn from: a worker whose function does not use it starts sooner.
"""

from __future__ import annotations

import os
import platform
import zlib
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hpfracc._config import Settings, get_settings
from hpfracc.errors import InvalidInputError

if TYPE_CHECKING:
    from hpfracc.engine.selection.wisdom.records import Record

__all__ = ["decode_records", "encode_known", "merge_records", "process_id", "start_sharing", "take_records"]

#: Records that a worker is prepared with at most, the newest: some 60 KB when compressed.
_MOST_SENT = 2000
#: Bytes of a message of records that is read, at most.
_MOST_BYTES = 1 << 22
#: The last message of each knowledge, and how many records were known then: with much wisdom it takes 0.2 s to make.
_encoded: WeakKeyDictionary[Any, tuple[int, bytes]] = WeakKeyDictionary()


def process_id() -> tuple[str, int]:
    """Host and number of this process."""
    return platform.node(), os.getpid()


def start_sharing(caller: tuple[str, int] | None) -> bool:
    """Keep what this process learns for the caller; False if it is the caller's own process, which knows it anyway."""
    away = caller is not None and tuple(caller) != process_id()
    if away:
        from hpfracc.engine.selection.wisdom import share_records

        share_records(True)
    return away


def take_records() -> bytes:
    """What this process learned since the last call, as a message."""
    from hpfracc.engine.selection.wisdom import take_shared

    return _encode(take_shared())


def encode_known() -> bytes:
    """What this process knows, for workers."""
    settings = get_settings()
    if settings.deterministic or not settings.enable_learning:
        return b""
    from hpfracc.engine.selection.knowledge import knowledge_for

    knowledge = knowledge_for(settings)
    known, message = _encoded.get(knowledge, (-1, b""))
    if known != knowledge.taken:
        # Samples are left out first: calibrations are few, and worth most.
        found = sorted(knowledge.records(), key=lambda record: (record.kind in ("knot", "power"), record.time))
        message = _encode(found[-_MOST_SENT:])
        _encoded[knowledge] = knowledge.taken, message
    return message


def merge_records(message: bytes, settings: Settings | None = None) -> int:
    """Add the records of a message to what this process knows; returns the number of new ones."""
    settings = get_settings() if settings is None else settings
    if not message or settings.deterministic or not settings.enable_learning:
        return 0
    from hpfracc.engine.selection.knowledge import knowledge_for

    return knowledge_for(settings).learn_from(decode_records(message))


def _encode(records: list[Record]) -> bytes:
    if not records:
        return b""
    from hpfracc.engine.selection.wisdom.document import encode_lines

    return zlib.compress(encode_lines(records), 1)


def decode_records(message: bytes) -> list[Record]:
    """The records of a message; lines that are none, or of a later version, are left out."""
    from hpfracc.engine.selection.wisdom.records import Record, parse_entry

    unpacked = zlib.decompressobj().decompress(message, _MOST_BYTES)
    found: list[Any] = []
    for line in unpacked.splitlines():
        try:
            found.append(parse_entry(line))
        except InvalidInputError:  # the last line, where a message is cut off
            continue
    return [entry for entry in found if isinstance(entry, Record)]
