"""Interpolation of the solution between its steps and between the points of its grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._xp import NUMPY, Namespace
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]

#: Frames through which a cubic is put.
_FRAMES = 4


def between_frames(times: Array, frames: Sequence[Any], t: float, t0: float, power: float) -> Any:
    """The cubic (or less, with fewer frames) in ``(t - t0)^power`` through the frames, at ``t``.

    A fractional solution starts like a polynomial in ``(t - t0)^alpha``, which no polynomial in t approximates well.
    """
    nodes = (np.asarray(times) - t0) ** power
    place = (t - t0) ** power
    others = [np.delete(nodes, i) for i in range(len(nodes))]
    weights = [float(np.prod((place - rest) / (node - rest))) for node, rest in zip(nodes, others, strict=True)]
    return sum(frame * weight for frame, weight in zip(frames, weights, strict=True))


class FrameCubic:
    """The cubic of :func:`between_frames` through the four nearest frames of a piece.

    Parameters
    ----------
    times : numpy.ndarray
        Times of the frames, increasing.
    frames : array, shape (len(times), ...)
        The solution on the whole grid.
    power : float
        The power of time in which the solution is smooth behind the start of a piece.
    breaks : tuple of float
        Times of frames at which a new piece starts.
    """

    def __init__(self, times: Array, frames: Any, power: float, breaks: tuple[float, ...] = ()) -> None:
        self.times, self.frames, self.power = times, frames, power
        inside = [int(np.searchsorted(times, one)) for one in breaks if times[0] < one < times[-1]]
        self._bounds = [0, *inside, len(times) - 1]

    def __call__(self, t: float) -> Any:
        """The frame at ``t``."""
        after = int(np.searchsorted(self.times, t))
        piece = max(1, int(np.searchsorted(self._bounds, after)))
        low, high = self._bounds[piece - 1], self._bounds[piece]
        count = min(_FRAMES, high - low + 1)
        first = min(max(low, after - count // 2), high + 1 - count)
        chosen = slice(first, first + count)
        begin = float(self.times[low])
        return between_frames(self.times[chosen], list(self.frames[chosen]), t, begin, self.power)


class FrameSolution:
    """``sol(t)`` on the grid, ``sol(t, x)`` anywhere in the box.

    In space by cubic splines, periodic along periodic axes.

    Parameters
    ----------
    at : callable
        ``at(t)``: the solution on the whole grid; :class:`FrameCubic`, or the exact solution.
    span : pair of float
        The first and last time.
    grid : tuple of numpy.ndarray
        The points of the grid along each axis.
    periodic : tuple of bool
        Whether each axis is periodic.
    """

    def __init__(
        self,
        at: Callable[[float], Any],
        span: tuple[float, float],
        grid: tuple[Array, ...],
        periodic: tuple[bool, ...],
        xp: Namespace = NUMPY,
    ) -> None:
        self.at, self.span, self.grid, self.periodic = at, span, grid, periodic
        self._xp = xp

    def __call__(self, t: Any, x: Any = None) -> Any:
        """The solution at ``t``, a number or an array of times, which becomes the first axis.

        Parameters
        ----------
        t : float or array_like
            Within the interval that was solved.
        x : array_like or tuple of array_like, optional
            Points: an array in one dimension, arrays that broadcast (one for each axis) in more. The whole grid by
            default.
        """
        given = np.asarray(t, dtype=np.float64)
        if x is not None and not self.grid:
            raise InvalidInputError("sol(t, x): the nodes of a Matrix have no points between them; use sol(t)")
        if given.ndim > 1:
            raise ShapeError(f"t has shape {given.shape}; give a number, or times along one axis")
        low, high = self.span
        slack = 1e-12 * (high - low)
        if np.any(given < low - slack) or np.any(given > high + slack):
            raise InvalidInputError(f"sol(t) was asked for t={t!r}, and the solution runs from {low:g} to {high:g}")
        found = [self._at(float(one), x) for one in np.clip(given.reshape(-1), low, high)]
        if given.ndim == 0:
            return found[0]
        return self._xp.stack(found) if x is None else np.stack(found)

    def _at(self, t: float, x: Any) -> Any:
        values = self.at(t)
        return values if x is None else self._in_space(np.asarray(to_host(values)), x)

    def _in_space(self, values: Array, x: Any) -> Array:
        from scipy.interpolate import CubicSpline

        ndim = len(self.grid)
        given = x if isinstance(x, tuple | list) and ndim > 1 else (x,)
        if len(given) != ndim:
            raise ShapeError(f"x has {len(given)} axes, and space {ndim}; give one array for each")
        axes, places = [], []
        for axis, (points, wanted) in enumerate(zip(self.grid, given, strict=True)):
            place = np.asarray(wanted, dtype=np.float64)
            if self.periodic[axis]:
                step = float((points[-1] - points[0]) / (points.size - 1))
                period = points.size * step
                points = np.append(points, points[0] + period)
                place = points[0] + np.mod(place - points[0], period)
                edge = np.take(values, [0], axis=axis - ndim)
                values = np.concatenate([values, edge], axis=axis - ndim)
            elif np.any(place < points[0]) or np.any(place > points[-1]):
                raise InvalidInputError(f"x holds points outside the grid, from {points[0]:g} to {points[-1]:g}")
            axes.append(points)
            places.append(place)
        if ndim == 1 and np.all(np.isfinite(values)):
            kind = "periodic" if self.periodic[0] else "not-a-knot"
            return np.asarray(CubicSpline(axes[0], values, axis=-1, bc_type=kind)(places[0]))
        spread = np.broadcast_arrays(*places)
        rows = np.stack([one.reshape(-1) for one in spread], axis=-1)
        lead = values.shape[:-ndim]
        flat = values.reshape(-1, *values.shape[-ndim:])
        found = [_interpolated(tuple(axes), one, rows) for one in flat]
        return np.stack(found).reshape(*lead, *spread[0].shape)


def _interpolated(axes: tuple[Array, ...], values: Array, rows: Array) -> Array:
    """Cubic splines; between the points of a region linear, because outside it is nan."""
    from scipy.interpolate import RegularGridInterpolator

    known = np.isfinite(values)
    if known.all():
        return np.asarray(RegularGridInterpolator(axes, values, method="cubic")(rows))
    share, found = (RegularGridInterpolator(axes, one)(rows) for one in (1.0 * known, np.where(known, values, 0.0)))
    return np.where(share > 1.0 - 1e-12, found, np.nan)
