"""Differences of samples, and starting weights added to a result, in CuPy: one kernel each."""

from __future__ import annotations

import cupy

__all__ = ["add_starts", "differences"]

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


def add_starts(result: cupy.ndarray, signal: cupy.ndarray, starts: cupy.ndarray, first: int) -> cupy.ndarray:
    """``result``, written to, with ``starts[j] * signal[..., first + j]`` added from that point on."""
    for j, row in enumerate(starts, first):
        result[..., j:] += signal[..., j : j + 1] * row[j:]
    return result
