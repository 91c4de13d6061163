"""Causal convolution in CuPy: the generic kernels, and one padded FFT with two kernels fused around it.

Non-finite samples stay causal without waiting for the device: the kernel that pads the signal also sets non-finite
samples to 0 and records the first one of each row, and the kernel that truncates the result writes nan from there on.
"""

from __future__ import annotations

from dataclasses import replace

import cupy
import numpy as np
from cupyx.scipy import fft

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.cupy.library import LIBRARY
from hpfracc.engine.backends.generic.causal_convolution import PreparedWeights, make_kernels

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


KERNELS: dict[str, Kernel] = {
    name: kernel for name, kernel in make_kernels(LIBRARY).items() if name in ("direct", "fft")
}
_GENERIC = KERNELS["fft"].apply


def apply_fft(
    prepared: PreparedWeights,
    signal: cupy.ndarray,
    *starts: cupy.ndarray,
    differences: bool = False,
    starts_from: int = 0,
) -> cupy.ndarray:
    """With weights whose transform is cached: fused if one row of them, as long as the signal, serves all rows."""
    operator, layout = prepared
    if operator.ndim == 1 and 0 < layout.points <= layout.taps and signal.size:
        signal = cupy.ascontiguousarray(signal, dtype=layout.dtype)
        return _apply_fused(prepared, signal, starts[0] if starts else None, differences, starts_from)
    assert _GENERIC is not None
    return _GENERIC(prepared, signal, *starts, differences=differences, starts_from=starts_from)


def _apply_fused(
    prepared: PreparedWeights, signal: cupy.ndarray, starts: cupy.ndarray | None, differences: bool, starts_from: int
) -> cupy.ndarray:
    """The convolution with its options fused into the padding and truncation kernels."""
    points, size = signal.shape[-1], prepared.layout.size
    first = cupy.full((*signal.shape[:-1], 1), points, np.int64)
    padded = cupy.empty((*signal.shape[:-1], size), signal.dtype)
    _PAD_CLEAN(signal, points, size, int(differences), padded, first)
    forward, back = (fft.fft, fft.ifft) if signal.dtype.kind == "c" else (fft.rfft, fft.irfft)
    product = forward(padded, size)
    product *= prepared.operator
    full = back(product, size, norm="forward", overwrite_x=True)
    result = cupy.empty(signal.shape, signal.dtype)
    _CUT_TAINT(
        cupy.ascontiguousarray(full),
        first,
        signal,
        signal if starts is None else cupy.ascontiguousarray(starts, dtype=signal.dtype),
        points,
        size,
        int(differences),
        0 if starts is None else starts.shape[0],
        int(starts_from),
        np.nan,
        result,
    )
    return result


KERNELS["fft"] = replace(KERNELS["fft"], apply=apply_fft)
