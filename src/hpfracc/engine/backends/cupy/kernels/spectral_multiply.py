"""Spectral multiplication in CuPy: cuFFT, and cosines and sines composed of its transforms."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np
from cupyx.scipy import fft

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.trigonometric import Functions, backward, forward
from hpfracc.engine.primitives.base import ArraySpec, Call
from hpfracc.engine.primitives.spectral_multiply import SpectralMultiply, is_half, plan_axes

__all__ = ["KERNELS"]

_CONTRACT = SpectralMultiply()


def _phases(count: int, n: int, like: cupy.ndarray) -> cupy.ndarray:
    angles = cupy.arange(count, dtype=np.float64) * (-math.pi / (2 * n))
    return cupy.exp(1j * angles).astype(np.result_type(like.dtype, np.complex64), copy=False)


def _complex(real: cupy.ndarray, imaginary: cupy.ndarray) -> cupy.ndarray:
    made = cupy.empty(real.shape, np.result_type(real.dtype, np.complex64))
    made.real, made.imag = real, imaginary
    return made


_FUNCTIONS = Functions(
    rfft=lambda x: fft.rfft(cupy.ascontiguousarray(x)),
    irfft=lambda x, n: fft.irfft(cupy.ascontiguousarray(x), n),
    join=lambda parts: cupy.concatenate(list(parts), -1),
    flip=lambda x: x[..., ::-1],
    stack=lambda a, b: cupy.stack((a, b)),
    interleave=lambda a, b: cupy.stack((a, b), -1).reshape(*a.shape[:-1], 2 * a.shape[-1]),
    complex=_complex,
    phases=_phases,
    zeros=lambda x: cupy.zeros((*x.shape[:-1], 1), x.dtype),
    is_complex=lambda x: x.dtype.kind == "c",
)


def multiply(
    symbol: cupy.ndarray, signal: cupy.ndarray, axes: Any = -1, kinds: Any = "fft", real: bool | None = None
) -> cupy.ndarray:
    """Transform, multiply, transform back; cosines and sines innermost, while the numbers are real."""
    plan = plan_axes(axes, kinds, signal.ndim)
    as_real = signal.dtype.kind != "c" and (symbol.dtype.kind != "c" if real is None else real)
    if signal.dtype.kind not in "fc":
        signal = signal.astype(np.float64)
    symbol = _in_precision(symbol, signal.dtype)
    if not signal.size or not symbol.size:
        specs = (ArraySpec(array.shape, str(array.dtype)) for array in (symbol, signal))
        call = _CONTRACT.describe(*specs, axes=axes, kinds=kinds, real=real)
        return cupy.zeros(call.shape, call.dtype)
    n = signal.shape
    spectrum = signal
    for axis, kind in plan.waves:
        spectrum = cupy.moveaxis(forward(_FUNCTIONS, kind, cupy.moveaxis(spectrum, axis, -1)), -1, axis)
    if plan.turns:
        spectrum = (fft.rfftn if as_real else fft.fftn)(cupy.ascontiguousarray(spectrum), axes=plan.turns)
        symbol = _cut_symbol(symbol, plan.turns[-1], n) if as_real else symbol
    elif not as_real:
        symbol = symbol.astype(np.result_type(symbol.dtype, np.complex64), copy=False)
    spectrum = spectrum * symbol
    if plan.turns:
        back = fft.irfftn if as_real else fft.ifftn
        spectrum = back(spectrum, [n[axis] for axis in plan.turns], axes=plan.turns, overwrite_x=True)
    for axis, kind in reversed(plan.waves):
        spectrum = cupy.moveaxis(backward(_FUNCTIONS, kind, cupy.moveaxis(spectrum, axis, -1)), -1, axis)
    return spectrum


def _cut_symbol(symbol: cupy.ndarray, axis: int, points: tuple[int, ...]) -> cupy.ndarray:
    """The frequencies from 0 up along the halved axis."""
    if symbol.ndim < -axis or symbol.shape[axis] == 1 or is_half(points[axis], symbol.shape[axis]):
        return symbol
    return symbol[(..., slice(points[axis] // 2 + 1), *(slice(None),) * (-axis - 1))]


def _in_precision(symbol: cupy.ndarray, dtype: np.dtype[Any]) -> cupy.ndarray:
    real = np.finfo(dtype).dtype
    wanted = np.result_type(real, np.complex64) if symbol.dtype.kind == "c" else real
    return symbol.astype(wanted, copy=False)


def prepare(symbol: cupy.ndarray, call: Call) -> cupy.ndarray:
    """A copy in the precision of the work: what is kept must not change with the caller's array."""
    return cupy.array(_in_precision(symbol, np.dtype(call.dtype)), order="C")


KERNELS: dict[str, Kernel] = {"fft": Kernel(multiply, prepare, multiply)}
