"""The chirp transform by three padded Fourier transforms: multiply by a chirp, convolve with one, multiply again.

Phases are reduced outside of differentiation, and the derivative of the unreduced phases is restored, so that it is
correct too.

A chirp is ``exp(-2 pi i r m^2)`` with integer m. At a million points ``r m^2`` has lost twelve digits of its fraction,
and only the fraction matters. Here r and the integer ``m^2`` are split into pieces of 26 bits: every product of two
pieces is exact, and integer products are skipped.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.fft import transform_length

_BITS = 26
_ROOM = 1 << _BITS


def turns(xp: Namespace, rate: Any, rest: Any, index: Any, largest: int) -> Any:
    """``(rate + rest) index^2`` modulo 1, from -1/2 to 1/2; differentiable in ``rate``.

    ``rate`` has a last axis of length 1 to broadcast along ``index``; ``rest`` (or None) is its rounding error in
    float64. ``largest`` bounds ``abs(index)``, below 2^31.
    """
    squares = index * index
    whole = xp.astype(squares, "float64")
    held = xp.stop_gradient(rate)
    pieces = [
        xp.astype((squares >> (_BITS * j)) & (_ROOM - 1), "float64") * float(_ROOM**j)
        for j in range(-(-(largest * largest).bit_length() // _BITS))
    ]
    left = held - xp.round(held)
    scale = 1.0
    total = 0.0 * whole * left
    for i in range(len(pieces)):
        # The next 26 bits of the rate: integer multiples of 2^-26(i+1), so that products with later pieces are
        # integers.
        scale *= _ROOM
        part = xp.round(left * scale) / scale
        left = left - part
        for piece in pieces[: i + 1]:
            product = part * piece
            total = total + (product - xp.round(product))
    last = left * whole
    total = total + (last - xp.round(last))
    if rest is not None:
        total = total + xp.stop_gradient(rest) * whole
    total = total - xp.round(total)
    return total + (rate - held) * whole


def chirps(
    xp: Namespace, rates: Any, given: int, points: int, offsets: tuple[float, float], size: int
) -> tuple[Any, Any, Any]:
    """The factors before, in and after the convolution; the middle one in the order of a cyclic convolution.

    ``n k = (n^2 + k^2 - (k - n)^2) / 2`` turns the sum into a convolution; indices are doubled, so that halves become
    integers.
    """
    start, stop = (round(2 * offset) for offset in offsets)
    low = rates[..., 3:] if rates.shape[-1] == 6 else None

    def factor(terms: tuple[tuple[int, float], ...], begin: int, count: int) -> Any:
        parts = [rates[..., i : i + 1] * share for i, share in terms]
        rest = None if low is None else sum(low[..., i : i + 1] * share for i, share in terms)
        rate = parts[0]
        if len(parts) == 2:
            rate = parts[0] + parts[1]
            # The rounding error of the sum (Knuth), which matters at large n.
            other = rate - parts[0]
            lost = (parts[0] - (rate - other)) + (parts[1] - other)
            rest = lost if rest is None else rest + lost
        index = 2 * xp.arange(0, count, "int64", rates) + begin
        angle = (-2.0 * math.pi) * turns(xp, rate, rest, index, max(abs(begin), abs(begin + 2 * count)))
        return xp.complex(xp.cos(angle), xp.sin(angle))

    before = factor(((0, 0.25), (1, 0.125)), start, given)
    after = factor(((2, 0.25), (1, 0.125)), stop, points)
    ahead = factor(((1, -0.125),), stop - start, points)
    behind = factor(((1, -0.125),), stop - start - 2 * (given - 1), given - 1)
    gap = xp.zeros((*ahead.shape[:-1], size - given - points + 1), "complex128", ahead)
    between = xp.concatenate([ahead, gap, behind], -1)
    return before, between, after


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
