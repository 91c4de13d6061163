"""Contract of the chirp transform: multiply by a chirp, convolve with one, multiply by a third."""

from __future__ import annotations

import math
from typing import Any, final

from hpfracc import _reading
from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import (
    REALS,
    ArraySpec,
    Call,
    Primitive,
    Transform,
    broadcast,
    complex_of,
    inexact,
    read_dtype,
    read_shape,
    real_of,
    shape_of,
)
from hpfracc.errors import InvalidInputError, ShapeError

#: Maximum number of points: the square of twice an index needs 62 bits.
_MAX_POINTS = 1 << 29


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
