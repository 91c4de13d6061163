"""Spectral multiplication in JAX: Fourier transforms of its own, cosines and sines composed of those.

Compiled once per shape; under the caller's own ``jit``, ``grad`` or ``vmap`` it is traced along, and differentiated in
both operands.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.trigonometric import Functions, backward, forward
from hpfracc.engine.primitives.base import ArraySpec, Call
from hpfracc.engine.primitives.spectral_multiply import Plan, SpectralMultiply, is_half, plan_axes

__all__ = ["KERNELS"]

_CONTRACT = SpectralMultiply()
#: Axes that XLA transforms together.
_TOGETHER = 3


def _phases(count: int, n: int, like: jax.Array) -> jax.Array:
    angles = jnp.arange(count, dtype=like.dtype) * (-math.pi / (2 * n))
    return lax.complex(jnp.cos(angles), jnp.sin(angles))


_FUNCTIONS = Functions(
    rfft=jnp.fft.rfft,
    irfft=jnp.fft.irfft,
    join=lambda parts: jnp.concatenate(parts, -1),
    flip=lambda x: x[..., ::-1],
    stack=lambda a, b: jnp.stack((a, b)),
    interleave=lambda a, b: jnp.stack((a, b), -1).reshape(*a.shape[:-1], 2 * a.shape[-1]),
    complex=lax.complex,
    phases=_phases,
    zeros=lambda x: jnp.zeros_like(x[..., :1]),
    is_complex=jnp.iscomplexobj,
)


def multiply(
    symbol: jax.Array, signal: jax.Array, axes: Any = -1, kinds: Any = "fft", real: bool | None = None
) -> jax.Array:
    """Transform, multiply, transform back; cosines and sines innermost, while the numbers are real."""
    plan = plan_axes(axes, kinds, signal.ndim)
    if 0 in signal.shape or 0 in symbol.shape:
        specs = (ArraySpec(array.shape, str(array.dtype)) for array in (symbol, signal))
        call = _CONTRACT.describe(*specs, axes=axes, kinds=kinds, real=real)
        return jnp.zeros(call.shape, call.dtype)
    as_real = not jnp.iscomplexobj(signal) and (not jnp.iscomplexobj(symbol) if real is None else real)
    return _multiply(symbol, signal, plan, as_real)


@partial(jax.jit, static_argnames=("plan", "as_real"))
def _multiply(symbol: jax.Array, signal: jax.Array, plan: Plan, as_real: bool) -> jax.Array:
    if not jnp.issubdtype(signal.dtype, jnp.inexact):
        signal = signal.astype(jnp.float64)
    symbol = _in_precision(symbol, signal.dtype)
    n = signal.shape
    spectrum = signal
    for axis, kind in plan.waves:
        spectrum = jnp.moveaxis(forward(_FUNCTIONS, kind, jnp.moveaxis(spectrum, axis, -1)), -1, axis)
    if plan.turns:
        spectrum = _turn(spectrum, plan.turns, as_real)
        symbol = _cut_symbol(symbol, plan.turns[-1], n) if as_real else symbol
    elif not as_real:
        symbol = symbol.astype(jnp.result_type(symbol.dtype, jnp.complex64))
    spectrum = spectrum * symbol
    if plan.turns:
        spectrum = _turn_back(spectrum, plan.turns, [n[axis] for axis in plan.turns], as_real)
    for axis, kind in reversed(plan.waves):
        spectrum = jnp.moveaxis(backward(_FUNCTIONS, kind, jnp.moveaxis(spectrum, axis, -1)), -1, axis)
    return spectrum


def _turn(x: jax.Array, axes: tuple[int, ...], as_real: bool) -> jax.Array:
    """All Fourier transforms; the last axis is halved where the signal is real."""
    x = (jnp.fft.rfftn if as_real else jnp.fft.fftn)(x, axes=axes[-_TOGETHER:])
    for axis in axes[:-_TOGETHER]:
        x = jnp.fft.fft(x, axis=axis)
    return x


def _turn_back(x: jax.Array, axes: tuple[int, ...], sizes: list[int], as_real: bool) -> jax.Array:
    for axis in axes[:-_TOGETHER]:
        x = jnp.fft.ifft(x, axis=axis)
    return (jnp.fft.irfftn if as_real else jnp.fft.ifftn)(x, sizes[-_TOGETHER:], axes=axes[-_TOGETHER:])


def _cut_symbol(symbol: jax.Array, axis: int, points: tuple[int, ...]) -> jax.Array:
    """The frequencies from 0 up along the halved axis."""
    if symbol.ndim < -axis or symbol.shape[axis] == 1 or is_half(points[axis], symbol.shape[axis]):
        return symbol
    return lax.slice_in_dim(symbol, 0, points[axis] // 2 + 1, axis=symbol.ndim + axis)


def _in_precision(symbol: jax.Array, dtype: Any) -> jax.Array:
    real = jnp.finfo(dtype).dtype
    return symbol.astype(jnp.result_type(real, jnp.complex64) if jnp.iscomplexobj(symbol) else real)


def prepare(symbol: jax.Array, call: Call) -> jax.Array:
    """A copy in the precision of the work: what is kept must not change with the caller's array."""
    return jnp.array(_in_precision(symbol, jnp.dtype(call.dtype)), copy=True)


KERNELS: dict[str, Kernel] = {"fft": Kernel(multiply, prepare, multiply)}
