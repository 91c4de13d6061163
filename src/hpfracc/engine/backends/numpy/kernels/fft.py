"""Fourier transforms by the pocketfft of NumPy, and by that of SciPy, which divides rows among threads."""

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

#: Norms of the inverse transform as a conjugated forward transform.
_OTHER_NORM = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


@np.errstate(all="ignore")
def transform_numpy(
    x: Array, *, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Array:
    """``numpy.fft``: the cheapest call, one row after the other."""
    if not x.size:
        return _of_nothing(x, kind=kind, n=n, axis=axis, norm=norm)
    if x.dtype.kind == "f" and kind in ("fft", "ifft"):
        return _of_real(x, kind, n, axis, norm)
    return _in_precision(x, kind, n, axis, norm)


def _in_precision(x: Array, kind: str, n: int | None, axis: int, norm: str, out: Array | None = None) -> Array:
    """One of NumPy's transforms, in the precision of ``x``."""
    transform = getattr(np.fft, kind)
    factorless = "forward" if kind.startswith("i") else "backward"
    if norm != factorless or x.dtype.char not in "fF":
        return np.asarray(transform(x, n, axis, norm, out=out))
    # Without a factor NumPy transforms single precision in double: three times the memory, and half as fast. So a
    # factor is passed and undone in place; the one of the two that keeps small numbers farthest from zero.
    found = np.asarray(transform(x, n, axis, "ortho", out=out))
    points = found.shape[axis] if kind != "rfft" else x.shape[axis] if n is None else n
    # As real numbers: a complex factor would turn infinity into nan.
    factor = np.sqrt(points, dtype=np.float32)
    if found.strides[-1] == found.itemsize:
        parts = [found.view(np.float32)]
    else:
        parts = [found.real, found.imag] if found.dtype.char == "F" else [found]
    for part in parts:
        part *= factor
    return found


def _of_real(x: Array, kind: str, n: int | None, axis: int, norm: str) -> Array:
    """The whole spectrum of real numbers from half of it: half the work, and no complex copy of them.

    For any number of points, so that a row gives the same result alone and in a batch.
    """
    points = x.shape[axis] if n is None else n
    shape = list(x.shape)
    shape[axis] = points
    result = np.empty(shape, np.complex64 if x.dtype.char == "f" else np.complex128)
    rows = result.swapaxes(axis, -1)
    half = points // 2 + 1
    first = rows[..., :half]
    _in_precision(x.swapaxes(axis, -1), "rfft", n, -1, _OTHER_NORM[norm] if kind == "ifft" else norm, out=first)
    if kind == "ifft":
        np.conjugate(first, out=first)
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
    """Imported on first use, because that takes 0.2 s."""
    return importlib.import_module("scipy.fft")


def _of_nothing(x: Array, **params: Any) -> Array:
    """Zeros in the shape of the result, because libraries do not transform an empty axis."""
    call = PRIMITIVES["fft"].describe(x, **params)
    return np.zeros(call.shape, call.facts["result"])


KERNELS: dict[str, Kernel] = {"pocketfft": Kernel(transform_numpy), "scipy": Kernel(transform_scipy)}
