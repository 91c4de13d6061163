"""E_{a,b} and its derivatives by a plan, in NumPy: z sorted into bands, each evaluated in blocks that fit the cache.

Sorting takes several times the memory of z: it is done stretch by stretch, so that long arrays take no more than short
ones beside their result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hpfracc.engine.numerics.mittag_leffler_plan import Plan
from hpfracc.engine.numerics.mittag_leffler_poles import Namespace
from hpfracc.engine.numerics.mittag_leffler_sum import band_value, taylor_value

__all__ = ["STRETCH", "evaluate", "pairs_of"]

#: Values of z that are sorted into bands at once: thousands for each band, and a few megabytes of them in all.
STRETCH = 1 << 17
#: Values of z taken at once: with some 50 nodes each, the fractions of a block stay within a megabyte.
_BLOCK = 1024


def _join(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    value = np.empty(np.broadcast(real, imag).shape, np.complex128)
    value.real, value.imag = real, imag
    return value


_TOOLS = Namespace(np, _join, np.asarray)


def pairs_of(alpha: np.ndarray, beta: np.ndarray) -> Iterator[tuple[tuple[float, float], np.ndarray]]:
    """The different pairs of parameters, of one shape, each with the flat places where it stands."""
    pairs, which = np.unique(np.stack([alpha.ravel(), beta.ravel()]), axis=1, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=pairs.shape[1]))
    for (a, b), end, before in zip(pairs.T.tolist(), ends, [0, *ends[:-1]], strict=False):
        yield (a, b), order[before:end]


def evaluate(z: np.ndarray, plan: Plan) -> np.ndarray:
    """What ``plan`` is for at ``z``, in its dtype."""
    if z.size <= STRETCH:
        return _evaluate(np.ravel(z), plan).reshape(z.shape).astype(z.dtype, copy=False)
    flat, result = np.ravel(z), np.empty(z.size, z.dtype)
    for begin in range(0, z.size, STRETCH):
        part = slice(begin, begin + STRETCH)
        result[part] = _evaluate(flat[part], plan)
    return result.reshape(z.shape)


def _evaluate(z: np.ndarray, plan: Plan) -> np.ndarray:
    """The values of one stretch, in double precision."""
    complex_z = np.iscomplexobj(z)
    points = z.astype(np.complex128 if complex_z else np.float64, copy=False)
    values = np.empty_like(points)
    radius = np.abs(points)
    # nan, from z, stays below every edge and goes through the power series.
    band_of = np.where(radius > plan.radius, np.searchsorted(plan.edges, radius, side="right") - 1, -1)
    with np.errstate(all="ignore"):
        for index in np.unique(band_of):
            where = np.nonzero(band_of == index)[0]
            if index < 0:
                values[where] = taylor_value(plan, points[where])
                continue
            sides = (where,) if complex_z else (where[points[where] > 0], where[points[where] < 0])
            for side, sign in zip(sides, (0,) if complex_z else (1, -1), strict=True):
                for start in range(0, side.size, _BLOCK):
                    block = side[start : start + _BLOCK]
                    values[block] = band_value(_TOOLS, plan, int(index), points[block], sign)
        if np.isinf(radius).any():
            values = _at_infinity(plan, points, radius, values)
    return values


def _at_infinity(plan: Plan, points: np.ndarray, radius: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Limits along the real axis: inf to the right, 0 to the left below alpha = 2; elsewhere there is none."""
    limit = np.where(points.real > 0, math.inf * (-1) ** plan.logs, 0.0 if plan.alpha < 2 else np.nan)
    limit = np.where(points.imag == 0, limit, np.nan)
    return np.where(np.isinf(radius), limit, values)
