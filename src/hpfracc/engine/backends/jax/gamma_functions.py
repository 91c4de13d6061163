"""Gamma and its relatives for JAX arrays, under jit, grad and vmap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from hpfracc._xp import namespace
from hpfracc.engine.numerics.gamma import gamma_value
from hpfracc.errors import UnsupportedDtypeError

__all__ = ["beta", "digamma", "gamma", "incomplete_beta"]


def _operands(name: str, *values: Any) -> tuple[jax.Array, ...]:
    arrays = tuple(jnp.asarray(value) for value in values)
    if any(jnp.iscomplexobj(array) for array in arrays):
        raise UnsupportedDtypeError(f"{name}: JAX supports real numbers only; convert the array to NumPy")
    return tuple(array.astype(jnp.promote_types(jnp.result_type(*arrays), jnp.float32)) for array in arrays)


@jax.custom_jvp
def _gamma(z: jax.Array) -> jax.Array:
    with jax.enable_x64(True):
        value: jax.Array = gamma_value(namespace("jax"), z.astype(jnp.float64)).astype(z.dtype)
        return value


@_gamma.defjvp
def _gamma_slope(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (tangent,) = primals, tangents
    value = _gamma(z)
    return value, tangent * value * special.digamma(z)


def gamma(z: Any) -> jax.Array:
    """Gamma(z)."""
    (z,) = _operands("gamma", z)
    value: jax.Array = _gamma(z)
    return value


def digamma(z: Any) -> jax.Array:
    """psi(z)."""
    (z,) = _operands("digamma", z)
    value: jax.Array = special.digamma(z)
    return value


def beta(a: Any, b: Any) -> jax.Array:
    """B(a, b), by Gamma if that stays in range, otherwise by its logarithm."""
    a, b = jnp.broadcast_arrays(*_operands("beta", a, b))
    small = (jnp.abs(a) < 80) & (jnp.abs(b) < 80) if a.dtype == jnp.float64 else (jnp.abs(a) < 16) & (jnp.abs(b) < 16)
    one = jnp.ones_like(a)
    near_a, near_b = jnp.where(small, a, one), jnp.where(small, b, one)
    far_a, far_b = jnp.where(small, one, a), jnp.where(small, one, b)
    direct = gamma(near_a) / gamma(near_a + near_b) * gamma(near_b)
    logs = special.gammaln(far_a) + special.gammaln(far_b) - special.gammaln(far_a + far_b)
    sign = jnp.where(_is_negative(far_a) ^ _is_negative(far_b) ^ _is_negative(far_a + far_b), -1.0, 1.0)
    return jnp.where(small, direct, sign * jnp.exp(logs))


def _is_negative(z: jax.Array) -> jax.Array:
    return (z < 0) & (jnp.mod(jnp.floor(z), 2.0) == 1.0)


def incomplete_beta(a: Any, b: Any, x: Any) -> jax.Array:
    """I_x(a, b)."""
    a, b, x = _operands("incomplete_beta", a, b, x)
    value: jax.Array = special.betainc(a, b, x)
    return value
