"""Symmetric Toeplitz products in NumPy: the sum, or the generic kernel by ``scipy.fft`` with threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.toeplitz_apply import Prepared, make_kernels
from hpfracc.engine.backends.numpy.nonfinite import all_finite
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]

_CONTRACT = ToeplitzApply()


@np.errstate(all="ignore")
def apply_direct(weights: Array, signal: Array, *, axes: Any = -1) -> Array:
    """The direct sum, by ``numpy.convolve`` for each row."""
    call = _CONTRACT.describe(weights, signal, axes=axes)
    result = np.zeros(call.shape, signal.dtype)
    if not result.size or not call.facts["taps"]:
        return result
    (axis,), (taps,), (n,) = call.facts["axes"], call.facts["used"], call.facts["points"]
    out = np.moveaxis(result, axis, -1)
    weights, signal = np.moveaxis(weights, axis, -1)[..., :taps], np.moveaxis(signal, axis, -1)
    weights = np.concatenate([weights[..., :0:-1], weights], axis=-1)
    weights = np.broadcast_to(weights, (*out.shape[:-1], weights.shape[-1]))
    signal = np.broadcast_to(signal, out.shape)
    for index in np.ndindex(out.shape[:-1]):
        out[index] = np.convolve(signal[index], weights[index])[taps - 1 : taps - 1 + n]
    return result


def _all_finite(signal: Array, result: Array | None) -> bool:
    return result is None or all_finite(np.asarray(result))


_FFT = make_kernels(NUMPY, all_finite=_all_finite, overwrite_x=True)["fft"]


def apply_fft(weights: Array, signal: Array, *, axes: Any = -1, workers: int = 1) -> Array:
    """Transform, multiply, transform back."""
    return np.asarray(_FFT.run(weights, signal, axes, workers=workers))


def apply_spectrum(prepared: Prepared, signal: Array, *, axes: Any = -1, workers: int = 1) -> Array:
    """Apply weights whose transform is cached: two transforms instead of three."""
    assert _FFT.apply is not None
    return np.asarray(_FFT.apply(prepared, signal, axes, workers=workers))


KERNELS: dict[str, Kernel] = {
    "direct": Kernel(apply_direct),
    "fft": Kernel(apply_fft, _FFT.prepare, apply_spectrum),
}
