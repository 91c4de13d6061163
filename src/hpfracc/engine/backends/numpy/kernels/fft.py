"""Fourier transforms by the pocketfft of NumPy, and by that of SciPy, which spreads rows over threads."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.primitives import PRIMITIVES

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]


@np.errstate(all="ignore")
def transform_numpy(
    x: Array, *, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Array:
    """``numpy.fft``: the cheapest call, one row after the other."""
    if not x.size:
        return _of_nothing(x, kind=kind, n=n, axis=axis, norm=norm)
    return np.asarray(getattr(np.fft, kind)(x, n, axis, norm))


def transform_scipy(
    x: Array, *, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward", workers: int = 1
) -> Array:
    """``scipy.fft``: several rows at once, in vector registers and in threads."""
    if not x.size:
        return _of_nothing(x, kind=kind, n=n, axis=axis, norm=norm)
    return np.asarray(getattr(_scipy_fft(), kind)(x, n, axis, norm, workers=workers))


@functools.cache
def _scipy_fft() -> ModuleType:
    """Imported when it is first needed: that takes 0.2 s."""
    return importlib.import_module("scipy.fft")


def _of_nothing(x: Array, **params: Any) -> Array:
    """Zeros in the shape of the result: libraries refuse to transform an axis without points."""
    call = PRIMITIVES["fft"].describe(x, **params)
    return np.zeros(call.shape, call.facts["result"])


KERNELS: dict[str, Kernel] = {"pocketfft": Kernel(transform_numpy), "scipy": Kernel(transform_scipy)}
