"""Symmetric Toeplitz products: with the matrix of the weights for short signals, or by one padded FFT.

Compositions of library functions, so the library can differentiate (also twice), trace and map them, in the weights
too. A non-finite sample affects only its own outputs: where a value can be read, a result is checked; elsewhere, and if
the check fails, non-finite samples are set to 0 and the outputs that depend on them to nan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.causal_convolution import multiply_rows, reach
from hpfracc.engine.backends.generic.library import Library
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply, padded_sizes

_CONTRACT = ToeplitzApply()


class _Layout(NamedTuple):
    """The axes, the points and taps along them, and the shape of the weights without those.

    ``sizes`` are the lengths of the transforms, so long that the cyclic sum does not wrap into the signal's own points.
    ``ends`` cut the last axes to the points; ``whole`` says that every output depends on every sample.
    """

    axes: tuple[int, ...]
    points: tuple[int, ...]
    used: tuple[int, ...]
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    ends: tuple[int | None, ...]
    whole: bool


class Prepared(NamedTuple):
    """The matrix of the weights along the last axis, or their transform, and the layout of the calls it is for."""

    operator: Any
    layout: _Layout


def make_kernels(library: Library) -> dict[str, Kernel]:
    """The kernels by algorithm."""
    xp = library.xp

    def kept_apart(product: Callable[[Any], Any], signal: Any, layout: _Layout) -> Any:
        if layout.whole:
            return product(signal)  # a non-finite sample affects all outputs of its transform, as it should
        if library.is_readable(signal):
            result = product(signal)
            if library.all_finite(_first(result, layout.axes)):
                return result
        bad = ~xp.isfinite(xp.stop_gradient(signal))
        result = product(xp.where(bad, xp.zeros_like(signal), signal))

        def repaired(values: Any) -> Any:
            reached = affected(xp, bad, layout.axes, layout.used)
            return xp.where(reached, xp.full_like(values[..., :1], np.nan), values)

        return library.only_if(bad, repaired, result)

    def matrix(weights: Any, layout: _Layout) -> Any:
        (axis,), (n,), (taps,) = layout.axes, layout.points, layout.used
        weights = library.widen(xp.moveaxis(weights, axis, -1)[..., :taps])
        padded = xp.concatenate([weights, xp.zeros((*weights.shape[:-1], n - taps), weights.dtype, weights)], -1)
        points = xp.arange(0, n, "int32", weights)
        return padded[..., xp.abs(points - points[:, None])]

    def multiply_by_matrix(operator: Any, signal: Any, layout: _Layout) -> Any:
        (axis,) = layout.axes

        def product(x: Any) -> Any:
            made = multiply_rows(library, xp.moveaxis(x, axis, -1), operator)
            return xp.moveaxis(xp.astype(made, x.dtype), -1, axis)

        return kept_apart(product, signal, layout)

    def spectrum(weights: Any, layout: _Layout, **options: Any) -> Any:
        """The transform of the weights, extended symmetrically and padded; real for real weights."""
        for axis, taps, size in zip(layout.axes, layout.used, layout.sizes, strict=True):
            half = xp.moveaxis(weights, axis, -1)[..., :taps]
            gap = xp.zeros((*half.shape[:-1], size - 2 * taps + 1), half.dtype, half)
            weights = xp.moveaxis(xp.concatenate([half, gap, xp.flip(half[..., 1:])], -1), -1, axis)
        if xp.is_complex(weights):
            return xp.fftn(weights, layout.axes, **options)
        # Even in every axis, so that its transform is real.
        return xp.contiguous(xp.real(xp.rfftn(weights, layout.axes, **options)))

    def transform_and_back(operator: Any, signal: Any, layout: _Layout, **options: Any) -> Any:
        forward, back = (xp.fftn, xp.ifftn) if xp.is_complex(signal) else (xp.rfftn, xp.irfftn)

        def product(x: Any) -> Any:
            waves = library.multiply(forward(x, layout.axes, layout.sizes, **options), operator)
            full = back(waves, layout.sizes, layout.axes, **options, **library.back_options)
            return xp.contiguous(full[(..., *map(slice, layout.ends))])

        return kept_apart(product, signal, layout)

    return {
        "direct": _kernel(library, matrix, multiply_by_matrix, threads=False),
        "fft": _kernel(library, spectrum, transform_and_back, threads=True),
    }


def _kernel(library: Library, make: Callable[..., Any], use: Callable[..., Any], threads: bool) -> Kernel:
    """A kernel from ``make(weights, layout)``, whose result can be cached, and ``use(operator, signal, layout)``."""
    xp = library.xp

    def both(weights: Any, signal: Any, layout: _Layout, **options: Any) -> Any:
        return use(make(weights, layout, **options), signal, layout, **options)

    made, used, composed = (xp.jit(each, static=("layout",)) for each in (make, use, both))

    def run(weights: Any, signal: Any, axes: Any = -1, **options: Any) -> Any:
        layout = _layout_of(_CONTRACT.describe(weights, signal, axes=axes))
        if 0 in (*weights.shape, *signal.shape):
            return xp.zeros(np.broadcast_shapes(layout.rows, signal.shape), signal.dtype, signal)
        return composed(weights, signal, layout=layout, **options)

    def prepare(weights: Any, call: Call) -> Prepared:
        layout, weights = _layout_of(call), xp.astype(weights, call.dtype)
        empty = 0 in (*weights.shape, *layout.points)
        return Prepared(weights[..., :0] if empty else made(weights, layout=layout), layout)

    def apply(prepared: Prepared, signal: Any, axes: Any = -1, **options: Any) -> Any:
        operator, layout = prepared  # which the key of a cached operand says, with its axes and points
        if 0 in operator.shape or 0 in signal.shape:
            return xp.zeros(np.broadcast_shapes(layout.rows, signal.shape), signal.dtype, signal)
        return used(operator, signal, layout=layout, **options)

    return Kernel(
        library.finished(run, threads), library.unrecorded(xp.quiet(prepare)), library.finished(apply, threads)
    )


def _layout_of(call: Call) -> _Layout:
    axes, points, used, rows = (call.facts[name] for name in ("axes", "points", "used", "rows"))
    lengths = dict(zip(axes, points, strict=True))
    ends = tuple(lengths.get(axis) for axis in range(min(axes), 0))
    whole = all(taps >= n for taps, n in zip(used, points, strict=True))
    return _Layout(axes, points, used, rows, padded_sizes(points, used), ends, whole)


def _first(result: Any, axes: tuple[int, ...]) -> Any:
    """The first output of each transform: non-finite if any of its samples is."""
    part: list[Any] = [slice(None)] * result.ndim
    for axis in axes:
        part[axis] = 0
    return result[tuple(part)]


def affected(xp: Namespace, bad: Any, axes: Sequence[int], used: Sequence[int]) -> Any:
    """Whether a sample within ``used[i]`` points along ``axes[i]`` is ``bad``."""
    for axis, taps in zip(axes, used, strict=True):
        bad = xp.moveaxis(reach(xp, xp.moveaxis(bad, axis, -1), taps, both=True), -1, axis)
    return bad
