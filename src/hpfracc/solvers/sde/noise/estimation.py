r"""The Hurst index from a path, with a confidence interval: Whittle's likelihood, or the growth of energies with scale.

Variations, detrended fluctuations and wavelets compute energies of a path at several scales s, of which the logarithms
grow like :math:`2 H \log s` for fractional Brownian motion. Energies at different scales are correlated, and at short
ones they do not follow the power law exactly. So the logarithms are compared with their mean and covariance for
fractional Brownian motion of nearly the same index and length, from 200 sampled paths, by generalised least squares.
The sum of squared residuals, in units of that covariance, tests whether the law of scaling holds: it has Hotelling's
law, because the covariance is a sample's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly, chebinterpolate
from scipy import fft, optimize, special

from hpfracc import _reading
from hpfracc._arrays import refuse_masked
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.sde.noise.fractional_brownian import fbm

_MIN_POINTS = 32
#: Estimates stay inside this interval; at its ends the likelihood has no curvature.
_BOUNDS = (1e-3, 1.0 - 1e-3)
#: Changes below this fraction of the values are rounding.
_ROUNDING = 16.0 * np.finfo(float).eps
#: Fraction of the increments that is tapered. Without it, the high frequencies of a rough path leak into the low ones:
#: at H = 0.02 and 1,000 steps 77 % of the intervals of 95 % cover H. The standard error grows by 2.7 %.
_TAPERED = 0.1
#: Degree of a polynomial in the square of the frequency: its error is that of rounding.
_DEGREE = 15
#: Bands of frequencies of the test of fit.
_BANDS = 8
#: The local estimate takes n**0.65 frequencies: of 400 paths of 500, 1,000 or 4,000 steps at d = -0.3, 0 and 0.3,
#: ARFIMA and fractional Gaussian noise, 93 to 97 % of the intervals of 95 % cover H; with n**0.7 from 87, with n**0.8
#: from 27.
_LOCAL = 0.65
#: A model does not fit if this is above its p-value, or above its likelihood relative to that of the other model.
_REJECTED = 0.01


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
        The method.
    p_value : float or ndarray
        Probability of a path that fits the law of scaling worse, if it holds: a small one (below 0.01, say) means that
        the path is no fractional Brownian motion, and that estimate and interval mean little.
    noise : float, ndarray or None
        With ``"noisy_whittle"``: the standard deviation of the white noise in the values.
    """

    H: Any
    standard_error: Any
    interval: tuple[Any, Any]
    confidence: float
    method: str
    p_value: Any
    noise: Any = None
    _increments: Any = field(default=None, repr=False)

    @cached_property
    def fits(self) -> Any:
        """One line that says which model of the increments fits: fractional Gaussian noise, ARFIMA(0, d, 0) or none.

        By Whittle's likelihood and test of fit at all frequencies, computed when it is read. A model that the line does
        not name is rejected at 1 %: then prefer ``method="local_whittle"``.
        """
        lines = [_which_fits(row) for row in self._increments.reshape(-1, self._increments.shape[-1])]
        return np.array(lines, dtype=object).reshape(self._increments.shape[:-1])[()]


def hurst(
    path: Any,
    *,
    method: Literal["whittle", "noisy_whittle", "local_whittle", "variations", "dfa", "wavelets"] = "whittle",
    confidence: float = 0.95,
    increments: bool = False,
    frequencies: int | None = None,
) -> HurstEstimate:
    r"""Estimate the Hurst index of fractional Brownian motion, or of long memory, from equally spaced values.

    Parameters
    ----------
    path : array_like, shape (..., n)
        Values of the process, time along the last axis; at least 32.
    method : {"whittle", "noisy_whittle", "local_whittle", "variations", "dfa", "wavelets"}
        ``"whittle"`` maximises Whittle's likelihood of the increments, with the spectral density of fractional
        Gaussian noise [1]: the most accurate if the path is fractional Brownian motion. ``"noisy_whittle"`` does the
        same for fractional Brownian motion plus white noise, as of a measurement, which bias all others.
        ``"local_whittle"`` [5] assumes a density like :math:`|\lambda|^{1-2H}` at low frequencies only, as that of
        ARFIMA(p, d, q) with H = d + 1/2: less accurate, and right for more processes. Fractional Gaussian noise of H
        below 0.1 has such a density only at frequencies far lower: the estimate is too small there.
        ``"variations"`` compares mean squares of second differences over 1 to 4 steps [2], which is insensitive to a
        smooth trend or a slowly varying volatility. ``"dfa"``, detrended fluctuation analysis [3], compares pieces of
        up to a twelfth of the path (at most 341 steps) without their linear trends; ``"wavelets"`` [4] energies of
        coefficients of Daubechies' wavelets with three vanishing moments, which see no parabola.
    confidence : float
        Probability of the interval.
    increments : bool
        Whether ``path`` contains increments (fractional Gaussian noise).
    frequencies : int, optional
        With ``"local_whittle"``: the number m of the lowest frequencies, at least 8; by default ``n**0.65``.

    Returns
    -------
    HurstEstimate
        ``.H``, ``.standard_error``, ``.interval``, ``.p_value``, ``.fits``; arrays if there are several paths.

    See Also
    --------
    fbm, fgn, hpfracc.noise.HurstEstimate

    Notes
    -----
    With the spectral density :math:`f(\lambda; H) \propto (1 - \cos\lambda) \sum_j |\lambda + 2\pi j|^{-2H-1}` and the
    periodogram I, Whittle's estimate minimises :math:`\log \overline{I/f} + \overline{\log f}`; its variance is
    :math:`2 / (n\,\mathrm{Var}_\lambda\,\partial_H \log f)`, times 1.05 for the taper: the increments less their mean
    are multiplied by a window that rises over the first and falls over the last twentieth. Its test of fit compares
    means of I/f in eight bands of frequencies with their mean. The local estimate does the same with
    :math:`f \propto \lambda^{1-2H}` at the first m frequencies; its standard error is
    :math:`1/(2\sqrt m)` for large m. The other methods compare with sampled paths of fractional Brownian motion.

    All but the local estimate assume fractional Brownian motion; ``.fits`` says whether that, ARFIMA(0, d, 0), both or
    none of them fit.

    References
    ----------
    1. J. Beran, "Statistics for Long-Memory Processes", Chapman & Hall, 1994.
    2. J. Istas, G. Lang, "Quadratic variations and estimation of the local Hoelder index of a Gaussian process",
       Ann. Inst. H. Poincare Probab. Statist. 33, 1997; J.-F. Coeurjolly, Stat. Inference Stoch. Process. 4, 2001.
    3. C.-K. Peng et al., "Mosaic organization of DNA nucleotides", Phys. Rev. E 49, 1994.
    4. P. Abry, D. Veitch, "Wavelet analysis of long-range-dependent traffic", IEEE Trans. Inform. Theory 44, 1998.
    5. P. M. Robinson, "Gaussian semiparametric estimation of long range dependence", Ann. Statist. 23, 1995.

    Examples
    --------
    >>> import hpfracc as hf
    >>> found = hf.hurst(hf.fbm(4000, 0.3, rng=1))
    >>> low, high = found.interval
    >>> bool(low < 0.3 < high)
    True
    >>> found.fits.partition(" (")[0]
    'fractional Gaussian noise fits'
    """
    refuse_masked(path, "path")
    values = _reading.numbers("path", path, finite=False)
    if values.ndim < 1 or values.shape[-1] < _MIN_POINTS:
        raise ShapeError(f"path has shape {values.shape}; an estimate needs at least {_MIN_POINTS} values")
    if not np.all(np.isfinite(values)):
        raise InvalidInputError("path has values that are not finite; drop them, or fill them in")
    confidence = _reading.number("confidence", confidence, above=0, below=1)
    _reading.choice("method", method, ("whittle", "noisy_whittle", "local_whittle", *METHODS))
    if frequencies is not None:
        if method != "local_whittle":
            raise InvalidInputError(f"frequencies={frequencies!r} is for method='local_whittle'; got method={method!r}")
        frequencies = _reading.whole("frequencies", frequencies, least=8)
    rows = values.reshape(-1, values.shape[-1])
    steps = rows if increments else np.diff(rows)
    found: tuple[Any, ...]
    if method in METHODS:
        levels = np.cumsum(np.insert(rows, 0, 0.0, -1), -1) if increments else rows
        _refuse_constant(np.diff(levels, 2), levels)
        found = by_scales(method, levels)
    else:
        _refuse_constant(steps - steps.mean(-1, keepdims=True), rows)
        found = tuple(np.array([_whittle(row, method, frequencies)[1:] for row in steps]).T)
    index, error, *more = (np.reshape(column, values.shape[:-1])[()] for column in found)
    width = special.ndtri(0.5 + 0.5 * confidence) * error
    ends = np.maximum(index - width, 0.0), np.minimum(index + width, 1.0)
    estimate = HurstEstimate(index, error, ends, confidence, method, *more)
    return replace(estimate, _increments=steps.reshape(*values.shape[:-1], -1))


def _refuse_constant(changes: np.ndarray, values: np.ndarray) -> None:
    """Raise an error if changes that should be 0 on a line are no larger than the rounding of the values."""
    largest = np.abs(values).max(-1)
    if not np.all(np.sqrt(np.mean(changes**2, -1)) > _ROUNDING * largest):
        raise InvalidInputError("a path is constant or a straight line up to rounding; it has no Hurst index")


class _Density:
    """Logarithms of spectral densities at ``waves``, up to a constant that may depend on H."""

    def __init__(self, waves: np.ndarray) -> None:
        self.waves, turns = waves, waves / (2.0 * math.pi)
        self._logs, self._sine = np.log(turns), np.log(2.0 * np.sin(0.5 * waves) ** 2)
        self._place = 8.0 * turns**2 - 1.0

    def gaussian(self, index: float) -> np.ndarray:
        """That of fractional Gaussian noise.

        The sum over all j except 0 is even in lambda, and in its square a polynomial to rounding: its nearest
        singularity is at four times the largest frequency.
        """
        power = 2.0 * index + 1.0

        def others(place: Any) -> Any:
            turns = np.sqrt((place + 1.0) / 8.0)
            return special.zeta(power, 1.0 + turns) + special.zeta(power, 1.0 - turns)

        total = np.zeros_like(self._place)
        for coefficient in cheb2poly(chebinterpolate(others, _DEGREE))[::-1]:
            total *= self._place
            total += coefficient
        return np.asarray(np.log(total + np.exp(-power * self._logs)) + self._sine)

    def noisy(self, index: float, share: float) -> np.ndarray:
        """That of a sum with the increments of white noise, which has this share of the variance of increments."""
        found = self.gaussian(index)
        if not share:
            return found
        signal, noise = (part / part.mean() for part in (np.exp(found), np.exp(self._sine)))
        return np.asarray(np.log((1.0 - share) * signal + share * noise))

    def arfima(self, index: float) -> np.ndarray:
        """That of ARFIMA(0, d, 0), d = H - 1/2."""
        return (0.5 - index) * self._sine

    def local(self, index: float) -> np.ndarray:
        """That of long memory at low frequencies."""
        return (1.0 - 2.0 * index) * self._logs


def _whittle(steps: np.ndarray, method: str, frequencies: int | None = None) -> tuple[float, ...]:
    """Log-likelihood, index, its standard error, the p-value of the fit, and with noise its standard deviation."""
    n, noisy = steps.size, method == "noisy_whittle"
    count = (n - 1) // 2
    if method == "local_whittle":
        count = min(frequencies or max(int(n**_LOCAL), 8), count)
    waves = 2.0 * math.pi * np.arange(1, count + 1) / n
    taper, end = np.ones(n), round(0.5 * _TAPERED * n)
    taper[:end] = np.sin(0.5 * math.pi * (np.arange(end) + 0.5) / end) ** 2
    taper[n - end :] = taper[:end][::-1]
    power = np.abs(fft.rfft(taper * (steps - steps.mean()))[1 : count + 1]) ** 2

    density = _Density(waves)

    def log_density(point: Any) -> np.ndarray:
        index = float(point[0])
        if method == "local_whittle":
            return density.local(index)
        if method == "arfima":
            return density.arfima(index)
        return density.noisy(index, float(point[1]) if noisy else 0.0)

    def loss(point: Any) -> float:
        logs = log_density(point)
        return float(np.log(np.mean(power * np.exp(-logs))) + np.mean(logs))

    if noisy:
        start = min(((index, share) for index in (0.2, 0.5, 0.8) for share in (0.02, 0.5, 0.95)), key=loss)
        limits = (_BOUNDS, (0.0, 1.0 - 1e-6))
        point = optimize.minimize(loss, start, bounds=limits, method="Nelder-Mead", tol=1e-7).x
    else:
        search = {"bounds": _BOUNDS, "method": "bounded", "options": {"xatol": 1e-6}}
        point = np.array([optimize.minimize_scalar(lambda index: loss((index,)), **search).x])
    slopes = []
    for unit in np.eye(point.size):
        low, high = (np.clip(point + change * unit, 1e-7, 1.0 - 1e-7) for change in (-1e-4, 1e-4))
        slopes.append((log_density(high) - log_density(low)) / np.sum(high - low))
    gradients = np.array(slopes)
    inflation = n * float(np.sum(taper**4) / np.sum(taper**2) ** 2)  # 1 without the taper
    information = np.atleast_2d(np.cov(gradients, bias=True)) * count / inflation
    ratio = power * np.exp(-log_density(point))
    error = math.sqrt(np.linalg.inv(information)[0, 0])
    chance = _band_test(ratio / ratio.mean(), gradients, inflation)
    result = -count / inflation * loss(point), float(point[0]), error, chance
    return (*result, math.sqrt(0.5 * float(point[1] * np.var(steps)))) if noisy else result


def _which_fits(steps: np.ndarray) -> str:
    """One line about the models that fit the increments."""
    names = {"whittle": "fractional Gaussian noise", "arfima": "ARFIMA(0, d, 0)"}
    found = {name: _whittle(steps, method) for method, name in names.items()}
    best = max(likelihood for likelihood, *_ in found.values())
    ratio = {name: math.exp(likelihood - best) for name, (likelihood, *_) in found.items()}
    good = [name for name, (*_, chance) in found.items() if min(chance, ratio[name]) >= _REJECTED]
    numbers = ", ".join(f"{name}: p = {found[name][-1]:.2g}, likelihood {ratio[name]:.2g}" for name in found)
    what = f"{' and '.join(good)} fit{'s' * (len(good) == 1)}" if good else "neither model fits"
    return f"{what} ({numbers})"


def _band_test(ratio: np.ndarray, gradients: np.ndarray, inflation: float) -> float:
    """Probability of means of ``ratio``, which are exponential numbers, in bands of frequencies as far from 1.

    Parameters
    ----------
    ratio : ndarray
        Periodogram over the fitted density, with mean 1.
    gradients : ndarray, shape (parameters, frequencies)
        Derivatives of the logarithm of the density, along which the fit has made the ratio as close to 1 as it can.
    inflation : float
        Variance of means because of the taper, relative to that of independent numbers.
    """
    edges = np.unique(np.geomspace(min(8, ratio.size // 2), ratio.size, _BANDS).astype(int))
    starts = np.append(0, edges[:-1])
    sizes = np.diff(np.append(starts, ratio.size))
    columns = np.concatenate([np.ones((1, ratio.size)), gradients, ratio[None] - 1.0])
    means = np.add.reduceat(columns, starts, axis=1) / sizes
    # In units of standard deviations, less what scale and parameters can absorb.
    scaled = means * np.sqrt(sizes / inflation)
    design, values = scaled[:-1].T, scaled[-1]
    left = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return float(special.chdtrc(sizes.size - len(design.T), left @ left))


#: Sampled paths and their seed, and the longest of them: for longer ones covariances are divided by the length.
_PATHS, _SEED, _LONGEST = 200, 20_240_229, 4096
#: Paths are sampled at multiples of this index, up to the last; an estimate is repeated with those of a closer one.
_GRID, _LAST, _ROUNDS = 0.02, 49, 6
#: Steps over which second differences are taken.
_DILATIONS = (1, 2, 3, 4)
#: Daubechies' filter with three vanishing moments: polynomials up to the second degree have no energy.
_LOW_PASS = np.array([0.33267055295008263, 0.8068915093110925, 0.4598775021184916, -0.13501102001025458, 0.0, 0.0])
_LOW_PASS[4:] = -0.08544127388202666, 0.035226291882100656
_HIGH_PASS = _LOW_PASS[::-1] * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
#: Fewest pieces or coefficients at the longest scale, and the number of scales of detrended fluctuations.
_FEWEST, _SCALES = 12, 8

#: Logarithms of the energies of the rows, shape ``(rows, scales)``, and of the scales, for paths as long as the last.
_Energies = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def _variations(levels: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of second differences."""
    found = []
    for m in _DILATIONS:
        second = levels[:, 2 * m :] - 2.0 * levels[:, m:-m] + levels[:, : -2 * m]
        found.append(np.mean(second**2, -1))
    return np.log(np.stack(found, -1)), np.log(_DILATIONS)


def _fluctuations(levels: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of what is left of pieces without their linear trend."""
    scales = np.unique(np.geomspace(6.0, max(12.0, longest / _FEWEST), _SCALES).astype(int))
    found = []
    for s in scales.tolist():
        pieces = levels[:, : levels.shape[-1] // s * s].reshape(len(levels), -1, s)
        pieces = pieces - pieces[:, :, :1]
        basis = np.linalg.qr(np.stack([np.ones(s), np.arange(s)], -1))[0]
        left = pieces - (pieces @ basis) @ basis.T
        found.append(np.mean(left**2, (1, 2)))
    return np.log(np.stack(found, -1)), np.log(scales)


def _octaves(levels: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of wavelet coefficients, divided by the scale."""
    found, rest, octave = [], levels, 0
    while longest / 2.0 ** (octave + 1) >= _FEWEST + _LOW_PASS.size:
        octave += 1
        pieces = np.lib.stride_tricks.sliding_window_view(rest, _LOW_PASS.size, -1)[:, ::2]
        found.append(np.mean((pieces @ _HIGH_PASS) ** 2, -1) / 2.0**octave)
        rest = pieces @ _LOW_PASS
    return np.log(np.stack(found, -1)), math.log(2.0) * np.arange(1, octave + 1)


METHODS: dict[str, _Energies] = {"variations": _variations, "dfa": _fluctuations, "wavelets": _octaves}
#: Fewest points of a path.
_POINTS = {"variations": 32, "dfa": 128, "wavelets": 144}


def by_scales(method: str, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hurst indices of the rows, their standard errors, and the probabilities of residuals as large as theirs."""
    n = levels.shape[-1]
    if n < _POINTS[method]:
        raise ShapeError(f"path has {n} values; method={method!r} needs at least {_POINTS[method]}")
    logs, scales = METHODS[method](levels, min(n, _LONGEST))
    slope = np.polyfit(scales, logs.T, 1)[0] / 2.0
    rows = []
    for energies, index in zip(logs, slope.tolist(), strict=True):
        for _ in range(_ROUNDS):
            place = min(max(round(index / _GRID), 1), _LAST)
            index, error, chance = _fit(method, n, place, energies)
            if abs(index - place * _GRID) <= _GRID:
                break
        rows.append((min(max(index, _BOUNDS[0]), _BOUNDS[1]), error, chance))
    index, error, chance = np.array(rows).T
    return index, error, chance


def _fit(method: str, n: int, place: int, energies: np.ndarray) -> tuple[float, float, float]:
    """Generalised least squares with the law of the index ``place * _GRID`` and its slope there."""
    mean, covariance = _law(method, min(n, _LONGEST), place)
    ends = max(place - 1, 1), min(place + 1, _LAST)
    low, high = (_law(method, min(n, _LONGEST), end)[0] for end in ends)
    # The mean of the samples has an error too.
    covariance = covariance * (min(n, _LONGEST) / n + 1.0 / _PATHS)
    design = np.stack([np.ones(mean.size), (high - low) / ((ends[1] - ends[0]) * _GRID)], -1)
    weighted = np.linalg.solve(covariance, design)
    precision = design.T @ weighted
    change = np.linalg.solve(precision, weighted.T @ (energies - mean))
    left = energies - mean - design @ change
    freedom = mean.size - 2
    square = float(left @ np.linalg.solve(covariance, left))
    ratio = square * (_PATHS - freedom) / ((_PATHS - 1) * freedom)
    # The sampled covariance makes errors too small by this factor on average.
    error = math.sqrt(np.linalg.inv(precision)[1, 1] * (_PATHS - 1) / (_PATHS - freedom - 2))
    return place * _GRID + float(change[1]), error, float(special.fdtrc(freedom, _PATHS - freedom, ratio))


@lru_cache(maxsize=128)
def _law(method: str, n: int, place: int) -> tuple[Any, Any]:
    """Mean and covariance of the logarithms of energies of fractional Brownian motion with n points."""
    paths = fbm(n - 1, place * _GRID, size=_PATHS, rng=_SEED, T=float(n - 1))
    logs, _ = METHODS[method](paths, n)
    return logs.mean(0), np.cov(logs.T)
