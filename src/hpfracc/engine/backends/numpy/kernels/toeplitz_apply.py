"""Symmetric Toeplitz products in NumPy: the sum, or one padded transform by ``scipy.fft``."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.toeplitz_apply import affected
from hpfracc.engine.backends.numpy.nonfinite import all_finite
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply, padded_sizes, read_axes

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]

_CONTRACT = ToeplitzApply()
# inf - inf inside a transform needs no warning: the result is repaired afterwards.
_QUIET = np.errstate(all="ignore")


class ToeplitzSpectrum(NamedTuple):
    """The transform of the weights, extended symmetrically and padded to ``sizes``; real for real weights.

    ``used`` are the taps along each axis, ``rows`` the shape of the weights without them.
    """

    transform: Array
    sizes: tuple[int, ...]
    used: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the cached object."""
        return int(self.transform.nbytes)


@_QUIET
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


@_QUIET
def apply_fft(weights: Array, signal: Array, *, axes: Any = -1, workers: int = 1) -> Array:
    """Transform, multiply, transform back."""
    call = _CONTRACT.describe(weights, signal, axes=axes)
    return _apply(_spectrum(weights, call, workers), signal, call.facts["axes"], workers)


@_QUIET
def prepare_fft(weights: Array, call: Call) -> ToeplitzSpectrum:
    """The transform of the weights for signals of that length."""
    return _spectrum(weights.astype(call.dtype, copy=False), call, 1)


@_QUIET
def apply_prepared(prepared: ToeplitzSpectrum, signal: Array, *, axes: Any = -1, workers: int = 1) -> Array:
    """Apply weights whose transform is cached: two transforms instead of three."""
    return _apply(prepared, signal, read_axes(axes, signal.ndim), workers)


def _spectrum(weights: Array, call: Call, workers: int) -> ToeplitzSpectrum:
    axes, used, rows = call.facts["axes"], call.facts["used"], call.facts["rows"]
    sizes = padded_sizes(call.facts["points"], used)
    if not call.facts["taps"] or not weights.size:
        return ToeplitzSpectrum(weights[..., :0], sizes, used, rows)
    for axis, taps, size in zip(axes, used, sizes, strict=True):
        weights = _continued(np.moveaxis(weights, axis, -1)[..., :taps], size)
        weights = np.moveaxis(weights, -1, axis)
    fft = _scipy_fft()
    if weights.dtype.kind == "c":
        return ToeplitzSpectrum(fft.fftn(weights, axes=axes, workers=workers), sizes, used, rows)
    # Even in every axis, so that its transform is real.
    transform = np.ascontiguousarray(fft.rfftn(weights, axes=axes, workers=workers).real)
    return ToeplitzSpectrum(transform, sizes, used, rows)


def _continued(weights: Array, size: int) -> Array:
    """``w[0], w[1], ..., 0, ..., w[1]``: a symmetric period of ``size`` points."""
    taps = weights.shape[-1]
    made = np.zeros((*weights.shape[:-1], size), weights.dtype)
    made[..., :taps] = weights
    made[..., size - taps + 1 :] = weights[..., :0:-1]
    return made


def _apply(prepared: ToeplitzSpectrum, signal: Array, axes: tuple[int, ...], workers: int) -> Array:
    points = tuple(signal.shape[axis] for axis in axes)
    if not prepared.transform.size or not signal.size:
        return np.zeros(np.broadcast_shapes(prepared.rows, signal.shape), signal.dtype)
    result = _product(prepared, signal, axes, points, workers)
    if all(taps >= n for taps, n in zip(prepared.used, points, strict=True)):
        return result  # a non-finite sample affects every output of its transform, as it should
    first = tuple(0 if axis in axes else slice(None) for axis in range(-result.ndim, 0))
    if all_finite(result[first]) or all_finite(signal):
        return result
    bad = ~np.isfinite(signal)
    clean = _product(prepared, np.where(bad, signal.dtype.type(0), signal), axes, points, workers)
    return np.where(affected(NUMPY, bad, axes, prepared.used), signal.dtype.type(np.nan), clean)


def _product(
    prepared: ToeplitzSpectrum, signal: Array, axes: tuple[int, ...], points: tuple[int, ...], workers: int
) -> Array:
    fft = _scipy_fft()
    real = signal.dtype.kind != "c"
    spectrum = (fft.rfftn if real else fft.fftn)(signal, prepared.sizes, axes=axes, workers=workers)
    fits = np.broadcast_shapes(spectrum.shape, prepared.transform.shape) == spectrum.shape
    spectrum = np.multiply(spectrum, prepared.transform, out=spectrum if fits else None)
    back = fft.irfftn if real else fft.ifftn
    full = back(spectrum, prepared.sizes, axes=axes, workers=workers, overwrite_x=True)
    del spectrum
    part = [slice(None)] * full.ndim
    for axis, n in zip(axes, points, strict=True):
        part[axis] = slice(n)
    return np.array(full[tuple(part)], order="C")


@functools.cache
def _scipy_fft() -> ModuleType:
    """Imported on first use, because that takes 0.2 s."""
    return importlib.import_module("scipy.fft")


KERNELS: dict[str, Kernel] = {
    "direct": Kernel(apply_direct),
    "fft": Kernel(apply_fft, prepare_fft, apply_prepared),
}
