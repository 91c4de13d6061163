"""Causal convolution in CuPy: a sum per point for short signals, one padded FFT for long ones.

Non-finite samples stay causal without waiting for the device: the kernel that pads the signal also sets non-finite
samples to 0 and records the first one of each row, and the kernel that truncates the result writes nan from there on.
If a *weight* is not finite, the whole row may be nan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import cupy
import numpy as np
from cupyx.scipy import fft

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import add_starts, with_starts
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import Call

__all__ = ["KERNELS"]

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
    const long long last = column < taps - 1 ? column : taps - 1;
    typedef typename hpfracc_wide<T>::type A;
    A total = A(0);
    for (long long k = 0; k <= last; ++k) {
        total += A(weights[row * weight_step + k]) * A(signal[row * signal_step + column - k]);
    }
    result = T(total);
    """,
    "hpfracc_causal_sum",
    preamble=_WIDE,
)

_PAD_CLEAN = cupy.ElementwiseKernel(
    "raw T signal, int64 points, int64 size, int64 differences",
    "T padded, raw int64 first",
    """
    const long long row = i / size, column = i - row * size;
    T value = T(0);
    if (column < points) {
        const long long place = row * points + column;
        value = signal[place];
        if (differences) {
            value -= signal[column ? place - 1 : place];
        }
        if (!isfinite(value)) {
            value = T(0);
            atomicMin((long long*)&first[row], column);
        }
    }
    padded = value;
    """,
    "hpfracc_pad_clean",
)

_CUT_TAINT = cupy.ElementwiseKernel(
    "raw T full, raw int64 first, raw T signal, raw T starts, int64 points, int64 size, int64 differences, "
    "int64 count, int64 begin, float64 missing",
    "T result",
    """
    const long long row = i / points, column = i - row * points;
    if (column >= first[row]) {
        result = T(missing);
    } else {
        T value = full[row * size + column];
        for (long long j = 0; j < count; ++j) {
            const long long place = begin + j;
            if (column >= place) {
                T sample = signal[row * points + place];
                if (differences && place) {  // the first sample has no difference
                    sample -= signal[row * points + place - 1];
                }
                value += starts[j * points + column] * sample;
            }
        }
        result = value;
    }
    """,
    "hpfracc_cut_taint",
)


class CausalSpectrum(NamedTuple):
    """The transform of the weights, zero-padded to ``size`` points, and the dtype of the result."""

    transform: cupy.ndarray
    size: int
    taps: int
    dtype: np.dtype[Any]


def _operands(weights: cupy.ndarray, signal: cupy.ndarray) -> tuple[cupy.ndarray, cupy.ndarray]:
    """Both in the dtype of the result, with no more weights than points."""
    dtype = signal.dtype if signal.dtype.kind in "fc" else np.dtype(np.float64)
    if weights.dtype.kind == "c":
        dtype = np.result_type(dtype, np.complex64)
    return weights.astype(dtype, copy=False)[..., : signal.shape[-1]], signal.astype(dtype, copy=False)


def _sum_of_nothing(batch: tuple[int, ...], signal: cupy.ndarray, taps: int) -> cupy.ndarray | None:
    """The result if there are no points, rows or weights; otherwise None."""
    if taps and signal.size and 0 not in batch:
        return None
    return cupy.zeros(np.broadcast_shapes((*batch, 1), signal.shape), signal.dtype)


# Direct: each thread sums one point.


def _rows(array: cupy.ndarray, batch: tuple[int, ...]) -> tuple[cupy.ndarray, int]:
    """The array's rows concatenated, and the step from one to the next: 0 if one row is used for all."""
    if array.ndim == 1:
        return cupy.ascontiguousarray(array), 0
    return cupy.ascontiguousarray(cupy.broadcast_to(array, (*batch, array.shape[-1]))), array.shape[-1]


def convolve_direct(weights: cupy.ndarray, signal: cupy.ndarray) -> cupy.ndarray:
    """The direct sum, one thread per point."""
    weights, signal = _operands(weights, signal)
    points, taps = signal.shape[-1], weights.shape[-1]
    nothing = _sum_of_nothing(weights.shape[:-1], signal, taps)
    if nothing is not None:
        return nothing
    batch = np.broadcast_shapes(weights.shape[:-1], signal.shape[:-1])
    weights, weight_step = _rows(weights, batch)
    signal, signal_step = _rows(signal, batch)
    result = cupy.empty((*batch, points), signal.dtype)
    return _SUM(weights, signal, points, taps, weight_step, signal_step, result)


# FFT: one transform of everything, padded so that the cyclic product does not wrap into the first points.


def _forward(array: cupy.ndarray, size: int) -> cupy.ndarray:
    return fft.fft(array, size) if array.dtype.kind == "c" else fft.rfft(array, size)


def _spectrum(weights: cupy.ndarray, size: int) -> CausalSpectrum:
    if not weights.size:
        return CausalSpectrum(weights, size, 0, weights.dtype)
    return CausalSpectrum(_forward(weights, size), size, weights.shape[-1], weights.dtype)


def convolve_fft(weights: cupy.ndarray, signal: cupy.ndarray) -> cupy.ndarray:
    """Transform, multiply, transform back."""
    weights, signal = _operands(weights, signal)
    return apply_fft(_spectrum(weights, fast_length(max(1, signal.shape[-1] + weights.shape[-1] - 1))), signal)


def prepare_fft(weights: cupy.ndarray, call: Call) -> CausalSpectrum:
    """The transform of the weights, for signals of ``call.length`` points."""
    weights = weights.astype(call.dtype, copy=False)[..., : call.length]
    return _spectrum(weights, fast_length(max(1, call.length + weights.shape[-1] - 1)))


def apply_fft(prepared: CausalSpectrum, signal: cupy.ndarray) -> cupy.ndarray:
    """Convolve with weights whose transform is cached: two transforms instead of three."""
    signal = cupy.ascontiguousarray(signal, dtype=prepared.dtype)
    nothing = _sum_of_nothing(prepared.transform.shape[:-1], signal, prepared.taps)
    if nothing is not None:
        return nothing
    points = signal.shape[-1]
    if _is_fused(prepared, signal):
        return _apply_fused(prepared, signal)
    full, first = _product(prepared, signal, False)
    if prepared.taps < points:
        return cupy.where(_reached(signal, prepared.taps), signal.dtype.type(np.nan), full[..., :points])
    column = cupy.arange(points)
    return cupy.where(column >= first, signal.dtype.type(np.nan), full[..., :points])


def _is_fused(prepared: CausalSpectrum, signal: cupy.ndarray) -> bool:
    """Whether one row of weights is used for all rows, and a non-finite sample affects the rest of its row."""
    return bool(prepared.transform.ndim == 1 and 0 < signal.shape[-1] <= prepared.taps and signal.size)


def _product(prepared: CausalSpectrum, signal: cupy.ndarray, differences: bool) -> tuple[cupy.ndarray, cupy.ndarray]:
    """The cyclic product of the cleaned signal, and the first non-finite sample of each row."""
    points, size = signal.shape[-1], prepared.size
    first = cupy.full((*signal.shape[:-1], 1), points, np.int64)
    padded = cupy.empty((*signal.shape[:-1], size), signal.dtype)
    _PAD_CLEAN(signal, points, size, int(differences), padded, first)
    product = _forward(padded, size)
    if prepared.transform.ndim == 1:
        product *= prepared.transform
    else:
        product = product * prepared.transform
    if signal.dtype.kind == "c":
        return fft.ifft(product, overwrite_x=True), first
    return fft.irfft(product, size, overwrite_x=True), first


def _apply_fused(
    prepared: CausalSpectrum,
    signal: cupy.ndarray,
    starts: cupy.ndarray | None = None,
    differences: bool = False,
    starts_from: int = 0,
) -> cupy.ndarray:
    """The convolution with its options fused into the padding and truncation kernels."""
    full, first = _product(prepared, signal, differences)
    points, count = signal.shape[-1], 0 if starts is None else starts.shape[0]
    result = cupy.empty(signal.shape, signal.dtype)
    _CUT_TAINT(
        cupy.ascontiguousarray(full),
        first,
        signal,
        signal if starts is None else cupy.ascontiguousarray(starts, dtype=signal.dtype),
        points,
        prepared.size,
        int(differences),
        count,
        int(starts_from),
        np.nan,
        result,
    )
    return result


def _reached(signal: cupy.ndarray, taps: int) -> cupy.ndarray:
    """Whether one of the last ``taps`` samples is not finite."""
    count = cupy.cumsum(~cupy.isfinite(signal), axis=-1, dtype=np.int32)
    count[..., taps:] -= count[..., :-taps].copy()
    return count > 0


# Differences of samples and starting weights, one kernel each.

_DIFFERENCES = cupy.ElementwiseKernel(
    "raw T signal, int64 points",
    "T result",
    "result = signal[i] - signal[i % points ? i - 1 : i]",
    "hpfracc_differences",
)


def differences(signal: cupy.ndarray) -> cupy.ndarray:
    """``signal[n] - signal[n-1]`` along the last axis, 0 at the first point."""
    signal = cupy.ascontiguousarray(signal)
    result = cupy.empty(signal.shape, signal.dtype)
    return _DIFFERENCES(signal, max(1, signal.shape[-1]), result) if signal.size else result


_PLAIN: dict[str, Kernel] = {
    "direct": Kernel(convolve_direct),
    "fft": Kernel(convolve_fft, prepare_fft, apply_fft),
}
KERNELS: dict[str, Kernel] = {name: with_starts(kernel, differences, add_starts) for name, kernel in _PLAIN.items()}
_COMPOSED = KERNELS["fft"].apply


def _apply_fft_with_options(
    prepared: CausalSpectrum,
    signal: cupy.ndarray,
    *starts: cupy.ndarray,
    differences: bool = False,
    starts_from: int = 0,
) -> cupy.ndarray:
    """:func:`apply_fft` with the options of the primitive, fused with padding and truncation if possible."""
    if prepared.taps and _is_fused(prepared, signal):
        signal = cupy.ascontiguousarray(signal, dtype=prepared.dtype)
        return _apply_fused(prepared, signal, starts[0] if starts else None, differences, starts_from)
    assert _COMPOSED is not None
    return _COMPOSED(prepared, signal, *starts, differences=differences, starts_from=starts_from)


KERNELS["fft"] = replace(KERNELS["fft"], apply=_apply_fft_with_options)
