"""Steps compiled with Numba; imported only for long solves, because Numba takes long to load."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from hpfracc._interrupts import run_shielded
from hpfracc._optional import import_optional, is_installed

__all__ = ["NotCompiledError", "call_kernel", "compile_as_it_is", "is_jitted", "load", "require"]

Result = TypeVar("Result")

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


def compile_as_it_is(function: Callable[..., Any]) -> Any:
    """The function for Numba to compile at its first call with arguments of these types."""
    require()
    from numba import njit

    return njit(cache=True)(function)


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
    found = run_shielded(lambda: kernel(*arguments))
    _compiled.add((kernel, kind))
    return found
