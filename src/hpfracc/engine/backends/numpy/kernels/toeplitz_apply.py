"""Symmetric Toeplitz products in NumPy: the sum, which needs little memory, or the generic transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.toeplitz_apply import make_kernels
from hpfracc.engine.backends.numpy.library import LIBRARY
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply

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


KERNELS: dict[str, Kernel] = {"direct": Kernel(apply_direct), "fft": make_kernels(LIBRARY)["fft"]}
