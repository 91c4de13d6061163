"""The chirp transform in NumPy: the generic one by SciPy's pocketfft, with rows divided among threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.chirp_transform import Chirps, make_kernels, transform_with_chirps
from hpfracc.engine.primitives import PRIMITIVES

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]

prepare = make_kernels(NUMPY)["fft"].prepare
assert prepare is not None


@np.errstate(all="ignore")
def apply(prepared: Chirps, x: Array, *, workers: int = 1, points: int | None = None, offsets: Any = None) -> Array:
    """Multiply, convolve, multiply, with cached chirps."""
    points = x.shape[-1] if points is None else points
    return np.asarray(transform_with_chirps(NUMPY, prepared, x, points, workers=workers, overwrite_x=True))


def transform(x: Array, rates: Array, *, workers: int = 1, **params: Any) -> Array:
    """The chirp transform along the last axis."""
    assert prepare is not None
    call = PRIMITIVES["chirp_transform"].describe(x, rates, **params)
    return apply(prepare(np.asarray(rates), call), x, workers=workers, **params)


KERNELS: dict[str, Kernel] = {"fft": Kernel(transform, prepare, apply)}
