"""Contract of the discrete Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from hpfracc.engine.numerics.lengths import row_scratch
from hpfracc.engine.primitives.base import (
    INEXACT,
    INTEGERS,
    ArraySpec,
    Call,
    Case,
    Primitive,
    Transform,
    reversed_view,
    samples,
    strided_view,
)
from hpfracc.engine.primitives.cuts import Cut
from hpfracc.engine.primitives.operands import (
    complex_of,
    dtype_bytes,
    elements,
    normal_axis,
    read_dtype,
    real_of,
    shape_of,
    whole_number,
)
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

__all__ = ["KINDS", "NORMS", "FourierTransform"]

_TAKES = INEXACT | INTEGERS
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
        dtype = read_dtype(self.name, "x", x, _TAKES)
        dtype = dtype if dtype in INEXACT else "float64"
        if kind not in KINDS:
            raise InvalidInputError(f"{self.name}: kind={kind!r} is not a transform; use {', '.join(KINDS)}")
        if norm not in NORMS:
            raise InvalidInputError(f"{self.name}: norm={norm!r} is not a scaling; use {', '.join(NORMS)}")
        shape = shape_of(x)
        if not shape:
            raise ShapeError(f"{self.name}: x has no axis to transform along; give it at least one")
        axis = normal_axis(self.name, axis, len(shape))
        if kind == "rfft" and dtype.startswith("complex"):
            raise UnsupportedDtypeError(f"{self.name}: kind='rfft' of {dtype} numbers; use kind='fft', or take x.real")
        if kind == "irfft":
            dtype = complex_of(dtype)
        points = self._points(shape[axis], kind, n)
        frequencies = points // 2 + 1 if kind in ("rfft", "irfft") and points else points
        along = frequencies if kind == "rfft" else points
        result = real_of(dtype) if kind == "irfft" else complex_of(dtype)
        out = (*shape[:axis], along, *shape[axis + 1 :])
        return Call(
            operation=self.name,
            batch=elements(shape[:axis]) * elements(shape[axis + 1 :]),
            length=points,
            dtype=dtype,
            shape=out,
            input_bytes=elements(shape) * dtype_bytes(dtype),
            output_bytes=elements(out) * dtype_bytes(result),
            facts={"kind": kind, "result": result, "frequencies": frequencies, "given": shape[axis]},
        )

    def _points(self, given: int, kind: str, n: Any) -> int:
        if n is not None:
            points = whole_number(self.name, "n", n)
            if points < 1:
                raise InvalidInputError(
                    f"{self.name}: n={points} points cannot be transformed; use at least 1, or None"
                )
            return points
        if kind != "irfft" or given == 0:
            return given
        if given == 1:
            raise ShapeError(f"{self.name}: kind='irfft' of a single frequency gives 2 (1 - 1) = 0 points; use n=1")
        return 2 * (given - 1)

    def work(self, call: Call, algorithm: str) -> float:
        """``n log n`` for each row."""
        return float(call.batch * call.length * max(1.0, math.log2(max(1, call.length))))

    def workspace(self, call: Call, algorithm: str) -> int:
        """A copy of ``x`` if it is padded, truncated, made complex or overwritten; and scratch for a row."""
        facts = call.facts
        wanted: int = facts["frequencies"] if facts["kind"] == "irfft" else call.length
        widened = facts["kind"] in ("fft", "ifft") and facts["result"] != call.dtype
        copied = facts["given"] != wanted or facts["kind"] == "irfft" or widened
        rows = call.batch * wanted * call.itemsize if copied and algorithm != "pocketfft" else 0
        return rows + row_scratch(call.length, call.dtype)

    def transform(self, call: Call, algorithm: str) -> Transform | None:
        """The call itself."""
        if not call.batch * call.length:
            return None
        real = call.facts["kind"] == "irfft"
        return Transform((call.length,), call.batch, call.facts["result"] if real else call.dtype, inverse=real)

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Every axis except the transformed one, the longest first."""
        shape = shape_of(arrays[0])
        along = normal_axis(self.name, params.get("axis", -1), len(shape))
        axes = [axis for axis in range(len(shape)) if axis != along and shape[axis] > 1]
        for axis in sorted(axes, key=lambda axis: -shape[axis]):
            yield Cut(axis - len(shape), shape[axis], (axis - len(shape),))

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """The most common transform of this dtype: half the spectrum for real numbers."""
        kind = "fft" if dtype.startswith("complex") else "rfft"
        return (ArraySpec(shape or (1,), dtype),), {"kind": kind}

    def reference(self, *arrays: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        """The sum by definition, in extended precision."""
        call = self.describe(*arrays, **params)
        kind, norm = call.facts["kind"], params.get("norm", "backward")
        points = call.length
        x = np.moveaxis(np.asarray(arrays[0]).astype(call.dtype), params.get("axis", -1), -1).astype(np.clongdouble)
        wanted = call.facts["frequencies"] if kind == "irfft" else points
        x = x[..., :wanted]
        x = np.concatenate([x, np.zeros((*x.shape[:-1], wanted - x.shape[-1]), x.dtype)], axis=-1)
        if kind == "irfft" and points:
            tail = np.conj(x[..., 1 : points - wanted + 1][..., ::-1])
            ends = x.copy()
            ends[..., 0] = ends[..., 0].real  # imaginary parts that a real signal cannot have are ignored
            if points % 2 == 0:
                ends[..., -1] = ends[..., -1].real
            x = np.concatenate([ends, tail], axis=-1)
        index = np.arange(points, dtype=np.int64)
        turn = 2 * np.arccos(np.longdouble(-1))
        angles = turn * ((index[:, None] * index) % max(1, points)).astype(np.longdouble) / max(1, points)
        forward = kind in ("fft", "rfft")
        result = np.matmul(x, np.exp((-1j if forward else 1j) * angles))
        scale = {"backward": not forward, "forward": forward}.get(norm)
        result = result / (np.sqrt(np.longdouble(max(1, points))) if scale is None else max(1, points) if scale else 1)
        if kind == "rfft":
            result = result[..., : call.facts["frequencies"]]
        elif kind == "irfft":
            result = result.real
        return np.moveaxis(result.astype(call.facts["result"]), -1, params.get("axis", -1))

    def cases(self, dtype: str) -> Iterator[Case]:
        """Each kind that takes the dtype, over lengths, axes, scalings and memory layouts."""
        real = not dtype.startswith("complex")
        for kind in ("fft", "ifft", "rfft" if real else "irfft"):
            half = kind == "irfft"
            for points in (1, 2, 12, 31, 64, 101):
                x = self._spectrum(dtype, (points,), 1) if half else samples(dtype, points, 1)
                yield Case(
                    f"{kind} of {points}", (x,), {"kind": kind, "n": points} if half else {"kind": kind}, points == 12
                )
            x = self._spectrum(dtype, (3, 4, 15), 2) if half else samples(dtype, (3, 4, 15), 2)
            odd = {"kind": kind, "n": 15} if half else {"kind": kind}
            for norm in NORMS:
                yield Case(f"{kind} batched, {norm}", (x,), {**odd, "norm": norm}, norm == "ortho")
            yield Case(
                f"{kind} along the first axis", (np.ascontiguousarray(np.moveaxis(x, -1, 0)),), {**odd, "axis": 0}
            )
            yield Case(f"{kind} along the middle axis", (np.moveaxis(x, -1, 1),), {**odd, "axis": -2})
            yield Case(f"{kind} cut", (x,), {"kind": kind, "n": 9}, differentiable=True)
            yield Case(f"{kind} padded", (x,), {"kind": kind, "n": 21}, differentiable=True)
            yield Case(f"{kind} strided", (strided_view(x),), odd)
            yield Case(f"{kind} reversed", (reversed_view(x),), odd)
            yield Case(f"{kind} of no points", (samples(dtype, (2, 0), 3),), {"kind": kind})
            yield Case(f"{kind} of no rows", (samples(dtype, (0, 5), 3),), {"kind": kind})
            yield Case(f"{kind} of points out of nothing", (samples(dtype, (2, 0), 3),), {"kind": kind, "n": 5})
        if dtype == "float64":
            yield Case("fft of integers", (np.arange(-3, 9),), {"kind": "fft"})

    @staticmethod
    def _spectrum(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
        """The frequencies of a real signal: libraries disagree about an ``irfft`` of anything else."""
        return np.fft.rfft(samples("float64", shape, seed)).astype(dtype)
