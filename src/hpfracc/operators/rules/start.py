"""The derivatives at the origin that Caputo's definition needs above order 1: given, or fitted to the first samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_array
from hpfracc._xp import NUMPY, Namespace, array_namespace, namespace_of, of_variables
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators.core.fast_memory import power, reach_of
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.values import Samples, constant, join, largest, real_dtype, scalar
from hpfracc.operators.core.weights import scaled_weights, weights_of
from hpfracc.operators.rules.any_slopes import slopes_at_start
from hpfracc.operators.rules.first_points import slopes_at_origin
from hpfracc.operators.rules.increments import start_points
from hpfracc.operators.rules.initial import make_terms
from hpfracc.operators.rules.tempered import STEEPEST, Tempered

__all__ = ["FittedStart", "read_initial", "refuse_initial"]

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
#: Points farther from the origin than this multiple of point n are not used.
_REACH = 1000.0
#: Residuals below this multiple of the weights are rounding errors.
_ROUNDING = 1e-11


@dataclass(frozen=True, slots=True)
class _Start:
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


def _tables(scheme: Any, make: Any, order: Order, count: int, key: Any) -> tuple[Any, ...]:
    """``make(xp, alpha, count)``, cached for a plain order with a key."""
    if order.plain:
        return weights_of(scheme, make, order, count) if key is not None else tuple(make(NUMPY, order.value, count))
    with order.xp.scope():
        found: tuple[Any, ...] = of_variables(order.xp, lambda alpha: make(order.xp, alpha, count))(order.value)
        return found


def _find_start(head: Any, order: Order, places: Array, exponent: Order | None, key: Any) -> _Start:
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
    scheme = ("start", n, known, count, key)
    make_fits = _make_fits(n, known, places)
    if base.plain:
        weights, rows, doubts, sums = _tables(scheme, make_fits, base, count, key)
    else:
        with base.xp.scope():
            weights, rows, doubts, sums = make_fits(base.xp, base.value, count)
    make_first = _make_first(n, known, exponent, places[1 : start_points(n)], count)
    (first_table,) = _tables((*scheme, "first"), make_first, order, count, key)
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
    best, chosen = -xp.amax(-score[..., :polynomials], -1, keepdims=True) / _CLEARLY, coefficients[..., 0, :]
    bound, first, singular = bounds[..., 0, :], firsts[..., 0, :], asked & ~asked
    second, other = best * math.inf, chosen
    for i in range(polynomials, weights.shape[0]):
        mine = score[..., i : i + 1]
        ahead = asked & (mine < best)
        follows = ~ahead & ~(mine >= second)
        other = xp.where(ahead, chosen, xp.where(follows, coefficients[..., i, :], other))
        second = xp.where(ahead, best, xp.where(follows, mine, second))
        chosen = xp.where(ahead, coefficients[..., i, :], chosen)
        bound = xp.where(ahead, bounds[..., i, :], bound)
        first = xp.where(ahead, firsts[..., i, :], first)
        singular = singular | ahead
        best = xp.where(ahead, mine, best)
    bound = bound + 0.5 * abs(chosen - other)
    return _Start(
        [chosen[..., k : k + 1] for k in range(n - 1)], [bound[..., k : k + 1] for k in range(n - 1)], first, singular
    )


def read_initial(initial: Any, order: Order, who: str) -> tuple[Any, ...] | None:
    """The derivatives 1 .. n-1 at the origin that the caller gives; an error if there are none to give."""
    if initial is None:
        return None
    n = order.ceiling
    if n < 2 or order.is_integer:
        raise InvalidInputError(
            f"initial={initial!r}: {who} of order {order.value} has no initial derivatives; they belong to orders "
            "above 1 that are not whole, so leave initial= out"
        )
    if isinstance(initial, str | bytes) or not (is_array(initial) or isinstance(initial, list | tuple)):
        raise InvalidInputError(
            f"initial={initial!r} is not a list; give the {n - 1} derivative{'s' * (n > 2)} of f at the origin, from "
            "the first on, as in initial=[0.5]"
        )
    if len(initial) != n - 1:
        raise ShapeError(
            f"initial= has {len(initial)} entries, but {who} of order {order.value} needs {n - 1}: the derivatives of "
            f"f at the origin from the first to number {n - 1}"
        )
    return tuple(initial[k] for k in range(n - 1))


def refuse_initial(initial: Any, who: str) -> None:
    """Raise an error if initial derivatives are given with a callable."""
    if initial is not None:
        raise InvalidInputError(
            f"initial={initial!r} is for samples; the derivatives of a callable are computed by {who} itself"
        )


def _given(initial: tuple[Any, ...], x: Any, unit: Any) -> list[Any]:
    """The caller's derivatives as Taylor coefficients in units of a length, with one point along the last axis."""
    xp, found = array_namespace(x), []
    for k, one in enumerate(initial, 1):
        value = scalar(one, x) if not np.shape(one) else constant(one if is_array(one) else np.asarray(one), x)
        shape = tuple(np.shape(value))
        if shape and shape != tuple(x.shape[:-1]):
            raise ShapeError(
                f"initial derivative {k} has shape {shape}; give one number, or one for each row of f: shape "
                f"{tuple(x.shape[:-1])}"
            )
        value = value[..., None] if shape else value
        size = unit**k if isinstance(unit, float) else scalar(unit, x) ** k
        found.append(xp.zeros((*x.shape[:-1], 1), x.dtype, x) + value * (size / math.factorial(k)))
    return found


@final
class FittedStart(DelegatingRule):
    r"""A rule for the Caputo derivative with better derivatives at the origin, for orders above 1.

    An error of the derivatives at the origin that a rule uses appears at every later point:

    .. math:: \delta D^\alpha f(t)
        = -\sum_{k=1}^{n-1} \frac{\delta f^{(k)}(t_0)}{\Gamma(k+1-\alpha)} (t-t_0)^{k-\alpha}.

    Polynomials through the first samples, which the rules use, have large errors if f starts like :math:`f_0 + f_1 t +
    c\,t^\alpha`, as every solution of an equation of this order does. This rule replaces them by those that the caller
    gives, or where powers :math:`t^{i+j\alpha}` describe the first n + 9 samples significantly better than polynomials,
    by a fit with such powers: the one that predicts the next samples with the least uncertainty of the derivatives. In
    that case it also gives the first n + 2 points. Smooth samples, noise and constants keep the values of the rule, and
    so do all samples up to order 1.
    """

    def __init__(self, rule: Rule, initial: tuple[Any, ...] | None = None) -> None:
        self.rule = rule
        self.initial = initial
        self.cost = rule.cost  # type: ignore[misc]
        self.any_grid = rule.any_grid  # type: ignore[misc]
        self.one_call = rule.one_call and initial is None  # type: ignore[misc]

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """That of the rule, with the same start."""
        found = self.rule.companion
        return None if found is None else FittedStart(found, self.initial)

    def at_rate(self, rate: Any) -> FittedStart:
        """The same with this rate of decay."""
        assert isinstance(self.rule, Tempered)
        return FittedStart(self.rule.at_rate(rate), self.initial)

    def starting_with(self, initial: tuple[Any, ...] | None) -> FittedStart:
        """The same with these derivatives at the origin."""
        return self if initial is None else FittedStart(self.rule, initial)

    def can_repeat(self, order: Order) -> bool:
        """Not for learned orders above 1: the choice of the start depends on the value."""
        return self.one_call and (order.plain or order.ceiling < 2)

    def head(self, order: Order) -> tuple[int, int]:
        """Above order 1 the first points depend on all samples of the start."""
        n = order.ceiling
        count = samples_of_start(n, 1 << 30)
        return (count - 1, count) if n > 1 else self.rule.head(order)

    def apply(self, samples: Samples, order: Order, exponent: Order | None = None) -> Any:
        """The rule, plus one product for each derivative at the origin.

        ``exponent`` is the power of t with which f starts, if that is not the order.
        """
        value = self.rule.apply(samples, order)
        if order.ceiling < 2:
            return value
        found = self._start(samples, order, exponent)
        if found is None:
            return value
        start, changes, terms, scale = found
        for change, term in zip(changes, terms, strict=True):
            value = value + change * term
        last = start.first.shape[-1]
        first = array_namespace(value).where(start.is_singular, start.first * scale, value[..., :last])
        return join([first, value[..., last:]])

    def start_error(self, samples: Samples, order: Order, exponent: Order | None = None) -> Any:
        """Estimate of the error at every point that the derivatives at the origin cause; nan if they are unknown."""
        if order.ceiling < 2 or self.initial is not None:
            return 0.0
        found = self._start(samples, order, exponent)
        if found is None:
            return math.nan
        start, _, terms, _ = found
        return sum(doubt * abs(term) for doubt, term in zip(start.doubts, terms, strict=True))

    def coefficients(self, samples: Samples, order: Order) -> list[Any]:
        """Errors of the derivatives at the origin that the rule uses, as Taylor coefficients for unit step."""
        found = self._start(samples, order, None)
        assert found is not None
        return found[1]

    def _used(self, samples: Samples, n: int) -> list[Any]:
        """The Taylor coefficients that the rule uses."""
        x = samples.values
        if not self.any_grid:
            head = _grown(self.rule, samples, start_points(n) + 1)
            return [slope for slope, _ in slopes_at_origin(head, n - 1, start_points(n))]
        points = samples.grid.times()
        unit = float(points[n] - points[0])
        slopes = slopes_at_start(x, points, n - 1)[1:]
        return [slope * (unit**k / math.factorial(k)) for k, slope in enumerate(slopes, 1)]

    def _start(
        self, samples: Samples, order: Order, exponent: Order | None
    ) -> tuple[_Start, list[Any], list[Any], Any] | None:
        """The start, errors of the rule's Taylor coefficients, their effect at every point, and the first points' unit.

        None if the samples do not determine it: those after a gap, or those that decay within a few steps.
        """
        x, n = samples.values, order.ceiling
        count = samples_of_start(n, samples.n)
        if self.any_grid:
            points = samples.grid.times()
            unit: Any = float(points[n] - points[0])
            places = (points[:count] - points[0]) / unit
            if places[1] * _REACH < 1.0:
                return None
            count = int(np.searchsorted(places, _REACH, side="right"))
            if count < n + 3:
                return None
            start = _find_start(x[..., :count], order, places[:count], exponent, None)
            terms = self._terms_on(samples, order, unit)
            scale = scalar(order.xp.power(unit, -order.value), x)
        else:
            unit = samples.grid.step
            rate = getattr(self.rule, "rate", 0.0)
            plain = namespace_of(rate) is NUMPY and namespace_of(unit) is NUMPY
            if plain and float(rate) * float(unit) * count > STEEPEST:
                return None
            head = _grown(self.rule, samples, count)
            start = _find_start(head, order, np.arange(float(count)), exponent, "uniform")
            terms, scale = self._terms(samples, order)
        used = self._used(samples, n)
        if self.initial is not None:
            given = self._given(samples, unit)
            return start, [one - other for one, other in zip(used, given, strict=True)], terms, scale
        changes = [one - other for one, other in zip(used, start.coefficients, strict=True)]
        # The polynomial is the rule's own, but for rounding and for points that it leaves out after gaps.
        kept = [array_namespace(x).where(start.is_singular, change, change * 0) for change in changes]
        doubts = [doubt + abs(a - b) for doubt, a, b in zip(start.doubts, changes, kept, strict=True)]
        return replace(start, doubts=doubts), kept, terms, scale

    def _given(self, samples: Samples, unit: Any) -> list[Any]:
        """The caller's derivatives as Taylor coefficients; those of ``exp(rate t) f`` for a tempered rule."""
        assert self.initial is not None
        x = samples.values
        found = _given(self.initial, x, unit)
        if not isinstance(self.rule, Tempered):
            return found
        decay = scalar(self.rule.rate, x) * scalar(unit, x)
        whole = [x[..., :1], *found]
        return [
            sum(whole[k - i] * (decay**i / math.factorial(i)) for i in range(1, k + 1)) + whole[k]
            for k in range(1, len(whole))
        ]

    def _terms(self, samples: Samples, order: Order) -> tuple[list[Any], Any]:
        x, n = samples.values, order.ceiling
        rows, key, factor = scaled_weights(("initial", n), make_terms(n), order, samples, -1, few=True)
        scale = samples.scale(-order.value)
        if order.known is None:
            with order.xp.scope():
                scale = scale * scalar(order.guard(order.xp.array(1.0)), x)
        terms = [constant(rows[k], x, None if key is None else (key, k)) for k in range(1, n)]
        if factor is not None:
            terms = [term * factor for term in terms]
        if isinstance(self.rule, Tempered):
            fall = _exponential(self.rule, samples, -1.0, samples.n)
            terms, scale = [term * fall for term in terms], scale * fall[: start_points(n)]
        return terms, scale

    def _terms_on(self, samples: Samples, order: Order, unit: float) -> list[Any]:
        x, reach = samples.values, reach_of(samples, 1) / unit
        found = []
        for k in range(1, order.ceiling):
            with order.xp.scope():
                size = order.guard(math.factorial(k) * order.xp.rgamma(k + 1.0 - order.value))
                term = size * order.xp.power(unit, -order.value) * power(reach, k - order.value, order)
            later = constant(term, x)
            found.append(array_namespace(later).concatenate([later[:1] * 0, later]))
        return found


def _exponential(rule: Tempered, samples: Samples, sign: float, count: int) -> Any:
    """``exp(sign rate t)`` at the first points, at most ``exp(40)``."""
    x, step = samples.values, samples.grid.step
    xp = next((space for space in map(namespace_of, (rule.rate, step)) if space is not NUMPY), NUMPY)
    with xp.scope():
        ages = xp.array(rule.rate) * xp.array(step) * xp.array(np.arange(float(count)))
        return constant(xp.exp(sign * xp.where(ages > STEEPEST, STEEPEST, ages) if sign > 0 else -ages), x)


def _grown(rule: Rule, samples: Samples, count: int) -> Any:
    """The first samples, times ``exp(rate t)`` for a tempered rule."""
    head = samples.values[..., :count]
    return head * _exponential(rule, samples, 1.0, count) if isinstance(rule, Tempered) else head
