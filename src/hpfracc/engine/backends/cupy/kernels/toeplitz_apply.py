"""Symmetric Toeplitz products in CuPy: a sum per point for short signals, the generic kernel for long ones.

A non-finite sample affects only its own outputs, without synchronisation with the device.
"""

from __future__ import annotations

from typing import Any

import cupy
import cupyx.scipy.fft  # noqa: F401  (found by the namespace)

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.toeplitz_apply import make_kernels
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply

__all__ = ["KERNELS"]

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


KERNELS: dict[str, Kernel] = {"direct": Kernel(apply_direct), "fft": make_kernels(namespace("cupy"))["fft"]}
