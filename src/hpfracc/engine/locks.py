"""Locks that stay usable after a fork and after an interrupt, and the rules for that.

A thread of the parent may hold a lock at the time of a fork; in the child it would never be released. So locks are
replaced there.

Ctrl-C raises ``KeyboardInterrupt`` in the main thread between any two instructions of Python. A lock stays held
forever if that happens after it was acquired and before the block that releases it was entered. Hence these rules,
which ``tests/architecture/test_locks.py`` enforces:

- A lock is a ``Lock`` or ``RLock`` of :mod:`threading`, acquired by ``with``: both are implemented in C, and no
  interrupt can occur between acquiring one and entering the block. Nothing calls ``acquire``.
- Nothing uses a ``Condition``, ``Semaphore``, ``Event`` or ``Barrier``, an executor or its futures, or ``Thread``
  outside :mod:`hpfracc._interrupts`: they are Python code around such a lock, and an interrupt inside leaves it held.
- A thread waits for others by polling a ``queue.SimpleQueue`` with a timeout, and holds no lock while it waits.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_guarded: weakref.WeakSet[Guarded] = weakref.WeakSet()


class Guarded:
    """Base class with a re-entrant lock, ``_lock``, that is replaced in a forked child."""

    _lock: Any

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _guarded.add(self)


def _renew_locks() -> None:
    for owner in list(_guarded):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
