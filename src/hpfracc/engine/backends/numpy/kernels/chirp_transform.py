"""The chirp transform by three padded transforms of SciPy's pocketfft, rows spread over threads."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.chirp import Tools, chirps
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.chirp_transform import transform_length

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]


class Chirps(NamedTuple):
    """The chirp before, the transform of the one between, the one after, and the length of the transforms."""

    before: Array
    between: Array
    after: Array
    size: int


def _unit(t: Array) -> Array:
    value = np.empty(t.shape, np.complex128)
    angle = (2 * np.pi) * t
    np.cos(angle, out=value.real)
    np.sin(angle, out=value.imag)
    return value


_TOOLS = Tools(
    range=lambda start, stop: np.arange(start, stop, dtype=np.int64),
    float=lambda x: x.astype(np.float64),
    round=np.rint,
    hold=lambda x: x,
    unit=_unit,
    join=lambda parts: np.concatenate(parts, -1),
    zeros=lambda like, count: np.zeros((*like.shape[:-1], count), np.complex128),
)


@functools.cache
def _fft() -> ModuleType:
    """Imported when it is first needed: that takes 0.2 s."""
    return importlib.import_module("scipy.fft")


def prepare(rates: Array, call: Call) -> Chirps:
    """Chirps for ``call``, and the transform of the one that is convolved with, in the precision of the result."""
    given, points = call.length, call.facts["points"]
    size = transform_length(given, points)
    dtype = call.facts["result"]
    rates = np.asarray(rates, np.float64)
    if not given or not points:
        nothing = np.zeros((*rates.shape[:-1], 0), dtype)
        return Chirps(nothing, nothing, nothing, size)
    with np.errstate(invalid="ignore"):  # rates that are not finite
        before, between, after = chirps(_TOOLS, rates, given, points, call.facts["offsets"], size)
    spectrum = _fft().fft(between, overwrite_x=True)
    before, spectrum, after = (part.astype(dtype, copy=False) for part in (before, spectrum, after))
    return Chirps(before, spectrum, after, size)


def apply(prepared: Chirps, x: Array, *, workers: int = 1, **params: Any) -> Array:
    """Multiply, convolve, multiply, with chirps that were kept."""
    points = params.get("points")
    points = x.shape[-1] if points is None else points
    if not x.shape[-1] or not points:
        batch = np.broadcast_shapes(x.shape[:-1], prepared.before.shape[:-1])
        return np.zeros((*batch, points), prepared.before.dtype)
    with np.errstate(invalid="ignore"):
        spectrum = _fft().fft(np.asarray(x * prepared.before, prepared.before.dtype), prepared.size, workers=workers)
        spectrum *= prepared.between
        product = _fft().ifft(spectrum, overwrite_x=True, workers=workers)[..., :points]
        return np.asarray(product * prepared.after)


def transform(x: Array, rates: Array, *, workers: int = 1, **params: Any) -> Array:
    """The chirp transform along the last axis."""
    call = PRIMITIVES["chirp_transform"].describe(x, rates, **params)
    return apply(prepare(rates, call), x, workers=workers, **params)


KERNELS: dict[str, Kernel] = {"fft": Kernel(transform, prepare, apply)}
