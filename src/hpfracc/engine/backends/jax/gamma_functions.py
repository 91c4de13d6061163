"""Gamma and its relatives for JAX arrays, under jit, grad and vmap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from hpfracc._xp import namespace
from hpfracc.engine.numerics.gamma import beta_value, gamma_value
from hpfracc.errors import UnsupportedDtypeError


def _operands(name: str, *values: Any) -> tuple[jax.Array, ...]:
    arrays = tuple(jnp.asarray(value) for value in values)
    if any(jnp.iscomplexobj(array) for array in arrays):
        raise UnsupportedDtypeError(f"{name}: JAX supports real numbers only; convert the array to NumPy")
    return tuple(array.astype(jnp.promote_types(jnp.result_type(*arrays), jnp.float32)) for array in arrays)


@jax.custom_jvp
def _gamma(z: jax.Array) -> jax.Array:
    with jax.enable_x64(True):
        return gamma_value(namespace("jax"), z.astype(jnp.float64)).astype(z.dtype)


@_gamma.defjvp
def _gamma_slope(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (tangent,) = primals, tangents
    value = _gamma(z)
    return value, tangent * value * special.digamma(z)


def gamma(z: Any) -> jax.Array:
    """Gamma(z)."""
    (z,) = _operands("gamma", z)
    return _gamma(z)


def digamma(z: Any) -> jax.Array:
    """psi(z)."""
    (z,) = _operands("digamma", z)
    return special.digamma(z)


def beta(a: Any, b: Any) -> jax.Array:
    """B(a, b), by Gamma if that stays in range, otherwise by its logarithm."""
    a, b = jnp.broadcast_arrays(*_operands("beta", a, b))
    return beta_value(namespace("jax"), a, b, gamma, special.gammaln)


def incomplete_beta(a: Any, b: Any, x: Any) -> jax.Array:
    """I_x(a, b)."""
    a, b, x = _operands("incomplete_beta", a, b, x)
    return special.betainc(a, b, x)
