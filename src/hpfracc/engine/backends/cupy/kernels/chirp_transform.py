"""The chirp transform in CuPy: chirps made on the device, three transforms by cuFFT."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cupy
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.chirp import Tools, chirps
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.chirp_transform import transform_length

__all__ = ["KERNELS"]


class Chirps(NamedTuple):
    """The chirp before, the transform of the one between, the one after, and the length of the transforms."""

    before: cupy.ndarray
    between: cupy.ndarray
    after: cupy.ndarray
    size: int


def _unit(t: cupy.ndarray) -> cupy.ndarray:
    value = cupy.empty(t.shape, np.complex128)
    angle = (2 * math.pi) * t
    value.real = cupy.cos(angle)
    value.imag = cupy.sin(angle)
    return value


_TOOLS = Tools(
    range=lambda start, stop: cupy.arange(start, stop, dtype=np.int64),
    float=lambda x: x.astype(np.float64),
    round=cupy.rint,
    hold=lambda x: x,
    unit=_unit,
    join=lambda parts: cupy.concatenate(parts, -1),
    zeros=lambda like, count: cupy.zeros((*like.shape[:-1], count), np.complex128),
)


def prepare(rates: cupy.ndarray, call: Call) -> Chirps:
    """Chirps for ``call``, and the transform of the one that is convolved with, in the precision of the result."""
    given, points = call.length, call.facts["points"]
    size = transform_length(given, points)
    dtype = call.facts["result"]
    rates = rates.astype(np.float64, copy=False)
    if not given or not points or not rates.size:
        nothing = cupy.zeros((*rates.shape[:-1], 0), dtype)
        return Chirps(nothing, nothing, nothing, size)
    before, between, after = chirps(_TOOLS, rates, given, points, call.facts["offsets"], size)
    spectrum = cupy.fft.fft(between)
    before, spectrum, after = (part.astype(dtype, copy=False) for part in (before, spectrum, after))
    return Chirps(before, spectrum, after, size)


def apply(prepared: Chirps, x: cupy.ndarray, **params: Any) -> cupy.ndarray:
    """Multiply, convolve, multiply, with chirps that were kept."""
    points = params.get("points")
    points = x.shape[-1] if points is None else points
    batch = np.broadcast_shapes(x.shape[:-1], prepared.before.shape[:-1])
    if not x.shape[-1] or not points or 0 in batch:
        return cupy.zeros((*batch, points), prepared.before.dtype)
    spectrum = cupy.fft.fft((x * prepared.before).astype(prepared.before.dtype, copy=False), prepared.size)
    spectrum *= prepared.between
    spectrum = cupy.fft.ifft(spectrum)
    return spectrum[..., :points] * prepared.after


def transform(x: cupy.ndarray, rates: cupy.ndarray, **params: Any) -> cupy.ndarray:
    """The chirp transform along the last axis."""
    call = PRIMITIVES["chirp_transform"].describe(x, rates, **params)
    return apply(prepare(rates, call), x, **params)


KERNELS: dict[str, Kernel] = {"fft": Kernel(transform, prepare, apply)}
