"""When compiling pays: ski rental, as the engine does it, with what is left of this solve known in advance."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpfracc._optional import is_installed

__all__ = ["Price", "compile_price", "kernel_price", "note_compilation", "note_kernel", "reset"]

#: Seconds before anything was measured here (benchmarks/ode.py on two shared cores): Numba's import, its first
#: compilation with all that it loads then, a later one, a kernel from its cache, and one that is not there yet.
_IMPORT, _FIRST, _LATER, _KERNEL, _COLD = 0.6, 4.0, 0.7, 0.3, 4.0

_lock = threading.Lock()
_rents: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
_compilations: list[float] = []
_kernels: set[tuple[str, str]] = set()


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


def kernel_price(kind: str, dtype: Any) -> float | None:
    """Seconds until the compiled stepping of that kind could be used with a function that stays in Python."""
    if not is_installed("numba"):
        return None
    if (kind, str(dtype)) in _kernels:
        return 0.0
    return _library() + (_KERNEL if _is_cached(kind) else _COLD)


def _is_cached(kind: str) -> bool:
    """Whether Numba has left a compiled kernel beside its source."""
    folder = Path(__file__).parent / "compiled"
    source = folder / "kernels.py"
    made = [path.stat().st_mtime for path in (folder / "__pycache__").glob(f"kernels.{kind}-*.nbi")]
    return bool(made) and max(made) >= source.stat().st_mtime


def _library() -> float:
    return 0.0 if "numba" in sys.modules else _IMPORT


def note_compilation(seconds: float) -> None:
    """A compilation took so long."""
    with _lock:
        _compilations.append(seconds)


def note_kernel(kind: str, dtype: Any) -> None:
    """A kernel is in memory."""
    _kernels.add((kind, str(dtype)))


def reset() -> None:
    """Forget all rents and prices."""
    with _lock:
        _rents.clear()
        _compilations.clear()
        _kernels.clear()
