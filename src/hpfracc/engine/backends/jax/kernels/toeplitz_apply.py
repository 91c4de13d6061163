"""Symmetric Toeplitz products in JAX: with the matrix, or by one padded FFT.

Each is compiled once per shape; it can be traced under the caller's ``jit``, ``grad`` or ``vmap``, and differentiated
in both operands. A non-finite sample affects only its own outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply, padded_sizes, read_axes

__all__ = ["KERNELS"]

_CONTRACT = ToeplitzApply()
#: Axes that XLA transforms together.
_TOGETHER = 3


class Layout(NamedTuple):
    """Layout of a call: the axes, the points and taps along them, and the weights' shape without those."""

    axes: tuple[int, ...]
    points: tuple[int, ...]
    used: tuple[int, ...]
    rows: tuple[int, ...]


class Prepared(NamedTuple):
    """The matrix of the weights, or their transform."""

    operator: jax.Array
    used: tuple[int, ...]
    rows: tuple[int, ...]


def _layout(call: Call) -> Layout:
    return Layout(*(call.facts[name] for name in ("axes", "points", "used", "rows")))


def _layout_of(prepared: Prepared, signal: jax.Array, axes: Any) -> Layout:
    chosen = read_axes(axes, signal.ndim)
    return Layout(chosen, tuple(signal.shape[axis] for axis in chosen), prepared.used, prepared.rows)


def _works(layout: Layout, signal: jax.Array) -> bool:
    return 0 not in (*layout.used, *layout.rows, *signal.shape)


def _zeros(layout: Layout, signal: jax.Array) -> jax.Array:
    return jnp.zeros(jnp.broadcast_shapes(layout.rows, signal.shape), signal.dtype)


def _kept_apart(product: Callable[[jax.Array], jax.Array], signal: jax.Array, layout: Layout) -> jax.Array:
    """``product(signal)``, with nan at exactly the outputs that depend on a non-finite sample."""
    if all(taps >= n for taps, n in zip(layout.used, layout.points, strict=True)):
        return product(signal)  # all outputs of its transform, as in the product
    finite = jnp.isfinite(signal)
    result = product(jnp.where(finite, signal, 0))

    def tainted(values: jax.Array) -> jax.Array:
        bad = ~finite
        for axis, taps in zip(layout.axes, layout.used, strict=True):
            bad = jnp.moveaxis(_reach(jnp.moveaxis(bad, axis, -1), taps), -1, axis)
        return jnp.where(bad, jnp.nan, values)

    return lax.cond(jnp.all(finite), lambda values: values, tainted, result)


def _reach(bad: jax.Array, taps: int) -> jax.Array:
    """Whether a sample within ``taps``, along the last axis, is non-finite, by doubling windows."""
    width, n, edge = 1, bad.shape[-1], [(0, 0)] * (bad.ndim - 1)
    while width < taps:
        shift = min(width, taps - width, n)
        before, after = (
            jnp.pad(bad[..., : n - shift], [*edge, (shift, 0)]),
            jnp.pad(bad[..., shift:], [*edge, (0, shift)]),
        )
        bad = bad | before | after
        width += shift
    return bad


# Direct: multiply with the Toeplitz matrix of the weights.


def apply_direct(weights: jax.Array, signal: jax.Array, axes: Any = -1) -> jax.Array:
    """The sum as a product with an n x n matrix, for short signals."""
    layout = _layout(_CONTRACT.describe(weights, signal, axes=axes))
    return _by_matrix(weights, signal, layout) if _works(layout, signal) else _zeros(layout, signal)


@partial(jax.jit, static_argnames="layout")
def _by_matrix(weights: jax.Array, signal: jax.Array, layout: Layout) -> jax.Array:
    return _multiply(_make_matrix(weights, layout), signal, layout)


@partial(jax.jit, static_argnames="layout")
def _make_matrix(weights: jax.Array, layout: Layout) -> jax.Array:
    (axis,), (n,), (taps,) = layout.axes, layout.points, layout.used
    weights = jnp.moveaxis(weights, axis, -1)[..., :taps]
    points = jnp.arange(n, dtype=jnp.int32)
    padded = jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, n - taps)])
    return padded[..., jnp.abs(points - points[:, None])]


@partial(jax.jit, static_argnames="layout")
def _multiply(matrix: jax.Array, signal: jax.Array, layout: Layout) -> jax.Array:
    axis = layout.axes[0]

    def product(x: jax.Array) -> jax.Array:
        # Highest: on a GPU the default would round float32 to TF32.
        rows = jnp.moveaxis(x, axis, -1)[..., None, :]
        made = jnp.matmul(rows, matrix, precision=lax.Precision.HIGHEST)[..., 0, :]
        return jnp.moveaxis(made, -1, axis)

    return _kept_apart(product, signal, layout)


def prepare_direct(weights: jax.Array, call: Call) -> Prepared:
    """The matrix."""
    layout, weights = _layout(call), weights.astype(call.dtype)
    works = 0 not in (*weights.shape, *layout.points)
    return Prepared(_make_matrix(weights, layout) if works else weights, layout.used, layout.rows)


def apply_matrix(prepared: Prepared, signal: jax.Array, axes: Any = -1) -> jax.Array:
    """Multiply with a cached matrix."""
    layout = _layout_of(prepared, signal, axes)
    return _multiply(prepared.operator, signal, layout) if _works(layout, signal) else _zeros(layout, signal)


# FFT: padded, so that the cyclic sum does not wrap into the signal's own points.


def apply_fft(weights: jax.Array, signal: jax.Array, axes: Any = -1) -> jax.Array:
    """Transform, multiply, transform back."""
    layout = _layout(_CONTRACT.describe(weights, signal, axes=axes))
    return _by_fft(weights, signal, layout) if _works(layout, signal) else _zeros(layout, signal)


@partial(jax.jit, static_argnames="layout")
def _by_fft(weights: jax.Array, signal: jax.Array, layout: Layout) -> jax.Array:
    return _transform_and_back(_make_spectrum(weights, layout), signal, layout)


@partial(jax.jit, static_argnames="layout")
def _make_spectrum(weights: jax.Array, layout: Layout) -> jax.Array:
    sizes = padded_sizes(layout.points, layout.used)
    for axis, taps, size in zip(layout.axes, layout.used, sizes, strict=True):
        half = jnp.moveaxis(weights, axis, -1)[..., :taps]
        gap = [(0, 0)] * (half.ndim - 1) + [(0, size - 2 * taps + 1)]
        weights = jnp.moveaxis(jnp.concatenate([jnp.pad(half, gap), half[..., :0:-1]], -1), -1, axis)
    if jnp.iscomplexobj(weights):
        return _forward(weights, sizes, layout.axes)
    # Even in every axis, so that its transform is real.
    return _forward(weights, sizes, layout.axes).real


def _forward(x: jax.Array, sizes: Sequence[int], axes: tuple[int, ...]) -> jax.Array:
    """Padded to ``sizes``; the last axis is halved for real numbers."""
    transform = jnp.fft.fftn if jnp.iscomplexobj(x) else jnp.fft.rfftn
    x = transform(x, sizes[-_TOGETHER:], axes=axes[-_TOGETHER:])
    for axis, size in zip(axes[:-_TOGETHER], sizes[:-_TOGETHER], strict=True):
        x = jnp.fft.fft(x, size, axis=axis)
    return x


def _back(x: jax.Array, sizes: Sequence[int], axes: tuple[int, ...], real: bool) -> jax.Array:
    for axis in axes[:-_TOGETHER]:
        x = jnp.fft.ifft(x, axis=axis)
    return (jnp.fft.irfftn if real else jnp.fft.ifftn)(x, sizes[-_TOGETHER:], axes=axes[-_TOGETHER:])


@partial(jax.jit, static_argnames="layout")
def _transform_and_back(transform: jax.Array, signal: jax.Array, layout: Layout) -> jax.Array:
    sizes, real = padded_sizes(layout.points, layout.used), not jnp.iscomplexobj(signal)

    def product(x: jax.Array) -> jax.Array:
        full = _back(_forward(x, sizes, layout.axes) * transform, sizes, layout.axes, real)
        for axis, n in zip(layout.axes, layout.points, strict=True):
            full = lax.slice_in_dim(full, 0, n, axis=full.ndim + axis)
        return full

    return _kept_apart(product, signal, layout)


def prepare_fft(weights: jax.Array, call: Call) -> Prepared:
    """The transform of the weights for signals of that length."""
    layout, weights = _layout(call), weights.astype(call.dtype)
    works = 0 not in (*weights.shape, *layout.points)
    return Prepared(_make_spectrum(weights, layout) if works else weights, layout.used, layout.rows)


def apply_spectrum(prepared: Prepared, signal: jax.Array, axes: Any = -1) -> jax.Array:
    """Apply weights whose transform is cached: two transforms instead of three."""
    layout = _layout_of(prepared, signal, axes)
    return _transform_and_back(prepared.operator, signal, layout) if _works(layout, signal) else _zeros(layout, signal)


KERNELS: dict[str, Kernel] = {
    "direct": Kernel(apply_direct, prepare_direct, apply_matrix),
    "fft": Kernel(apply_fft, prepare_fft, apply_spectrum),
}
