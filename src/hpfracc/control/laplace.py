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
from functools import partial
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from hpfracc._reading import function, number, numbers, shown
from hpfracc.control.stability import principal_poles
from hpfracc.control.transfer import Terms, evaluate_terms
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

_EPS = float(np.finfo(float).eps)
_PHI, _H, _MU = 1.1721, 1.0818, 4.4921
#: Points on one side of the hyperbola, and on that which checks it.
_POINTS, _CHECK = 14, 18
#: Poles with a smaller argument are taken out: the hyperbola opens at 157 degrees.
_ANGLE = 3.0
#: Most times at which the integral itself is computed; nodes of the polynomials for more, and times at once.
_DIRECT, _BLOCK = 512, 16384
_NODES = 13
_ANGLES = math.pi * (np.arange(_NODES) + 0.5) / _NODES
#: From values at the cosines of these angles to Chebyshev's coefficients, and on to those of powers.
_CHEBYSHEV = np.cos(np.outer(np.arange(_NODES), _ANGLES)) * (2.0 / _NODES)
_CHEBYSHEV[0] *= 0.5
_POWERS = np.stack(
    [np.pad(chebyshev.cheb2poly(row), (0, _NODES - 1 - k)) for k, row in enumerate(np.eye(_NODES))], axis=1
)
#: Points of a circle about a pole, the largest relative distance of poles in a group, and the relative radius.
_CIRCLE, _GROUP = 64, 1e-3
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
    group = np.floor(0.5 * np.log2(times.max(initial=1.0) / times)) if times.size else times
    for each in np.unique(group):
        mine = group == each
        found = times[mine]
        terms, apart, best = _TERMS, math.inf, fourier_inverse(transform, found, where, _TERMS, 2.4)
        while terms < _MAX_TERMS and apart > _AGREE:
            terms *= 2
            stretch = 2.0 + 0.1 * (terms.bit_length() % 3)
            before, best = best, fourier_inverse(transform, found, where, terms, stretch)
            differences = np.abs(best - before)
            if not differences.max() < apart and terms > 64:
                break  # rounding
            value[mine], error[mine], apart = best, differences, float(differences.max())
        value[mine], error[mine] = _confirmed(transform, found, where, value[mine], error[mine])
    found, error = (value, error) if times.ndim else (value[()], error[()])
    return (found, error) if full_output else found


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


class PartialInverse:
    """Inverse transforms of ``factor(s) N(s)/D(s)`` without delays, with the poles of N/D taken out.

    Parameters
    ----------
    numerator, denominator : dict
        Terms without delays.
    more : int
        Points beyond the usual number, for transforms that fall like a high power.
    """

    def __init__(self, numerator: Terms, denominator: Terms, more: int = 0) -> None:
        self._numerator, self._denominator, self._more = numerator, denominator, more
        self._is_real = not any(np.iscomplex([*numerator.values(), *denominator.values()]))
        poles = principal_poles(denominator)
        groups: list[list[complex]] = []
        for each in sorted(poles[np.abs(np.angle(poles)) < _ANGLE].tolist(), key=lambda p: (p.real, p.imag)):
            near = [group for group in groups if min(abs(each - p) for p in group) < _GROUP * abs(each)]
            groups = [group for group in groups if group not in near]
            groups.append([each, *(p for group in near for p in group)])
        #: Points on a circle about each group of poles, relative to their centre, the centre, and their number.
        self._circles: list[tuple[Array, complex, int]] = []
        for group in groups:
            centre = sum(group) / len(group)
            others = [abs(p - centre) for other in groups if other is not group for p in other]
            cut = abs(centre) if centre.real >= 0.0 else abs(centre.imag)
            radius = max(0.5 * min([cut, *others]), 2.0 * max(abs(p - centre) for p in group))
            circle = radius * np.exp(2j * math.pi * np.arange(_CIRCLE) / _CIRCLE)
            self._circles.append((circle, centre, len(group)))

    def __call__(self, t: Array, factor: Factor) -> tuple[Array, float]:
        """The function at times above 0, shape (n,), and the largest difference from a finer rule at some of them."""
        poles = []
        for circle, centre, count in self._circles:
            values = self._transform(centre + circle, np.log(centre + circle), factor)
            poles.append((centre, [(values * circle ** (m + 1)).mean() for m in range(count)]))
        rest = partial(self._rest, factor, poles)
        total = rest(t, _POINTS) if t.size <= _DIRECT else _by_panels(partial(rest, points=_POINTS), t)
        some = np.unique(np.linspace(0, max(t.size - 1, 0), min(t.size, 64)).astype(int))
        error = float(np.abs(total[some] - rest(t[some], _CHECK)).max(initial=0.0))
        for centre, parts in poles:
            powers = [value * t**m / math.factorial(m) for m, value in enumerate(parts)]
            with np.errstate(over="ignore", invalid="ignore"):
                added = np.exp(centre * t) * np.sum(powers, axis=0)
                total += added.real if self._is_real else added
                rounding = _EPS * np.abs(added) * (1.0 + np.abs(centre) * t)
            error = max(error, float(rounding.max(initial=0.0)))
        return total, error

    def _transform(self, s: Array, logs: Array, factor: Factor) -> Array:
        ratio = evaluate_terms(self._numerator, s, logs) / evaluate_terms(self._denominator, s, logs)
        return ratio * factor(s)

    def _rest(self, factor: Factor, poles: list[tuple[complex, list[complex]]], t: Array, points: int) -> Array:
        """The integral over a hyperbola of the transform without its poles."""
        points += self._more
        u = (np.arange(0.5, points) if self._is_real else np.arange(-points + 0.5, points)) * (_H / points)
        shape, slope = 1.0 + np.sin(1j * u - _PHI), 1j * np.cos(1j * u - _PHI)
        mu = _MU * points / t[:, np.newaxis]
        s = mu * shape
        values = self._transform(s, np.log(mu) + np.log(shape), factor)
        for centre, parts in poles:
            values -= sum(value / (s - centre) ** (m + 1) for m, value in enumerate(parts))
        sums = (np.exp(s * t[:, np.newaxis]) * values * slope).sum(axis=1)
        sums *= mu[:, 0] * (_H / points) / (2j * math.pi)
        return np.asarray(2.0 * sums.real if self._is_real else sums)


def _by_panels(function: Callable[[Array], Array], t: Array) -> Array:
    """A sum of decaying exponentials at many times, by polynomials over half octaves."""
    order = None if np.all(t[1:] >= t[:-1]) else np.argsort(t)
    times = t if order is None else t[order]
    found = np.empty(t.shape, function(t[:1]).dtype)
    low, begin = float(times[0]), 0
    while begin < t.size:
        high = math.sqrt(2.0) * low
        centre, half, end = 0.5 * (low + high), 0.5 * (high - low), int(np.searchsorted(times, high))
        row = _POWERS @ (_CHEBYSHEV @ function(centre + half * np.cos(_ANGLES)))
        for first in range(begin, end, _BLOCK):  # in the cache
            block = slice(first, min(first + _BLOCK, end))
            x = times[block] - centre
            x *= 1.0 / half
            total = row[-1] * x
            total += row[-2]
            for coefficient in row[-3::-1]:
                total *= x
                total += coefficient
            found[block] = total
        begin, low = end, max(high, float(times[min(end, t.size - 1)]))
    if order is not None:
        found[order] = found.copy()
    return found
