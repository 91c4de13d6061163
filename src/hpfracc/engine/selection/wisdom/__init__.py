"""Wisdom: measured times kept on disk, shared by processes without a lock, and safe through crashes.

A folder has one *journal* per process (append-only lines of JSON), *generations* (immutable merged files, each with
a unique name), and ``wisdom.json``, a copy of the newest generation for reading and for other machines.

Concurrent merges lose nothing. A process removes a generation only after it has read it and has written a newer one
that contains it, under a name never used before. It removes a journal only after its writer has ended and all of it is
in a generation. So each removed file is contained in a newer one, and by induction in one that still exists.
``wisdom.json`` may be overwritten by a slower process with less; no removal relies on it, and the next merge completes
it.
"""

from __future__ import annotations

from hpfracc.engine.selection.wisdom.location import continuing, reset_warnings, resolve_path
from hpfracc.engine.selection.wisdom.store import Wisdom, share_records, shares_records, take_shared

__all__ = [
    "Wisdom",
    "continuing",
    "reset_warnings",
    "resolve_path",
    "share_records",
    "shares_records",
    "take_shared",
]
