"""The chirp transform in JAX: the generic one, with chirps in double precision, in one compilation."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.chirp_transform import Chirps, make_chirps, transform_with_chirps
from hpfracc.engine.backends.jax.wide import call_wide
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import Call

__all__ = ["KERNELS"]


@partial(jax.jit, static_argnames=("given", "points", "offsets", "dtype"))
def _chirps(rates: jax.Array, given: int, points: int, offsets: tuple[float, float], dtype: str) -> Chirps:
    with jax.enable_x64(True):
        return make_chirps(namespace("jax"), rates, given, points, offsets, dtype)


@partial(jax.jit, static_argnames=("points",))
def _convolve(prepared: Chirps, x: jax.Array, points: int) -> jax.Array:
    with jax.enable_x64(True):  # otherwise double precision samples would be truncated if x64 is off
        value: jax.Array = transform_with_chirps(namespace("jax"), prepared, x.astype(prepared.before.dtype), points)
        return value


def prepare(rates: jax.Array, call: Call) -> Chirps:
    """Chirps for ``call``, and the transform of the one that is convolved with, in the precision of the result."""
    made: Chirps = _chirps(rates, call.length, call.facts["points"], call.facts["offsets"], call.facts["result"])
    return made


def apply(prepared: Chirps, x: jax.Array, **params: Any) -> jax.Array:
    """Multiply, convolve, multiply, with cached chirps."""
    points = params.get("points")
    value: jax.Array = _convolve(prepared, x, x.shape[-1] if points is None else points)
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
