"""Spectral multiplication by ``scipy.fft``, which has every kind of transform, single precision and threads."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.spectral_multiply import SpectralMultiply, is_half, plan_axes

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]

_CONTRACT = SpectralMultiply()


def multiply(
    symbol: Array,
    signal: Array,
    *,
    axes: Any = -1,
    kinds: Any = "fft",
    real: bool | None = None,
    workers: int = 1,
) -> Array:
    """Transform, multiply, transform back; cosines and sines innermost, while the numbers are real."""
    plan = plan_axes(axes, kinds, signal.ndim)
    as_real = signal.dtype.kind != "c" and (symbol.dtype.kind != "c" if real is None else real)
    signal = _floating(signal)
    symbol = _in_precision(symbol, signal)
    if not signal.size or not symbol.size:
        call = _CONTRACT.describe(symbol, signal, axes=axes, kinds=kinds, real=real)
        return np.zeros(call.shape, call.dtype)
    fft, n = _scipy_fft(), signal.shape
    # Non-finite samples are data: inf - inf inside a transform needs no warning.
    with np.errstate(all="ignore"):
        spectrum = signal
        for axis, kind in plan.waves:
            transform = fft.dct if kind.startswith("dct") else fft.dst
            spectrum = transform(
                spectrum, int(kind[-1]), axis=axis, workers=workers, overwrite_x=spectrum is not signal
            )
        if plan.turns:
            forward = fft.rfftn if as_real else fft.fftn
            spectrum = forward(spectrum, axes=plan.turns, workers=workers)
            symbol = cut_symbol(symbol, plan.turns[-1], n) if as_real else symbol
        elif not as_real and spectrum.dtype.kind != "c" and symbol.dtype.kind != "c":
            symbol = symbol + 0j
        spectrum = _product(spectrum, symbol, own=spectrum is not signal)
        if plan.turns:
            backward = fft.irfftn if as_real else fft.ifftn
            sizes = [n[axis] for axis in plan.turns]
            spectrum = backward(spectrum, sizes, axes=plan.turns, workers=workers, overwrite_x=True)
        for axis, kind in reversed(plan.waves):
            transform = fft.idct if kind.startswith("dct") else fft.idst
            spectrum = transform(spectrum, int(kind[-1]), axis=axis, workers=workers, overwrite_x=True)
    return np.asarray(spectrum)


def _product(spectrum: Array, symbol: Array, own: bool) -> Array:
    """The product, written over the spectrum if it fits."""
    fits = own and np.result_type(spectrum, symbol) == spectrum.dtype
    fits = fits and np.broadcast_shapes(spectrum.shape, symbol.shape) == spectrum.shape
    return np.multiply(spectrum, symbol, out=spectrum if fits else None)


def cut_symbol(symbol: Array, axis: int, points: tuple[int, ...]) -> Array:
    """The non-negative frequencies along the halved axis."""
    if symbol.ndim < -axis or symbol.shape[axis] == 1 or is_half(points[axis], symbol.shape[axis]):
        return symbol
    part: tuple[Any, ...] = (..., slice(points[axis] // 2 + 1), *(slice(None),) * (-axis - 1))
    view: Array = symbol[part]
    return view


def _floating(signal: Array) -> Array:
    return signal if signal.dtype.kind in "fc" else signal.astype(np.float64)


def _in_precision(symbol: Array, signal: Array) -> Array:
    single = signal.dtype.char in "fF"
    if symbol.dtype.kind == "c":
        return symbol.astype(np.complex64 if single else np.complex128, copy=False)
    return symbol.astype(np.float32 if single else np.float64, copy=False)


@functools.cache
def _scipy_fft() -> ModuleType:
    """Imported on first use, because that takes 0.2 s."""
    return importlib.import_module("scipy.fft")


def prepare(symbol: Array, call: Call) -> Array:
    """A copy in the precision of the computation, because the cached array must not change with the caller's."""
    return np.array(_in_precision(symbol, np.empty(0, call.dtype)), order="C")


KERNELS: dict[str, Kernel] = {"scipy": Kernel(multiply, prepare, multiply)}
