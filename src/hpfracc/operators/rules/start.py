"""Derivatives at the origin: those that Caputo's definition needs above order 1, given or fitted, and initial terms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np
from scipy.special import gamma

from hpfracc._arrays import is_array
from hpfracc._xp import NUMPY, Namespace, array_namespace, namespace_of, of_variables
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.sequences import Lags, long_run
from hpfracc.operators.core.values import (
    Samples,
    constant,
    join,
    largest,
    namespace_among,
    real_dtype,
    real_product,
    scalar,
    scaled_weights,
    weights_of,
    zeros,
)
from hpfracc.operators.rules.any_grid import power, reach_of
from hpfracc.operators.rules.differences import maybe_whole, start_points
from hpfracc.operators.rules.first_points import (
    first_places,
    first_points,
    infinite_at_origin,
    singular_origin,
    slope_at_origin,
    taylor_at_origin,
    unit_scale,
    whole_at_origin,
)
from hpfracc.operators.rules.tempered import STEEPEST, Tempered

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
#: A power of t this little above n - 1 is taken for t^(n-1): samples could not tell orders just above n - 1 from it.
_ALIKE = 0.012
#: A start falls faster than samples show if the first polynomial misses them by this fraction of what it misses a jump,
#: and if the second step is smaller than the first by this factor: that of exp(-2 t) for unit step.
_FAST, _FALL = 0.5, 0.14
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
    neglected = np.linspace(n - 1 + max(0.3 * (alpha - (n - 1)), _ALIKE), n + 5.0, 61)
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
    missed = abs(xp.stop_gradient(real_product(head, rows)))
    most = xp.amax(missed, -1, keepdims=True)
    # Squares of the samples themselves may exceed the range of their dtype.
    residuals = most[..., 0] * xp.sqrt(((missed / xp.where(most > 0, most, most * 0 + 1)) ** 2).sum(-1))
    bounds = constant(doubts, head) * residuals[..., None] + constant(sums, head) * rounding[..., None]
    score = xp.amax(bounds, -1)
    # If f falls to the second sample, and further by much less, it does so like an exponential or faster.
    falls = abs(xp.stop_gradient(head[..., 1:3] - head[..., :2]))
    rate = xp.log(1.0 + falls[..., :1] / (falls[..., 1:] + rounding)) / float(places[1])
    fast = residuals[..., :1] > _FAST * float(np.linalg.norm(rows[0, :, 0])) * falls[..., :1]
    fast = fast & (falls[..., 1:] < _FALL * falls[..., :1])
    steep = xp.stack([xp.where(fast, falls[..., :1] * rate**k / math.factorial(k), rate * 0) for k in range(1, n)], -1)
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
    bound = bound + 0.5 * abs(chosen - other) + steep[..., 0, :]
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
    nothing = zeros(scores, scores.shape[-1])
    share = xp.where(leads, nothing + 1.0, nothing)
    share = (share / share.sum(-1)[..., None])[..., None]
    return leads, [(table * share).sum(-2) for table in tables]


#: Points farther from the origin than this multiple of point n are not used.
_REACH = 1000.0


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


@final
class FittedStart(DelegatingRule):
    r"""A rule for the Caputo derivative with better derivatives at the origin, for orders above 1.

    An error of the derivatives at the origin that a rule uses appears at every later point:

    .. math:: \delta D^\alpha f(t)
        = -\sum_{k=1}^{n-1} \frac{\delta f^{(k)}(t_0)}{\Gamma(k+1-\alpha)} (t-t_0)^{k-\alpha}.

    Polynomials through the first samples, which the rules use, have large errors if f starts like :math:`f_0 + f_1 t +
    c\,t^\alpha`, as every solution of an equation of this order does. This rule replaces them by those that the caller
    gives, or, where powers :math:`t^{i+j\alpha}` describe the first n + 9 samples significantly better than
    polynomials, by a fit with such powers: the one that predicts the next samples with the least uncertainty of the
    derivatives. In that case it also gives the first n + 2 points. Smooth samples, noise and constants keep the values
    of the rule.
    """

    def __init__(self, rule: Rule, initial: tuple[Any, ...] | None = None) -> None:
        super().__init__(rule)
        self.initial = initial
        self.one_call = rule.one_call and initial is None  # type: ignore[misc]

    def can_repeat(self, order: Order) -> bool:
        """Not for learned orders: the choice of the start depends on the value."""
        return self.one_call and order.plain

    def head(self, order: Order) -> tuple[int, int]:
        """The first points depend on all samples of the start."""
        count = samples_of_start(order.ceiling, 1 << 30)
        return count - 1, count

    def apply(self, samples: Samples, order: Order, exponent: Order | None = None) -> Any:
        """The rule, plus one product for each derivative at the origin.

        ``exponent`` is the power of t with which f starts, if that is not the order.
        """
        value = self.rule.apply(samples, order)
        found = self._start(samples, order, exponent)
        if found is None:
            return value
        start, changes, terms, scale = found
        for change, term in zip(changes, terms, strict=True):
            value = value + change * term
        if start is None:
            return value
        last = start.first.shape[-1]
        first = array_namespace(value).where(start.is_singular, start.first * scale, value[..., :last])
        return join([first, value[..., last:]])

    def linear(self) -> Rule:
        """The rule that it corrects: :meth:`start_error` has the rounding errors of the rest."""
        return self.rule.linear()

    def start_error(self, samples: Samples, order: Order, exponent: Order | None = None) -> Any:
        """Estimate of the error at every point that the derivatives at the origin cause; nan if they are unknown."""
        if self.initial is not None:
            return 0.0
        found = self._start(samples, order, exponent)
        start = None if found is None else found[0]
        if found is None or start is None:
            if not isinstance(self.rule, Tempered) or not samples.grid.uniform:
                return math.nan
            # It decays like the kernel.
            fall = _exponential(self.rule, samples, -1.0, samples.n)
            return array_namespace(fall).where(fall < math.exp(-STEEPEST), fall * 0, math.nan)
        terms = found[2]
        return sum(doubt * abs(term) for doubt, term in zip(start.doubts, terms, strict=True))

    def coefficients(self, samples: Samples, order: Order) -> list[Any]:
        """Errors of the derivatives at the origin that the rule uses, as Taylor coefficients for unit step."""
        found = self._start(samples, order)
        assert found is not None
        return found[1]

    def _start(
        self, samples: Samples, order: Order, exponent: Order | None = None
    ) -> tuple[Start | None, list[Any], list[Any], Any] | None:
        """The start, errors of the rule's Taylor coefficients, their effect at every point, and the first points' unit.

        None if the samples do not determine it: those after a gap, or those that decay within a few steps. For a traced
        order whose value is unknown there is no start, but what the caller gives.
        """
        power = (order if exponent is None else exponent).known
        if power is None and self.initial is None:
            return None
        x, n = samples.values, order.ceiling
        count = samples_of_start(n, samples.n)
        places, unit = first_places(samples, count - 1, n)
        scale = unit_scale(samples, order, unit)
        if not samples.grid.uniform:
            if places[1] * _REACH < 1.0:
                return None
            count = int(np.searchsorted(places, _REACH, side="right"))
            if count < n + 3:
                return None
            head, places = x[..., :count], places[:count]
        else:
            rate = self.rule.rate if isinstance(self.rule, Tempered) else 0.0
            plain = namespace_of(rate) is NUMPY and namespace_of(unit) is NUMPY
            if plain and float(rate) * float(unit) * count > STEEPEST:
                return None
            head = _grown(self.rule, samples, count)
            if order.known is None:
                with order.xp.scope():
                    scale = scale * scalar(order.guard(order.xp.array(1.0)), x)
        start = None if power is None else find_start(head, order, places, power)
        terms, used = terms_of(samples, order)[1:], taylor_of(samples, n, self.rule)[1:]
        if isinstance(self.rule, Tempered):
            fall = _exponential(self.rule, samples, -1.0, samples.n)
            terms, scale = [term * fall for term in terms], scale * fall[: start_points(n)]
        if self.initial is not None:
            given = self._given(samples, unit)
            return start, [one - other for one, other in zip(used, given, strict=True)], terms, scale
        assert start is not None
        changes = [one - other for one, other in zip(used, start.coefficients, strict=True)]
        # The polynomial is the rule's own, but for rounding and for points that it leaves out after gaps.
        kept = [array_namespace(x).where(start.is_singular, change, change * 0) for change in changes]
        doubts = [doubt + abs(a - b) for doubt, a, b in zip(start.doubts, changes, kept, strict=True)]
        return replace(start, doubts=doubts), kept, terms, scale

    def _given(self, samples: Samples, unit: Any) -> list[Any]:
        """The caller's derivatives as Taylor coefficients; those of ``exp(rate t) f`` for a tempered rule."""
        assert self.initial is not None
        x, whole = samples.values, [samples.values[..., :1]]
        for k, one in enumerate(self.initial, 1):
            value = scalar(one, x) if not np.shape(one) else constant(one if is_array(one) else np.asarray(one), x)
            shape = tuple(np.shape(value))
            if shape and shape != tuple(x.shape[:-1]):
                raise ShapeError(
                    f"initial derivative {k} has shape {shape}; give one number, or one for each row of f: shape "
                    f"{tuple(x.shape[:-1])}"
                )
            value = value[..., None] if shape else value
            whole.append(zeros(x, 1) + value * (scalar(unit, x) ** k / math.factorial(k)))
        if not isinstance(self.rule, Tempered):
            return whole[1:]
        decay = scalar(self.rule.rate, x) * scalar(unit, x)
        return [
            sum(whole[k - i] * (decay**i / math.factorial(i)) for i in range(1, k + 1)) + whole[k]
            for k in range(1, len(whole))
        ]


def _exponential(rule: Tempered, samples: Samples, sign: float, count: int) -> Any:
    """``exp(sign rate t)`` at the first points, at most ``exp(40)``."""
    x, step = samples.values, samples.grid.step
    xp = namespace_among(rule.rate, step)
    with xp.scope():
        ages = xp.array(rule.rate) * xp.array(step) * xp.array(np.arange(float(count)))
        return constant(xp.exp(sign * xp.where(ages > STEEPEST, STEEPEST, ages) if sign > 0 else -ages), x)


def _grown(rule: Rule, samples: Samples, count: int) -> Any:
    """The first samples, times ``exp(rate t)`` for a tempered rule."""
    head = samples.values[..., :count]
    return head * _exponential(rule, samples, 1.0, count) if isinstance(rule, Tempered) else head


@final
class WithInitialTerms(DelegatingRule):
    r"""A rule for the Caputo derivative, plus the initial terms of Riemann-Liouville.

    .. math:: D^\alpha_{RL} f(t) = D^\alpha_C f(t)
        + \sum_{k=0}^{n-1} \frac{f^{(k)}(t_0)}{\Gamma(k+1-\alpha)} (t-t_0)^{k-\alpha}.

    The order is that of the Caputo rule, at a fixed t beyond the origin. Above order 1 the initial derivatives, and the
    first n + 2 points, come from the polynomial through the first n + 3 samples. At the origin itself the value is
    infinite, with the sign of f there (for 0 < alpha < 1), and 0 if the first sample is 0 (above order 1, if the
    derivatives below n are 0 too; nan if the samples do not determine that).
    """

    def apply(self, samples: Samples, order: Order) -> Any:
        """The Caputo rule plus one product for each initial term; up to order 1 its convolution adds the term."""
        n = order.ceiling
        if n == 1 and not self.any_grid:
            return self._apply_up_to_one(samples, order)
        value = whole = self.rule.apply(samples, order)
        for coefficient, term in zip(taylor_of(samples, n, self.rule), terms_of(samples, order), strict=True):
            whole = whole + coefficient * term
        last = start_points(n)
        origin = whole_at_origin(singular_origin(samples, order, last), lambda: value[..., :1], order)
        if n == 1:
            return join([origin, whole[..., 1:]])
        return join([origin, first_points(samples, order, 0, last, whole), whole[..., last:]])

    def _apply_up_to_one(self, samples: Samples, order: Order) -> Any:
        """One causal convolution, in which the first sample has starting weights, and the value at the origin."""
        rule: Any = self.rule
        if not maybe_whole(order):
            return rule.apply_with_term(samples, order, make_terms(1), partial(_with_origin, order))
        value = rule.apply_with_term(samples, order, make_terms(1), None)
        limit = singular_origin(samples, order, 1)
        return join([whole_at_origin(limit, lambda: slope_at_origin(samples, order), order), value[..., 1:]])


def _with_origin(order: Order, result: Any, values: Any) -> Any:
    return join([infinite_at_origin(values[..., :1], order, []), result[..., 1:]])


def taylor_of(samples: Samples, n: int, rule: Rule) -> list[Any]:
    """The Taylor coefficients 0 .. n-1 that a rule uses, in units of the step or of the distance of point n."""
    head = _grown(rule, samples, start_points(n) + 1)
    return taylor_at_origin(head, first_places(samples, start_points(n), n)[0], n, rule.terms)


def terms_of(samples: Samples, order: Order) -> list[Any]:
    """The derivatives of order alpha of the powers below n of t, in units of the step or of the distance of point n."""
    x, n = samples.values, order.ceiling
    if samples.grid.uniform:
        rows, key, factor = scaled_weights(("initial", n), make_terms(n), order, samples, -1, few=True)
        terms = [constant(row, x, None if key is None else (key, k)) for k, row in enumerate(rows)]
        return terms if factor is None else [term * factor for term in terms]
    unit, found = first_places(samples, n, n)[1], []
    for k in range(n):
        with order.xp.scope():
            size = order.guard(math.factorial(k) * order.xp.rgamma(k + 1.0 - order.value))
            reach = power(reach_of(samples) / unit, k - order.value, order)
            later = constant(size * order.xp.power(unit, -order.value) * reach, x)
        found.append(array_namespace(later).concatenate([later[:1] * 0, later]))
    return found


def make_terms(ceiling: int) -> Any:
    """The weights of the initial terms, as a function of the namespace, the order and the number of points."""

    def make(xp: Namespace, alpha: Any, n: int | Lags) -> tuple[Any, ...]:
        """``k! / Gamma(k + 1 - alpha) j^(k - alpha)`` at points j = 1 .. n-1 after a 0, for k below the ceiling."""
        points, zero = long_run(xp, 1, n), xp.array([0.0])
        return tuple(
            xp.concatenate([zero, math.factorial(k) * xp.rgamma(k + 1.0 - alpha) * xp.power(points, k - alpha)])
            for k in range(ceiling)
        )

    return make
