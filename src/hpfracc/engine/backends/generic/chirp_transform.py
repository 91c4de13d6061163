"""The chirp transform by three padded Fourier transforms: multiply by a chirp, convolve with one, multiply again.

Phases are reduced outside of differentiation, and the derivative of the unreduced phases is restored, so that it is
correct too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.chirp import chirps
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.chirp_transform import transform_length

__all__ = ["Chirps", "make_chirps", "make_kernels", "transform_with_chirps"]


class Chirps(NamedTuple):
    """The first chirp, the transform of the second, and the third, in the precision of the result."""

    before: Any
    between: Any
    after: Any


def make_chirps(xp: Namespace, rates: Any, given: int, points: int, offsets: tuple[float, float], dtype: str) -> Chirps:
    """Chirps for ``given`` samples and ``points`` results, computed in double precision."""
    rates = xp.astype(rates, "float64")
    if not given or not points or 0 in rates.shape:
        nothing = xp.zeros((*rates.shape[:-1], 0), dtype, rates)
        return Chirps(nothing, nothing, nothing)
    before, between, after = chirps(xp, rates, given, points, offsets, transform_length(given, points))
    return Chirps(xp.astype(before, dtype), xp.astype(xp.fft.fft(between), dtype), xp.astype(after, dtype))


def transform_with_chirps(
    xp: Namespace,
    prepared: Chirps,
    x: Any,
    points: int,
    *,
    multiply: Callable[[Any, Any], Any] = operator.imul,
    **options: Any,
) -> Any:
    """The transform with given chirps; ``multiply(a, b)`` may overwrite ``a``."""
    before, between, after = prepared
    if 0 in x.shape or 0 in before.shape or not points:
        batch = np.broadcast_shapes(x.shape[:-1], before.shape[:-1])
        return xp.astype(xp.zeros((*batch, points), "complex64", x), before.dtype)
    spectrum = xp.fft.fft(xp.astype(x * before, before.dtype), between.shape[-1], **options)
    spectrum = multiply(spectrum, between)
    # Rebound, so that memory is freed early.
    spectrum = xp.fft.ifft(spectrum, **options)
    return spectrum[..., :points] * after


def make_kernels(xp: Namespace, multiply: Callable[[Any, Any], Any] = operator.imul) -> dict[str, Kernel]:
    """The transform along the last axis, and its chirps, which can be cached."""

    def prepare(rates: Any, call: Call) -> Chirps:
        facts = call.facts
        return make_chirps(xp, rates, call.length, facts["points"], facts["offsets"], facts["result"])

    def apply(prepared: Chirps, x: Any, *, points: int | None = None, offsets: Any = None) -> Any:
        return transform_with_chirps(xp, prepared, x, x.shape[-1] if points is None else points, multiply=multiply)

    def transform(x: Any, rates: Any, **params: Any) -> Any:
        call = PRIMITIVES["chirp_transform"].describe(x, rates, **params)
        return apply(prepare(rates, call), x, **params)

    return {"fft": Kernel(xp.quiet(transform), xp.quiet(prepare), xp.quiet(apply))}
