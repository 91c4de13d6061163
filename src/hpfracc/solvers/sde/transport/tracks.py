"""Exponent, diffusion coefficient and localisation error of tracks, by the exact likelihood of their increments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from scipy import special
from scipy.interpolate import make_interp_spline

from hpfracc import _reading
from hpfracc._arrays import library_of, to_host
from hpfracc.errors import InvalidInputError, ShapeError, warn
from hpfracc.solvers.sde.transport.track_likelihood import Group, grouped, increments, likelihood

Array = np.ndarray[Any, Any]

#: First grids: exponents, shares of the noise in the variance of an increment, and of confinement, ``c/(1+c)``.
_ALPHA, _SHARE = np.linspace(0.02, 1.98, 29), 1.0 - np.linspace(1.0, 0.05, 17) ** 2
_BOUND = np.concatenate([[0.0], np.geomspace(1e-4, 0.9, 9)])
#: Levels at which intervals are kept, as numbers of standard deviations.
_LEVELS = np.linspace(0.0, 3.3, 12)
#: Largest number of further grids, their points on an axis, and the points at which they are interpolated, by the
#: number of axes.
_ZOOMS, _POINTS, _FINE = 16, {1: 25, 2: 15, 3: 11}, {1: 2001, 2: 161, 3: 61}
#: Cells of a grid that a region of likely values covers at least.
_CELLS = 6
#: Tracks are cut into pieces of this number of increments to find where the likelihood is large.
_PIECE = 400
_LEAST = 5
#: Logarithms y, and the roots of e^y - 1 - y and e^-y - 1 + y.
_LOGARITHM = np.linspace(0.0, 12.0, 4001)
_RISE = np.sqrt(np.expm1(_LOGARITHM) - _LOGARITHM), np.sqrt(np.expm1(-_LOGARITHM) + _LOGARITHM)


class Estimate(float):
    """A number with its uncertainty, from the profile of the likelihood."""

    _low: Array
    _high: Array

    @classmethod
    def made(cls, value: float, low: Array, high: Array) -> Estimate:
        """From the ends of intervals of 0, 0.3, ... 3.3 standard deviations."""
        found = cls(value)
        found._low, found._high = low, high
        return found

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Interval that covers the true value with this probability, at most 0.999."""
        size = -float(special.ndtri(0.5 - 0.5 * _reading.number("level", level, above=0.0, most=0.999)))
        with np.errstate(invalid="ignore"):
            low, high = (float(np.interp(size, _LEVELS, each)) for each in (self._low, self._high))
        return low, high if math.isfinite(high) else math.inf

    def __repr__(self) -> str:
        return f"{float(self):.6g} ({self.interval()[0]:.4g} to {self.interval()[1]:.4g})"


@dataclass(frozen=True, slots=True)
class TrackFit:
    r"""Fitted fractional Brownian motion with localisation errors.

    Attributes
    ----------
    alpha : Estimate
        The exponent of the mean squared displacement.
    K : Estimate
        The diffusion coefficient: :math:`2 K t^\alpha` is the mean squared displacement of one component.
    sigma : Estimate
        Standard deviation of the localisation error of one component.
    plateau : Estimate or None
        Mean squared displacement of one component after long times, with ``confined=True``; ``inf`` without bound.
    log_likelihood : float
        Its maximum, of the increments.
    tracks, increments : int
        Number of tracks, and of numbers that were fitted.
    message : str
        What the tracks do not determine.
    """

    alpha: Estimate
    K: Estimate
    sigma: Estimate
    plateau: Estimate | None
    log_likelihood: float
    tracks: int
    increments: int
    message: str


@overload
def fit_tracks(
    paths: Any, step: float, *, exposure: float = 0.0, noise: bool = True, drift: bool = False, confined: bool = False,
    each: Literal[False] = False,
) -> TrackFit: ...  # fmt: skip
@overload
def fit_tracks(
    paths: Any, step: float, *, exposure: float = 0.0, noise: bool = True, drift: bool = False, confined: bool = False,
    each: Literal[True],
) -> list[TrackFit]: ...  # fmt: skip
@_reading.corrects_keywords
def fit_tracks(
    paths: Any, step: float, *, exposure: float = 0.0, noise: bool = True, drift: bool = False, confined: bool = False,
    each: bool = False,
) -> TrackFit | list[TrackFit]:  # fmt: skip
    r"""Fit anomalous diffusion with localisation errors and motion blur to tracks.

    A component is fractional Brownian motion, averaged while the shutter is open, with independent errors:

    .. math:: x_j = \frac1E \int_0^E B(jh - s)\,ds + \sigma z_j, \qquad E\,(B(t) - B(0))^2 = 2 K t^\alpha.

    Parameters
    ----------
    paths : array_like, shape (n,), (tracks, n) or (tracks, d, n), or a list of (n,) or (d, n)
        Positions, time last; tracks of a list may have different lengths. nan is a gap.
    step : float
        Time h between positions.
    exposure : float
        Time E during which the shutter is open, at most ``step``.
    noise : bool
        Whether there is a localisation error; otherwise ``sigma`` is 0.
    drift : bool
        Whether each track has a constant velocity of its own, of any size.
    confined : bool
        Whether the motion is bounded: its mean squared displacement is :math:`P (1 - e^{-2Kt^\alpha/P})` with the
        plateau P, which is the harmonic trap for :math:`\alpha = 1`.
    each : bool
        Whether each track has values of its own; otherwise all share them.

    Returns
    -------
    TrackFit, or a list of them
        ``.alpha``, ``.K`` and ``.sigma`` are floats with ``.interval(0.95)``.

    Warns
    -----
    AccuracyWarning
        If the tracks do not determine the exponent.

    Notes
    -----
    The likelihood of the increments is exact: their covariance [1] is a Toeplitz matrix, inverted by the recursion of
    Durbin and the formula of Gohberg and Semencul. Missing positions and drift are integrated out. An interval has the
    values whose profile likelihood ratio is below the quantile; it ends at a bound where the data allow it. Intervals
    hold for Gaussian motion: for others, such as :class:`~hpfracc.transport.ContinuousTimeRandomWalk`, the values
    describe the covariance, and the intervals are too short. How often they cover was measured on tracks of 30 to 1,000
    positions.

    References
    ----------
    1. M. P. Backlund, R. Joyner, W. E. Moerner, "Chromosomal locus tracking with proper accounting of static and
       dynamic errors", Phys. Rev. E 91, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> paths = 10 * hf.fbm(100, 0.3, size=50, rng=1)
    >>> seen = paths + np.random.default_rng(1).normal(0.0, 1.0, paths.shape)
    >>> fit = hf.transport.fit_tracks(seen, 0.01)
    >>> low, high = fit.alpha.interval(0.95)
    >>> bool(low < 0.6 < high), bool(abs(fit.sigma - 1.0) < 0.2)
    (True, True)
    """
    step = _reading.number("step", step, above=0.0)
    blur = _reading.number("exposure", exposure, least=0.0, most=step) / step
    flags = {"noise": noise, "drift": drift, "confined": confined, "each": each}
    noise, drift, confined, each = (_reading.flag(name, value) for name, value in flags.items())
    tracks = _read_tracks(paths)
    fitter = _Fitter(noise, confined, step, blur, drift)
    if each:
        tables = fitter.tables(grouped(tracks, drift, _PIECE, True), fitter.grid, len(tracks))
        fits = [fitter.fit([track], table) for track, table in zip(tracks, tables, strict=True)]
    else:
        fits = [fitter.fit(tracks)]
    for message in dict.fromkeys(fit.message for fit in fits if fit.message):
        warn(message)
    return fits if each else fits[0]


def _read_tracks(paths: Any) -> list[Array]:
    """Tracks of shape (d, n), without gaps at their ends, in units of their largest distance."""
    if isinstance(paths, list | tuple) and paths and np.ndim(paths[0]):
        given = [_reading.numbers(f"track {k}", to_host(track), finite=False) for k, track in enumerate(paths)]
    else:
        rows = _reading.numbers("paths", paths if library_of(paths) == "python" else to_host(paths), finite=False)
        given = list(rows) if rows.ndim > 1 else [rows]
    tracks = []
    for k, track in enumerate(given):
        if track.ndim not in (1, 2):
            raise ShapeError(f"track {k} has shape {track.shape}; give (n,) or (d, n), time last")
        track = np.atleast_2d(track)
        if np.isinf(track).any():
            raise InvalidInputError(f"track {k} has an infinite position; put nan for a gap")
        there = np.flatnonzero(~np.isnan(track).any(axis=0))
        if there.size < _LEAST:
            raise InvalidInputError(
                f"track {k} has {there.size} positions of {track.shape[1]}; leave out tracks of fewer than {_LEAST}"
                + (", or transpose: time is the last axis" if track.shape[0] > track.shape[1] else "")
            )
        tracks.append(track[:, there[0] : there[-1] + 1])
    if not tracks:
        raise InvalidInputError("paths has no tracks; give at least one")
    if len({len(track) for track in tracks}) > 1:
        raise ShapeError("the tracks differ in their number of components; fit those of equal dimension together")
    return tracks


# -- the fit ----------------------------------------------------------------------------------------------------------


class _Grid(NamedTuple):
    """Exponents (A,), shares of the noise for each (A, S), and bounds (B,).

    Between exponents it is interpolated, for which the ranges of the shares have to be smooth in the exponent.
    """

    alpha: Array
    share: Array
    bound: Array
    smooth: bool = False

    def points(self) -> tuple[Array, Array, Array]:
        """All coordinates on the grid (A, S, B)."""
        alpha, share, bound = np.broadcast_arrays(
            self.alpha[:, np.newaxis, np.newaxis], self.share[:, :, np.newaxis], self.bound
        )
        return alpha, share, bound

    def zoomed(self, table: Array, drop: float) -> tuple[_Grid, bool]:
        """The grid around likely places, and whether this one is fine enough there."""
        rows = table.max(axis=2)
        peaks = rows.max(axis=1)
        # Smooth ranges are wider than each row needs.
        cells = _CELLS // 2 if self.smooth else _CELLS
        low, high, closed = _around(rows > peaks[:, np.newaxis] - drop, self.share, 0.0, _SHARE[-1], cells)
        fine = closed | (peaks < table.max() - 5.0 * drop) | (self.share.shape[1] == 1)
        count = _POINTS[1 + (self.share.shape[1] > 1) + (self.bound.size > 1)]
        shares = np.linspace(0.0, 1.0, count if self.share.shape[1] > 1 else 1)
        if not fine.all():  # the ridge may be between the points
            return self._replace(share=low[:, np.newaxis] + np.outer(high - low, shares), smooth=False), False
        first, last, done = _around((peaks > table.max() - drop)[np.newaxis], self.alpha[np.newaxis], *_ALPHA[[0, -1]])
        bound = self.bound
        if bound.size > 1:
            likely = (table.max(axis=(0, 1)) > table.max() - drop)[np.newaxis]
            start, end, sure = _around(likely, bound[np.newaxis], 0.0, _BOUND[-1])
            done &= sure
            bound = np.linspace(start[0], end[0], count)
        if done[0] and (self.smooth or self.share.shape[1] == 1):
            return self, True
        alpha = np.linspace(first[0], last[0], count)
        kept = np.flatnonzero((self.alpha >= first[0]) & (self.alpha <= last[0]) & (peaks > table.max() - 5.0 * drop))
        ends = []
        for values, side in ((low, -1.0), (high, 1.0)):  # smooth in the exponent, and no narrower
            line = np.polynomial.Polynomial.fit(self.alpha[kept], values[kept], min(3, kept.size - 1))
            ends.append(line(alpha) + side * np.max(side * (values[kept] - line(self.alpha[kept]))))
        low, high = (np.clip(each, 0.0, _SHARE[-1]) for each in ends)
        return _Grid(alpha, low[:, np.newaxis] + np.outer(high - low, shares), bound, smooth=True), False


def _around(likely: Array, axes: Array, least: float, most: float, cells: int = _CELLS) -> tuple[Array, Array, Array]:
    """Ends of the likely part of each axis, a cell wider, and whether these are within it, several cells apart."""
    size, rows = likely.shape[1], np.arange(len(likely))
    first, last = np.argmax(likely, axis=1), size - 1 - np.argmax(likely[:, ::-1], axis=1)
    width = axes[:, -1] - axes[:, 0]
    open_low, open_high = (first == 0) & (axes[:, 0] > least), (last == size - 1) & (axes[:, -1] < most)
    low = np.where(open_low, axes[:, 0] - width, axes[rows, np.maximum(first - 1, 0)])
    high = np.where(open_high, axes[:, -1] + width, axes[rows, np.minimum(last + 1, size - 1)])
    return np.maximum(low, least), np.minimum(high, most), ~open_low & ~open_high & (last - first >= cells)


class _Fitter:
    """Fits to tracks on grids of the same kind."""

    def __init__(self, noise: bool, confined: bool, step: float, blur: float, drift: bool) -> None:
        share, bound = _SHARE if noise else np.zeros(1), _BOUND if confined else np.zeros(1)
        self.grid = _Grid(_ALPHA, np.tile(share, (_ALPHA.size, 1)), bound)
        self.step, self.blur, self.drift, self.sizes = step, blur, drift, 1 + noise + confined

    def tables(self, groups: Sequence[Group], grid: _Grid, fits: int = 1) -> Any:
        """Log-likelihoods and variances on a grid, for each fit."""
        points = np.stack(grid.points())
        found = likelihood(groups, points.reshape(3, -1), self.blur, fits)
        return np.stack(found, axis=1).reshape(fits, 2, *points.shape[1:])

    def fit(self, tracks: Sequence[Array], start: Any = None) -> TrackFit:
        """One fit; ``start`` are the first tables, if they are known."""
        grid, exact = self.grid, grouped(tracks, self.drift)
        count = round(sum(g.repeats * (g.rows.size - (g.own >= 0).sum()) for g in exact))
        if count < 4 or not any(group.rows.any() for group in exact):
            raise InvalidInputError(
                "the tracks do not move, or have too few steps beside gaps and drift; give longer ones"
            )
        long = max(track.shape[1] for track in tracks) > _PIECE + 1
        groups = grouped(tracks, self.drift, _PIECE) if long else exact
        # Student's quantiles for the logarithm of a variance.
        free = max(count - 1 - self.sizes, 1)
        drops = 0.5 * count * np.log1p(special.stdtrit(free, special.ndtr(_LEVELS)) ** 2 / free)
        for number in range(_ZOOMS):
            table, variances = self.tables(groups, grid)[0] if start is None else start
            following, done = grid.zoomed(table, drops[-1] + 1.0)
            late = number - _ZOOMS + 2
            if (groups is exact and (done or (late >= 0 and grid.smooth))) or late == 1:
                break
            grid, groups, start = following, exact if done else groups, None
        table, variances = np.maximum(table, table.max() - 10.0 * drops[-1]), np.log(variances)
        axes, share = (grid.alpha, np.linspace(0.0, 1.0, grid.share.shape[1]), grid.bound), grid.share
        if share is self.grid.share:
            axes = grid.alpha, _SHARE, grid.bound
        fine = [x if x.size == 1 else np.linspace(x[0], x[-1], _FINE[self.sizes]) for x in axes]
        for k, (axis, more) in enumerate(zip(axes, fine, strict=True)):
            if axis.size > 1:
                table, variances = (make_interp_spline(axis, each, 3, axis=k)(more) for each in (table, variances))
                share = make_interp_spline(axis, share, min(3, axis.size - 1), axis=k)(more) if k < 2 else share
        finer = _Grid(fine[0], np.clip(share, 0.0, 1.0), fine[2])
        return _report(finer, table, variances, count, drops, self.step, self.blur, len(tracks))


def _report(
    grid: _Grid, table: Array, variances: Array, count: int, drops: Array, step: float, blur: float, tracks: int
) -> TrackFit:
    """Values at the largest likelihood, and the ranges of those whose likelihood is not much smaller."""
    best = np.unravel_index(np.argmax(table), table.shape)
    deficit = table.max() - table
    alpha, share, bound = grid.points()
    pairs = [each[:, 0].ravel() for each in (alpha, bound)]
    with np.errstate(divide="ignore"):
        confined = pairs[1] / (1.0 - pairs[1])
        motion = increments(pairs[0], confined, np.zeros(pairs[0].size), blur, 1)[1].reshape(len(alpha), 1, -1)
        # For fixed shape, quantities are multiples of the variance: their logarithms without and with its range.
        rate = variances + np.log((1.0 - share) / motion)
        logarithms = {
            "K": rate - alpha * math.log(step) - math.log(2.0),
            "sigma": 0.5 * (variances + np.log(0.5 * share)),
            "plateau": rate - np.log(bound / (1.0 - bound)),
        }
    lows: dict[str, list[float]] = {name: [] for name in ("alpha", *logarithms)}
    highs: dict[str, list[float]] = {name: [] for name in lows}
    for drop in drops:
        inside = deficit <= max(drop, float(deficit[best]))
        left = np.maximum(drop - deficit[inside], 0.0) * 2.0 / count
        # The largest and smallest logarithm y with e^y - 1 - y = left.
        wide = [np.interp(np.sqrt(left), _RISE[k], (_LOGARITHM, -_LOGARITHM)[k]) for k in (0, 1)]
        for name, each in logarithms.items():
            factor = 0.5 if name == "sigma" else 1.0
            near = each[inside]
            lows[name].append(np.exp(np.min(near - factor * wide[0])))
            highs[name].append(np.exp(np.max(near - factor * wide[1])))
        held = alpha[inside]
        lows["alpha"].append(held.min())
        highs["alpha"].append(held.max())
    values = {name: float(np.exp(each[best])) for name, each in logarithms.items()}
    values["alpha"] = float(grid.alpha[best[0]])
    found = {n: Estimate.made(v, np.array(lows[n]), np.array(highs[n])) for n, v in values.items()}
    low, high = found["alpha"].interval()
    message = ""
    if high - low > 1.5:
        message = (
            f"the tracks allow exponents from {low:.2g} to {high:.2g}: they hardly determine it; give more or longer "
            "tracks, or noise=False if there is no localisation error"
        )
    plateau = found["plateau"] if grid.bound.size > 1 else None
    return TrackFit(found["alpha"], found["K"], found["sigma"], plateau, float(table.max()), tracks, count, message)
