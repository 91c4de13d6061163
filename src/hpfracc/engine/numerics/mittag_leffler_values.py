"""E_{a,b} and its derivatives by a plan: z sorted into bands, each evaluated in blocks, in any eager array namespace.

Sorting needs several times the memory of z. On the host it runs chunk by chunk, so long arrays need no more than short
ones in addition to their result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY, Namespace
from hpfracc.engine.numerics.mittag_leffler_plan import ContourPlan
from hpfracc.engine.numerics.mittag_leffler_sum import band_value, taylor_value

__all__ = ["CHUNK", "evaluate", "pairs_of", "values_on_bands"]

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


def evaluate(z: np.ndarray, plan: ContourPlan) -> np.ndarray:
    """The function of ``plan`` at ``z``, in its dtype; in NumPy."""
    if z.size <= CHUNK:
        return np.asarray(_of_chunk(np.ravel(z), plan).reshape(z.shape).astype(z.dtype, copy=False))
    flat, result = np.ravel(z), np.empty(z.size, z.dtype)
    for begin in range(0, z.size, CHUNK):
        part = slice(begin, begin + CHUNK)
        result[part] = _of_chunk(flat[part], plan)
    return result.reshape(z.shape)


@np.errstate(all="ignore")
def _of_chunk(z: np.ndarray, plan: ContourPlan) -> Any:
    return values_on_bands(NUMPY, z, plan, _BLOCK, by_sign=z.dtype.kind != "c")


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
    return _at_infinity(xp, plan, points, radius, values)


def _blocks(places: Any, block: int) -> Iterator[Any]:
    for begin in range(0, places.shape[0], block):
        yield places[begin : begin + block]


def _at_infinity(xp: Namespace, plan: ContourPlan, points: Any, radius: Any, values: Any) -> Any:
    """Limits along the real axis: inf to the right, 0 to the left for alpha < 2; otherwise there is none."""
    right, left = xp.full_like(radius, math.inf * (-1) ** plan.logs), 0.0 if plan.alpha < 2 else math.nan
    limit = xp.where(points.real > 0, right, left)
    if xp.is_complex(points):
        limit = xp.where(points.imag == 0, limit, math.nan)
    return xp.where(xp.isinf(radius), xp.astype(limit, values.dtype), values)
