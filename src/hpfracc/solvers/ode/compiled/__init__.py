"""The stepping compiled with Numba: read when a solve is long enough for it, for Numba takes long to load."""

from __future__ import annotations

import _thread
import atexit
import importlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from hpfracc._optional import import_optional, is_installed

__all__ = ["NotCompiledError", "call_kernel", "load", "require", "uninterrupted"]

Result = TypeVar("Result")

_loaded: set[str] = set()
_compiled: set[tuple[Any, str]] = set()
_unfinished: set[Any] = set()


class NotCompiledError(Exception):
    """A function is not compiled; the message says why, in one line."""


def require() -> None:
    """Load Numba, or raise the error that names its extra."""
    if "numba" not in _loaded or not is_installed("numba"):
        uninterrupted(lambda: import_optional("numba"))
        _loaded.add("numba")


def load(name: str) -> ModuleType:
    """A module of this package."""
    full = f"{__name__}.{name}"
    if name not in _loaded:
        uninterrupted(lambda: importlib.import_module(full))
        _loaded.add(name)
    return sys.modules[full]


def call_kernel(kernel: Callable[..., Result], kind: str, *arguments: Any) -> Result:
    """``kernel(*arguments)``; Numba compiles it at the first call with arrays of this kind of numbers."""
    if (kernel, kind) in _compiled:
        return kernel(*arguments)
    found = uninterrupted(lambda: kernel(*arguments))
    _compiled.add((kernel, kind))
    return found


def uninterrupted(work: Callable[[], Result]) -> Result:
    """What ``work()`` returns. Ctrl-C ends the wait for it, not the work itself.

    An import or a compilation that an interrupt breaks off leaves half-made modules behind, which fail for the rest of
    the process. Python handles signals in the main thread, so such work is done in another one.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    done = _thread.allocate_lock()  # a Condition, as Thread and Event have, can be left locked by an interrupt
    done.acquire()
    found: list[Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            _unfinished.discard(done)
            done.release()

    _unfinished.add(done)
    _thread.start_new_thread(run, ())
    done.acquire()
    if failed:
        raise failed[0]
    return found[0]


@atexit.register
def _finish() -> None:
    """Wait for what an interrupt left at work: the process must not end in the middle of a compilation."""
    for done in list(_unfinished):
        done.acquire(timeout=60.0)
