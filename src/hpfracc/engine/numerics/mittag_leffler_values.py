"""E_{a,b} and its derivatives by a plan: z sorted into bands, each evaluated in blocks, in any eager array namespace.

The formulae are those of ``mittag_leffler_plan``; the contribution of the poles is in ``mittag_leffler_poles``. Sorting
needs several times the memory of z. On the host it runs chunk by chunk, so long arrays need no more than short ones in
addition to their result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hpfracc._arrays import device_of
from hpfracc._xp import NUMPY, Namespace
from hpfracc.engine.numerics.mittag_leffler_plan import Band, ContourPlan
from hpfracc.engine.numerics.mittag_leffler_poles import (
    Poles,
    Strip,
    add_residues,
    choose_offset,
    find_poles,
    is_close,
    whole_power,
)

#: Values of z that are sorted into bands at once: thousands per band, and a few megabytes in total.
CHUNK = 1 << 17
#: Values of z per block: with about 50 nodes each, the fractions of a block stay within a megabyte.
_BLOCK = 1024


def pairs_of(alpha: np.ndarray, beta: np.ndarray) -> Iterator[tuple[tuple[float, float], np.ndarray]]:
    """The distinct pairs of parameters (arrays of one shape), each with its flat indices."""
    pairs, which = np.unique(np.stack([alpha.ravel(), beta.ravel()]), axis=1, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=pairs.shape[1]))
    for (a, b), end, before in zip(pairs.T.tolist(), ends, [0, *ends[:-1]], strict=False):
        yield (a, b), order[before:end]


def evaluate(z: Any, plan: ContourPlan, xp: Namespace = NUMPY) -> Any:
    """The function of ``plan`` at ``z``, an array of ``xp``, in its dtype; without gradients."""
    flat = z.reshape(-1)
    count, on_host = flat.shape[0], device_of(z) == "cpu"
    block = _BLOCK if on_host else values_together(count)
    by_sign = xp.library == "numpy" and not xp.is_complex(z)
    of_chunk = xp.quiet(partial(values_on_bands, xp, plan=plan, block=block, by_sign=by_sign))
    if not on_host or count <= CHUNK:
        return xp.astype(of_chunk(flat), z.dtype).reshape(z.shape)
    result = xp.empty_like(flat)
    for begin in range(0, count, CHUNK):
        result[begin : begin + CHUNK] = of_chunk(flat[begin : begin + CHUNK])
    return result.reshape(z.shape)


def values_on_bands(xp: Namespace, z: Any, plan: ContourPlan, block: int, *, by_sign: bool = False) -> Any:
    """The values at ``z``, of one axis, in double precision, ``block`` of them at a time.

    ``by_sign`` separates positive and negative z, which have different poles: less work, but one more synchronisation
    with the device.
    """
    points = xp.astype(z, "complex128" if xp.is_complex(z) else "float64")
    values = xp.empty_like(points)
    radius = xp.abs(points)
    # nan is below every edge and goes through the power series.
    found = xp.searchsorted(xp.asarray(plan.edges, points), radius, side="right") - 1
    band_of = xp.where(radius > plan.radius, found, -1)
    for index in xp.unique(band_of).tolist():
        inside = band_of == index
        if index < 0:
            for where in _blocks(xp.nonzero(inside), block):
                values[where] = taylor_value(plan, points[where])
            continue
        for sign in (1, -1) if by_sign else (0,):
            chosen = inside if not sign else inside & (sign * points > 0)
            for where in _blocks(xp.nonzero(chosen), block):
                values[where] = band_value(xp, plan, index, points[where], sign)
    if xp.library == "numpy" and not np.isinf(radius).any():  # on a device this would synchronise
        return values
    return at_infinity(xp, plan, points, radius, values)


def _blocks(places: Any, block: int) -> Iterator[Any]:
    for begin in range(0, places.shape[0], block):
        yield places[begin : begin + block]


def at_infinity(xp: Namespace, plan: ContourPlan, points: Any, radius: Any, values: Any) -> Any:
    """Limits along the real axis: inf to the right, 0 to the left for alpha < 2; otherwise there is none."""
    right, left = xp.full_like(radius, math.inf * (-1) ** plan.logs), 0.0 if plan.alpha < 2 else math.nan
    limit = xp.where(points.real > 0, right, left)
    if xp.is_complex(points):
        limit = xp.where(points.imag == 0, limit, math.nan)
    return xp.where(xp.isinf(radius), xp.astype(limit, values.dtype), values)


# The value on one band of abs(z).


#: Values of z that a GPU processes at once: enough to fill it, and at most some hundred megabytes of fractions; between
#: these a sixth of all, which is rarely less than the largest band.
_MIN_TOGETHER, _MAX_TOGETHER, _SHARE_TOGETHER = 1 << 14, 1 << 18, 6


def values_together(count: int) -> int:
    """Number of values of one band that a GPU processes at once, so that memory does not depend on the data."""
    return max(_MIN_TOGETHER, min(_MAX_TOGETHER, count // _SHARE_TOGETHER))


def taylor_value(plan: ContourPlan, z: Any) -> Any:
    """The power series."""
    total = z * 0.0
    for coefficient in plan.taylor[::-1].tolist():
        total = total * z + coefficient
    return total


def band_value(xp: Namespace, plan: ContourPlan, index: int, z: Any, sign: int = 0) -> Any:
    """The derivative that ``plan`` is for, for ``|z|`` in its band ``index``; ``z`` in double precision.

    ``sign`` is the common sign of all (real) z, which saves the other poles; 0 if they differ or are complex.
    """
    band = plan.bands[index]
    expansion = _expansion(plan, band, z)
    poles = find_poles(xp, plan, z, sign)
    if band.elementary:
        return add_residues(xp, plan, None, z, poles, None, expansion)
    value = _with_integral(xp, plan, band, z, poles, expansion)
    if not plan.wide or not poles:
        return value
    close = is_close(xp, _strip(band), poles)
    if bool(close.any()):
        near = z[close]
        value[close] = _with_integral(
            xp, plan, plan.wide[index], near, find_poles(xp, plan, near, sign), expansion[close]
        )
    return value


def _strip(band: Band) -> Strip:
    return Strip(2 * math.pi / band.step, math.sqrt(band.mu), band.reach)


def _with_integral(xp: Namespace, plan: ContourPlan, band: Band, z: Any, poles: list[Poles], expansion: Any) -> Any:
    strip = _strip(band)
    offset = choose_offset(xp, strip, poles, 4 if "complex" in str(z.dtype) else 2)
    integral = leibniz(band.terms, 1.0 / z, plan.order, _integral(xp, band, z, plan.order, offset))
    return add_residues(xp, plan, strip, z, poles, offset, expansion + integral)


def mirrored(offset: int) -> int:
    """The index of ``1 - tau``, whose conjugates are the nodes below the axis."""
    return offset if offset < 2 else 5 - offset


def leibniz(terms: Any, inverse: Any, order: int, sums: list[Any]) -> Any:
    """The ``order``-th derivative of ``z^-m sum w/(p - z)``, from sums of ``w/(p - z)^(n+1)``; ``inverse`` is 1/z."""
    total = sums[order] * float(math.factorial(order))
    rising: Any = 1.0
    for j in range(1, order + 1):
        rising = rising * (terms + j - 1.0) * -1.0
        share = rising * float(math.comb(order, j) * math.factorial(order - j))
        total = total + share * whole_power(inverse, j) * sums[order - j]
    return total * (whole_power(inverse, terms) if isinstance(terms, int) else inverse**terms)


def _expansion(plan: ContourPlan, band: Band, z: Any) -> Any:
    """``-sum_k z^-k / Gamma(b - a k)`` over the band's terms, differentiated."""
    order, inverse = plan.order, 1.0 / z
    total = z * 0.0
    for k in range(band.terms, 0, -1):
        rising = float(math.perm(k + order - 1, order) * (-1) ** order)
        total = (total - float(plan.inverse[k]) * rising) * inverse
    return total * whole_power(inverse, order) if order else total


def _integral(xp: Namespace, band: Band, z: Any, order: int, offset: Any) -> list[Any]:
    """The sums of fractions over the nodes of each z."""
    complex_z, chosen = "complex" in str(z.dtype), None
    for i in (offset,) if isinstance(offset, int) else range(4 if complex_z else 2):
        sums = _fractions(xp, band.points[i], band.weights[i], z, order)
        if complex_z:
            j = mirrored(i)
            below = _fractions(xp, band.points[j].conj(), band.weights[j].conj(), z, order)
            sums = [up + down for up, down in zip(sums, below, strict=True)]
        chosen = sums if chosen is None else [xp.where(offset == i, *both) for both in zip(sums, chosen, strict=True)]
    return chosen or []


def _fractions(xp: Namespace, points: Any, weights: Any, z: Any, order: int) -> list[Any]:
    """``sum_k w_k / (p_k - z)^(n+1)`` for n up to ``order``; for real z with the conjugates added."""
    complex_z, z = "complex" in str(z.dtype), z[..., None]
    if not complex_z and order == 0:
        distance = xp.asarray(points.real) - z
        size = distance * distance + xp.asarray(points.imag**2)
        above = xp.asarray(weights.real) * distance + xp.asarray(weights.imag * points.imag)
        return [2.0 * (above / size).sum(-1)]
    if order == 0:
        # One division: a reciprocal first would be a third array of this size.
        return [(xp.asarray(weights) / (xp.asarray(points) - z)).sum(-1)]
    reciprocal = 1.0 / (xp.asarray(points) - z)
    power = xp.asarray(weights) * reciprocal
    sums = [power.sum(-1)]
    for _ in range(order):
        power = power * reciprocal
        sums.append(power.sum(-1))
    return sums if complex_z else [2.0 * xp.real(total) for total in sums]
