"""The first points, from the polynomial through the first samples, and the value at the origin itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly
from scipy.special import gamma

from hpfracc._xp import Namespace, array_namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import Samples, constant, join, largest, real_dtype, real_product, scalar, weights_of
from hpfracc.operators.rules.differences import (
    DIFFERENCE_ORDER,
    maybe_whole,
    slopes_at_start,
    start_points,
    weighted_sum,
    weights_among,
)

Array = np.ndarray[Any, Any]

#: A slope at the origin counts as nonzero above this multiple of its doubt, and as 0 below that.
_CLEAR = 50.0
#: Maximum distance of optional points relative to the required ones, on any grid.
_REACH = 100.0


def first_places(samples: Samples, last: int, unit: int = 1) -> tuple[Array, Any]:
    """Distances of the points 0 .. last from the origin, in units of the step or of that of a point; and this unit."""
    if samples.grid.uniform:
        return np.arange(last + 1.0), samples.grid.step
    reach = samples.grid.times()[: last + 1] - samples.grid.times()[0]
    return reach / reach[unit], float(reach[unit])


def unit_scale(samples: Samples, order: Order, unit: Any) -> Any:
    """``unit ** -alpha``, as a factor for the values, where the unit is that of :func:`first_places`."""
    if samples.grid.uniform:
        return samples.scale(-order.value)
    with order.xp.scope():
        return scalar(order.xp.power(unit, -order.value), samples.values)


def first_points(
    samples: Samples, order: Order, lowest: int, last: int, value: Any = None, *, causal: bool = False
) -> Any:
    """The operator at points 1 .. last - 1, of the polynomial through samples 0 .. last.

    Parameters
    ----------
    lowest : int
        The lowest power that contributes: n for Caputo, 0 for Riemann-Liouville.
    value : array, optional
        The rule's own values. On any grid a sample much farther from the origin than those that a point needs is
        dropped. A point after such a gap, with enough samples before it, keeps its value.
    causal : bool
        Whether each point uses the samples up to its own only.
    """
    x, n = samples.values, order.ceiling
    places, unit = first_places(samples, last, last)
    counts = [
        i + 1 if causal else int(np.searchsorted(places, _REACH * places[max(i, n)], side="right"))
        for i in range(1, last)
    ]
    gaps = np.array([value is not None and i >= n and places[i] > _REACH * places[i - 1] for i in range(1, last)])
    bases = np.zeros((last - 1, last + 1, last + 1))
    for i, count in enumerate(counts):
        for k in range(count):
            others = np.delete(places[:count], k)
            bases[i, k, :count] = poly.polyfromroots(others) / np.prod(places[k] - others)
    powers = np.arange(lowest, last + 1.0)
    # Taylor terms at each point but for the order.
    terms = bases[:, :, lowest:] * (gamma(powers + 1.0) * places[1:last, None, None] ** powers)

    def make(xp: Namespace, alpha: Any, _: int) -> tuple[Any, Any]:
        """The weights of the samples at each point, and those of a constant."""
        decay = xp.power(places[1:last], -alpha)
        rows = xp.matmul(xp.array(terms), xp.rgamma(xp.array(powers + 1.0) - alpha)[:, None])[..., 0]
        return rows * decay[:, None], decay * xp.rgamma(1.0 - alpha)

    if samples.grid.uniform:
        rows, constants = weights_of(("first points", lowest, last, causal), make, order, last)
    else:
        with order.xp.scope():
            rows, constants = make(order.xp, order.value, last)
    with order.xp.scope():
        rows, constants = order.guard(rows), order.guard(constants)
    # A constant has no derivative, without rounding.
    rise = x[..., : last + 1] - x[..., :1]
    if causal:
        found = join([real_product(rise[..., : i + 2], rows[i : i + 1, : i + 2]) for i in range(last - 1)])
    else:
        found = real_product(rise, rows)
    if lowest == 0:
        found = found + x[..., :1] * constant(constants, x)
    found = found * unit_scale(samples, order, unit)
    return array_namespace(x).where(constant(gaps, x) > 0, value[..., 1:last], found) if gaps.any() else found


def with_start(value: Any, samples: Samples, order: Order) -> Any:
    """Caputo's ``value`` with its first points filled in, for orders above 1; see :meth:`Rule.head`."""
    x, n = samples.values, order.ceiling
    limit = array_namespace(x).stop_gradient(x[..., :1]) * 0
    origin = whole_at_origin(limit, lambda: slope_at_origin(samples, order), order)
    if n == 1:
        return join([origin, value[..., 1:]])
    last = start_points(n)
    return join([origin, first_points(samples, order, n, last, value), value[..., last:]])


def taylor_at_origin(x: Any, places: Array, count: int, terms: int = DIFFERENCE_ORDER) -> list[Any]:
    """Taylor coefficients 0 .. count-1 at the first point, of the polynomial through the first samples."""
    return [slope * (1.0 / math.factorial(k)) for k, slope in enumerate(slopes_at_start(x, places, count - 1, terms))]


def slope_at_origin(samples: Samples, order: Order) -> Any:
    """The derivative of order n at the first point; nan if there are too few samples."""
    x, n = samples.values, order.ceiling
    if samples.n <= n:
        return x[..., :1] * math.nan
    places, unit = first_places(samples, min(start_points(n) + 1, samples.n - 1))
    slope = slopes_at_start(x, places, n)[-1]
    return slope * (samples.scale(-n) if samples.grid.uniform else unit**-n)


def infinite_at_origin(first: Any, order: Order, slopes: list[tuple[Any, Any]], rounding: Any = 0.0) -> Any:
    """A Riemann-Liouville operator at the origin: 0 for an integral, infinite for a derivative unless f is 0.

    The sign is that of the lowest nonzero derivative of f there. f counts as 0 if its first sample is exactly 0.
    ``slopes`` are its derivatives 1 .. n-1 with their uncertainties, to which ``rounding`` is added; if one can neither
    be distinguished from 0 nor from a nonzero value, the result is nan. The result is not differentiable.
    """
    xp = array_namespace(first)
    first = xp.stop_gradient(first)
    if order.ceiling == 1 and "complex" not in str(first.dtype):
        with np.errstate(divide="ignore", invalid="ignore"):
            # Divided by 0, and by 1 where it is 0 itself. Non-finite values give nan, as a product with 0 would.
            return first / (first == 0) + first * 0
    nothing = first * 0
    if order.ceiling <= 0:
        return nothing
    result = nothing
    for k in range(order.ceiling - 1, -1, -1):
        slope, doubt = slopes[k - 1] if k else (first, abs(nothing))
        sign = -math.inf if (order.ceiling - 1 - k) % 2 else math.inf
        if "complex" in str(first.dtype):
            told = nothing + (sign + abs(nothing))
        else:
            told = xp.where(slope < 0, nothing - sign, nothing + sign)
        if k:
            doubt = doubt + rounding
            told = xp.where(abs(slope) > _CLEAR * doubt, told, nothing + math.nan)
        # False for nan, which then propagates.
        result = xp.where(abs(slope) <= doubt, result, told + abs(slope) * 0)
    return result


def singular_origin(samples: Samples, order: Order, last: int) -> Any:
    """:func:`infinite_at_origin` of samples, from the first ``last + 1`` of them."""
    x = array_namespace(samples.values).stop_gradient(samples.values)
    if order.ceiling <= 1:
        return infinite_at_origin(x[..., :1], order, [])
    places, _ = first_places(samples, min(last, samples.n - 1))
    slopes = []
    for k in range(1, order.ceiling):
        slope, other = (weighted_sum(x, weights_among(some, 0, k)) for some in (places, places[:-1]))
        slopes.append((slope, abs(slope - other)))
    rounding = largest(x[..., : last + 1]) * (4.0 * 2.0**last * float(np.finfo(real_dtype(x)).eps))
    return infinite_at_origin(x[..., :1], order, slopes, rounding)


def whole_at_origin(limit: Any, slope: Callable[[], Any], order: Order) -> Any:
    """The value at the origin of a derivative whose order is a tensor: for an integer order n, the n-th derivative.

    Below n it is ``limit``; nan if a traced order is outside this range.
    """
    if not maybe_whole(order):
        return limit
    if order.known is not None:
        return slope()
    return order.guard(order.xp.where(order.value == order.ceiling, slope(), limit))
