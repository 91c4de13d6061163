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
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._reading import function, number, numbers, shown
from hpfracc.control.stability import principal_poles
from hpfracc.control.transfer import Terms, evaluate_terms
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["PartialInverse", "fourier_inverse", "inverse_laplace"]

Array = np.ndarray[Any, Any]

_PHI, _H, _MU = 1.1721, 1.0818, 4.4921
#: Points on one side of the hyperbola, and on that which checks it.
_POINTS, _CHECK = 14, 18
#: Poles with a smaller argument are taken out: the hyperbola opens at 157 degrees.
_ANGLE = 3.0
#: Points of a circle about a pole, the largest relative distance of poles in a group, and the relative radius.
_CIRCLE, _GROUP = 64, 1e-3
#: Terms of the Fourier series of de Hoog's method, doubled until two results agree, and at most.
_TERMS, _MAX_TERMS, _AGREE = 16, 512, 1e-9


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
        They are rough near jumps of f.

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
    value, error = np.empty(times.shape), np.empty(times.shape)
    # A line serves times within a factor of 4.
    group = np.floor(0.5 * np.log2(times.max(initial=1.0) / times)) if times.size else times
    for each in np.unique(group):
        mine = group == each
        terms, apart, best = _TERMS, math.inf, fourier_inverse(transform, times[mine], where, _TERMS, 2.4)
        while terms < _MAX_TERMS and apart > _AGREE:
            terms *= 2
            before, best = (
                best,
                fourier_inverse(transform, times[mine], where, terms, 2.0 + 0.1 * (terms.bit_length() % 3)),
            )
            differences = np.abs(best - before)
            if not differences.max() < apart and terms > 64:
                break  # rounding
            value[mine], error[mine], apart = best, differences, float(differences.max())
    found, error = (value, error) if times.ndim else (value[()], error[()])
    return (found, error) if full_output else found


def fourier_inverse(transform: Callable[[Array], Any], t: Array, abscissa: float, terms: int, stretch: float) -> Array:
    """De Hoog's method for times of similar size, with a line for the period ``stretch * t.max()``."""
    period = stretch * float(t.max())
    gamma = abscissa + 13.8 / period
    points = gamma + 1j * math.pi / period * np.arange(2 * terms + 1)
    values = np.asarray(transform(points), complex)
    if values.shape != points.shape:
        raise ShapeError(f"transform(s) has shape {values.shape} for {points.size} points; give one value for each")
    values = np.array(values)
    values[0] *= 0.5
    with np.errstate(all="ignore"):
        # The quotient-difference algorithm for the coefficients of the continued fraction.
        e, q = np.zeros(2 * terms + 1, complex), values[1:] / values[:-1]
        d = np.empty(2 * terms + 1, complex)
        d[0], d[1] = values[0], -q[0]
        for r in range(1, terms + 1):
            e = q[1:] - q[:-1] + e[1 : q.size]
            d[2 * r] = -e[0]
            if r < terms:
                q = q[1:-1] * e[1:] / e[:-1]
                d[2 * r + 1] = -q[0]
        z = np.exp(1j * math.pi / period * t)
        above, below = [np.zeros_like(z), np.full_like(z, d[0])], [np.ones_like(z), np.ones_like(z)]
        for n in range(1, 2 * terms):
            above = [above[1], above[1] + d[n] * z * above[0]]
            below = [below[1], below[1] + d[n] * z * below[0]]
        # The tail as a root of a quadratic.
        half = 0.5 * (1.0 + z * (d[2 * terms - 1] - d[2 * terms]))
        tail = -half * (1.0 - np.sqrt(1.0 + z * d[2 * terms] / half**2))
        total = (above[1] + tail * above[0]) / (below[1] + tail * below[0])
    return np.asarray(np.exp(gamma * t) / period * total.real)


@dataclass(frozen=True, slots=True, eq=False)
class PartialInverse:
    """The inverse transform of ``N(s)/D(s)`` without delays, with its poles taken out.

    Attributes
    ----------
    numerator, denominator : dict
        Terms without delays.
    poles : list of tuple
        Centre and coefficients of each principal part, ``sum_m c[m] (s - p)^-(m+1)``.
    is_real : bool
        Whether f is real.
    more : int
        Points beyond the usual number, for transforms that fall like a high power.
    """

    numerator: Terms
    denominator: Terms
    poles: list[tuple[complex, Array]]
    is_real: bool
    more: int = 0

    @classmethod
    def of(cls, numerator: Terms, denominator: Terms, is_real: bool, more: int = 0) -> PartialInverse:
        """Find the poles and their principal parts."""
        found = principal_poles(denominator)
        found = found[np.abs(np.angle(found)) < _ANGLE]
        groups: list[list[complex]] = []
        for each in sorted(found.tolist(), key=lambda p: (p.real, p.imag)):
            near = [group for group in groups if min(abs(each - p) for p in group) < _GROUP * abs(each)]
            for group in near:
                groups.remove(group)
            groups.append([each, *(p for group in near for p in group)])
        parts = []
        for group in groups:
            centre = sum(group) / len(group)
            spread = max(abs(p - centre) for p in group)
            others = [abs(p - centre) for other in groups if other is not group for p in other]
            cut = abs(centre) if centre.real >= 0.0 else abs(centre.imag)
            radius = max(0.5 * min([cut, *others]), 2.0 * spread)
            circle = radius * np.exp(2j * math.pi * np.arange(_CIRCLE) / _CIRCLE)
            points = centre + circle
            logs = np.log(points)
            values = evaluate_terms(numerator, points, logs) / evaluate_terms(denominator, points, logs)
            parts.append((centre, np.array([(values * circle ** (m + 1)).mean() for m in range(len(group))])))
        return cls(numerator, denominator, parts, is_real, more)

    def __call__(self, t: Array, points: int = _POINTS) -> Array:
        """The function at times above 0, shape (n,)."""
        points += self.more
        k = np.arange(0.5, points) if self.is_real else np.arange(-points + 0.5, points)
        u = k * (_H / points)
        shape = 1.0 + np.sin(1j * u - _PHI)
        slope = 1j * np.cos(1j * u - _PHI)
        total = np.empty(t.shape, float if self.is_real else complex)
        for first in range(0, t.size, 4096):  # so that all fits in the cache
            chunk = t[first : first + 4096, np.newaxis]
            mu = _MU * points / chunk
            s = mu * shape
            logs = np.log(mu) + np.log(shape)
            values = evaluate_terms(self.numerator, s, logs) / evaluate_terms(self.denominator, s, logs)
            for centre, parts in self.poles:
                values -= _principal(s, centre, parts)
            sums = (np.exp(s * chunk) * values * slope) @ np.ones(k.size) * (mu[:, 0] * (_H / points) / (2j * math.pi))
            total[first : first + 4096] = 2.0 * sums.real if self.is_real else sums
        for centre, parts in self.poles:
            powers = [value * t**m / math.factorial(m) for m, value in enumerate(parts)]
            added = np.exp(centre * t) * np.sum(powers, axis=0)
            total += added.real if self.is_real else added
        return total

    def error(self, t: Array) -> float:
        """Largest difference from a finer rule, on some of the times."""
        some = t[np.unique(np.linspace(0, t.size - 1, min(t.size, 64)).astype(int))]
        return float(np.abs(self(some) - self(some, _CHECK)).max(initial=0.0)) if t.size else 0.0


def _principal(s: Array, centre: complex, parts: Array) -> Array:
    total = np.zeros(s.shape, complex)
    inverse = 1.0 / (s - centre)
    for value in parts[::-1]:
        total = (total + value) * inverse
    return total
