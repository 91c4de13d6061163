"""Journals: appended to by one process, removed by others only after it has ended."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from hpfracc._files import OPEN_FLAGS
from hpfracc.engine.selection.wisdom.document import encode_journal_head
from hpfracc.engine.selection.wisdom.location import WisdomLayout

if sys.platform != "win32":
    import fcntl

__all__ = ["Journal", "remove_if_abandoned"]

#: A journal idle for this long is closed and a new one begun, ...
IDLE_SECONDS = 3600.0
#: ... so a journal unchanged for this long has no writer, even if locks cannot show that.
UNTOUCHED_SECONDS = 86_400.0


class Journal:
    """A journal open for appending. The lock (``flock``) held while it is open shows that its writer is running."""

    def __init__(self, layout: WisdomLayout) -> None:
        layout.folder.mkdir(parents=True, exist_ok=True)
        self.size = 0
        self._last = time.time()  # the monotonic clock stops while a laptop sleeps
        self._fd = -1
        while self._fd < 0:
            self.path = layout.new_journal()
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o666)
            if _hold(fd):
                self._fd = fd
            else:  # another process locked it first, and may be removing it
                os.close(fd)

    @property
    def is_idle(self) -> bool:
        """Whether it has been idle so long that other processes may soon consider it abandoned."""
        return abs(time.time() - self._last) > IDLE_SECONDS

    def write(self, lines: bytes) -> None:
        """Append complete lines, which then survive any end of the process.

        Raises
        ------
        OSError
            If not all lines were written, or the journal was removed; then write them to a new one.
        """
        data = lines if self.size else encode_journal_head() + lines
        written = os.write(self._fd, data)
        if written != len(data):
            raise OSError(f"{self.path}: {written} of {len(data)} bytes written; is the disk full?")
        self.size += written
        self._last = time.time()
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(f"{self.path} was removed while in use")

    def close(self) -> None:
        """Close it; any process may then merge and remove it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def remove_if_abandoned(path: Path, size: int, layout: WisdomLayout, aside: Path | None = None) -> bool:
    """Remove a journal of ``size`` bytes that was merged, unless it grew or its writer may still be running.

    With ``aside`` it is renamed to that name instead.
    """
    try:
        fd = os.open(path, os.O_RDWR | OPEN_FLAGS | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        locked = _try_lock(fd)
        if locked is False:
            return False
        status = os.fstat(fd)
        if status.st_size != size:
            return False
        # Some file systems have no locks, or do not show those of other machines: there, age decides.
        sure = locked is True and layout.is_from_here(path)
        if not sure and time.time() - status.st_mtime < UNTOUCHED_SECONDS:
            return False
        if aside is None:
            os.unlink(path)
        else:
            os.rename(path, aside)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _hold(fd: int) -> bool:
    """Lock a new journal; False if another process locked it first."""
    return _try_lock(fd) is not False and os.fstat(fd).st_nlink > 0


def _try_lock(fd: int) -> bool | None:
    """Whether the lock was acquired; None if there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
