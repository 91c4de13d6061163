r"""Rational approximations of fractional systems, in continuous and in discrete time, with their error over a band.

A power :math:`s^\alpha` of a fractional part is replaced by a rational function; integer parts and delays stay.

References
----------
A. Oustaloup, F. Levron, B. Mathieu, F. M. Nanot, IEEE Trans. Circuits Syst. I 47 (2000) 25-39; K. Matsuda, H. Fujii,
J. Guid. Control Dyn. 16 (1993) 1146-1153; B. M. Vinagre, I. Podlubny, A. Hernández, V. Feliu, Fract. Calc. Appl. Anal.
3 (2000) 231-248 (continued fractions); Y. Q. Chen, K. L. Moore, IEEE Trans. Circuits Syst. I 49 (2002) 363-367.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import polynomial
from scipy.special import factorial, poch

from hpfracc._reading import choice, number, pair, whole
from hpfracc.control.systems import single
from hpfracc.control.transfer import TransferFunction
from hpfracc.errors import InvalidInputError
from hpfracc.special.binomial import grunwald_weights

Array = np.ndarray[Any, Any]
#: Numerator and denominator of an approximation of s^alpha, the lowest power first.
Ratio = tuple[Array, Array]
#: The variable s itself.
_S: Ratio = np.array([0.0, 1.0]), np.ones(1)
#: The factor, and the coefficient in the denominator, of generating functions of s.
_RULES = {"tustin": (2.0, 1.0), "al_alaoui": (8.0 / 7.0, 1.0 / 7.0), "euler": (1.0, 0.0)}


@dataclass(frozen=True, slots=True, eq=False)
class Approximation:
    """A rational approximation.

    Attributes
    ----------
    numerator, denominator : numpy.ndarray
        Coefficients in s, or in z if ``step`` is given, the highest power first, as in ``scipy.signal``.
    step : float or None
        The sampling time of a discrete system.
    w, error : numpy.ndarray
        Frequencies of the band and the relative error there.
    """

    numerator: Array
    denominator: Array
    step: float | None
    w: Array
    error: Array

    @property
    def max_error(self) -> float:
        """The largest relative error over the band."""
        return float(self.error.max())

    def __call__(self, points: Any) -> Any:
        """The value at complex ``s``, or ``z`` of a discrete system."""
        return np.polyval(self.numerator, points) / np.polyval(self.denominator, points)

    def __repr__(self) -> str:
        where = "continuous" if self.step is None else f"step={self.step:g}"
        return (
            f"Approximation(degree {len(self.denominator) - 1}, {where}, error {self.max_error:.2g} over "
            f"[{self.w[0]:g}, {self.w[-1]:g}])"
        )

    def to_transfer_function(self) -> TransferFunction:
        """The same as a transfer function in s; for continuous approximations."""
        if self.step is not None:
            raise InvalidInputError("a discrete approximation has no transfer function in s; use to_scipy()")
        return TransferFunction.from_polynomials(self.numerator, self.denominator)

    def to_scipy(self) -> Any:
        """The same as ``scipy.signal.TransferFunction``."""
        from scipy import signal

        more = {} if self.step is None else {"dt": self.step}
        return signal.TransferFunction(self.numerator, self.denominator, **more)


def oustaloup(system: Any, band: Any, order: int = 5) -> Approximation:
    r"""Oustaloup's recursive filter: poles and zeros in equal ratios over a band of frequencies.

    Parameters
    ----------
    system : TransferFunction
        A system without delays, such as ``s**0.5``.
    band : tuple of float
        Lowest and highest angular frequency.
    order : int
        The filter of each power has 2 order + 1 poles.

    Returns
    -------
    Approximation
        Its error is largest at the ends of the band, 46 % for a half derivative, and falls to 5 % a decade and 1 % two
        decades inside: choose the band wider than needed.

    Examples
    --------
    >>> from hpfracc import control
    >>> found = control.oustaloup(control.s**0.5, (1e-2, 1e2), 5)
    >>> bool(found.error[50:150].max() < 0.05)
    True
    """
    low, high = _band(band)
    n = whole("order", order, least=1, most=30)

    def rule(alpha: float) -> Ratio:
        k = np.arange(-n, n + 1)
        zeros = low * (high / low) ** ((k + n + 0.5 * (1.0 - alpha)) / (2 * n + 1))
        corners = low * (high / low) ** ((k + n + 0.5 * (1.0 + alpha)) / (2 * n + 1))
        return high**alpha * polynomial.polyfromroots(-zeros), polynomial.polyfromroots(-corners)

    return _approximated(system, rule, _S, (low, high))


def matsuda(system: Any, band: Any, order: int = 4) -> Approximation:
    """Matsuda's approximation: a continued fraction through ``2 order + 1`` gains over a band.

    Parameters
    ----------
    system : TransferFunction
        A system without delays.
    band : tuple of float
        Lowest and highest angular frequency.
    order : int
        Degree of the filter of each power.
    """
    low, high = _band(band)
    n = whole("order", order, least=1, most=12)
    places = np.geomspace(low, high, 2 * n + 1)

    def rule(alpha: float) -> Ratio:
        values = places**alpha
        factors = [values[0]]
        for k in range(1, places.size):
            with np.errstate(divide="ignore", invalid="ignore"):  # at places already met
                values = (places - places[k - 1]) / (values - factors[-1])
            factors.append(values[k])
        above, below = np.array([factors[-1]]), np.ones(1)
        for k in range(places.size - 2, -1, -1):
            more = polynomial.polymul([-places[k], 1.0], below)
            above, below = polynomial.polyadd(factors[k] * above, more), above
        return above, below

    return _approximated(system, rule, _S, (low, high))


def cfe(system: Any, center: float = 1.0, order: int = 4, band: Any = None) -> Approximation:
    r"""Continued fraction (Padé) of :math:`s^\alpha = c^\alpha (1 + (s/c - 1))^\alpha` about a frequency c.

    Parameters
    ----------
    system : TransferFunction
        A system without delays.
    center : float
        The frequency c about which it is best.
    order : int
        Degree of the filter of each power.
    band : tuple of float, optional
        The band of the reported error; a decade about ``center`` by default.
    """
    c, n = number("center", center, above=0.0), whole("order", order, least=1, most=12)
    low, high = (c / math.sqrt(10.0), c * math.sqrt(10.0)) if band is None else _band(band)

    def rule(alpha: float) -> Ratio:
        # (1 + x)^alpha = P(-n, -alpha - n; -2n; -x)/P(-n, alpha - n; -2n; -x), Gauss' series of degree n.
        k = np.arange(n + 1)
        x = polynomial.Polynomial([1.0, -1.0 / c])
        rows = (poch(-n, k) * poch(shift - n, k) / (poch(-2 * n, k) * factorial(k)) for shift in (-alpha, alpha))
        above, below = (polynomial.Polynomial(row)(x).coef for row in rows)
        return c**alpha * above, below

    return _approximated(system, rule, _S, (low, high))


def pade(lag: float, order: int = 3) -> TransferFunction:
    """Padé's approximation of ``exp(-lag s)`` of a degree ``order``, a transfer function with integer powers."""
    wait, n = number("lag", lag, above=0.0), whole("order", order, least=1, most=12)
    if n * math.log(wait) > 700.0:
        raise InvalidInputError(f"lag={wait:g} to the power {n} is too large for a number; use another unit of time")
    row = [math.factorial(2 * n - k) * math.comb(n, k) / math.factorial(2 * n) * wait**k for k in range(n + 1)]
    return TransferFunction({float(k): (-1.0) ** k * v for k, v in enumerate(row)}, dict(enumerate(row)))


def discretize(system: Any, step: float, order: int = 5, rule: str = "tustin", band: Any = None) -> Approximation:
    r"""A discrete filter: :math:`s` becomes a generating function of z, and its power a ratio of polynomials in 1/z.

    Parameters
    ----------
    system : TransferFunction
        A system without delays.
    step : float
        The sampling time.
    order : int
        Degree of the filter of each fractional power, by Padé's approximation of its series.
    rule : {"tustin", "al_alaoui", "euler"}
        :math:`\frac{2}{h} \frac{1-z^{-1}}{1+z^{-1}}`, :math:`\frac{8}{7 h} \frac{1-z^{-1}}{1+z^{-1}/7}`, or
        :math:`(1-z^{-1})/h` for the step h.
    band : tuple of float, optional
        The band of the reported error; by default from a thousandth to half of Nyquist's frequency.
    """
    length, n = number("step", step, above=0.0), whole("order", order, least=1, most=20)
    factor, back = _RULES[choice("rule", rule, _RULES)]
    top = math.pi / length
    low, high = (1e-3 * top, 0.5 * top) if band is None else _band(band)

    def fractional(alpha: float) -> Ratio:
        count = 2 * n + 1
        series = np.convolve(
            grunwald_weights(alpha, count), grunwald_weights(-alpha, count) * (-back) ** np.arange(count)
        )[:count]
        # Padé's approximation in 1/z.
        matrix = np.array([[series[n + i - j] for j in range(1, n + 1)] for i in range(1, n + 1)])
        below = np.concatenate([[1.0], np.linalg.lstsq(matrix, -series[n + 1 : 2 * n + 1], rcond=None)[0]])
        above = np.convolve(series, below)[: n + 1]
        return above * (factor / length) ** alpha, below

    one = factor / length * np.array([1.0, -1.0]), np.array([1.0, back])
    return _approximated(system, fractional, one, (low, high), length)


def _band(band: Any) -> tuple[float, float]:
    low, high = pair("band", band)
    if low <= 0.0:
        raise InvalidInputError(f"band={band}: give positive angular frequencies (low, high)")
    return low, high


def _assemble(system: TransferFunction, rule: Callable[[float], Ratio], one: Ratio) -> Ratio:
    """Numerator and denominator with each power replaced: its whole part by powers of ``one``, the rest by ``rule``."""
    if system.has_delay:
        raise InvalidInputError(f"{system} has a delay, which is not rational; leave it out, or use control.pade")
    if not system.is_real:
        raise InvalidInputError(f"{system} has complex coefficients; approximations take real ones")

    @cache
    def power(p: float) -> Ratio:
        """``s^p`` as a ratio."""
        whole_part = math.floor(p + 1e-12)
        above, below = (np.ones(1), np.ones(1)) if p - whole_part < 1e-12 else rule(p - whole_part)
        for _ in range(whole_part):
            above, below = np.convolve(above, one[0]), np.convolve(below, one[1])
        return above, below

    def total(terms: dict[tuple[float, float], complex]) -> Ratio:
        above: Array = np.zeros(1)
        below: Array = np.ones(1)
        for (p, _), value in terms.items():
            up, down = power(p)
            if np.array_equal(down, below):
                above = polynomial.polyadd(above, value.real * up)
            else:
                crossed: Any = value.real * np.convolve(up, below)
                above, below = polynomial.polyadd(np.convolve(above, down), crossed), np.convolve(below, down)
        return above, below

    with np.errstate(over="ignore", invalid="ignore"):
        top, bottom = total(system.numerator), total(system.denominator)
        return np.convolve(top[0], bottom[1]), np.convolve(top[1], bottom[0])


def _approximated(
    system: Any, rule: Callable[[float], Ratio], one: Ratio, band: tuple[float, float], step: float | None = None
) -> Approximation:
    """The approximation with ``one`` for s, in powers of s, or of 1/z with a step; and its error over a band."""
    system = single(system)
    rows = _assemble(system, rule, one)
    if step is None:
        above, below = (row[::-1] for row in rows)
    else:
        above, below = (np.pad(row, (0, max(map(len, rows)) - len(row))) for row in rows)
    w = np.geomspace(*band, 200)
    points = 1j * w if step is None else np.exp(1j * w * step)
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.polyval(above, points) / np.polyval(below, points)
    if not np.isfinite(found).all():
        raise InvalidInputError("the coefficients overflow; lower the order, or take another unit of time")
    return Approximation(above / below[0], below / below[0], step, w, np.abs(found / system(1j * w) - 1.0))
