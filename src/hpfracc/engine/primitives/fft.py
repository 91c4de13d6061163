"""Contract of the discrete Fourier transforms."""

from __future__ import annotations

import math
from typing import Any, final

from hpfracc import _reading
from hpfracc.engine.numerics.lengths import row_scratch
from hpfracc.engine.primitives.base import (
    ArraySpec,
    Call,
    Primitive,
    Transform,
    complex_of,
    inexact,
    normal_axis,
    read_dtype,
    read_shape,
    real_of,
)
from hpfracc.errors import ShapeError, UnsupportedDtypeError

KINDS = ("fft", "ifft", "rfft", "irfft")
NORMS = ("backward", "ortho", "forward")


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
