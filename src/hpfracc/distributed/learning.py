"""Transfer of what the engines of workers learn: to the client, and from there to workers that start later.

Each worker chooses with timings of its own hardware, because a record carries the fingerprint of the arm it was
measured on. New records are returned with the results of a sweep, and as cluster events from tasks of Dask arrays. The
client keeps them in its wisdom, and prepares workers with what is known of all machines. The engine is imported only if
there is something to learn from: a worker whose function does not use it starts sooner.
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

#: Largest number of records that a worker is prepared with, newest first: some 60 KB when compressed.
_MAX_SENT = 2000
#: Largest size of a message of records that is read, in bytes.
_MAX_BYTES = 1 << 22
#: The last message for each knowledge object and its number of records: encoding a large one takes 0.2 s.
_encoded: WeakKeyDictionary[Any, tuple[int, bytes]] = WeakKeyDictionary()


def process_id() -> tuple[str, int]:
    """Host name and id of this process."""
    return platform.node(), os.getpid()


def start_sharing(caller: tuple[str, int] | None) -> bool:
    """Collect what this process learns for the caller; False if it is the caller's own process."""
    away = caller is not None and tuple(caller) != process_id()
    if away:
        from hpfracc.engine.selection.wisdom.store import share_records

        share_records(True)
    return away


def take_records() -> bytes:
    """The records learned since the last call, as a message."""
    from hpfracc.engine.selection.wisdom.store import take_shared

    return _encode(take_shared())


def encode_known() -> bytes:
    """All records of this process as a message for workers."""
    settings = get_settings()
    if settings.deterministic or not settings.enable_learning:
        return b""
    from hpfracc.engine.selection.knowledge import knowledge_for

    knowledge = knowledge_for(settings)
    known, message = _encoded.get(knowledge, (-1, b""))
    if known != knowledge.taken:
        # Samples are dropped first: calibrations are few, and most valuable.
        found = sorted(knowledge.records(), key=lambda record: (record.kind in ("knot", "power"), record.time))
        message = _encode(found[-_MAX_SENT:])
        _encoded[knowledge] = knowledge.taken, message
    return message


def merge_records(message: bytes, settings: Settings | None = None) -> int:
    """Add the records of a message to this process's knowledge; returns the number of new ones."""
    settings = get_settings() if settings is None else settings
    if not message or settings.deterministic or not settings.enable_learning:
        return 0
    from hpfracc.engine.selection.knowledge import knowledge_for

    return knowledge_for(settings).learn_from(decode_records(message))


def _encode(records: list[Record]) -> bytes:
    if not records:
        return b""
    from hpfracc.engine.selection.wisdom.files import encode_lines

    return zlib.compress(encode_lines(records), 1)


def decode_records(message: bytes) -> list[Record]:
    """The records of a message; invalid lines and those of later versions are skipped."""
    from hpfracc.engine.selection.wisdom.records import Record, parse_entry

    unpacked = zlib.decompressobj().decompress(message, _MAX_BYTES)
    found: list[Any] = []
    for line in unpacked.splitlines():
        try:
            found.append(parse_entry(line))
        except InvalidInputError:  # the last line of a truncated message
            continue
    return [entry for entry in found if isinstance(entry, Record)]
