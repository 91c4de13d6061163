"""Spectral multiplication in NumPy: the generic kernel by ``scipy.fft``, which has every transform, and threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.spectral_multiply import make_kernels

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]


def _product(spectrum: Array, symbol: Array) -> Array:
    """The product, written over the spectrum if it fits."""
    fits = np.result_type(spectrum, symbol) == spectrum.dtype
    fits = fits and np.broadcast_shapes(spectrum.shape, symbol.shape) == spectrum.shape
    return np.multiply(spectrum, symbol, out=spectrum if fits else None)


def _waves(x: Array, kind: str, axis: int, workers: int = 1) -> Any:
    transform = NUMPY.fft.dct if kind.startswith("dct") else NUMPY.fft.dst
    return transform(x, int(kind[-1]), axis=axis, workers=workers)


def _back(x: Array, kind: str, axis: int, workers: int = 1) -> Any:
    transform = NUMPY.fft.idct if kind.startswith("dct") else NUMPY.fft.idst
    return transform(x, int(kind[-1]), axis=axis, workers=workers, overwrite_x=True)


_GENERIC = make_kernels(NUMPY, _product, (_waves, _back), overwrite_x=True)["fft"]


def multiply(
    symbol: Array,
    signal: Array,
    *,
    axes: Any = -1,
    kinds: Any = "fft",
    real: bool | None = None,
    workers: int = 1,
) -> Array:
    """Transform, multiply, transform back."""
    return np.asarray(_GENERIC.run(symbol, signal, axes, kinds, real, workers=workers))


KERNELS: dict[str, Kernel] = {"scipy": Kernel(multiply, _GENERIC.prepare, multiply)}
