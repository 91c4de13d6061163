"""The Hurst index from a path, with a confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import fft, optimize, special

from hpfracc import _reading
from hpfracc._arrays import refuse_chunked
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["HurstEstimate", "hurst"]

_MIN_POINTS = 32
#: Estimates stay inside this interval; at its ends the likelihood has no curvature.
_BOUNDS = (1e-3, 1.0 - 1e-3)
#: Changes below this fraction of the values are rounding.
_ROUNDING = 16.0 * np.finfo(float).eps
#: Fraction of the increments that is tapered. Without it, the high frequencies of a rough path leak into the low ones:
#: at H = 0.02 and 1,000 steps 77 % of the intervals of 95 % cover H. The standard error grows by 2.7 %.
_TAPERED = 0.1
#: Steps over which second differences are taken.
_DILATIONS = (1, 2, 3, 4)
#: Lags after which squared correlations of second differences, which decay like k^(4H-8), are negligible.
_LAGS = 300


@dataclass(frozen=True, eq=False)
class HurstEstimate:
    """An estimate of the Hurst index.

    Attributes
    ----------
    H : float or ndarray
        The estimate, one for each path.
    standard_error : float or ndarray
        Its asymptotic standard error.
    interval : tuple of (float or ndarray)
        The ends of the confidence interval.
    confidence : float
        The probability with which the interval covers H.
    method : str
        ``"whittle"`` or ``"variations"``.
    """

    H: Any
    standard_error: Any
    interval: tuple[Any, Any]
    confidence: float
    method: str


def hurst(
    path: Any,
    *,
    method: Literal["whittle", "variations"] = "whittle",
    confidence: float = 0.95,
    increments: bool = False,
) -> HurstEstimate:
    r"""Estimate the Hurst index of fractional Brownian motion from equally spaced values.

    Parameters
    ----------
    path : array_like, shape (..., n)
        Values of the process, time along the last axis; at least 32.
    method : {"whittle", "variations"}
        ``"whittle"`` maximises Whittle's likelihood of the increments, with the spectral density of fractional
        Gaussian noise [1]: the most accurate if the path is fractional Brownian motion. ``"variations"`` compares
        mean squares of second differences over 1 to 4 steps [2], which is insensitive to a smooth trend or a slowly
        varying volatility.
    confidence : float
        Probability of the interval.
    increments : bool
        Whether ``path`` contains increments (fractional Gaussian noise).

    Returns
    -------
    HurstEstimate
        ``.H``, ``.standard_error``, ``.interval``; arrays if there are several paths.

    Notes
    -----
    With the spectral density :math:`f(\lambda; H) \propto (1 - \cos\lambda) \sum_j |\lambda + 2\pi j|^{-2H-1}` and the
    periodogram I, Whittle's estimate minimises :math:`\log \overline{I/f} + \overline{\log f}`; its variance is
    :math:`2 / (n\,\mathrm{Var}_\lambda\,\partial_H \log f)`, times 1.05 for the taper: the increments less their mean
    are multiplied by a window that rises over the first and falls over the last twentieth.

    References
    ----------
    1. J. Beran, "Statistics for Long-Memory Processes", Chapman & Hall, 1994.
    2. J. Istas, G. Lang, "Quadratic variations and estimation of the local Hoelder index of a Gaussian process",
       Ann. Inst. H. Poincare Probab. Statist. 33, 1997; J.-F. Coeurjolly, Stat. Inference Stoch. Process. 4, 2001.

    Examples
    --------
    >>> import hpfracc as hf
    >>> found = hf.hurst(hf.fbm(4000, 0.3, rng=1))
    >>> low, high = found.interval
    >>> bool(low < 0.3 < high)
    True
    """
    refuse_chunked(path, "path")
    values = _reading.numbers("path", path, finite=False)
    if values.ndim < 1 or values.shape[-1] < _MIN_POINTS:
        raise ShapeError(f"path has shape {values.shape}; an estimate needs at least {_MIN_POINTS} values")
    if not np.all(np.isfinite(values)):
        raise InvalidInputError("path has values that are not finite; drop them, or fill them in")
    if not 0.0 < confidence < 1.0:
        raise InvalidInputError(f"confidence={confidence!r}: use a probability such as 0.95")
    if method not in ("whittle", "variations"):
        raise InvalidInputError(f"method={method!r}: use 'whittle' or 'variations'")
    rows = values.reshape(-1, values.shape[-1])
    if method == "whittle":
        steps = rows if increments else np.diff(rows)
        _refuse_constant(steps - steps.mean(-1, keepdims=True), rows)
        found = [_whittle(row) for row in steps]
    else:
        levels = np.cumsum(rows, -1) if increments else rows
        _refuse_constant(np.diff(levels, 2), levels)
        found = [_variations(row) for row in levels]
    index, error = (np.array(column).reshape(values.shape[:-1]) for column in zip(*found, strict=True))
    width = special.ndtri(0.5 + 0.5 * confidence) * error
    low, high = np.maximum(index - width, 0.0), np.minimum(index + width, 1.0)
    if values.ndim == 1:
        return HurstEstimate(float(index), float(error), (float(low), float(high)), confidence, method)
    return HurstEstimate(index, error, (low, high), confidence, method)


def _refuse_constant(changes: np.ndarray, values: np.ndarray) -> None:
    """Raise an error if changes that should be 0 on a line are no larger than the rounding of the values."""
    largest = np.abs(values).max(-1)
    if not np.all(np.sqrt(np.mean(changes**2, -1)) > _ROUNDING * largest):
        raise InvalidInputError("a path is constant or a straight line up to rounding; it has no Hurst index")


def _log_density(index: float, waves: np.ndarray) -> np.ndarray:
    """Logarithm of the spectral density of fractional Gaussian noise, up to a constant that may depend on H."""
    power = 2.0 * index + 1.0
    turns = waves / (2.0 * math.pi)
    total = special.zeta(power, turns) + special.zeta(power, 1.0 - turns)
    return np.asarray(np.log(2.0 * np.sin(0.5 * waves) ** 2 * total))


def _whittle(steps: np.ndarray) -> tuple[float, float]:
    n = steps.size
    waves = 2.0 * math.pi * np.arange(1, (n - 1) // 2 + 1) / n
    taper, end = np.ones(n), round(0.5 * _TAPERED * n)
    taper[:end] = np.sin(0.5 * math.pi * (np.arange(end) + 0.5) / end) ** 2
    taper[n - end :] = taper[:end][::-1]
    power = np.abs(fft.rfft(taper * (steps - steps.mean()))[1 : waves.size + 1]) ** 2

    def loss(index: float) -> float:
        density = _log_density(index, waves)
        return float(np.log(np.mean(power * np.exp(-density))) + np.mean(density))

    index = float(optimize.minimize_scalar(loss, bounds=_BOUNDS, method="bounded", options={"xatol": 1e-6}).x)
    low, high = max(index - 1e-4, 0.5 * _BOUNDS[0]), min(index + 1e-4, 1.0 - 0.5 * _BOUNDS[0])
    slope = (_log_density(high, waves) - _log_density(low, waves)) / (high - low)
    spread = np.sum(taper**4) / np.sum(taper**2) ** 2  # 1 / n without the taper
    return index, math.sqrt(2.0 * spread / float(np.var(slope)))


def _variations(levels: np.ndarray) -> tuple[float, float]:
    squares = [_second_differences(levels, dilation) for dilation in _DILATIONS]
    logs = np.log([np.mean(square) for square in squares])
    design = 2.0 * np.log(_DILATIONS)
    design = design - design.mean()
    gains = design / np.sum(design**2)
    index = float(np.clip(gains @ logs, *_BOUNDS))
    spread = gains @ _log_covariance(index, levels.size) @ gains
    return index, math.sqrt(spread)


def _second_differences(levels: np.ndarray, dilation: int) -> np.ndarray:
    found: np.ndarray = (levels[2 * dilation :] - 2.0 * levels[dilation:-dilation] + levels[: -2 * dilation]) ** 2
    return found


def _log_covariance(index: float, points: int) -> np.ndarray:
    """Covariances of the logarithms of the mean squares: ``2/N sum_k r(k)^2`` with the correlations r."""
    powers = np.arange(_LAGS + 2 * max(_DILATIONS) + 1, dtype=np.float64) ** (2.0 * index)
    lags = np.arange(-_LAGS, _LAGS + 1)
    filters = ((0, 1.0), (1, -2.0), (2, 1.0))

    def covariance(one: int, two: int) -> np.ndarray:
        total = np.zeros(lags.size)
        for p, a in filters:
            for q, b in filters:
                total -= 0.5 * a * b * powers[np.abs(lags + one * p - two * q)]
        return total

    variances = {m: float(covariance(m, m)[_LAGS]) for m in _DILATIONS}
    matrix = np.empty((len(_DILATIONS), len(_DILATIONS)))
    for i, one in enumerate(_DILATIONS):
        for j, two in enumerate(_DILATIONS[: i + 1]):
            number = points - 2 * max(one, two)
            matrix[i, j] = matrix[j, i] = (
                2.0 * np.sum(covariance(one, two) ** 2) / (number * variances[one] * variances[two])
            )
    return matrix
