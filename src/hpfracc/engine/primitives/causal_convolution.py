"""Contract of the causal convolution: the sum behind every fractional operator on a uniform grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

from hpfracc import _reading
from hpfracc.engine.numerics.lengths import block_length, fast_length
from hpfracc.engine.primitives.base import (
    ArraySpec,
    Call,
    Cut,
    Primitive,
    Transform,
    broadcast,
    outer_cuts,
    read_dtype,
    read_shape,
    shape_of,
    signal_dtype,
)
from hpfracc.errors import ShapeError


@final
class CausalConvolution(Primitive):
    r"""``y[..., n] = sum_{k <= n} weights[..., k] * signal[..., n - k]``.

    ``weights`` has shape ``(..., K)``, ``signal`` ``(..., n)``; leading axes broadcast and the result has ``n`` points.
    With ``K > n`` the excess is not used; with ``K < n`` the weights are zero from ``K`` on. The computation is in the
    precision of the signal (float64 for integers), complex if either operand is.

    ``differences=True`` sums over ``signal[n] - signal[n-1]`` (0 at the first point) instead of the signal: as
    L-type rules need, without a separate pass. An optional third operand ``starts``, of shape ``(m, n)``, has
    additional weights for the samples (or differences) ``starts_from`` to ``starts_from + m - 1``: ``starts[j, n] *
    s[..., starts_from + j]`` is added at every point from that sample on; earlier entries are not read. Rules with
    special starting formulas need them. The first sample has no difference: with ``differences=True`` its starting
    weights multiply the sample itself.

    Non-finite samples stay causal: they affect only the outputs whose sum includes them. Differentiable in
    both operands; the adjoint is the anti-causal convolution with the conjugate.

    Algorithms: ``direct`` is the sum, ``n K`` steps; ``fft`` transforms the whole signal; ``blocked`` transforms blocks
    a few times as long as the weights, which pays off if ``K`` is much smaller than ``n``.
    """

    name = "causal_convolution"
    operands = ("weights", "signal", "*")
    prepared_operand = 0

    def describe(
        self, weights: Any, signal: Any, starts: Any = None, *, differences: bool = False, starts_from: int = 0
    ) -> Call:
        """Check the operands; ``facts``: ``taps`` (those used) and rows of either."""
        dtype = signal_dtype(self.name, signal, weights=weights)
        rows, points = read_shape(self.name, "weights", weights), read_shape(self.name, "signal", signal)
        length, batch = points[-1], points[:-1]
        if len(rows) > 1 and rows[:-1] != batch:
            batch = broadcast(self.name, rows[:-1], batch)
        differences = _reading.flag(f"{self.name}: differences", differences)
        given = [rows, points]
        starts_from = _reading.whole(f"{self.name}: starts_from", starts_from)
        if starts is not None:
            self._check_starts(starts, starts_from, length)
            given.append(shape_of(starts))
        return self.call(
            dtype,
            (*batch, length),
            given,
            taps=min(rows[-1], length),
            weight_rows=math.prod(rows[:-1]),
            differences=differences,
            starts=starts is not None,
            starts_from=0 if starts is None else starts_from,
            # The transform of the weights for a single row may have another form than that for several.
            prepared_for=(length, not batch),
        )

    def _check_starts(self, starts: Any, first: int, length: int) -> None:
        """Whether starting weights fit the signal, from their first sample on."""
        read_dtype(self.name, "starts", starts)
        shape = shape_of(starts)
        if len(shape) != 2 or shape[1] != length:
            raise ShapeError(
                f"{self.name}: starts has shape {shape}; it needs one row of {length} weights, one for each point "
                "of the signal, for each sample with additional weights"
            )
        if first < 0 or first + shape[0] > length:
            raise ShapeError(
                f"{self.name}: {shape[0]} samples from number {first} on have additional weights, but the "
                f"signal has {length} points"
            )

    def work(self, call: Call, algorithm: str) -> float:
        """Multiplications, up to a constant."""
        n, taps = call.length, call.facts["taps"]
        if algorithm == "direct":
            return float(call.batch * (n * taps - taps * (taps - 1) / 2))
        size, rows = _padded(n, taps, algorithm)
        return float(call.batch * rows * size * math.log2(size))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The padded rows of signal and weights, or the signal in blocks; for a direct sum the rows."""
        transform = self.transform(call, algorithm)
        if transform is None:
            return call.output_bytes
        return transform.nbytes + int(call.facts["weight_rows"]) * transform.lengths[0] * call.itemsize

    def block_elements(self, call: Call, algorithm: str) -> int:
        """Points of all blocks; for a direct sum the matrix of the weights."""
        if algorithm == "direct":
            return int(call.facts["weight_rows"]) * call.length**2
        transform = self.transform(call, algorithm)
        return 0 if transform is None else transform.lengths[0] * transform.rows

    def transform(self, call: Call, algorithm: str) -> Transform | None:
        """The transform of the padded rows, or of the blocks; none for a direct sum."""
        n, taps = call.length, call.facts["taps"]
        if algorithm == "direct" or not call.batch * n * taps:
            return None
        size, rows = _padded(n, taps, algorithm)
        return Transform((size,), call.batch * rows, call.dtype, inverse=True)

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Rows; then time, where a piece needs the earlier samples within reach of the weights."""
        weights, signal, *starts = map(shape_of, arrays)
        whole = (None,) * len(starts)
        yield from outer_cuts((weights, signal, *whole), call.shape, (-1,))
        if call.length > 1:
            # Every piece needs all starting weights; differences need one more sample.
            before = max(0, call.facts["taps"] - 1) + int(call.facts["differences"])
            yield Cut(-1, call.length, (None, -1, *whole), before=before)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """As many weights as points: the full memory of a fractional operator."""
        return (ArraySpec(shape[-1:] or (1,), dtype), ArraySpec(shape or (1,), dtype)), {}


def _padded(n: int, taps: int, algorithm: str) -> tuple[int, int]:
    """Points of one transform, and the number of transforms of a row."""
    if algorithm == "blocked":
        size = block_length(taps)
        return size, -(-n // (size - taps + 1))
    return fast_length(max(1, n + taps - 1)), 1
