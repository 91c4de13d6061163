"""When compiling pays: ski rental, as the engine does it, with what is left of this solve known in advance."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from hpfracc._optional import is_installed

__all__ = ["Price", "compile_price", "kernel_price", "reset"]

#: Seconds before anything was measured here (benchmarks/ode.py on two shared cores): Numba's import, its first
#: compilation with all that it loads then, a later one, and the kernels from their cache.
_IMPORT, _FIRST, _LATER, _KERNELS = 0.6, 4.0, 0.7, 0.4

_lock = threading.Lock()
_rents: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
_compilations: list[float] = []
_kernels_loaded = [False]


class Price:
    """What a purchase costs, and what renting has cost so far: buy when one covers the other.

    Parameters
    ----------
    seconds : float
        The price.
    function : callable
        Whose rent this is; a function is known again by its code.
    """

    def __init__(self, seconds: float, function: Callable[..., Any]) -> None:
        self.seconds = seconds
        self._key = getattr(function, "__code__", None)

    def pays(self, left: float) -> bool:
        """Whether to buy now, with so many seconds of rent left in this solve as far as is known."""
        return left >= self.seconds or self.paid() >= self.seconds

    def paid(self) -> float:
        """Seconds of rent in this process."""
        with _lock:
            return _rents.get(self._key, 0.0) if self._key is not None else 0.0

    def rent(self, seconds: float) -> None:
        """Note the rent of a stretch."""
        if self._key is not None:
            with _lock:
                _rents[self._key] = _rents.get(self._key, 0.0) + seconds


def compile_price(function: Callable[..., Any]) -> Price | None:
    """Of compiling ``function``; None where there is no Numba."""
    if not is_installed("numba"):
        return None
    with _lock:
        seen = list(_compilations)
    compiling = _FIRST if not seen else _LATER if len(seen) == 1 else min(seen[1:])
    return Price(compiling + _library(), function)


def kernel_price() -> float | None:
    """Seconds until the compiled stepping could be used with a function that stays in Python."""
    return (_library() + (0.0 if _kernels_loaded[0] else _KERNELS)) if is_installed("numba") else None


def _library() -> float:
    return 0.0 if "numba" in sys.modules else _IMPORT


def note_compilation(seconds: float) -> None:
    """A compilation took so long."""
    with _lock:
        _compilations.append(seconds)


def note_kernels() -> None:
    """The kernels are in memory."""
    _kernels_loaded[0] = True


def reset() -> None:
    """Forget all rents and prices."""
    with _lock:
        _rents.clear()
        _compilations.clear()
        _kernels_loaded[0] = False
