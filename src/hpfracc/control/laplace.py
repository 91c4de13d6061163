r"""Inverse Laplace transforms, numerically.

A transfer function without delays is analytic off the negative axis but for finitely many poles. Their principal parts
are taken out, with their exponentials, and the rest is integrated over the hyperbola :math:`s = \mu(1 + \sin(iu -
\phi))`, on which N points give an error of about :math:`e^{-2.3N}`. A general function is inverted by de Hoog, Knight
and Stokes: a Fourier series along a line to the right of all singularities, summed as a continued fraction.

References
----------
J. A. C. Weideman, L. N. Trefethen, Math. Comp. 76 (2007) 1341-1356; F. R. de Hoog, J. H. Knight, A. N. Stokes, SIAM J.
Sci. Stat. Comput. 3 (1982) 357-366.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev, polynomial

from hpfracc._reading import function, number, numbers, shown
from hpfracc.control.stability import principal_poles
from hpfracc.control.transfer import Terms, derivative, evaluate_terms
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

_EPS, _TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)
_PHI, _H, _MU = 1.1721, 1.0818, 4.4921
#: Points on one side of the hyperbola, on that which checks it to a relative error, and on that which checks those.
_POINTS, _CHECK, _FINEST, _WANTED = 14, 18, 22, 1e-12
#: Poles with a smaller argument are taken out: the hyperbola opens at 157 degrees.
_ANGLE = 3.0
#: Most times at which the integral itself is computed, not polynomials; and times at once, in the cache.
_DIRECT, BLOCK = 512, 16384
#: Digits of those polynomials, as a natural logarithm: 13 nodes over half an octave.
_DIGITS = 31.8
#: No pole is taken out at times below this over its size: it is far to the left of the hyperbola, and would cancel.
_INSIDE = 0.01
#: Points of the unit circle.
_UNIT = np.exp(2j * math.pi * np.arange(64) / 64)
#: Largest distances of poles in a group: relative to their size, and times the last time.
_GROUP, _CLOSE = 1e-3, 0.5
#: Further terms of the principal part of a group whose poles are not equal.
_MORE = 12
#: Error that all lines share, relative to f about that time and later.
_HIDDEN = 1e-12
#: Terms of the Fourier series of de Hoog's method, doubled until two results agree, and at most.
_TERMS, _MAX_TERMS, _AGREE = 16, 512, 1e-9
#: Terms of the sum that confirms it, the differences that transform its rest, and what is noticed, relatively.
_LONG, _DIFFERENCES, _HEARD = 2048, 8, 1e-4


def inverse_laplace(
    transform: Callable[[Array], Any], t: Any, *, abscissa: float = 0.0, full_output: bool = False
) -> Any:
    r"""The function of t whose Laplace transform is F, by de Hoog's method.

    .. math:: f(t) = \frac{1}{2\pi i} \int_{\gamma - i\infty}^{\gamma + i\infty} e^{st} F(s)\, ds

    Parameters
    ----------
    transform : callable
        ``F(s)`` for an array of complex numbers with real parts above ``abscissa``; f is real.
    t : array_like
        Times above 0, of any shape.
    abscissa : float
        All singularities of F lie on it or to its left.
    full_output : bool
        Whether to return the error estimate too.

    Returns
    -------
    numpy.ndarray or tuple
        f of the shape of ``t``, and the estimated errors: the differences from another line with half as many terms.
        They are rough near jumps of f, and frequencies above some 700/t are not seen.

    Examples
    --------
    >>> from hpfracc import control
    >>> value, error = control.inverse_laplace(lambda s: 1 / (s + 1), 2.0, full_output=True)
    >>> print(f"{float(value):.8f} {bool(error < 1e-8)}")
    0.13533528 True
    """
    function("transform", transform, "(s)")
    times, where = np.asarray(numbers("t", t)), number("abscissa", abscissa)
    if times.size and times.min() <= 0.0:
        raise InvalidInputError(f"t={shown(t)} reaches {times.min():g}; give times above 0")
    if times.size:
        point = where + (3.0 + 2.0j) / times.max()
        values = np.asarray(transform(np.array([point, point.conjugate()])), complex)
        if values.shape == (2,) and abs(values[0] - values[1].conjugate()) > 1e-6 * abs(values[0]):
            raise InvalidInputError(
                f"transform(s) is {values[0]:g} at {point:g} and {values[1]:g} at its conjugate, so that f is not "
                "real; invert the real and the imaginary part of f one by one"
            )
    value, error = np.empty(times.shape), np.empty(times.shape)
    # A line serves times within a factor of 4.
    group = np.floor(0.5 * (np.log2(times.max(initial=1.0)) - np.log2(times)))
    for each in np.unique(group):
        mine = group == each
        with np.errstate(all="ignore"):  # f may overflow
            value[mine], error[mine] = _inverse(transform, times[mine], where)
    found, error = (value, error) if times.ndim else (value[()], error[()])
    return (found, error) if full_output else found


def _inverse(transform: Callable[[Array], Any], t: Array, abscissa: float) -> tuple[Array, Array]:
    """Values and errors at times of similar size."""
    terms, apart, best = _TERMS, math.inf, fourier_inverse(transform, t, abscissa, _TERMS, 2.4)
    value, error = best, np.full(t.shape, math.inf)
    while terms < _MAX_TERMS and apart > _AGREE:
        terms *= 2
        stretch = 2.0 + 0.1 * (terms.bit_length() % 3)
        before, best = best, fourier_inverse(transform, t, abscissa, terms, stretch)
        differences = np.abs(best - before)
        if not differences.max() < apart and terms > 64:
            break  # rounding
        value, error, apart = best, differences, float(differences.max())
    value, error = _confirmed(transform, t, abscissa, value, error)
    # What no two results show: each line adds exp(-2 * 13.8) of f two periods later, and rounding.
    rates = np.array([0.2, 6.0]) / t.max()
    sizes = np.abs(np.asarray(transform(abscissa + rates + 0j))) * rates
    return value, error + _HIDDEN * np.exp(abscissa * t) * sizes.max()


def _confirmed(
    transform: Callable[[Array], Any], t: Array, abscissa: float, value: Array, error: Array
) -> tuple[Array, Array]:
    """Values and errors, or those of longer sums where the two differ: fractions are deaf to fast oscillations."""
    longer = _summed(transform, t, abscissa, _LONG)
    apart = np.abs(value - longer)
    doubtful = ~(apart <= _HEARD * np.abs(longer).max(initial=0.0))
    if not doubtful.any():
        return value, error
    apart = np.fmax(apart, error)
    longest = _summed(transform, t, abscissa, 4 * _LONG)
    further = np.abs(longest - longer) + 1e-11 * np.abs(longest).max()
    better = doubtful & ~(further >= 0.1 * apart)
    return np.where(better, longest, value), np.where(better, further, np.where(doubtful, apart, error))


def _summed(transform: Callable[[Array], Any], t: Array, abscissa: float, terms: int) -> Array:
    """The Fourier series of that many terms, and Euler's transformation of the rest."""
    period = 2.2 * t.max(initial=0.0)
    gamma = abscissa + 13.8 / period
    values = np.array(transform(gamma + 1j * math.pi / period * np.arange(terms + _DIFFERENCES)), complex)
    values[0] *= 0.5
    z = np.exp(1j * math.pi / period * t)
    total: Array = np.zeros_like(z)
    rest, ratio = values[terms:], z / (1.0 - z)
    for k in range(_DIFFERENCES):
        total += ratio**k * rest[0] / (1.0 - z)
        rest = np.diff(rest)
    blocks = values[:terms].reshape(-1, _DIRECT // 8) @ z ** np.arange(_DIRECT // 8)[:, np.newaxis]
    step = z ** (_DIRECT // 8)
    for each in blocks[::-1]:
        total = total * step + each
    return np.asarray(np.exp(gamma * t) / period * total.real)


def fourier_inverse(transform: Callable[[Array], Any], t: Array, abscissa: float, terms: int, stretch: float) -> Array:
    """De Hoog's method for times of similar size, shape (..., n), with a line for each row's largest time."""
    period = stretch * t.max(axis=-1, keepdims=True)
    gamma = abscissa + 13.8 / period
    points = gamma + 1j * math.pi / period * np.arange(2 * terms + 1)
    values = np.asarray(transform(points), complex)
    if values.shape != points.shape:
        raise ShapeError(
            f"transform(s) has shape {values.shape} for points of shape {points.shape}; give one value for each"
        )
    values = np.array(values)
    values[..., 0] *= 0.5
    with np.errstate(all="ignore"):
        # The quotient-difference algorithm for the coefficients of the continued fraction.
        e, q = np.zeros_like(values), values[..., 1:] / values[..., :-1]
        d: list[Array] = [values[..., :1], -q[..., :1]]
        for r in range(1, terms + 1):
            e = q[..., 1:] - q[..., :-1] + e[..., 1 : q.shape[-1]]
            d.append(-e[..., :1])
            if r < terms:
                q = q[..., 1:-1] * e[..., 1:] / e[..., :-1]
                d.append(-q[..., :1])
        z = np.exp(1j * math.pi / period * t)
        above, below = [np.zeros_like(z), d[0] * np.ones_like(z)], [np.ones_like(z), np.ones_like(z)]
        for n in range(1, 2 * terms):
            factor = d[n] * z
            above = [above[1], above[1] + factor * above[0]]
            below = [below[1], below[1] + factor * below[0]]
        # The tail as a root of a quadratic.
        half = 0.5 * (1.0 + z * (d[2 * terms - 1] - d[2 * terms]))
        tail = -half * (1.0 - np.sqrt(1.0 + z * d[2 * terms] / half**2))
        total = (above[1] + tail * above[0]) / (below[1] + tail * below[0])
    return np.asarray(np.exp(gamma * t) / period * total.real)


#: A function of s that multiplies a transform, analytic off the negative axis.
Factor = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class _Poles:
    """Poles about a centre, in number ``count``, and what is known of them.

    A circle about them, relative to the centre; the number of terms of their principal part, and these; and the factor
    by which the denominator magnifies rounding on the circle.
    """

    centre: complex
    circle: Array
    count: int
    terms: int
    condition: float
    parts: list[complex] = field(default_factory=list)


class PartialInverse:
    """Inverse transforms of ``factor(s) N(s)/D(s)^power`` without delays, with the poles of N/D taken out.

    Parameters
    ----------
    numerator, denominator : dict
        Terms without delays.
    power : int
        Power of the denominator.
    """

    def __init__(self, numerator: Terms, denominator: Terms, power: int = 1) -> None:
        self._numerator, self._denominator, self._power = numerator, denominator, power
        self._slope = derivative(denominator)
        self._is_real = not any(np.iscomplex([*numerator.values(), *denominator.values()]))
        poles = principal_poles(denominator)
        self._poles = sorted(poles[np.abs(np.angle(poles)) < _ANGLE].tolist(), key=lambda p: (p.real, p.imag))

    def __call__(self, t: Array, factor: Factor, total: Array) -> float:
        """Add the function at times above 0, shape (n,), to ``total``; returns its largest error.

        That is the difference from a finer rule at some times, and the rounding of poles.
        """
        if not np.all(t[1:] >= t[:-1]):
            order, found = np.argsort(t), np.zeros_like(total)
            error = self(t[order], factor, found)
            total[order] += found
            return error
        end = float(t.max(initial=0.0))
        poles = [each for each in self._groups(end) if abs(each.centre) * end > _INSIDE]
        for each in poles:
            s = each.centre + each.circle
            values = self._transform(s, np.log(s), factor)
            each.parts.extend((values * each.circle ** (m + 1)).mean() for m in range(each.terms))
        rest = partial(self._rest, factor, poles)
        some = np.unique(np.linspace(0, max(t.size - 1, 0), min(t.size, 64)).astype(int))
        before, points, finer = total[some], _POINTS, rest(t[some], _CHECK)
        if np.abs(rest(t[some], _POINTS) - finer).max(initial=0.0) > _WANTED * np.abs(finer).max(initial=0.0):
            points, finer = _CHECK, rest(t[some], _FINEST)
        if t.size <= _DIRECT:
            total += rest(t, points)
        else:
            _add_panels(partial(rest, points=points), t, total)
        error = float(np.abs(total[some] - before - finer).max(initial=0.0))
        for each in poles:
            # Of the two poles of a conjugate pair, groups of their own, one counts twice.
            paired = self._is_real and abs(each.centre.imag) > 1e-6 * abs(each.centre)
            if not paired or each.centre.imag > 0.0:
                error = max(error, _add_poles(total, t, each, 2.0 if paired else 1.0))
        return error

    def _groups(self, end: float) -> list[_Poles]:
        """The poles, those together that are too close for the responses until ``end`` to be told apart."""
        groups: list[list[complex]] = []
        for pole in self._poles:
            reach = min(_GROUP * abs(pole), _CLOSE / max(end, _TINY))
            near = [group for group in groups if min(abs(pole - p) for p in group) < reach]
            groups = [group for group in groups if group not in near]
            groups.append([pole, *(p for group in near for p in group)])
        found = []
        for group in groups:
            centre, count = sum(group) / len(group), len(group)
            others = [abs(p - centre) for other in groups if other is not group for p in other]
            cut = abs(centre) if centre.real >= 0.0 else abs(centre.imag)
            spread = max(abs(p - centre) for p in group)
            radius = max(0.5 * min([cut, *others]), 2.0 * spread)
            circle, terms = radius * _UNIT, count * self._power
            if count > 1:
                # Roots of polynomials tell little about close poles; sums of their powers are integrals.
                centre += self._power_sums(centre, circle, 1)[0] / count
                sums = np.abs(self._power_sums(centre, circle, count)[1:])
                rounding = 8.0 * _EPS * self._condition(centre + circle)
                if (sums > rounding * radius ** np.arange(2, count + 1)).any():
                    circle, terms = min(radius, max(2.0 * spread, 2.5 * _CLOSE / end)) * _UNIT, terms + _MORE
            found.append(_Poles(centre, circle, count, terms, self._power * self._condition(centre + circle)))
        return found

    def _power_sums(self, centre: complex, circle: Array, most: int) -> Array:
        """Sums of the powers 1, 2, ... of the distances of the poles within a circle from its centre."""
        s = centre + circle
        logs = np.log(s)
        rate = evaluate_terms(self._slope, s, logs) / evaluate_terms(self._denominator, s, logs)
        return np.array([(rate * circle ** (k + 1)).mean() for k in range(1, most + 1)])

    def _condition(self, s: Array) -> float:
        """The factor by which the denominator magnifies rounding."""
        logs = np.log(s)
        plain: Terms = {key: abs(value) for key, value in self._denominator.items()}
        sizes = evaluate_terms(plain, np.abs(s), logs.real).real
        return float((sizes / np.abs(evaluate_terms(self._denominator, s, logs))).max())

    def _transform(self, s: Array, logs: Array, factor: Factor) -> Array:
        below = evaluate_terms(self._denominator, s, logs) ** self._power
        return np.asarray(evaluate_terms(self._numerator, s, logs) / below * factor(s))

    def _rest(self, factor: Factor, poles: list[_Poles], t: Array, points: int) -> Array:
        """The integral over a hyperbola of the transform without its poles."""
        points += 2 * (self._power - 1)  # the transform falls like a high power
        u = (np.arange(0.5, points) if self._is_real else np.arange(-points + 0.5, points)) * (_H / points)
        shape, slope = 1.0 + np.sin(1j * u - _PHI), 1j * np.cos(1j * u - _PHI)
        mu = _MU * points / t[:, np.newaxis]
        s = mu * shape
        values = self._transform(s, np.log(mu) + np.log(shape), factor)
        for each in poles:
            values -= sum(value / (s - each.centre) ** (m + 1) for m, value in enumerate(each.parts))
        sums = (np.exp(s * t[:, np.newaxis]) * values * slope).sum(axis=1)
        sums *= mu[:, 0] * (_H / points) / (2j * math.pi)
        return np.asarray(2.0 * sums.real if self._is_real else sums)


def _add_poles(total: Array, t: Array, poles: _Poles, share: float) -> float:
    """Add ``share * exp(centre t) sum_m parts[m] t^m/m!``, or its real part, to ``total``; returns the rounding."""
    worst, since, grown, size = 0.0, np.empty(0), np.empty(0, complex), np.empty(0)
    centre, parts, radius = poles.centre, poles.parts, float(np.abs(poles.circle[0]))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, t.size, BLOCK):
            times = t[k : k + BLOCK]
            elapsed = times - times[0]
            # Blocks with the same steps have the same exponentials, but for a factor.
            if elapsed.shape != since.shape or np.abs(elapsed - since).max() > 2.0 * _EPS * abs(times[-1]):
                since, grown = elapsed, np.exp(centre * elapsed)
                real, imaginary, size = grown.real.copy(), grown.imag.copy(), np.abs(grown)
            factor = parts[0] + sum(value * times**m / math.factorial(m) for m, value in enumerate(parts[1:], 1))
            factor = factor * (share * np.exp(centre * times[0]))
            if total.dtype.kind == "c":
                total[k : k + BLOCK] += factor * grown
            else:
                total[k : k + BLOCK] += factor.real * real - factor.imag * imaginary
            # A change of the denominator by its rounding moves poles of multiplicity m by the power 1/m of it.
            some = slice(None, None, -max(1, times.size // 512))
            rounding = poles.condition * (1.0 + radius * times[some]) ** poles.count + abs(centre) * times[some]
            worst = max(
                worst, float((rounding * size[some] * np.abs(np.broadcast_to(factor, times.shape)[some])).max())
            )
    return _EPS * worst


@lru_cache(maxsize=16)
def _panel(count: int) -> tuple[Array, Array, Array]:
    """Chebyshev nodes, and matrices from values there to the coefficients of polynomials, and on to those of powers.

    The entries of their product are large: it would lose two digits.
    """
    nodes = chebyshev.chebpts1(count)
    series = chebyshev.chebvander(nodes, count - 1).T * (2.0 / count)
    series[0] *= 0.5
    powers = [np.pad(chebyshev.cheb2poly(row), (0, count - 1 - k)) for k, row in enumerate(np.eye(count))]
    return nodes, series, np.stack(powers, axis=1)


def _add_panels(function: Callable[[Array], Array], times: Array, added: Array) -> None:
    """Add a sum of decaying exponentials at increasing times, by polynomials over half an octave or a block."""
    panels, begin = [], 0
    while begin < times.size:
        low = float(times[begin])
        end = begin + int(np.searchsorted(times[begin : begin + BLOCK], math.sqrt(2.0) * low))
        high = max(float(times[end - 1]), 1.01 * low)
        # Singular at 0: the error falls by the sum of the half axes of the ellipse that reaches it.
        rate = math.acosh((high + low) / (high - low))
        panels.append((begin, end, 0.5 * (high + low), 0.5 * (high - low), *_panel(math.ceil(_DIGITS / rate))))
        begin = end
    values = function(np.concatenate([centre + half * nodes for _, _, centre, half, nodes, *_ in panels]))
    start = 0
    for begin, end, centre, half, nodes, series, powers in panels:
        row, start = powers @ (series @ values[start : start + nodes.size]), start + nodes.size
        added[begin:end] += polynomial.polyval((times[begin:end] - centre) / half, row)
