"""Steps compiled with Numba; imported only for long solves, because Numba takes long to load."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from hpfracc._optional import import_optional, is_installed
from hpfracc._shielded import run_shielded

__all__ = ["NotCompiledError", "call_kernel", "first_calls", "first_line", "is_jitted", "load", "require"]

Result = TypeVar("Result")

#: Seconds that first calls of kernels took in this process, which is the time to compile or load them.
first_calls = [0.0]

_loaded: set[str] = set()
_compiled: set[tuple[Any, str]] = set()


class NotCompiledError(Exception):
    """A function is not compiled; the message is one line that says why."""


def require() -> None:
    """Load Numba; the error names the optional dependency to install."""
    if "numba" not in _loaded or not is_installed("numba"):
        run_shielded(lambda: import_optional("numba"))
        _loaded.add("numba")


def is_jitted(function: Any) -> bool:
    """Whether the user compiled this function with Numba, which then is imported already."""
    if sys.modules.get("numba") is None:
        return False
    from numba import extending

    return bool(extending.is_jitted(function))


def load(name: str) -> ModuleType:
    """A module of this package."""
    full = f"{__name__}.{name}"
    if name not in _loaded:
        run_shielded(lambda: importlib.import_module(full))
        _loaded.add(name)
    return sys.modules[full]


def call_kernel(kernel: Callable[..., Result], kind: str, *arguments: Any) -> Result:
    """``kernel(*arguments)``; Numba compiles it at the first call with arrays of this dtype kind."""
    if (kernel, kind) in _compiled:
        return kernel(*arguments)
    started = time.perf_counter()
    found = run_shielded(lambda: kernel(*arguments))
    first_calls[0] += time.perf_counter() - started
    _compiled.add((kernel, kind))
    return found


def first_line(error: Any) -> str:
    """The first line of an error's message, or its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
