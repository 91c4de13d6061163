"""``mittag_leffler`` in JAX: each z gathers the constants of its band, so that it can be traced.

A loop over the nodes avoids storage proportional to their number. The derivative rule calls the same function one order
higher. The computation is always in double precision.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.mittag_leffler_plan import OFFSETS, Band, ContourPlan, make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import (
    Poles,
    Strip,
    add_residues,
    at_infinity,
    choose_offset,
    find_poles,
    is_close,
    leibniz,
    mirrored,
    taylor_value,
)

_XP = namespace("jax")


def mittag_leffler_contour(z: Any, *, alpha: float, beta: float = 1.0, order: int = 0) -> jax.Array:
    """The ``order``-th derivative of E_{alpha,beta} at ``z``, in the dtype of ``z``."""
    return _differentiable(jnp.asarray(z), float(alpha), float(beta), int(order))


@partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def _differentiable(z: jax.Array, alpha: float, beta: float, order: int) -> jax.Array:
    return _compiled(z, alpha, beta, order)


@_differentiable.defjvp
def _slope(
    alpha: float, beta: float, order: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (z,), (tangent,) = primals, tangents
    return _differentiable(z, alpha, beta, order), tangent * _differentiable(z, alpha, beta, order + 1)


class _Tables(NamedTuple):
    """A plan's bands with one row each: nodes as (node, band x offset), padded with zero weights."""

    terms: np.ndarray
    rate: np.ndarray
    root_mu: np.ndarray
    reach: np.ndarray
    points: np.ndarray
    weights: np.ndarray


def _tables(bands: tuple[Band, ...]) -> _Tables:
    longest = max([1, *(points.size for band in bands for points in band.points)])
    points = np.full((longest, len(bands) * len(OFFSETS)), 1j)
    weights = np.zeros_like(points)
    for row, band in enumerate(bands):
        for column, (point, weight) in enumerate(zip(band.points, band.weights, strict=True)):
            points[: point.size, row * len(OFFSETS) + column] = point
            weights[: weight.size, row * len(OFFSETS) + column] = weight
    # Without an integral every pole counts fully, as for a rule so fine that q is zero.
    rate = [1e6 if band.elementary else 2 * math.pi / band.step for band in bands]
    root_mu = [1e-4 if band.elementary else math.sqrt(band.mu) for band in bands]
    reach = [math.inf if band.elementary else band.reach for band in bands]
    terms = [float(band.terms) for band in bands]
    return _Tables(*map(np.asarray, (terms, rate, root_mu, reach, points, weights)))


@partial(jax.jit, static_argnums=(1, 2, 3))
def _compiled(z: jax.Array, alpha: float, beta: float, order: int) -> jax.Array:
    plan = make_contour_plan(alpha, beta, order)
    with jax.enable_x64(True):
        points = z.astype(jnp.complex128 if jnp.iscomplexobj(z) else jnp.float64)
        radius = jnp.abs(points)
        small = radius <= plan.radius
        values = taylor_value(plan, jnp.where(small, points, jnp.zeros_like(points)))
        # Where the other formula applies, this one gets a safe argument.
        far = _beyond(plan, jnp.where(small | ~jnp.isfinite(radius), jnp.full_like(points, -plan.edges[-1]), points))
        values = jnp.where(small, values, far)
        values = at_infinity(_XP, plan, points, radius, values)
        return jnp.where(jnp.isnan(points), points, values).astype(z.dtype)


def _beyond(plan: ContourPlan, z: jax.Array) -> jax.Array:
    """Outside the radius of the power series: expansion, integral and poles."""
    band = jnp.maximum(jnp.searchsorted(jnp.asarray(plan.edges), jnp.abs(z), side="right") - 1, 0)
    poles = find_poles(_XP, plan, z)
    if plan.closed:
        return add_residues(_XP, plan, None, z, poles, None, _expansion(plan, z, jnp.asarray(plan.bands[0].terms)))
    value, strip = _along(plan, plan.bands, z, band, poles)
    if not plan.wide or not poles:
        return value
    other, _ = _along(plan, plan.wide, z, band, poles)
    return jnp.where(is_close(_XP, strip, poles), other, value)


def _along(
    plan: ContourPlan, bands: tuple[Band, ...], z: jax.Array, band: jax.Array, poles: list[Poles]
) -> tuple[jax.Array, Strip]:
    tables = _tables(bands)
    terms, *numbers = (jnp.asarray(column)[band] for column in tables[:4])
    strip = Strip(*numbers)
    offset = choose_offset(_XP, strip, poles, 4 if jnp.iscomplexobj(z) else 2)
    sums = _integral(tables, z, plan.order, band * len(OFFSETS), offset)
    total = _expansion(plan, z, terms) + leibniz(terms, 1.0 / z, plan.order, sums)
    return add_residues(_XP, plan, strip, z, poles, offset, total), strip


def _expansion(plan: ContourPlan, z: jax.Array, terms: jax.Array) -> jax.Array:
    order, inverse = plan.order, 1.0 / z
    counts = [band.terms for band in plan.bands]
    most = max(0, *counts)
    rising = [0.0] + [float(math.perm(k + order - 1, order) * (-1) ** order) for k in range(1, most + 1)]
    coefficients = jnp.asarray(np.array(rising) * plan.inverse[: most + 1])

    def step(i: int, total: jax.Array) -> jax.Array:
        k = most - i
        return jnp.where(k <= terms, (total - coefficients[k]) * inverse, total)

    total = jax.lax.fori_loop(0, most, step, jnp.zeros_like(z)) * inverse**order
    for k in range(-min(counts) - order - 1, -1, -1):  # the first terms of the power series
        total = jnp.where(terms < -k - order, total * (z / plan.unit) + plan.taylor[k], total)
    return total


def _integral(tables: _Tables, z: jax.Array, order: int, column: jax.Array, offset: Any) -> list[jax.Array]:
    """The sums of ``w/(p - z)^(n+1)`` over the nodes of each z."""
    points, weights = jnp.asarray(tables.points), jnp.asarray(tables.weights)
    complex_z = jnp.iscomplexobj(z)
    chosen = jnp.full(column.shape, offset) if isinstance(offset, int) else offset.astype(column.dtype)
    above = column + chosen
    below = column + jnp.asarray([mirrored(i) for i in range(len(OFFSETS))])[chosen]

    def step(k: int, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        powers = _powers(points[k][above] - z, weights[k][above], order)
        if complex_z:
            others = _powers(points[k][below].conj() - z, weights[k][below].conj(), order)
            return tuple(total + up + down for total, up, down in zip(sums, powers, others, strict=True))
        return tuple(total + 2.0 * up.real for total, up in zip(sums, powers, strict=True))

    start = tuple(jnp.zeros_like(z) for _ in range(order + 1))
    return list(jax.lax.fori_loop(0, points.shape[0], step, start))


def _powers(distance: jax.Array, weight: jax.Array, order: int) -> list[jax.Array]:
    reciprocal = 1.0 / distance
    powers = [weight * reciprocal]
    for _ in range(order):
        powers.append(powers[-1] * reciprocal)
    return powers


KERNELS: dict[str, Kernel] = {"contour": Kernel(mittag_leffler_contour)}
