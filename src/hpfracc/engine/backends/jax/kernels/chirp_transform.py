"""The chirp transform in JAX: chirps in double precision, three transforms in that of the samples, one compilation.

Phases are reduced outside of differentiation and the derivative of the unreduced ones is put back, so that it is right
too.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.jax.wide import call_wide
from hpfracc.engine.numerics.chirp import Tools, chirps
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call
from hpfracc.engine.primitives.chirp_transform import transform_length

__all__ = ["KERNELS"]


class Chirps(NamedTuple):
    """The chirp before, the transform of the one between and the one after."""

    before: jax.Array
    between: jax.Array
    after: jax.Array


def _unit(t: jax.Array) -> jax.Array:
    angle = (2 * math.pi) * t
    return jax.lax.complex(jnp.cos(angle), jnp.sin(angle))


_TOOLS = Tools(
    range=lambda start, stop: jnp.arange(start, stop, dtype=jnp.int64),
    float=lambda x: x.astype(jnp.float64),
    round=jnp.round,
    hold=jax.lax.stop_gradient,
    unit=_unit,
    join=lambda parts: jnp.concatenate(parts, -1),
    zeros=lambda like, count: jnp.zeros((*like.shape[:-1], count), like.dtype),
)


@partial(jax.jit, static_argnames=("given", "points", "offsets", "dtype"))
def _chirps(rates: jax.Array, given: int, points: int, offsets: tuple[float, float], dtype: str) -> Chirps:
    with jax.enable_x64(True):
        rates = rates.astype(jnp.float64)
        if not given or not points or not rates.size:
            nothing = jnp.zeros((*rates.shape[:-1], 0), dtype)
            return Chirps(nothing, nothing, nothing)
        before, between, after = chirps(_TOOLS, rates, given, points, offsets, transform_length(given, points))
        return Chirps(before.astype(dtype), jnp.fft.fft(between).astype(dtype), after.astype(dtype))


@partial(jax.jit, static_argnames=("points",))
def _apply(prepared: Chirps, x: jax.Array, points: int) -> jax.Array:
    batch = np.broadcast_shapes(x.shape[:-1], prepared.before.shape[:-1])
    dtype = prepared.before.dtype
    with jax.enable_x64(True):  # or samples in double precision would be cut where the user did not ask for them
        if not x.shape[-1] or not points or 0 in batch:
            return jnp.zeros((*batch, points), dtype)
        signal = x.astype(dtype) * prepared.before
        spectrum = jnp.fft.fft(signal, transform_length(x.shape[-1], points))
        return jnp.fft.ifft(spectrum * prepared.between)[..., :points] * prepared.after


def prepare(rates: jax.Array, call: Call) -> Chirps:
    """Chirps for ``call``, and the transform of the one that is convolved with, in the precision of the result."""
    made: Chirps = _chirps(rates, call.length, call.facts["points"], call.facts["offsets"], call.facts["result"])
    return made


def apply(prepared: Chirps, x: jax.Array, **params: Any) -> jax.Array:
    """Multiply, convolve, multiply, with chirps that were kept."""
    points = params.get("points")
    value: jax.Array = _apply(prepared, x, x.shape[-1] if points is None else points)
    return value


def transform(
    x: jax.Array, rates: jax.Array, *, points: int | None = None, offsets: tuple[float, float] = (0.0, 0.0)
) -> jax.Array:
    """The chirp transform along the last axis."""
    value: jax.Array = call_wide(_transform, (x, rates), (points, offsets))
    return value


@partial(jax.jit, static_argnums=(2, 3))
def _transform(x: jax.Array, rates: jax.Array, points: int | None, offsets: tuple[float, float]) -> jax.Array:
    call = PRIMITIVES["chirp_transform"].describe(x, rates, points=points, offsets=offsets)
    return apply(prepare(rates, call), x, points=points)


KERNELS: dict[str, Kernel] = {"fft": Kernel(transform, prepare, apply)}
