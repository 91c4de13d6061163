"""Fits to the first samples by polynomials and by powers of t^alpha: derivatives at the origin, and their doubts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gamma

from hpfracc._xp import NUMPY, Namespace, array_namespace, of_variables
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import constant, largest, real_dtype, real_product
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


def _shapes(n: int, alpha: float, count: int) -> list[Shape]:
    """The fits to ``count`` samples: two polynomials, and those with powers of t^alpha if there are enough samples."""
    polynomials: list[Shape] = [tuple((i, 0) for i in range(n + size)) for size in _POLYNOMIALS]
    if n + _POLYNOMIALS[1] + 2 > count:
        return polynomials[:1]
    if not _GAP / 4 < alpha - (n - 1) < 1.0 - _GAP / 4:
        return polynomials  # t^alpha is as good as a power of the polynomial
    found = polynomials
    smooth_source = [(i, 0) for i in range(n, n + 9)] + [(i, 1) for i in range(9)]
    homogeneous = [(i, j) for j in range(1, 9) for i in range(n)]
    for pairs, sizes in ((smooth_source, _MIXED), (homogeneous, _HOMOGENEOUS)):
        kept: list[tuple[int, int]] = []
        for pair in sorted(pairs, key=lambda pair: pair[0] + pair[1] * alpha):
            if all(abs(pair[0] - other[0] + (pair[1] - other[1]) * alpha) > _GAP for other in kept):
                kept.append(pair)
        found += [(*polynomials[0][:n], *kept[:size]) for size in sizes]
    return found


def samples_of_start(n: int, count: int) -> int:
    """Number of first samples that determine the start, of ``count`` samples."""
    return min(count, n + max(*_MIXED, *_HOMOGENEOUS) + _PREDICTED)


def _make_fits(n: int, alpha: float, places: Array) -> tuple[Array, ...]:
    """Each fit as weights of the samples: coefficients of its powers, and residuals; and its uncertainty.

    The residuals are those of the next samples, as orthonormal weights: their norm is that of noise in the samples.
    The uncertainty of coefficient k is a number times this norm: the largest ratio of both for a neglected power of
    t, or for noise. Then the sum of the absolute weights, and the exponents: i, j and ``i + j alpha`` of each power.
    """
    count, shapes = len(places), _shapes(n, alpha, len(places))
    most = max(map(len, shapes))
    neglected = np.linspace(n - 1 + 0.3 * (alpha - (n - 1)), n + 5.0, 61)
    fits: list[tuple[Array, ...]] = []
    for shape in shapes:
        size, unit = len(shape), places[len(shape) - 1]
        pairs = np.array(shape, dtype=np.float64)
        powers, log = pairs[:, 0] + pairs[:, 1] * alpha, np.log(places[1:] / unit)[:, None]
        values = np.concatenate([np.eye(1, size), np.exp(log * powers)])
        weights = np.zeros((most, count))
        weights[:size, :size] = np.linalg.inv(values[:size])
        used = min(size, count - 1)
        rows = np.eye(count)[used : used + _PREDICTED]
        rows[:, :used] -= values[used : used + _PREDICTED, :used] @ np.linalg.inv(values[:used, :used])
        rows = np.linalg.qr(rows.T)[0].T
        shown = np.concatenate([np.zeros((1, len(neglected))), np.exp(log * neglected)])
        residuals = np.linalg.norm(rows @ shown, axis=0)
        clear = residuals > _ROUNDING * np.abs(rows).sum(-1).max()
        missed = np.abs(weights[1:n] @ shown)
        ratio = np.where(clear, missed / np.where(clear, residuals, 1.0), 0.0).max(-1)
        doubts = np.maximum(ratio, _DEVIATIONS * np.linalg.norm(weights[1:n], axis=-1))
        units = unit ** -np.arange(1.0, n)
        sums = np.abs(weights[1:n]).sum(-1) * units
        weights[:size] *= unit ** -powers[:, None]
        exponents = np.zeros((3, most))
        exponents[:, :size] = *pairs.T, powers
        fit = (weights, np.pad(rows, ((0, _PREDICTED - len(rows)), (0, 0))), doubts * units, sums, exponents)
        if not fits or all(np.isfinite(part).all() for part in fit):
            fits.append(fit)
    return tuple(np.stack(table) for table in zip(*fits, strict=True))


def _make_first(n: int, exponents: Array, weights: Array, places: Array) -> Any:
    """``D^alpha`` of each fit at 0 and the next points, as weights of the samples, without its powers below n."""
    i, j, powers = (exponents[:, row, None, :] for row in range(3))
    sizes = gamma(powers + 1.0) * ((j > 0) | (i >= n))
    origin, log = sizes * ((i == 0) & (j == 1)), np.log(places)[:, None]

    def make(xp: Namespace, alpha: Any, _: int) -> tuple[Any]:
        later = xp.array(sizes) * xp.rgamma(xp.array(powers + 1.0) - alpha)
        later = later * xp.exp(xp.array(powers * log) - alpha * xp.array(log))
        return (xp.matmul(xp.concatenate([xp.array(origin), later], 1), xp.array(weights)),)

    return make


def find_start(head: Any, order: Order, places: Array, power: float) -> Start:
    """The start of f from its first samples, at ``places`` in units of some length, with powers of ``t**power``.

    The polynomial of the rules stays, and with it values that are linear in the samples, unless powers of t^alpha, as
    solutions of fractional equations have them, describe all samples of the start significantly better. Then that fit
    is taken whose coefficients are least uncertain: that depends on how well it predicts the next samples, and on the
    rounding errors and the noise that it amplifies. The estimated error is that uncertainty plus half of the distance
    from the next best fit.
    """
    n, count, xp = order.ceiling, len(places), array_namespace(head)
    scheme = ("start", n, power, places.tobytes())
    weights, rows, doubts, sums, exponents = weights_of(
        scheme, lambda xp, alpha, count: _make_fits(n, power, places), Order(power, power, n, NUMPY), count
    )
    make_first = _make_first(n, exponents, weights, places[1 : start_points(n)])
    if order.plain:
        (first_weights,) = weights_of((*scheme, "first"), make_first, order, count)
    else:
        with order.xp.scope():
            (first_weights,) = of_variables(order.xp, lambda alpha: make_first(order.xp, alpha, count))(order.value)
    rounding = xp.stop_gradient(largest(head)) * (4.0 * float(np.finfo(real_dtype(head)).eps))
    head = head - head[..., :1]  # a constant has no derivatives, without rounding
    coefficients, firsts = real_product(head, weights[:, 1:n]), real_product(head, first_weights)
    residuals = xp.sqrt((abs(xp.stop_gradient(real_product(head, rows))) ** 2).sum(-1))
    bounds = constant(doubts, head) * residuals[..., None] + constant(sums, head) * rounding[..., None]
    score = xp.amax(bounds, -1)
    polynomials = min(len(weights), len(_POLYNOMIALS))
    asked = score[..., :1] < 0.0
    # Fits of as many powers as the second polynomial.
    sizes, left = (exponents[:, 2] > 0.0).sum(-1), residuals[..., polynomials - 1 : polynomials]
    for i in polynomials + np.flatnonzero(sizes[polynomials:] == sizes[polynomials - 1]):
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
