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

#: Real numbers whose whole spectrum is made from half of it: below this the second half costs what the first saves.
_LEAST_HALVED = 4096


@np.errstate(all="ignore")
def transform_numpy(
    x: Array, *, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Array:
    """``numpy.fft``: the cheapest call, one row after the other."""
    if not x.size:
        return _of_nothing(x, kind=kind, n=n, axis=axis, norm=norm)
    if x.dtype.kind == "f" and kind in ("fft", "ifft") and x.size >= _LEAST_HALVED:
        return _of_real(x, kind, n, axis, norm)
    return _in_precision(x, kind, n, axis, norm)


def _in_precision(x: Array, kind: str, n: int | None, axis: int, norm: str, out: Array | None = None) -> Array:
    """One of NumPy's transforms, in the precision of ``x``."""
    transform = getattr(np.fft, kind)
    factorless, scaled = ("forward", "backward") if kind.startswith("i") else ("backward", "forward")
    if norm != factorless or x.dtype.char not in "fF":
        return np.asarray(transform(x, n, axis, norm, out=out))
    # Without a factor NumPy transforms single precision in double: three times the memory, and half as fast. So it
    # is given one, which is taken back in place.
    found = np.asarray(transform(x, n, axis, scaled, out=out))
    points = x.shape[axis] if kind == "rfft" and n is None else n if kind == "rfft" else found.shape[axis]
    found *= found.real.dtype.type(points)
    return found


def _of_real(x: Array, kind: str, n: int | None, axis: int, norm: str) -> Array:
    """The whole spectrum of real numbers from half of it: half the work, and no complex copy of them."""
    points = x.shape[axis] if n is None else n
    shape = list(x.shape)
    shape[axis] = points
    result = np.empty(shape, np.result_type(x.dtype, np.complex64))
    rows = np.moveaxis(result, axis, -1)
    # Backwards is forwards with the norms exchanged, and conjugated.
    other = {"backward": "forward", "forward": "backward"}.get(norm, norm)
    half = points // 2 + 1
    _in_precision(np.moveaxis(x, axis, -1), "rfft", n, -1, other if kind == "ifft" else norm, out=rows[..., :half])
    if kind == "ifft":
        np.conjugate(rows[..., :half], out=rows[..., :half])
    np.conjugate(rows[..., points - half : 0 : -1], out=rows[..., half:])
    return result


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
