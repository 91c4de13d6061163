"""Locks that a forked child does not inherit held.

A thread of the parent may hold a lock at the moment of the fork; in the child nobody would ever release it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["Guarded"]

_guarded: weakref.WeakSet[Guarded] = weakref.WeakSet()


class Guarded:
    """Something with a re-entrant lock of its own, which is made anew in a forked child."""

    _lock: Any

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _guarded.add(self)


def _renew_locks() -> None:
    for owner in list(_guarded):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
