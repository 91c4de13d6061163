"""The chirp transform by three padded Fourier transforms: multiply by a chirp, convolve with one, multiply again.

Phases are reduced outside of differentiation, and the derivative of the unreduced phases is restored, so that it is
correct too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.chirp import chirps
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.chirp_transform import transform_length

__all__ = ["make_kernels"]


class Chirps(NamedTuple):
    """The first chirp, the transform of the second, and the third, in the precision of the result."""

    before: Any
    between: Any
    after: Any


def _make_chirps(
    xp: Namespace, rates: Any, *, given: int, points: int, offsets: tuple[float, float], dtype: str
) -> Chirps:
    """Chirps for ``given`` samples and ``points`` results, computed in double precision."""
    rates = xp.astype(rates, "float64")
    if not given or not points or 0 in rates.shape:
        nothing = xp.zeros((*rates.shape[:-1], 0), dtype, rates)
        return Chirps(nothing, nothing, nothing)
    before, between, after = chirps(xp, rates, given, points, offsets, transform_length(given, points))
    return Chirps(xp.astype(before, dtype), xp.astype(xp.fft.fft(between), dtype), xp.astype(after, dtype))


def make_kernels(library: Library) -> dict[str, Kernel]:
    """The transform along the last axis, and its chirps, which can be cached."""
    xp = library.xp
    made = library.compiled_wide(partial(_make_chirps, xp), static=("given", "points", "offsets", "dtype"))
    used = library.compiled_wide(partial(_transform, library), static=("points",))

    def prepare(rates: Any, call: Call) -> Chirps:
        facts = call.facts
        chirped: Chirps = made(
            rates, given=call.length, points=facts["points"], offsets=facts["offsets"], dtype=facts["result"]
        )
        return chirped

    def apply(prepared: Chirps, x: Any, *, points: int | None = None, offsets: Any = None, **options: Any) -> Any:
        return used(prepared, x, points=x.shape[-1] if points is None else points, **options)

    def transform(
        x: Any, rates: Any, *, points: int | None = None, offsets: tuple[float, float] = (0.0, 0.0), **options: Any
    ) -> Any:
        call = PRIMITIVES["chirp_transform"].describe(x, rates, points=points, offsets=offsets)
        return apply(prepare(rates, call), x, points=points, **options)

    run, use = (library.finished(one, threads=True) for one in (library.wide(transform), apply))
    return {"fft": Kernel(run, xp.quiet(prepare), use)}


def _transform(library: Library, prepared: Chirps, x: Any, *, points: int, **options: Any) -> Any:
    """The transform with given chirps."""
    xp, (before, between, after) = library.xp, prepared
    if 0 in x.shape or 0 in before.shape or not points:
        batch = np.broadcast_shapes(tuple(x.shape[:-1]), tuple(before.shape[:-1]))
        return xp.zeros((*batch, points), before.dtype, x)
    options = {**options, **library.back_options}
    spectrum = xp.fft.fft(xp.astype(x * before, before.dtype), between.shape[-1], **options)
    spectrum = library.multiply(spectrum, between)
    # Rebound, so that memory is freed early.
    spectrum = xp.fft.ifft(spectrum, **options)
    return spectrum[..., :points] * after
