"""When compiling pays: ski rental, as the engine does it, with what is left of this solve known in advance."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpfracc._config import get_settings
from hpfracc._optional import is_installed
from hpfracc.engine.locks import Guarded

__all__ = [
    "Price",
    "compile_price",
    "kernel_pays",
    "kernel_price",
    "note_compilation",
    "note_kernel",
    "rent_kernel",
    "reset",
]

#: Seconds before anything was measured here (two cores shared with others, Numba 0.68): Numba's import, its first
#: compilation with all that it loads then, a later one, a kernel from its cache, and one that is not there yet.
_IMPORT, _FIRST, _LATER, _KERNEL, _COLD = 0.6, 4.0, 0.7, 0.3, 4.0
#: The kernels of adaptive steps, not compiled yet.
_COLD_ADAPTIVE = 12.0


class _Accounts(Guarded):
    """What renting has cost each function, what compilations took, and which kernels are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.rents: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        self.compilations: list[float] = []
        self.kernels: set[tuple[str, Any]] = set()
        self.kernel_rents: dict[tuple[str, Any], float] = {}

    def clear(self) -> None:
        with self._lock:
            self.rents.clear()
            self.compilations.clear()
            self.kernels.clear()
            self.kernel_rents.clear()

    def paid(self, key: Any) -> float:
        with self._lock:
            return self.rents.get(key, 0.0)

    def rent(self, key: Any, seconds: float) -> None:
        with self._lock:
            self.rents[key] = self.rents.get(key, 0.0) + seconds

    def rent_kernel(self, key: tuple[str, Any], seconds: float) -> float:
        with self._lock:
            self.kernel_rents[key] = self.kernel_rents.get(key, 0.0) + seconds
            return self.kernel_rents[key]


_accounts = _Accounts()


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
        # Last whether there is Numba: to look for it takes as long as tens of steps.
        return (left >= self.seconds or self.paid() >= self.seconds) and is_installed("numba")

    def paid(self) -> float:
        """Seconds of rent in this process."""
        return 0.0 if self._key is None else _accounts.paid(self._key)

    def rent(self, seconds: float) -> None:
        """Note the rent of a stretch."""
        if self._key is not None:
            _accounts.rent(self._key, seconds)


def compile_price(function: Callable[..., Any]) -> Price | None:
    """Of compiling ``function``; None where nothing is compiled unasked.

    Whether compiling pays is told by clocks, and compiled steps differ from others in their last digits: so a
    deterministic run compiles only what it is told to.
    """
    if get_settings().deterministic:
        return None
    seen = list(_accounts.compilations)
    compiling = _FIRST if not seen else _LATER if len(seen) == 1 else min(seen[1:])
    return Price(compiling + _library(), function)


def kernel_price(kind: str, dtype: Any) -> float | None:
    """Seconds until the compiled stepping of that kind could be used with a function that stays in Python.

    None where there is no Numba, or where nothing is compiled unasked.
    """
    if get_settings().deterministic or not is_installed("numba"):
        return None
    if (kind, dtype) in _accounts.kernels:
        return 0.0
    cold = _COLD_ADAPTIVE if kind == "adaptive" else _COLD
    return _library() + (_KERNEL if _is_cached(kind) else cold)


def kernel_pays(kind: str, dtype: Any, seconds: float) -> bool:
    """Whether compiled stepping that saves so many seconds pays; looks for Numba only where it might."""
    if seconds <= _KERNEL and (kind, dtype) not in _accounts.kernels:
        return False
    price = kernel_price(kind, dtype)
    return price is not None and seconds > price


def rent_kernel(kind: str, dtype: Any, seconds: float) -> float:
    """Note seconds that a kernel would have saved; those of all solves in this process."""
    return _accounts.rent_kernel((kind, dtype), seconds)


def note_compilation(seconds: float) -> None:
    """A compilation took so long."""
    _accounts.compilations.append(seconds)


def note_kernel(kind: str, dtype: Any) -> None:
    """A kernel is in memory."""
    _accounts.kernels.add((kind, dtype))


def reset() -> None:
    """Forget all rents and prices."""
    _accounts.clear()


def _library() -> float:
    return 0.0 if "numba" in sys.modules else _IMPORT


def _is_cached(kind: str) -> bool:
    """Whether Numba has left such a kernel, compiled, beside its source."""
    folder = Path(__file__).parent / "compiled"
    others = {"adaptive": ("adaptive_kernels", "attempt"), "implicit": ("implicit_kernels", "implicit")}
    source, name = others.get(kind, ("kernels", kind))
    written = (folder / f"{source}.py").stat().st_mtime
    return any(kept.stat().st_mtime >= written for kept in (folder / "__pycache__").glob(f"{source}.{name}-*.nbi"))
