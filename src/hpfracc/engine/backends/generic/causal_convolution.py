"""Causal convolution: a product with the matrix of the weights, one padded FFT, or FFTs of blocks.

Compositions of library functions, so the library can differentiate (also twice), trace and map them, in the weights
too. Differences before the sum and starting weights after it belong to the same program.

Non-finite samples stay causal, although a transform or a matrix product would spread them: where a value can be read, a
result is checked; elsewhere, and if the check fails, the sum is computed with non-finite samples set to 0, and every
point whose sum includes one is set to nan. Non-finite samples get a gradient of 0. If a *weight* is not finite, the
whole row may be nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import dtype_name
from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.numerics.lengths import block_length, fast_length
from hpfracc.engine.primitives.base import INEXACT, Call, complex_of


class Layout(NamedTuple):
    """The points of a row, the weights used, the dtype of the result, and the form of the prepared weights.

    ``size`` is the length of a transform, 0 for a matrix. ``step`` is the length of a block. ``twisted`` says that the
    transform is that of the right-angle convolution of real numbers.
    """

    points: int
    taps: int
    dtype: str
    rows: tuple[int, ...]
    size: int = 0
    step: int = 0
    twisted: bool = False


class PreparedWeights(NamedTuple):
    """The matrix of the weights, or their transform over its length, and the layout of the calls it is for."""

    operator: Any
    layout: Layout


def _layout(algorithm: str, weights: Any, points: int, dtype: str, twisted: bool) -> Layout:
    taps = min(weights.shape[-1], points)
    plain = Layout(points, taps, dtype, tuple(weights.shape[:-1]))
    if algorithm == "direct":
        return plain
    if algorithm == "blocked":
        size = block_length(taps)
        return plain._replace(size=size, step=size - max(taps, 1) + 1)
    size = fast_length(max(1, points if twisted else points + taps - 1))
    return plain._replace(size=size, step=max(points, 1), twisted=twisted)


def make_kernels(library: Library) -> dict[str, Kernel]:
    """The kernels by algorithm."""
    return {algorithm: _kernel(library, algorithm) for algorithm in ("direct", "fft", "blocked")}


def _kernel(library: Library, algorithm: str) -> Kernel:
    xp = library.xp

    def make(weights: Any, layout: Layout) -> Any:
        weights = xp.astype(weights, layout.dtype)[..., : layout.points]
        return _spectrum(xp, weights, layout) if layout.size else _matrix(library, weights, layout.points)

    def use(operator: Any, signal: Any, *starts: Any, layout: Layout, differenced: bool, first: int) -> Any:
        signal = xp.astype(signal, layout.dtype)
        summands = differences(xp, signal) if differenced else signal
        product = _spectral_product if layout.size else _matrix_product
        result = _causally(library, lambda x: product(library, operator, x, layout), summands, layout)
        return add_starts(library, result, signal, summands, starts[0], first) if starts else result

    def both(weights: Any, signal: Any, *starts: Any, layout: Layout, differenced: bool, first: int) -> Any:
        return use(make(weights, layout), signal, *starts, layout=layout, differenced=differenced, first=first)

    made = xp.jit(make, static=("layout",))
    used, composed = (xp.jit(each, static=("layout", "differenced", "first")) for each in (use, both))

    def run(weights: Any, signal: Any, *starts: Any, differences: bool = False, starts_from: int = 0) -> Any:
        dtype = dtype_name(signal) if dtype_name(signal) in INEXACT else "float64"
        dtype = complex_of(dtype) if xp.is_complex(weights) else dtype
        layout = _layout(algorithm, weights, signal.shape[-1], dtype, False)
        if (shape := sums_nothing(layout, signal)) is not None:
            return xp.zeros(shape, layout.dtype, signal)
        return composed(weights, signal, *starts, layout=layout, differenced=bool(differences), first=int(starts_from))

    def prepare(weights: Any, call: Call) -> PreparedWeights:
        twisted = algorithm == "fft" and not call.dtype.startswith("complex") and library.twists(weights)
        layout = _layout(algorithm, weights, call.length, call.dtype, twisted)
        empty = not layout.taps or 0 in layout.rows
        return PreparedWeights(weights[..., :0] if empty else made(weights, layout=layout), layout)

    def apply(
        prepared: PreparedWeights, signal: Any, *starts: Any, differences: bool = False, starts_from: int = 0
    ) -> Any:
        operator, layout = prepared
        if (shape := sums_nothing(layout, signal)) is not None:
            return xp.zeros(shape, layout.dtype, signal)
        return used(operator, signal, *starts, layout=layout, differenced=bool(differences), first=int(starts_from))

    return Kernel(library.finished(run), library.unrecorded(prepare), library.finished(apply))


def sums_nothing(layout: Layout, signal: Any) -> tuple[int, ...] | None:
    """The shape of the result if there are no points, rows or weights; otherwise None."""
    if layout.taps and 0 not in layout.rows and 0 not in signal.shape:
        return None
    return np.broadcast_shapes((*layout.rows, 1), tuple(signal.shape))


# A matrix: y = x @ matrix.


def _matrix(library: Library, weights: Any, n: int) -> Any:
    """``T[..., j, i] = weights[..., i - j]``, 0 outside."""
    xp = library.xp
    weights = library.widen(weights)
    before, after = (xp.zeros((*weights.shape[:-1], k), weights.dtype, weights) for k in (n - 1, n - weights.shape[-1]))
    points = xp.arange(0, n, "int32", weights)
    return xp.concatenate([before, weights, after], -1)[..., points - points[:, None] + (n - 1)]


def _matrix_product(library: Library, matrix: Any, x: Any, layout: Layout) -> Any:
    return library.xp.astype(multiply_rows(library, x, matrix), layout.dtype)


def multiply_rows(library: Library, x: Any, matrix: Any) -> Any:
    """Rows times the matrix of each, in the precision of the library's products."""
    xp, rows = library.xp, library.widen(x)
    if matrix.ndim == 2:
        return xp.matmul(rows, matrix)
    if matrix.shape[-3] == 1 and rows.ndim > 1:
        # One matrix for many rows: a matrix product, because batching would copy the matrix for each row.
        return xp.matmul(rows, matrix[..., 0, :, :])
    return xp.matmul(rows[..., None, :], matrix)[..., 0, :]


# Transforms: padded, so that the cyclic product does not wrap into the points of a block.


def _turns(xp: Namespace, size: int, like: Any) -> Any:
    """The powers ``0 <= k < size`` of the ``4 size``-th root of unity, in the precision of ``like``."""
    return xp.unit(xp.arange(0, size, like.dtype, like) * (math.pi / (2 * size)))


def _spectrum(xp: Namespace, weights: Any, layout: Layout) -> Any:
    """The transform of the weights over its length: the inverse transform then needs no factor."""
    if layout.twisted:
        weights = weights * _turns(xp, layout.size, weights)[: layout.taps]
    transform = xp.fft.fft if xp.is_complex(weights) else xp.fft.rfft
    return transform(weights, n=layout.size) / layout.size


def _spectral_product(library: Library, operator: Any, x: Any, layout: Layout) -> Any:
    """The sum of each row; of blocks what hangs over is added to the next block (overlap-add)."""
    xp, (n, size, step) = library.xp, (layout.points, layout.size, layout.step)
    if layout.twisted:
        # The point k of the sum plus i times its point ``size + k`` (see the kernel of NumPy). The inverse is a forward
        # transform of the conjugate, because XLA scales inverse transforms by a separate kernel.
        turns = _turns(xp, size, x)
        product = library.multiply(xp.fft.fft(x * turns[:n], n=size), operator)
        return xp.real(xp.fft.fft(product.conj()) * turns)[..., :n]
    blocks = -(-n // step)
    if blocks > 1:
        gap = xp.zeros((*x.shape[:-1], blocks * step - n), x.dtype, x)
        x = xp.concatenate([x, gap], -1).reshape((*x.shape[:-1], blocks, step))
        operator = operator[..., None, :]
    if xp.is_complex(x):
        pieces = xp.fft.ifft(library.multiply(xp.fft.fft(x, n=size), operator), norm="forward")
    else:
        pieces = xp.fft.irfft(library.multiply(xp.fft.rfft(x, n=size), operator), n=size, norm="forward")
    if blocks == 1:
        return pieces[..., :n]
    overlap = size - step
    hanging = xp.concatenate([xp.zeros_like(pieces[..., :1, step:]), pieces[..., :-1, step:]], -2)
    whole = xp.concatenate([pieces[..., :overlap] + hanging, pieces[..., overlap:step]], -1)
    return whole.reshape((*whole.shape[:-2], blocks * step))[..., :n]


# Non-finite samples, differences, and starting weights.


def _causally(library: Library, product: Callable[[Any], Any], signal: Any, layout: Layout) -> Any:
    """``product(signal)`` for a product that spreads non-finite samples, repaired."""
    xp = library.xp
    if library.is_readable(signal):
        result = product(signal)
        # A non-finite sample affects the first point of its block.
        if library.all_finite(result[..., :: layout.step or layout.points]):
            return result
    bad = ~xp.isfinite(xp.stop_gradient(signal))
    result = product(xp.where(bad, xp.zeros_like(signal), signal))
    if layout.taps >= layout.points:
        return xp.where(library.seen(bad), np.nan, result)

    def repaired(values: Any) -> Any:
        return xp.where(reach(xp, bad, layout.taps), np.nan, values)

    # With few weights, a non-finite sample has a limited effect: more work, done only if there is one.
    return library.only_if(bad, repaired, result)


def reach(xp: Namespace, bad: Any, taps: int, both: bool = False) -> Any:
    """Whether one of the last ``taps`` samples is bad, or of the next ones for ``both``, by doubling windows."""
    width, n = 1, bad.shape[-1]
    while width < taps:
        shift = min(width, taps - width, n)
        none = xp.zeros_like(bad[..., :shift])
        reached = bad | xp.concatenate([none, bad[..., : n - shift]], -1)
        bad = reached | xp.concatenate([bad[..., shift:], none], -1) if both else reached
        width += shift
    return bad


def differences(xp: Namespace, signal: Any) -> Any:
    """``signal[n] - signal[n-1]`` along the last axis, 0 at the first point; nan if the first sample is not finite."""
    return signal - xp.concatenate([signal[..., :1], signal[..., :-1]], -1)


def add_starts(library: Library, result: Any, signal: Any, summands: Any, starts: Any, first: int) -> Any:
    """``result`` with ``starts[j] * summands[..., first + j]`` added from that point on.

    The first sample has no difference: it is multiplied itself.
    """
    starts = library.xp.astype(starts, result.dtype)
    for j in range(first, first + starts.shape[0]):
        sample = (summands if j else signal)[..., j : j + 1]
        result = library.add_from(result, j, sample * starts[j - first, j:])
    return result
