"""Fits to the first samples by polynomials and by powers of t^alpha: derivatives at the origin, and their doubts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY, Namespace, array_namespace, of_variables
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import constant, largest, real_dtype
from hpfracc.operators.core.weights import weights_of
from hpfracc.operators.rules.increments import start_points

Array = np.ndarray[Any, Any]
#: The exponents i + j alpha of a fit, as pairs (i, j).
Shape = tuple[tuple[int, int], ...]

#: Samples beyond those of a fit that it must predict.
_PREDICTED = 4
#: Sizes of the fits with powers of t^alpha: functions beyond the polynomial of degree n - 1.
_MIXED, _HOMOGENEOUS = (1, 3, 5), (3, 5)
#: The same for polynomials. The first is that of the rules; the second shows how certain a polynomial can be.
_POLYNOMIALS = (3, 5)
#: Exponents closer than this are taken for one.
_GAP = 0.04
#: A fit with t^alpha must be this much more certain than the polynomial.
_CLEARLY = 4.0
#: The samples ask for powers of t^alpha if the largest fit with them leaves residuals this much smaller than the
#: polynomial of the same size, whose residuals are this many rounding errors. Noise and smooth samples do not.
_SIGNIFICANT, _BEYOND_ROUNDING = 20.0, 8.0
#: Standard deviations of noise in the samples that the uncertainty covers.
_DEVIATIONS = 6.0
#: Residuals below this multiple of the weights are rounding errors.
_ROUNDING = 1e-11


@dataclass(frozen=True, slots=True)
class Start:
    """How f starts, in units of a length u: ``f = sum_k coefficients[k-1] (t/u)^k + ...``.

    Attributes
    ----------
    coefficients, doubts : list of arrays
        Taylor coefficients 1 .. n-1 at the origin, and estimates of their errors; one point along the last axis.
    first : array
        ``u^alpha D^alpha f`` at the origin and the first points after it, of the fit.
    is_singular : array of bool
        Whether the fit has powers of t^alpha; otherwise ``first`` is of no use.
    """

    coefficients: list[Any]
    doubts: list[Any]
    first: Any
    is_singular: Any


@cache
def _shapes(n: int, alpha: float | None, count: int) -> tuple[Shape, ...]:
    """The fits to ``count`` samples: two polynomials, and those with powers of t^alpha if there are enough samples."""
    polynomials: list[Shape] = [tuple((i, 0) for i in range(n + size)) for size in _POLYNOMIALS]
    found = list(polynomials) if n + _POLYNOMIALS[1] + 2 <= count else polynomials[:1]
    if len(found) == 1:
        return tuple(found)
    if alpha is not None and not _GAP / 4 < alpha - (n - 1) < 1.0 - _GAP / 4:
        return tuple(found)  # t^alpha is as good as a power of the polynomial
    smooth_source = [(i, 0) for i in range(n, n + 9)] + [(i, 1) for i in range(9)]
    homogeneous = [(i, j) for j in range(1, 9) for i in range(n)]
    at = n - 0.5 if alpha is None else alpha
    # Fewer for a traced order, whose fits are compiled with the call.
    families = (
        ((smooth_source, _MIXED[1:]),) if alpha is None else ((smooth_source, _MIXED), (homogeneous, _HOMOGENEOUS))
    )
    for pairs, sizes in families:
        kept: list[tuple[int, int]] = []
        for pair in sorted(pairs, key=lambda pair: pair[0] + pair[1] * at):
            if all(abs(pair[0] - other[0] + (pair[1] - other[1]) * at) > _GAP for other in kept):
                kept.append(pair)
        found += [(*polynomials[0][:n], *kept[:size]) for size in sizes]
    return tuple(found)


def samples_of_start(n: int, count: int) -> int:
    """Number of first samples that determine the start, of ``count`` samples."""
    return min(count, n + max(*_MIXED, *_HOMOGENEOUS) + _PREDICTED)


def _make_fits(n: int, known: float | None, places: Array) -> Any:
    def make(xp: Namespace, alpha: Any, count: int) -> tuple[Any, ...]:
        """Each fit as weights of the samples: coefficients of its powers, and residuals; and its uncertainty.

        The residuals are those of the next samples, as orthonormal weights: their norm is that of noise in the samples.
        The uncertainty of coefficient k is a number times this norm: the largest ratio of both for a neglected power of
        t, or for noise. The last result is the sum of the absolute weights. No derivative in alpha:
        the true coefficients do not depend on it.
        """
        exponent = xp.stop_gradient(xp.array(alpha))
        low = n - 1 + 0.3 * (exponent - (n - 1))
        neglected = low + (n + 5.0 - low) * xp.array(np.linspace(0.0, 1.0, 61))
        shapes = _shapes(n, known, count)
        most = max(map(len, shapes))
        fits: list[tuple[Any, ...]] = []
        for shape in shapes:
            size = len(shape)
            unit = float(places[size - 1])
            s = places[1:] / unit
            powers = _exponents(xp, shape, exponent)
            log = xp.array(np.log(s))[:, None]
            values = xp.concatenate([xp.array(np.eye(1, size)), xp.exp(log * powers)])
            weights = _padded(xp, xp.inv(values[:size]), size, count)
            used = min(size, count - 1)
            ahead = min(_PREDICTED, count - used)
            narrow = weights if used == size else _padded(xp, xp.inv(values[:used, :used]), used, count)
            predicted = xp.matmul(values[used : used + ahead, :used], narrow)
            rows = _orthonormal(xp, xp.array(np.eye(count)[used : used + ahead]) - predicted)
            shown = xp.concatenate([0.0 * neglected[None], xp.exp(log * neglected)])
            residuals = xp.sqrt((xp.matmul(rows, shown) ** 2).sum(0))
            clear = residuals > _ROUNDING * xp.amax(abs(rows).sum(-1), 0)
            missed = abs(xp.matmul(weights[1:n], shown))
            ratio = xp.amax(xp.where(clear, missed / xp.where(clear, residuals, 1.0), 0.0), -1)
            noise = xp.sqrt((weights[1:n] ** 2).sum(-1))
            units = xp.array(unit ** -np.arange(1.0, n))
            fits.append(
                (
                    _padded(xp, xp.exp(-math.log(unit) * powers)[:, None] * weights, most, count),
                    _padded(xp, rows, _PREDICTED, count),
                    xp.maximum(ratio, _DEVIATIONS * noise) * units,
                    abs(weights[1:n]).sum(-1) * units,
                )
            )
        return tuple(xp.stack(table) for table in zip(*fits, strict=True))

    return make


def _exponents(xp: Namespace, shape: Shape, alpha: Any) -> Any:
    first, second = (np.array(part, dtype=np.float64) for part in zip(*shape, strict=True))
    return xp.array(first) + xp.array(second) * alpha


def _orthonormal(xp: Namespace, rows: Any) -> Any:
    """An orthonormal basis of the rows, by Gram and Schmidt."""
    found: list[Any] = []
    for i in range(rows.shape[0]):
        row = rows[i]
        for other in (*found, *found):  # twice, because of rounding
            row = row - (row * other).sum() * other
        found.append(row / xp.sqrt((row**2).sum()))
    return xp.stack(found)


def _padded(xp: Namespace, table: Any, height: int, width: int) -> Any:
    """``table`` with zeros below and to the right."""
    wide = xp.concatenate([table, xp.array(np.zeros((table.shape[0], width - table.shape[1])))], 1)
    return xp.concatenate([wide, xp.array(np.zeros((height - table.shape[0], width)))])


def _make_first(n: int, known: float | None, exponent: Order | None, places: Array, count: int) -> Any:
    def make(xp: Namespace, alpha: Any, _: int) -> tuple[Any]:
        """``D^alpha s^p`` at 0 and the next points for each power p of each fit; 0 for those below n."""
        base = xp.stop_gradient(xp.array(alpha if exponent is None else exponent.value))
        shapes = _shapes(n, known, count)
        most, log = max(map(len, shapes)), xp.array(np.log(places))[:, None]
        tables = []
        for shape in shapes:
            powers = _exponents(xp, shape, base)
            taken = np.array([float(j > 0 or i >= n) for i, j in shape])
            origin = np.array([[float(pair == (0, 1)) for pair in shape]])
            sizes = xp.exp(xp.lgamma(powers + 1.0)) * xp.array(taken)
            later = sizes * xp.rgamma(powers + 1.0 - alpha) * xp.exp((powers - alpha) * log)
            table = xp.concatenate([xp.array(origin) * sizes, later])
            tables.append(_padded(xp, table, len(places) + 1, most))
        return (xp.stack(tables),)

    return make


def _product(head: Any, table: Any) -> Any:
    """``head @ table.T`` with a real table of any number of axes; the table's axes but its last follow the head's."""
    xp = array_namespace(head)
    flat = constant(table.reshape(-1, table.shape[-1]), head)
    flat = xp.astype(flat, head.dtype) if xp.is_complex(head) else flat
    return xp.matmul(head, flat.T).reshape(*head.shape[:-1], *table.shape[:-1])


def _tables(scheme: Any, make: Any, order: Order, count: int) -> tuple[Any, ...]:
    """``make(xp, alpha, count)``, cached for a plain order."""
    if order.plain:
        return weights_of(scheme, make, order, count)
    with order.xp.scope():
        found: tuple[Any, ...] = of_variables(order.xp, lambda alpha: make(order.xp, alpha, count))(order.value)
        return found


def find_start(head: Any, order: Order, places: Array, exponent: Order | None) -> Start:
    """The start of f from its first samples, at ``places`` in units of some length.

    The polynomial of the rules stays, and with it values that are linear in the samples, unless powers of t^alpha, as
    solutions of fractional equations have them, describe all samples of the start significantly better. Then that fit
    is taken whose coefficients are least uncertain: that depends on how well it predicts the next samples, and on the
    rounding errors and the noise that it amplifies. The estimated error is that uncertainty plus half of the distance
    from the next best fit.
    """
    base = order if exponent is None else exponent
    n, count, xp = order.ceiling, len(places), array_namespace(head)
    known = base.known
    if known is not None:
        base = Order(known, known, n, NUMPY)
    scheme = ("start", n, known, places.tobytes())
    make_fits = _make_fits(n, known, places)
    if base.plain:
        weights, rows, doubts, sums = _tables(scheme, make_fits, base, count)
    else:
        with base.xp.scope():
            weights, rows, doubts, sums = make_fits(base.xp, base.value, count)
    make_first = _make_first(n, known, exponent, places[1 : start_points(n)], count)
    (first_table,) = _tables((*scheme, "first"), make_first, order, count)
    space = array_namespace(weights)
    with space.scope():
        fine = space.isfinite(abs(weights).sum(-1).sum(-1) + doubts.sum(-1))
        weights = space.where(fine[:, None, None], weights, 0.0)
        rows, unusable = space.where(fine[:, None, None], rows, 0.0), space.where(fine, 0.0, math.inf)
        doubts = space.where(fine[:, None], doubts, math.inf)
        sums = space.where(fine[:, None], sums, 1.0)
    own = array_namespace(first_table)
    with own.scope():
        first_weights = own.matmul(first_table, own.array(weights))
        first_weights = own.where(own.isfinite(first_weights), first_weights, 0.0)
    rounding = xp.stop_gradient(largest(head)) * (4.0 * float(np.finfo(real_dtype(head)).eps))
    head = head - head[..., :1]  # a constant has no derivatives, without rounding
    coefficients, firsts = _product(head, weights[:, 1:n]), _product(head, first_weights)
    residuals = xp.sqrt((abs(xp.stop_gradient(_product(head, rows))) ** 2).sum(-1)) + constant(unusable, head)
    bounds = constant(doubts, head) * residuals[..., None] + constant(sums, head) * rounding[..., None]
    score = xp.amax(bounds, -1)
    shapes = _shapes(n, known, count)
    polynomials = min(len(shapes), len(_POLYNOMIALS))
    asked = score[..., :1] < 0.0
    for i, shape in enumerate(shapes[polynomials:], polynomials):
        if len(shape) == len(shapes[1]):
            left = residuals[..., 1:2]
            asked = asked | ((_SIGNIFICANT * residuals[..., i : i + 1] < left) & (left > _BEYOND_ROUNDING * rounding))
    best = -xp.amax(-score[..., :polynomials], -1, keepdims=True) / _CLEARLY
    # The polynomial comes first, and leads unless powers of t^alpha are asked for and are more certain.
    scores = xp.concatenate([xp.where(asked, best, best * 0 - 1.0), score[..., polynomials:]], -1)
    choices = [
        xp.concatenate([part[..., :1, :], part[..., polynomials:, :]], -2) for part in (coefficients, bounds, firsts)
    ]
    leads, (chosen, bound, first) = _least(scores, choices)
    _, (other,) = _least(xp.where(leads, math.inf, scores), choices[:1])
    bound = bound + 0.5 * abs(chosen - other)
    return Start(
        [chosen[..., k : k + 1] for k in range(n - 1)],
        [bound[..., k : k + 1] for k in range(n - 1)],
        first,
        ~leads[..., :1],
    )


def _least(scores: Any, tables: list[Any]) -> tuple[Any, list[Any]]:
    """Which of the ``scores``, along the last axis, are least, and the rows of each table that belong to them."""
    xp = array_namespace(scores)
    leads = scores == -xp.amax(-scores, -1, keepdims=True)
    share = xp.where(leads, 1.0, 0.0)
    share = (share / share.sum(-1)[..., None])[..., None]
    return leads, [(table * share).sum(-2) for table in tables]
