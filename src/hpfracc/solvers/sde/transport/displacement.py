"""Mean squared displacement, its exponent with a confidence interval, and ergodicity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats

from hpfracc import _reading
from hpfracc._arrays import library_of, to_host
from hpfracc._results import new_axes
from hpfracc.errors import InvalidInputError, ShapeError, warn
from hpfracc.solvers.sde.noise.process import read_grid

if TYPE_CHECKING:
    from hpfracc._results import Axes

#: Number of lags of time averages, and maximum number of lags in the fit.
_LAGS = 40
#: Largest lag of time averages as a fraction of the path; beyond it few independent pieces remain.
_SHARE = 0.1
#: Maximum number of squared displacements in memory.
_MAX_VALUES = 1 << 20
#: A constant beside the power law is told from this number of its standard errors on.
_OFFSET = 5.0


@dataclass(frozen=True, repr=False, eq=False)
class MeanSquaredDisplacement:
    r"""Mean squared displacement over lags, with the power law :math:`C\,t^\gamma` that fits it.

    Attributes
    ----------
    lags : ndarray, shape (k,)
        Times since the start (``kind="ensemble"``), or lags (``"time"``).
    value : ndarray, shape (k,)
        Mean over the paths.
    standard_error : ndarray, shape (k,)
        Its standard error; nan for a single path.
    exponent : float
        The exponent :math:`\gamma` of the fit: 1 is normal diffusion, less is subdiffusion.
    interval : tuple of float
        Confidence interval of the exponent; nan for a single path.
    confidence : float
        The probability with which the interval covers the exponent of the mean.
    coefficient : float
        The factor C of the fit.
    fitted : tuple of float
        First and last lag of the fit.
    kind : str
        ``"ensemble"`` or ``"time"``.
    ergodicity_breaking : ndarray, shape (k,), or None
        With ``kind="time"``: :math:`\mathrm{Var}\,\overline{\delta^2} / (E\,\overline{\delta^2})^2` over the paths,
        which vanishes for long paths of an ergodic process.
    single : ndarray, shape (paths, k), or None
        With ``kind="time"``: the time averages of the single paths.
    paths : int
        Number of paths.
    """

    lags: np.ndarray
    value: np.ndarray
    standard_error: np.ndarray
    exponent: float
    interval: tuple[float, float]
    confidence: float
    coefficient: float
    fitted: tuple[float, float]
    kind: str
    ergodicity_breaking: np.ndarray | None
    single: np.ndarray | None
    paths: int

    def plot(self, *, ax: Axes | None = None, most: int = 30, **style: Any) -> Axes:
        """Plot the mean squared displacement on logarithmic axes, with error bars and the fitted power law.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes for the plot; new ones by default.
        most : int
            Maximum number of single time averages in the plot.
        **style
            Style of the points, for ``Axes.errorbar``.

        Returns
        -------
        matplotlib.axes.Axes
        """
        ax = new_axes(ax)
        if self.single is not None and self.paths > 1:
            ax.plot(self.lags, self.single[:most].T, color="0.75", linewidth=0.6, zorder=1)
        # A subset of many points, evenly spaced on the axis.
        shown = _spread(self.lags, 25) if self.lags.size > _LAGS else np.arange(self.lags.size)
        errors = 2.0 * np.nan_to_num(self.standard_error[shown])
        bars = ax.errorbar(
            self.lags[shown],
            self.value[shown],
            np.minimum(errors, 0.9 * self.value[shown]),
            **{"fmt": "o", "markersize": 4, "capsize": 2, "label": "mean, two standard errors", **style},
        )
        ends = np.array(self.fitted)
        low, high = self.interval
        words = rf"$t^{{{self.exponent:.3f}}}$"
        if math.isfinite(low):
            words += f", {self.confidence:.0%} between {low:.3f} and {high:.3f}"
        line: dict[str, Any] = {"color": "black", "linewidth": 1.2, "zorder": 3, "label": words}
        ax.plot(ends, self.coefficient * ends**self.exponent, **line)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("lag" if self.kind == "time" else "time t")
        ax.set_ylabel("mean squared displacement")
        ax.grid(alpha=0.25)
        ax.legend(handles=[bars, ax.lines[-1]], frameon=False)
        return ax

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"MeanSquaredDisplacement(kind={self.kind!r}, paths={self.paths:,}, exponent={self.exponent:.4g}, "
            f"interval=({low:.4g}, {high:.4g}), coefficient={self.coefficient:.4g})"
        )


def msd(
    paths: Any,
    t: Any,
    *,
    kind: Literal["ensemble", "time"] = "ensemble",
    fit: tuple[float, float] | None = None,
    confidence: float = 0.95,
) -> MeanSquaredDisplacement:
    r"""Mean squared displacement of paths, with its exponent.

    .. math:: \text{ensemble: } m(t) = E\,|x(t) - x(t_0)|^2, \qquad
        \text{time: } \overline{\delta^2}(\Delta) = \frac{1}{T - \Delta} \int_0^{T-\Delta} |x(s+\Delta) - x(s)|^2\,ds.

    Parameters
    ----------
    paths : array_like, shape (..., n) or (paths, d, n)
        Positions at the times ``t``. Three axes are paths, components and time, as of :func:`hpfracc.solve_fsde`.
        Tensors are copied to the host; the result is in NumPy. nan is a gap: displacements from or to it are left out,
        and every mean is over those that are there.
    t : array_like, shape (n,)
        Increasing times; equally spaced for time averages.
    kind : {"ensemble", "time"}
        Average over the paths of displacements since the first time, or over time for each path. Time averages are
        computed at about 40 lags, up to a tenth of the path.
    fit : tuple of float, optional
        First and last lag of the fit; by default all of them.
    confidence : float
        Probability of the interval.

    Returns
    -------
    MeanSquaredDisplacement
        ``.value`` with ``.standard_error``, ``.exponent`` with ``.interval``, ``.ergodicity_breaking``, ``.plot()``.

    Warns
    -----
    AccuracyWarning
        If the mean squared displacement is better fitted by a power law and a constant, as localisation errors cause:
        the exponent is then too small, and :func:`~hpfracc.transport.fit_tracks` is for such paths.

    Notes
    -----
    The exponent is the slope of a line fitted to the logarithms at up to 40 lags, evenly spaced in the logarithm of
    time. Values at different lags come from the same paths and are far from independent, so the interval is not that of
    the regression: it comes from the slopes without one path each (jackknife [1]) and Student's t. It covers the slope
    of the mean squared displacement over the fitted lags; if that is a power law only at late times, choose ``fit=``.
    The mean squared displacement of Levy flights is infinite, which no sample can show. Time averages of subdiffusive
    walks grow linearly and stay random for paths of any length [2].

    References
    ----------
    1. B. Efron, C. Stein, "The jackknife estimate of variance", Ann. Statist. 9, 1981.
    2. Y. He, S. Burov, R. Metzler, E. Barkai, "Random time-scale invariant diffusion and transport coefficients", Phys.
       Rev. Lett. 101, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> found = hf.transport.msd(hf.fbm(200, 0.3, size=2000, rng=1), np.linspace(0, 1, 201))
    >>> low, high = found.interval
    >>> bool(low < 0.6 < high)
    True
    """
    grid = read_grid(t)
    rows = _reading.numbers("paths", paths if library_of(paths) == "python" else to_host(paths), finite=False)
    if rows.ndim < 1 or rows.shape[-1] != grid.times.size or rows.size == 0:
        raise ShapeError(f"paths has shape {rows.shape} for {grid.times.size:,} times; time is the last axis")
    rows = rows if rows.ndim == 3 else rows.reshape(-1, 1, rows.shape[-1])
    if grid.times.size < 3:
        raise ShapeError(f"{grid.times.size} times are too few for an exponent; give 3 or more")
    if np.any(np.isinf(rows)):
        raise InvalidInputError("paths has infinite values; drop those paths, or put nan for a gap")
    confidence = _reading.number("confidence", confidence, above=0, below=1)
    _reading.choice("kind", kind, ("ensemble", "time"))
    if kind == "time":
        lags, squares = _time_averages(rows, grid.times)
        value, error = _mean_and_error(squares)
    else:
        lags = grid.times[1:] - grid.times[0]
        value, error = _ensemble(rows)
        squares = None
    chosen = _chosen(lags, value, fit)
    sampled = squares[:, chosen] if squares is not None else _squares(rows, chosen + 1)
    exponent, coefficient, spread = _power_law(lags[chosen], sampled)
    count, fitted = rows.shape[0], (float(lags[chosen[0]]), float(lags[chosen[-1]]))
    offset, error_of_offset = _offset(lags[chosen], sampled)
    if offset > _OFFSET * error_of_offset and np.ptp(np.diff(grid.times)) < 1e-6 * grid.times[-1]:
        sigma = math.sqrt(0.5 * offset / rows.shape[1])
        warn(
            f"a power law and a constant of {offset:.3g} (standard error {error_of_offset:.2g}) fit better than the "
            f"power law with the exponent {exponent:.3g}, as a localisation error of {sigma:.2g} would cause: "
            "transport.fit_tracks(paths, step) fits both"
        )
    half = float(stats.t.ppf(0.5 + 0.5 * confidence, max(count - 1, 1))) * spread
    fit_of_mean = exponent, (exponent - half, exponent + half), confidence, coefficient, fitted
    breaking = None
    if squares is not None:
        # The squared standard error is the variance over the number of paths with a value.
        breaking = error**2 * np.count_nonzero(~np.isnan(squares), axis=0) / value**2
    return MeanSquaredDisplacement(lags, value, error, *fit_of_mean, kind, breaking, squares, count)


def _spread(lags: np.ndarray, count: int) -> np.ndarray:
    """Indices of lags, evenly spaced in their logarithm."""
    goals = np.geomspace(lags[0], lags[-1], count)
    return np.unique(np.clip(np.searchsorted(lags, goals * (1.0 - 1e-9)), 0, lags.size - 1))


def _chosen(lags: np.ndarray, value: np.ndarray, fit: tuple[float, float] | None) -> np.ndarray:
    """Indices of the lags in the fit."""
    inside = np.arange(lags.size)
    if fit is not None:
        low, high = _reading.pair("fit", fit, infinite=True)
        inside = np.flatnonzero((lags >= low * (1.0 - 1e-12)) & (lags <= high * (1.0 + 1e-12)))
        if inside.size < 2:
            raise InvalidInputError(
                f"fit={fit!r} contains {inside.size} of the lags from {lags[0]:g} to {lags[-1]:g}; a slope "
                "needs two or more"
            )
    chosen = inside[_spread(lags[inside], _LAGS)]
    if np.any(np.isnan(value[chosen])):
        raise InvalidInputError(
            f"no path has values {lags[chosen[np.isnan(value[chosen])][0]]:g} apart because of its gaps; choose other "
            "lags with fit=, or drop paths without a first value"
        )
    still = np.flatnonzero(value[chosen] <= 0.0)
    if still.size:
        raise InvalidInputError(
            f"no path has moved at the lag {lags[chosen[still[-1]]]:g}, so there is no power law; start the fit "
            "later with fit="
        )
    return np.asarray(chosen)


def _squares(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Squared displacements since the first time, shape ``(paths, times)``."""
    moved = rows[:, :, places] - rows[:, :, :1]
    return np.asarray(np.einsum("pdk,pdk->pk", moved, moved))


def _ensemble(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error at every time after the first, with bounded memory."""
    n = rows.shape[-1]
    value, error = np.empty(n - 1), np.empty(n - 1)
    width = max(1, _MAX_VALUES // max(1, rows.shape[0] * rows.shape[1]))
    for low in range(1, n, width):
        places = np.arange(low, min(n, low + width))
        value[places - 1], error[places - 1] = _mean_and_error(_squares(rows, places))
    return value, error


def _present(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sums without nan, and the numbers of terms."""
    there = ~np.isnan(values)
    return np.sum(values, axis, where=there), np.count_nonzero(there, axis)


def _mean_and_error(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(invalid="ignore", divide="ignore"):  # nan for the means of nothing and the error of one path
        total, count = _present(squares)
        mean = total / count
        deviations, _ = _present((squares - mean) ** 2)
        return mean, np.sqrt(deviations / np.where(count > 1, count - 1, np.nan) / count)


def _time_averages(rows: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lags, and the time averages of each path at them."""
    steps = np.diff(times)
    step = float((times[-1] - times[0]) / steps.size)
    if not np.allclose(steps, step, rtol=1e-9, atol=0.0):
        raise InvalidInputError("time averages need equally spaced times; use kind='ensemble', or interpolate")
    last = max(2, int(_SHARE * steps.size))
    lags = np.unique(np.round(np.geomspace(1.0, last, _LAGS)).astype(np.intp))
    result = np.empty((rows.shape[0], lags.size))
    together = max(1, _MAX_VALUES // (rows.shape[1] * rows.shape[2]))
    for low in range(0, rows.shape[0], together):
        part = rows[low : low + together]
        for column, lag in enumerate(lags):
            moved = part[:, :, lag:] - part[:, :, :-lag]
            total, count = _present(np.einsum("pdk,pdk->pk", moved, moved), -1)
            result[low : low + together, column] = total / np.where(count, count, np.nan)
    return lags * step, result


def _offset(lags: np.ndarray, squares: np.ndarray) -> tuple[float, float]:
    """The constant of the best ``C t^a + b``, and its standard error, from groups of paths; nan with few of them."""
    groups = min(len(squares), 20)
    if groups < 8 or lags.size < 4:
        return math.nan, math.nan
    total, there = (np.stack(part) for part in zip(*(_present(squares[k::groups]) for k in range(groups)), strict=True))
    # All means, and those without one group, relative to the mean.
    means = np.concatenate([[total.sum(0) / there.sum(0)], (total.sum(0) - total) / (there.sum(0) - there)])
    # Relative least squares in C and b for each exponent, from the sums of the normal equations.
    powers, weights = (lags / lags[0]) ** np.linspace(0.02, 2.0, 100)[:, np.newaxis], means**-2
    both, mixed, alone = powers**2 @ weights.T, powers @ weights.T, weights.sum(axis=1)
    first, second = powers @ (1.0 / means).T, (1.0 / means).sum(axis=1)
    scale = both * alone - mixed**2
    factor, constant = (first * alone - mixed * second) / scale, (both * second - mixed * first) / scale
    best = np.argmax(factor * first + constant * second, axis=0)
    found = constant[best, np.arange(groups + 1)]
    return float(found[0]), float(np.sqrt((groups - 1) / groups * np.sum((found[1:] - found[1:].mean()) ** 2)))


def _power_law(lags: np.ndarray, squares: np.ndarray) -> tuple[float, float, float]:
    """Exponent and coefficient of the fit, and the jackknife's standard error of the exponent."""
    x = np.log(lags)
    centred = x - x.mean()
    weights = centred / np.sum(centred**2)
    (total, there), count = _present(squares), squares.shape[0]
    logarithm = np.log(total / there)
    exponent = float(weights @ logarithm)
    coefficient = math.exp(float(logarithm.mean() - exponent * x.mean()))
    if count < 2:
        return exponent, coefficient, math.nan
    rest = total - np.nan_to_num(squares)
    if np.any(rest <= 0.0):  # one path makes up the whole mean
        return exponent, coefficient, math.nan
    slopes = np.log(rest / (there - ~np.isnan(squares))) @ weights
    return exponent, coefficient, float(math.sqrt((count - 1) / count * np.sum((slopes - slopes.mean()) ** 2)))
