"""Contracts of the Fourier transforms, and of the chirp transform: multiply by a chirp, convolve with one, multiply."""

from __future__ import annotations

import math
from typing import Any, final

from hpfracc import _reading
from hpfracc.engine.numerics.lengths import fast_length, row_scratch
from hpfracc.engine.primitives.base import (
    REALS,
    ArraySpec,
    Call,
    Primitive,
    Transform,
    broadcast,
    complex_of,
    inexact,
    normal_axis,
    read_dtype,
    read_shape,
    real_of,
    shape_of,
)
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

KINDS = ("fft", "ifft", "rfft", "irfft")
NORMS = ("backward", "ortho", "forward")
#: Maximum number of points of a chirp transform: the square of twice an index needs 62 bits.
_MAX_POINTS = 1 << 29


@final
class FourierTransform(Primitive):
    """``fft(x, kind="fft", n=None, axis=-1, norm="backward")``, as ``numpy.fft`` defines its four kinds.

    ``n`` points along ``axis`` are transformed: the array is truncated or zero-padded to that length. ``rfft`` takes
    real numbers and returns ``n // 2 + 1`` frequencies; ``irfft`` takes frequencies and returns ``n`` real numbers, by
    default ``2 (frequencies - 1)``. The computation is in the precision of ``x`` (float64 for integers); ``fft`` and
    ``ifft`` accept real numbers.

    An empty axis gives an empty result, unless ``n`` is positive (then zeros are transformed). Differentiable in ``x``.
    """

    name = "fft"
    operands = ("x",)

    def describe(
        self, x: Any, *, kind: str = "fft", n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Call:
        """Check the call; ``facts``: ``kind``, ``result`` (a dtype), ``frequencies`` and ``given`` (points of both)."""
        dtype = inexact(read_dtype(self.name, "x", x))
        _reading.choice(f"{self.name}: kind", kind, KINDS)
        _reading.choice(f"{self.name}: norm", norm, NORMS)
        shape = read_shape(self.name, "x", x)
        axis = normal_axis(self.name, axis, len(shape))
        if kind == "rfft" and dtype.startswith("complex"):
            raise UnsupportedDtypeError(f"{self.name}: kind='rfft' of {dtype} numbers; use kind='fft', or take x.real")
        if kind == "irfft":
            dtype = complex_of(dtype)
        given = shape[axis]
        if n is not None:
            points = _reading.whole(f"{self.name}: n", n, least=1)
        elif kind == "irfft" and given == 1:
            raise ShapeError(f"{self.name}: kind='irfft' of a single frequency gives 2 (1 - 1) = 0 points; use n=1")
        else:
            points = 2 * (given - 1) if kind == "irfft" and given else given
        frequencies = points // 2 + 1 if kind in ("rfft", "irfft") and points else points
        return self.call(
            dtype,
            (*shape[:axis], frequencies if kind == "rfft" else points, *shape[axis + 1 :]),
            [shape],
            batch=math.prod(shape[:axis]) * math.prod(shape[axis + 1 :]),
            length=points,
            result=real_of(dtype) if kind == "irfft" else complex_of(dtype),
            kind=kind,
            frequencies=frequencies,
            given=given,
            inner=(axis - len(shape),),
        )

    def work(self, call: Call, algorithm: str) -> float:
        """``n log n`` for each row."""
        return float(call.batch * call.length * max(1.0, math.log2(max(1, call.length))))

    def workspace(self, call: Call, algorithm: str) -> int:
        """A copy of ``x`` if it is padded, truncated, made complex or overwritten; and scratch for a row."""
        facts = call.facts
        wanted: int = facts["frequencies"] if facts["kind"] == "irfft" else call.length
        widened = facts["kind"] in ("fft", "ifft") and facts["result"] != call.dtype
        copied = facts["given"] != wanted or facts["kind"] == "irfft" or widened
        rows = call.batch * wanted * call.itemsize if copied else 0
        return rows + row_scratch(call.length, call.dtype)

    def transform(self, call: Call, algorithm: str) -> Transform | None:
        """The call itself."""
        if not call.batch * call.length:
            return None
        real = call.facts["kind"] == "irfft"
        return Transform((call.length,), call.batch, call.facts["result"] if real else call.dtype, inverse=real)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """The most common transform of this dtype: half the spectrum for real numbers."""
        kind = "fft" if dtype.startswith("complex") else "rfft"
        return (ArraySpec(shape or (1,), dtype),), {"kind": kind}


def transform_length(given: int, points: int) -> int:
    """Points of the padded Fourier transforms."""
    return fast_length(max(1, given + points - 1))


@final
class ChirpTransform(Primitive):
    r"""``chirp_transform(x, rates, points=None, offsets=(0.0, 0.0))``: a Fourier sum with any spacing, between chirps.

    ``y[..., k] = e(r2 K^2) sum_n e(r0 N^2 + r1 N K) x[..., n]`` with ``e(t) = exp(-2 pi i t)``, ``N = n + offsets[0]``,
    ``K = k + offsets[1]`` and k below ``points`` (by default the number of samples). ``x`` has shape ``(..., n)``,
    ``rates`` ``(..., 3)``: r0, r1, r2, real, in float64; with ``(..., 6)`` the last three are the rounding errors of
    the first three. Leading axes broadcast. Offsets are multiples of one half.

    With rates ``(0, 1/n, 0)`` it is the Fourier transform, with ``(0, r, 0)`` the fractional one of Bailey and
    Swarztrauber, in general a sampled linear canonical transform. Phases are reduced exactly, so the only error at
    large n is that of the rates: an error d of a rate changes the last phase by ``d n^2``.

    The result is complex, in the precision of ``x``. A non-finite sample makes its whole row non-finite.
    Differentiable in both operands.

    Algorithms: ``fft``, three padded transforms, one of which is cached with the chirps under a key; the key must
    include ``points`` and ``offsets``.
    """

    name = "chirp_transform"
    operands = ("x", "rates")
    prepared_operand = 1
    casts = False

    def describe(
        self, x: Any, rates: Any, *, points: int | None = None, offsets: tuple[float, float] = (0.0, 0.0)
    ) -> Call:
        """Check the call; ``facts``: ``result`` (a dtype), ``points``, ``offsets`` and ``rate_rows``."""
        dtype = inexact(read_dtype(self.name, "x", x))
        read_dtype(self.name, "rates", rates, REALS)
        shape, rows = read_shape(self.name, "x", x), shape_of(rates)
        if not rows or rows[-1] not in (3, 6):
            raise ShapeError(
                f"{self.name}: rates have shape {rows}; they are three numbers along the last axis (or three and three)"
            )
        wanted = shape[-1] if points is None else _reading.whole(f"{self.name}: points", points, least=0)
        if max(shape[-1], wanted) > _MAX_POINTS:
            raise InvalidInputError(f"{self.name}: points={wanted} for {shape[-1]} samples; use 0 to {_MAX_POINTS:,}")
        batch = shape[:-1] if len(rows) == 1 else broadcast(self.name, shape[:-1], rows[:-1])
        return self.call(
            dtype,
            (*batch, wanted),
            [shape],
            length=shape[-1],
            result=complex_of(dtype),
            more_bytes=math.prod(rows) * 8,
            points=wanted,
            offsets=self._read_offsets(offsets),
            rate_rows=math.prod(rows[:-1]),
        )

    def _read_offsets(self, offsets: Any) -> tuple[float, ...]:
        try:
            first, second = offsets
            fits = all(2 * offset == round(2 * offset) and abs(offset) <= _MAX_POINTS for offset in (first, second))
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise InvalidInputError(f"{self.name}: offsets={offsets!r}; use two multiples of 0.5, such as (-4, -4.5)")
        return tuple(map(float, offsets))

    def work(self, call: Call, algorithm: str) -> float:
        """``L log L`` with L the padded length, for each row."""
        size = transform_length(call.length, call.facts["points"])
        return float(call.batch * size * max(1.0, math.log2(size)))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The padded rows, and the chirps in double precision."""
        transform = self.transform(call, algorithm)
        return transform.nbytes + 16 * transform.lengths[0] * max(1, int(call.facts["rate_rows"]))

    def transform(self, call: Call, algorithm: str) -> Transform:
        """The transform of the padded rows."""
        return Transform((transform_length(call.length, call.facts["points"]),), call.batch, call.facts["result"])

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """As many points as samples, one set of rates for all rows."""
        return (ArraySpec(shape or (1,), dtype), ArraySpec((3,), real_of(dtype))), {}
