"""Gamma in any array namespace, and derivatives of 1/Gamma for exact arguments.

Some libraries have only the logarithm of Gamma, which loses digits for large values. Here Gamma is computed up to 16 by
products and a polynomial on [2, 3), beyond by Stirling's formula with the power in two halves, so that it overflows
only where Gamma does; for negative arguments by reflection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from hpfracc._xp import NUMPY, Namespace
from hpfracc.errors import InvalidInputError

#: Gamma(5/2 + t) for -1/2 <= t < 1/2, by interpolation at Chebyshev points in 60 digits; the error is 2e-17.
_NEAR = (
    1.329340388179137, 0.9347345216260855, 0.6545585779813368, 0.2538712468411429, 0.10967323400215907,
    0.02836078059484065, 0.010392403425963018, 0.001607400484857475, 0.0007544741274008594, 3.941786106704003e-06,
    6.132999547490073e-05, -1.2801662101069902e-05, 7.253704976396383e-06, -2.560170651922655e-06,
    1.083170535516263e-06, -4.257518642364393e-07, 1.6813026075626095e-07, -6.715441924676824e-08,
    3.363120541233027e-08, -1.3455594745344375e-08,
)  # fmt: skip
#: log Gamma(y) - (y - 1/2) log y + y - log(2 pi)/2 as a series in 1/y: B_2k / (2k (2k - 1)).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_FAR = 16
#: Beyond this argument Gamma and its reciprocal leave the range of float64.
_END = 190.0
#: Beyond this argument the reciprocal of Gamma loses digits in float64.
_LARGEST = 170.0
_HALF_LOG_TWO_PI = Decimal("0.9189385332046727417803297364056176398614")
#: Number of derivatives of 1/Gamma that are implemented below.
MAX_DERIVATIVES = 2


def gamma_value(xp: Namespace, z: Any) -> Any:
    """Gamma of float64 ``z`` in the namespace ``xp``, to a few units in the last place."""
    size = xp.abs(z)
    far = size >= _FAR
    near_value = _by_products(xp, xp.where(far, 2.0, z))
    far_value = _by_stirling(xp, xp.where(far, z, float(_FAR)))
    return xp.where(far, far_value, near_value)


def _by_products(xp: Namespace, z: Any) -> Any:
    shift = xp.floor(z) - 2.0
    base = z - shift
    above = below = 1.0 + 0.0 * z
    for k in range(_FAR + 2):
        above = xp.where(shift > k, above * (base + k), above)
        below = xp.where(shift < -k, below * (z + k), below)
    t = base - 2.5
    value = 0.0 * t
    for coefficient in reversed(_NEAR):
        value = value * t + coefficient
    return value * above / below


def _by_stirling(xp: Namespace, z: Any) -> Any:
    size = xp.abs(z)
    rest, sign = _reduced(xp, size)
    sine = xp.sin(math.pi * rest) * sign
    size = xp.where(size > _END, _END, size)
    half = size ** (0.5 * size - 0.25)
    factor = math.sqrt(2.0 * math.pi) * xp.exp(_rest(size))
    right = factor * half * (half * xp.exp(-size))
    left = (-math.pi) / (size * sine * factor) / half * (xp.exp(size) / half)
    return xp.where(z < 0, left, right)


def digamma_value(xp: Namespace, z: Any, digamma: Callable[[Any], Any]) -> Any:
    """The library's ``digamma``; by reflection near its poles, where libraries lose digits."""
    distance = z - xp.round(z)
    near = (z < -0.5) & (xp.abs(distance) < 0.1) & (distance != 0.0)
    angle = math.pi * xp.where(near, distance, 0.25)
    reflected = digamma(1.0 - xp.where(near, z, -0.5)) - math.pi * xp.cos(angle) / xp.sin(angle)
    return xp.where(near, reflected, digamma(z))


def _reduced(xp: Namespace, z: Any) -> tuple[Any, Any]:
    """``z`` without the nearest integer n, and ``(-1)^n``: the sine of pi z is that of the first, times the second."""
    nearest = xp.round(z)
    return z - nearest, 1.0 - 2.0 * (nearest - 2.0 * xp.floor(0.5 * nearest))


def beta_value(xp: Namespace, a: Any, b: Any, gamma: Callable[[Any], Any]) -> Any:
    """B(a, b) of arrays of one shape, from that of positive ones: Gamma is reflected at each argument below 0.

    Logarithms of Gamma, which libraries use there, lose digits in proportion to the arguments. At poles the result is
    inf, except where that of Gamma(a + b) cancels it: the limit for b fixed, as in SciPy.
    """
    swap = a < b
    least, most = xp.where(swap, a, b), xp.where(swap, b, a)
    reflected = least < 0
    x, y = xp.where(reflected, least, -0.5), xp.where(reflected, most, 0.25)
    both, left, total = y < 0, x + y < 0.5, x + y
    first = xp.where(both, 1.0 - y, xp.where(left, 1.0 - total, total))
    second = xp.where(left & ~both, y, 1.0 - x)
    value = _positive_beta(xp, xp.where(reflected, first, least), xp.where(reflected, second, most), gamma)
    (rest, sign), (other, other_sign) = _reduced(xp, x), _reduced(xp, y)
    turn, turn_sign = _reduced(xp, rest + other)
    sine, other_sine = xp.sin(math.pi * rest) * sign, xp.where(both, xp.sin(math.pi * other) * other_sign, 1.0)
    ratio = xp.sin(math.pi * turn) * turn_sign * other_sign * sign / sine
    ratio = xp.where((rest == 0) & (other == 0), other_sign, ratio)
    right = math.pi / (sine * y * value)
    far = xp.where(both, math.pi / (1.0 - total) / value * (ratio / other_sine), xp.where(left, value * ratio, right))
    pole = ((rest == 0) & ~(left & (other == 0) & ~both)) | (both & (other == 0))
    return xp.where(reflected, xp.where(pole, math.inf, far), value)


def beta_of_numpy(a: Any, b: Any) -> Any:
    """B(a, b) by SciPy, but for negative and large arguments, where its values lose digits."""
    value = special.beta(a, b)
    hard = (np.minimum(a, b) < 0.0) | (np.maximum(a, b) > 50.0)
    if not np.any(hard):
        return value
    a, b = (np.asarray(part, np.float64) for part in np.broadcast_arrays(a, b))
    return np.where(hard, beta_value(NUMPY, a, b, special.gamma), value).astype(value.dtype)[()]


def _positive_beta(xp: Namespace, a: Any, b: Any, gamma: Callable[[Any], Any]) -> Any:
    """B(a, b) of positive arguments, by Gamma if that stays in range, otherwise by Stirling's formula."""
    # The derivative of a quotient in JAX has the square of Gamma(a + b).
    limit, swap = (48 if "64" in str(a.dtype) else 11), a < b
    a, b = xp.where(swap, a, b), xp.where(swap, b, a)
    small = b < limit
    near_a, near_b = xp.where(small, a, 1.0), xp.where(small, b, 1.0)
    direct = gamma(near_a) / gamma(near_a + near_b) * gamma(near_b)
    least, most = xp.where(small, 1.0, a), xp.where(small, 1.0 * limit, b)
    # Gamma(most) / Gamma(least + most) by Stirling's formula: its logarithms would be large, and their difference not.
    ratio = -(most - 0.5) * xp.log1p(least / most) + (_rest(most) - _rest(least + most))
    both = least >= _FAR
    alone, large = xp.where(both, 1.0, least), xp.where(both, least, 1.0 * _FAR)
    one = gamma(alone) * xp.exp(ratio + alone - alone * xp.log(alone + most))
    power = large * xp.log(large / (large + most)) - 0.5 * xp.log(large / (2.0 * math.pi))
    return xp.where(small, direct, xp.where(both, xp.exp(ratio + power + _rest(large)), one))


def _rest(y: Any) -> Any:
    """The series in Stirling's formula."""
    inverse, rest = 1.0 / y, 0.0 * y
    for coefficient in reversed(_STIRLING):
        rest = rest * (inverse * inverse) + coefficient
    return rest * inverse


def reciprocal_gammas(
    alpha: float, beta: float, count: int, derivative: int = 0, first: int = 0, shift: int = 0
) -> np.ndarray:
    """A derivative of ``1/Gamma`` at ``beta + alpha (first + k)``, times ``2**(shift k)``, for k < count.

    With exact arguments, because near a zero half an ulp of the argument would lose all digits, and for large arguments
    two. The product may be in range where 1/Gamma is not.
    """
    if not 0 <= derivative <= MAX_DERIVATIVES:
        raise InvalidInputError(
            f"derivative {derivative} of the Mittag-Leffler function in its parameters; there are those up to "
            f"{MAX_DERIVATIVES}: differentiate it less often in alpha and beta"
        )
    high, low = _exact_arguments(alpha, beta, np.arange(first, first + float(count)))
    nearest = np.rint(high)
    right = nearest > 0
    values = np.empty(count)
    scale = shift * np.arange(count)
    x, psi = high[right], special.psi(high[right])
    found = np.ldexp(special.rgamma(x) * (1.0 - psi * low[right]), scale[right])
    for k in np.flatnonzero(x > _LARGEST):
        argument = Fraction(beta) + (first + int(np.flatnonzero(right)[k])) * Fraction(alpha)
        found[k] = float(_by_logarithm(argument) * Decimal(2) ** int(scale[right][k]))
    values[right] = found * (1.0, -psi, psi * psi - special.polygamma(1, x) if derivative == 2 else 0.0)[derivative]
    left = ~right
    if left.any():
        distance = (high[left] - nearest[left]) + low[left]
        found = _by_reflection(*_sum(1.0, -high[left], -low[left]), distance, derivative)
        values[left] = np.ldexp(found, scale[left]) * np.where(nearest[left] % 2 == 0, 1.0, -1.0)
    return values


def _exact_arguments(alpha: float, beta: float, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``beta + alpha k`` for whole k below 2**26, as a sum of two numbers; alpha is split in two (T. J. Dekker)."""
    large = 134217729.0 * alpha
    upper = large - (large - alpha)
    high, low = _sum(beta, upper * numbers, 0.0)
    return _sum(high, (alpha - upper) * numbers, low)


def _sum(a: Any, b: Any, rest: Any) -> tuple[Any, Any]:
    """``a + b + rest``, with a small rest, as a sum of two numbers (D. E. Knuth)."""
    total = a + b
    part = total - a
    rest = rest + ((a - (total - part)) + (b - part))
    high = total + rest
    return high, rest - (high - total)


def _by_logarithm(argument: Fraction) -> Decimal:
    """``1/Gamma`` by Stirling's formula, in decimal numbers, whose exponents have no limit."""
    with localcontext(prec=40):
        x = Decimal(argument.numerator) / Decimal(argument.denominator)
        rest = sum((Decimal(c) / x ** (2 * k + 1) for k, c in enumerate(_STIRLING)), _HALF_LOG_TWO_PI)
        return (x - (x - Decimal("0.5")) * x.ln() - rest).exp()


def _by_reflection(x: Any, low: Any, distance: Any, derivative: int) -> Any:
    """``1/Gamma(1 - x - low) = sin(pi x) Gamma(x) / pi``, with ``distance`` from an integer, without the sign."""
    sine, cosine, psi = np.sin(math.pi * distance), np.cos(math.pi * distance), special.psi(x)
    size = np.array([math.gamma(each) for each in x]) * (1.0 + psi * low)
    if derivative < 2:
        return size * (cosine * derivative + sine / math.pi * (-psi) ** derivative)
    square = psi * psi + special.polygamma(1, x)
    return size * (-math.pi * sine - 2.0 * cosine * psi + sine / math.pi * square)
