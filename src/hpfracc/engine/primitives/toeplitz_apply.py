"""Contract of the symmetric Toeplitz product: a two-sided sum, weighted by distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

from hpfracc.engine.numerics.lengths import fast_length
from hpfracc.engine.primitives.base import (
    ArraySpec,
    Call,
    Primitive,
    Transform,
    broadcast,
    normal_axes,
    read_shape,
    shape_of,
    signal_dtype,
)
from hpfracc.errors import InvalidInputError, ShapeError


def read_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """``axes`` of a signal with ``ndim`` axes, counted from the end and in their order."""
    name = ToeplitzApply.name
    numbers = sorted(axis - ndim for axis in normal_axes(name, axes, ndim))
    if not numbers:
        raise InvalidInputError(f"{name}: axes={axes!r} names no axis; give at least one")
    return tuple(numbers)


def padded_sizes(points: Sequence[int], taps: Sequence[int]) -> tuple[int, ...]:
    """Lengths of cyclic sums without wrap-around into the signal, along each axis."""
    return tuple(fast_length(max(1, n + used - 1)) for n, used in zip(points, taps, strict=True))


@final
class ToeplitzApply(Primitive):
    r"""``y[..., n] = sum_k weights[..., |n - k|] * signal[..., k]``, or the same over several ``axes`` at once.

    Over the axes (a, b) it is ``y[n, m] = sum_{k, l} weights[|n - k|, |m - l|] signal[k, l]``. ``weights`` has the
    same axes, counted from the last, with any number of taps; taps beyond the number of points are not used, and
    missing ones are zero. All other axes broadcast. The computation is in the precision of the signal (float64 for
    integers), complex if either operand is.

    A non-finite sample affects only the outputs whose sum includes it. Differentiable in both operands; for real
    weights the operator is self-adjoint.

    Algorithms: ``direct`` is the sum along one axis, about ``2 n K`` steps; ``fft`` is a padded transform, a product
    with the transform of the symmetrically extended weights, and an inverse transform.
    """

    name = "toeplitz_apply"
    operands = ("weights", "signal")
    prepared_operand = 0

    def describe(self, weights: Any, signal: Any, *, axes: Any = -1) -> Call:
        """Check both operands; ``facts``: ``axes``, ``points`` and ``used`` taps along them, ``rows`` of weights."""
        dtype = signal_dtype(self.name, signal, weights=weights)
        given, shape = shape_of(weights), read_shape(self.name, "signal", signal)
        chosen = read_axes(axes, len(shape))
        if len(given) < -chosen[0]:
            raise ShapeError(
                f"{self.name}: weights have shape {given}; they need the axes {chosen} of the signal, with their taps"
            )
        points = tuple(shape[axis] for axis in chosen)
        used = tuple(min(given[axis], shape[axis]) for axis in chosen)
        ones = tuple(1 if axis in chosen else size for axis, size in enumerate(given, -len(given)))
        outer = tuple(1 if axis in chosen else size for axis, size in enumerate(shape, -len(shape)))
        rows = [*broadcast(self.name, ones, outer)]
        batch = math.prod(rows)
        for axis, size in zip(chosen, points, strict=True):
            rows[axis] = size
        return self.call(
            dtype,
            tuple(rows),
            (given, shape),
            batch=batch,
            length=math.prod(points),
            axes=chosen,
            inner=chosen,
            points=points,
            used=used,
            taps=math.prod(used),
            rows=ones,
            weight_rows=math.prod(ones),
            prepared_for=(chosen, points),
        )

    def work(self, call: Call, algorithm: str) -> float:
        """Multiplications, up to a constant."""
        if algorithm == "direct":
            n, taps = call.length, call.facts["taps"]
            return float(call.batch * max(0, n * (2 * taps - 1) - taps * (taps - 1)))
        size = math.prod(padded_sizes(call.facts["points"], call.facts["used"]))
        return float(call.batch * size * math.log2(max(2, size)))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The padded rows of signal and weights; for a direct sum the rows."""
        transform = self.transform(call, algorithm)
        if transform is None:
            return call.output_bytes
        return transform.nbytes + int(call.facts["weight_rows"]) * math.prod(transform.lengths) * call.itemsize

    def block_elements(self, call: Call, algorithm: str) -> int:
        """The matrix of a direct sum."""
        return int(call.facts["weight_rows"]) * call.length**2 if algorithm == "direct" else 0

    def transform(self, call: Call, algorithm: str) -> Transform | None:
        """The transform of the padded rows; none for a direct sum."""
        if algorithm == "direct" or not call.batch * call.length * call.facts["taps"]:
            return None
        sizes = padded_sizes(call.facts["points"], call.facts["used"])
        return Transform(sizes, call.batch, call.dtype, inverse=True)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """As many weights as points: a fractional derivative in space."""
        return (ArraySpec(shape[-1:] or (1,), dtype), ArraySpec(shape or (1,), dtype)), {}
