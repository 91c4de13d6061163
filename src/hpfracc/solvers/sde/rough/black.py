"""Black's formula and its inverse, the implied volatility."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from hpfracc import _reading

_MAX_ITERATIONS = 100
_ROOT_HALF = math.sqrt(0.5)
#: Beyond this a price is the smaller of forward and strike.
_LARGEST_TOTAL = 1e3
#: Half the distance of a and b below which the series has more digits than the difference.
_CLOSE = 0.005


def black_price(forward: Any, K: Any, T: Any, volatility: Any, kind: str = "call") -> Any:
    r"""Undiscounted price of a European option under Black's model.

    .. math:: C = F \Phi(d_1) - K \Phi(d_2), \qquad d_{1,2} = \frac{\ln(F/K)}{\sigma\sqrt T} \pm \frac{\sigma\sqrt T}{2}

    Parameters
    ----------
    forward, K, T, volatility : array_like
        Forward price, strike, maturity and volatility, broadcast against each other; all at least 0.
    kind : {"call", "put"}
        The option.

    Returns
    -------
    ndarray or float
    """
    given = {"forward": forward, "K": K, "T": T, "volatility": volatility}
    forward, K, T, volatility = (_reading.numbers(name, each, least=0) for name, each in given.items())
    with np.errstate(over="ignore"):
        total = np.minimum(volatility * np.sqrt(T), _LARGEST_TOTAL)
    cheap = _price(_distance(forward, K), total) * np.minimum(forward, K)
    return (cheap + intrinsic(forward, K, kind))[()]


def implied_volatility(price: Any, forward: Any, K: Any, T: Any, kind: str = "call") -> Any:
    """The volatility for which Black's formula gives ``price`` (undiscounted).

    Newton's method on the logarithm of the price of the out-of-the-money option, safeguarded by bisection. Accurate to
    rounding as far as the price has digits: a price equal to the intrinsic value gives 0, one outside the arbitrage
    bounds gives nan.

    Parameters
    ----------
    price, forward, K, T : array_like
        Undiscounted price, forward price, strike and maturity, broadcast against each other.
    kind : {"call", "put"}
        The option.

    Returns
    -------
    ndarray or float
    """
    given = {"price": price, "forward": forward, "K": K, "T": T}
    price, forward, K, T = np.broadcast_arrays(
        *(_reading.numbers(name, each, finite=False) for name, each in given.items())
    )
    x, smaller = _distance(forward, K), np.minimum(forward, K)
    cheap = (price - intrinsic(forward, K, kind)) / np.where(smaller > 0.0, smaller, np.nan)
    result = np.full(cheap.shape, np.nan)
    result[cheap == 0.0] = 0.0
    usable = (cheap > 0.0) & (cheap < 1.0) & (T > 0.0) & np.isfinite(x)
    if usable.any():
        result[usable] = _invert(np.log(cheap[usable]), x[usable]) / np.sqrt(T[usable])
    return result[()]


def _distance(forward: Any, K: Any) -> Any:
    """``|ln(K/F)|``: infinite where one of them is 0, and 0 where both are."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        nearly = np.abs(np.log1p((K - forward) / forward))  # the difference of close numbers is exact
        return np.where(forward == K, 0.0, np.where(nearly < 0.5, nearly, np.abs(np.log(K) - np.log(forward))))


def _price(x: Any, total: Any) -> Any:
    r"""Price out of the money, per unit of the smaller of forward and strike; ``x = |ln(K/F)|``.

    :math:`\Phi(-a) - e^x \Phi(-b)` with :math:`a, b = x/s \mp s/2`. For positive a that is :math:`\tfrac12 e^{-a^2/2}
    (\mathrm{erfcx}(a/\sqrt2) - \mathrm{erfcx}(b/\sqrt2))`, which is accurate at any distance; for negative ones
    :math:`\Phi(b) - \Phi(a) - (e^x - 1) \Phi(-b)`, which is accurate for small s. Where a and b are close, the
    difference of the two erfcx is the Taylor series about their mean.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        ratio = x / total
        a, b = _ROOT_HALF * (ratio - 0.5 * total), _ROOT_HALF * (ratio + 0.5 * total)
        density, beyond = 0.5 * np.exp(-a * a), 0.5 * special.erfc(b)
        far = special.erfcx(b)
        less = np.where(x < 1.0, np.expm1(x) * beyond, density * far - beyond)
        near = 0.5 * (special.erf(b) - special.erf(a)) - less
        middle, half = _ROOT_HALF * ratio, 0.5 * _ROOT_HALF * total
        slopes = [special.erfcx(middle), 2.0 * middle * special.erfcx(middle) - 2.0 / math.sqrt(math.pi)]
        for n in range(1, 5):
            slopes.append(2.0 * (middle * slopes[n] + n * slopes[n - 1]))
        close = -2.0 * half * (slopes[1] + half * half / 6.0 * (slopes[3] + half * half / 20.0 * slopes[5]))
        apart = np.where(half < _CLOSE, close, special.erfcx(np.abs(a)) - far)
        found = np.where(a < 0.0, near, density * apart)
    return np.where(total > 0.0, np.maximum(found, 0.0), 0.0)


def _invert(target: np.ndarray, x: np.ndarray) -> np.ndarray:
    low, high = np.zeros_like(x), np.full_like(x, 40.0)
    total = np.maximum(np.sqrt(2.0 * x), 0.1)
    for _ in range(_MAX_ITERATIONS):
        with np.errstate(divide="ignore"):  # a price below the least number
            value = np.log(_price(x, total)) - target
        low = np.where(value < 0.0, total, low)
        high = np.where(value < 0.0, high, total)
        with np.errstate(all="ignore"):
            # d price / d total = density(d1), per unit of price.
            log_vega = -0.5 * (-x / total + total / 2.0) ** 2 - 0.5 * np.log(2.0 * np.pi) - (value + target)
            following = total - value * np.exp(-log_vega)
        done = np.abs(following - total) <= 1e-9 * total  # Newton's method squares the error
        inside = (following >= low) & (following <= high)
        total = np.where(inside, following, 0.5 * (low + high))
        if done.all():
            break
    return total


def intrinsic(forward: Any, K: Any, kind: str) -> Any:
    """What an option is worth if it ends now; raises an error unless ``kind`` is ``"call"`` or ``"put"``."""
    _reading.choice("kind", kind, ("call", "put"))
    return np.maximum(forward - K if kind == "call" else K - forward, 0.0)
