"""Symmetric Toeplitz products in CuPy: a sum per point for short signals, one padded FFT for long ones.

A non-finite sample affects only its own outputs, without synchronisation with the device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np
from cupyx.scipy import fft

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.toeplitz_apply import affected
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply, padded_sizes, read_axes

__all__ = ["KERNELS"]

_XP = namespace("cupy")

_CONTRACT = ToeplitzApply()

# Sums run in double precision, so that the direct sum of float32 numbers is not worse than their transform.
_WIDE = """
template <typename T> struct hpfracc_wide { typedef double type; };
template <typename T> struct hpfracc_wide<complex<T>> { typedef complex<double> type; };
"""
_SUM = cupy.ElementwiseKernel(
    "raw T weights, raw T signal, int64 points, int64 taps, int64 weight_step, int64 signal_step",
    "T result",
    """
    const long long row = i / points, column = i - row * points;
    const long long first = column < taps ? 0 : column - taps + 1;
    const long long last = column + taps < points ? column + taps - 1 : points - 1;
    typedef typename hpfracc_wide<T>::type A;
    A total = A(0);
    for (long long k = first; k <= last; ++k) {
        const long long lag = k < column ? column - k : k - column;
        total += A(weights[row * weight_step + lag]) * A(signal[row * signal_step + k]);
    }
    result = T(total);
    """,
    "hpfracc_toeplitz_sum",
    preamble=_WIDE,
)


class ToeplitzSpectrum(NamedTuple):
    """The transform of the weights, padded to ``sizes``; the taps along each axis, and the remaining shape."""

    transform: cupy.ndarray
    sizes: tuple[int, ...]
    used: tuple[int, ...]
    rows: tuple[int, ...]


# Direct: each thread sums one point.


def apply_direct(weights: cupy.ndarray, signal: cupy.ndarray, axes: Any = -1) -> cupy.ndarray:
    """The direct sum, one thread per point."""
    call = _CONTRACT.describe(weights, signal, axes=axes)
    (axis,), (points,), (taps,) = call.facts["axes"], call.facts["points"], call.facts["used"]
    if 0 in call.shape or not taps:
        return cupy.zeros(call.shape, signal.dtype)
    shape = (*call.shape[: len(call.shape) + axis], *call.shape[len(call.shape) + axis + 1 :])
    rows, weight_step = _rows(cupy.moveaxis(weights, axis, -1), shape)
    signal, signal_step = _rows(cupy.moveaxis(signal, axis, -1), shape)
    result = cupy.empty((*shape, points), signal.dtype)
    _SUM(rows, signal, points, taps, weight_step, signal_step, result)
    return result if axis == -1 else cupy.ascontiguousarray(cupy.moveaxis(result, -1, axis))


def _rows(array: cupy.ndarray, batch: tuple[int, ...]) -> tuple[cupy.ndarray, int]:
    """The array's rows concatenated, and the step from one to the next: 0 if one row is used for all."""
    length = array.shape[-1]
    if array.size == length:
        return cupy.ascontiguousarray(array), 0
    return cupy.ascontiguousarray(cupy.broadcast_to(array, (*batch, length))), length


# FFT: padded, so that the cyclic sum does not wrap into the signal's own points.


def apply_fft(weights: cupy.ndarray, signal: cupy.ndarray, axes: Any = -1) -> cupy.ndarray:
    """Transform, multiply, transform back."""
    call = _CONTRACT.describe(weights, signal, axes=axes)
    return _transform_and_back(_spectrum(weights, call), signal, call.facts["axes"])


def prepare_fft(weights: cupy.ndarray, call: Call) -> ToeplitzSpectrum:
    """The transform of the weights for signals of that length."""
    return _spectrum(weights.astype(call.dtype, copy=False), call)


def apply_spectrum(prepared: ToeplitzSpectrum, signal: cupy.ndarray, axes: Any = -1) -> cupy.ndarray:
    """Apply weights whose transform is cached: two transforms instead of three."""
    return _transform_and_back(prepared, signal, read_axes(axes, signal.ndim))


def _spectrum(weights: cupy.ndarray, call: Call) -> ToeplitzSpectrum:
    axes, used, rows = call.facts["axes"], call.facts["used"], call.facts["rows"]
    sizes = padded_sizes(call.facts["points"], used)
    if not weights.size or not call.facts["taps"]:
        return ToeplitzSpectrum(weights[..., :0], sizes, used, rows)
    for axis, taps, size in zip(axes, used, sizes, strict=True):
        half = cupy.moveaxis(weights, axis, -1)[..., :taps]
        whole = cupy.zeros((*half.shape[:-1], size), half.dtype)
        whole[..., :taps] = half
        whole[..., size - taps + 1 :] = half[..., :0:-1]
        weights = cupy.moveaxis(whole, -1, axis)
    weights = cupy.ascontiguousarray(weights)
    if weights.dtype.kind == "c":
        return ToeplitzSpectrum(fft.fftn(weights, axes=axes), sizes, used, rows)
    # Even in every axis, so that its transform is real.
    return ToeplitzSpectrum(cupy.ascontiguousarray(fft.rfftn(weights, axes=axes).real), sizes, used, rows)


def _transform_and_back(prepared: ToeplitzSpectrum, signal: cupy.ndarray, axes: tuple[int, ...]) -> cupy.ndarray:
    if not prepared.transform.size or not signal.size:
        return cupy.zeros(np.broadcast_shapes(prepared.rows, signal.shape), signal.dtype)
    points = [signal.shape[axis] for axis in axes]
    reaches_all = all(taps >= n for taps, n in zip(prepared.used, points, strict=True))
    bad = None if reaches_all else ~cupy.isfinite(signal)
    clean = signal if bad is None else cupy.where(bad, signal.dtype.type(0), signal)
    real = signal.dtype.kind != "c"
    forward, back = (fft.rfftn, fft.irfftn) if real else (fft.fftn, fft.ifftn)
    spectrum = forward(cupy.ascontiguousarray(clean), prepared.sizes, axes=axes)
    if np.broadcast_shapes(spectrum.shape, prepared.transform.shape) == spectrum.shape:
        spectrum *= prepared.transform
    else:
        spectrum = spectrum * prepared.transform
    full = back(spectrum, prepared.sizes, axes=axes, overwrite_x=True)
    part = [slice(None)] * full.ndim
    for axis, n in zip(axes, points, strict=True):
        part[axis] = slice(n)
    result = full[tuple(part)]
    if bad is None:
        return cupy.ascontiguousarray(result)
    return cupy.where(affected(_XP, bad, axes, prepared.used), signal.dtype.type(np.nan), result)


KERNELS: dict[str, Kernel] = {
    "direct": Kernel(apply_direct),
    "fft": Kernel(apply_fft, prepare_fft, apply_spectrum),
}
