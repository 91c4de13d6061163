"""NumPy for generic kernels: products in place, threads, and ``scipy.fft``, which has every transform."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.generic.library import Library

Array = np.ndarray[Any, Any]


def all_finite(witnesses: Array) -> bool:
    """Whether every element is finite; if the sum overflows, the elements are checked one by one."""
    if not witnesses.ndim:
        return cmath.isfinite(witnesses)
    return cmath.isfinite(witnesses.sum()) or bool(np.isfinite(witnesses).all())


def _waves(inverse: str, x: Array, kind: str, axis: int, workers: int = 1) -> Any:
    transform = getattr(NUMPY.fft, inverse + kind[:3])
    return transform(x, int(kind[-1]), axis=axis, workers=workers, overwrite_x=bool(inverse))


class NumPyLibrary(Library):
    """Values can be read at once, and blocks should stay in a second-level cache."""

    history_block, history_rows = 1 << 16, 256
    back_options: Mapping[str, Any] = MappingProxyType({"overwrite_x": True})
    waves = partial(_waves, ""), partial(_waves, "i")

    def finished(self, function: Callable[..., Any], threads: bool = False) -> Callable[..., Any]:
        """Without warnings, and with an array as the result: NumPy converts arrays without axes to scalars."""

        def kernel(*arrays: Any, **params: Any) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(function(*arrays, **params))

        def threaded(*arrays: Any, workers: int = 1, **params: Any) -> Array:
            return kernel(*arrays, workers=workers, **params)

        return threaded if threads else kernel

    def widen(self, array: Array) -> Array:
        """BLAS computes in the precision of its operands."""
        return array

    def is_readable(self, array: Any) -> bool:
        """Always."""
        return True

    def all_finite(self, array: Any) -> bool:
        """By their sum."""
        return all_finite(array)

    def segments(self, n: int, states: int, array: Any) -> int:
        """Few enough to stay in a cache."""
        return max(1, (1 << 14) // states)


LIBRARY = NumPyLibrary("numpy")
