"""Special functions for JAX arrays, under jit, grad and vmap: Gamma and its relatives, and E_{a,b}(z).

The parameters of E_{a,b} may be arrays, traced or not, and are differentiable. The tables depend on the values of the
parameters, which are not known while tracing, so the value comes from NumPy through a callback, under jit and vmap too;
the derivative rule calls the same function one order higher.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.scipy import special

from hpfracc._arrays import is_tracer
from hpfracc._xp import namespace
from hpfracc.engine.numerics.gamma import MAX_DERIVATIVES, beta_value, gamma_value
from hpfracc.engine.numerics.mittag_leffler_plan import check_parameters, make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import evaluate, pairs_of
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError


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
    """B(a, b)."""
    a, b = jnp.broadcast_arrays(*_operands("beta", a, b))
    return beta_value(namespace("jax"), a, b, gamma)


def incomplete_beta(a: Any, b: Any, x: Any) -> jax.Array:
    """I_x(a, b)."""
    a, b, x = _operands("incomplete_beta", a, b, x)
    return special.betainc(a, b, x)


def of_parameters(z: Any, alpha: Any, beta: Any) -> jax.Array:
    """E_{alpha,beta}(z), with broadcasting; traced parameters outside the domain give nan."""
    if not any(map(is_tracer, (alpha, beta))):
        for (a, b), _ in pairs_of(*np.broadcast_arrays(*(np.asarray(one, np.float64) for one in (alpha, beta)))):
            check_parameters(a, b)
    with jax.enable_x64(True):
        z = jnp.asarray(z)
        if not jnp.issubdtype(z.dtype, jnp.inexact):
            z = z.astype(jnp.float64)
        numbers = [jnp.asarray(value, dtype=jnp.float64) for value in (alpha, beta)]
        if all(number.size == 1 and number.ndim <= z.ndim for number in numbers):
            numbers = [number.reshape(()) for number in numbers]
        else:
            z, *numbers = jnp.broadcast_arrays(z, *numbers)
        return _function(0, 0, z, *numbers)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _function(order: int, logs: int, z: jax.Array, alpha: jax.Array, beta: jax.Array) -> jax.Array:
    if logs > MAX_DERIVATIVES:
        raise InvalidInputError(
            f"derivative {logs} of the Mittag-Leffler function in its parameters; there are those up to "
            f"{MAX_DERIVATIVES}: differentiate it less often in alpha and beta"
        )
    shape = jax.ShapeDtypeStruct(z.shape, z.dtype)
    # One pair per element of z is batched with it.
    method = "broadcast_all" if alpha.ndim else "sequential"
    return jax.pure_callback(partial(_value, order, logs), shape, z, alpha, beta, vmap_method=method)


def _value(order: int, logs: int, z: Any, alpha: Any, beta: Any) -> np.ndarray:
    points = np.asarray(z)
    result = np.full_like(points, math.nan)
    for (a, b), where in pairs_of(np.asarray(alpha), np.asarray(beta)):
        try:
            check_parameters(a, b)
        except InvalidInputError:  # an error inside a callback would not arrive as our type
            continue
        plan = make_contour_plan(a, b, order, logs)
        if not np.ndim(alpha):
            return evaluate(points, plan)
        result.flat[where] = evaluate(points.flat[where], plan)
    return result


@partial(_function.defjvp, symbolic_zeros=True)
def _slopes(order: int, logs: int, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
    z, alpha, beta = primals
    total = jnp.zeros_like(z)
    if not isinstance(tangents[0], SymbolicZero):
        total = total + tangents[0] * _function(order + 1, logs, z, alpha, beta)
    if not isinstance(tangents[1], SymbolicZero):
        # (d/da) E = z (d/dz) (d/db) E, differentiated `order` times more.
        slope = z * _function(order + 1, logs + 1, z, alpha, beta)
        if order:
            slope = slope + order * _function(order, logs + 1, z, alpha, beta)
        total = total + tangents[1].astype(total.dtype) * slope
    if not isinstance(tangents[2], SymbolicZero):
        total = total + tangents[2].astype(total.dtype) * _function(order, logs + 1, z, alpha, beta)
    return _function(order, logs, z, alpha, beta), total
