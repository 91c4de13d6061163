"""The equation of an implicit step on JAX arrays, all members of a batch at once, with derivatives of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["jacobian_matrices", "solve_step", "solve_transposed"]

#: Maximum number of iterations; members that have not converged become NaN.
MAX = 25

Function = Callable[[Any], Any]


def solve_step(fun: Function, jacobian: Function | None, known: Any, weight: Any, guess: Any) -> Any:
    """``y = known + weight f(y)``, y of shape (..., d), from ``guess``; NaN for members that do not converge.

    Derivatives are those of the implicit equation (``jax.lax.custom_root``), not of the iteration.
    """

    def residual(y: Any) -> Any:
        return y - known - weight * fun(y)

    def matrix(y: Any) -> Any:
        slopes = _columns(lambda change: jax.jvp(fun, (y,), (change,))[1], y) if jacobian is None else jacobian(y)
        return jnp.eye(y.shape[-1]) - jnp.broadcast_to(weight, y.shape)[..., None] * slopes

    def solve(_: Function, start: Any) -> Any:
        tolerance = float(jnp.finfo(start.dtype).eps) ** 0.7  # the next correction would be below rounding

        def go_on(carried: Any) -> Any:
            _, settled, lost, count = carried
            return (count < MAX) & ~jnp.all(settled | lost)

        def turn(carried: Any) -> Any:
            y, settled, _, count = carried
            change = jnp.linalg.solve(matrix(y), residual(y)[..., None])[..., 0]
            y = jnp.where(settled[..., None], y, y - change)
            size = jnp.max(jnp.abs(change), axis=-1)
            done = settled | (size <= tolerance * jnp.max(jnp.abs(y), axis=-1)) | (size == 0.0)
            return y, done, ~jnp.isfinite(size), count + 1

        none = jnp.zeros(start.shape[:-1], bool)
        y, settled, _, _ = jax.lax.while_loop(go_on, turn, (start, none, none, 0))
        return jnp.where(settled[..., None], y, jnp.nan)

    def solve_linear(linear: Function, right: Any) -> Any:
        return jnp.linalg.solve(_columns(linear, right), right[..., None])[..., 0]

    return jax.lax.custom_root(residual, guess, solve, solve_linear)


def solve_transposed(fun: Function, slopes: Any, y: Any, weight: Any, value_bar: Any, state_bar: Any) -> Any:
    """The gradient with respect to ``known`` of ``y = known + weight f(y)``, from those of ``f(y)`` and y."""
    if slopes is None:
        slopes = _columns(lambda change: jax.jvp(fun, (y,), (change,))[1], y)
    matrix = jnp.eye(y.shape[-1]) - jnp.broadcast_to(weight, y.shape)[..., None] * slopes
    right = state_bar + jnp.einsum("...ij,...i->...j", slopes, value_bar, precision="highest")
    return jnp.linalg.solve(jnp.swapaxes(matrix, -1, -2), right[..., None])[..., 0]


def _columns(linear: Function, like: Any) -> Any:
    """The matrix of each member of a linear function of (..., d). Members are independent."""
    basis = jnp.eye(like.shape[-1], dtype=like.dtype)
    return jax.vmap(lambda column: linear(jnp.broadcast_to(column, like.shape)), out_axes=-1)(basis)


def jacobian_matrices(fun: Function, y: Any) -> Any:
    """The Jacobian of each member, (..., d, d), in reverse mode, which every differentiable function has."""
    value, back = jax.vjp(fun, y)
    basis = jnp.eye(y.shape[-1], dtype=value.dtype)
    return jax.vmap(lambda row: back(jnp.broadcast_to(row, value.shape))[0], out_axes=-2)(basis)
