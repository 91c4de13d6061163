r"""The error due to the grid, estimated with the operators of coarser grids.

With A on a grid of spacing h and :math:`A_2` on every second point, the defect
:math:`\tau = (A_2 u + b_2) - (A u + b)` is the truncation error of the coarser grid, less that of the finer. The error
that it causes in a solution of :math:`D^\alpha u = A u + b` after a time T is about
:math:`(T^{-\alpha}\Gamma(1+\alpha) - A_2)^{-1} \tau`, and that of the finer grid :math:`2^p - 1` times smaller. The
order p is observed with a third grid, and is at most the order of the differences: it is lower where the solution is
not smooth at the boundary.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import to_host
from hpfracc.errors import HpfraccError
from hpfracc.solvers.pde.boundary import Dirichlet, Exterior, Periodic
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting, is_uniform

__all__ = ["grid_error"]

Array = np.ndarray[Any, Any]

#: Fewest points of a coarser axis, and the range of observed orders that are accepted.
_FEWEST = 5
_MIN_ORDER = 0.25


class _Coarser(NamedTuple):
    """The largest error on a coarser grid, the grid, and the solution on it."""

    error: float
    space: Semidiscretisation
    setting: SpaceSetting
    u: Any
    ratio: float


def grid_error(space: Semidiscretisation, setting: SpaceSetting, u: Any, t: float, shift: float) -> float:
    r"""An estimate of the largest error of ``u`` due to the grid, for differences of order 2; nan if there is none.

    Parameters
    ----------
    space : Semidiscretisation
        The discretisation of ``setting``; its class creates those of the coarser grids.
    u : array
        The solution at the unknown points at time ``t``.
    shift : float
        :math:`T^{-\alpha} \Gamma(1+\alpha)`.
    """
    first = _coarser(space, setting, u, t, shift)
    if first is None:
        return math.nan
    if first.error == 0.0:
        return 0.0
    second = _coarser(first.space, first.setting, first.u, t, shift)
    order = 2.0
    if second is not None and second.error > 0.0:
        order = math.log(second.error / first.error) / math.log(second.ratio)
        order = min(2.0, max(_MIN_ORDER, order))
    return float(first.error / (first.ratio**order - 1.0))


def _coarser(space: Semidiscretisation, setting: SpaceSetting, u: Any, t: float, shift: float) -> _Coarser | None:
    axes = [_every_second(x, ends) for x, ends in zip(setting.grid, setting.boundary, strict=True)]
    grid = [axis[0] for axis in axes if axis is not None]
    if len(grid) < len(axes):
        return None
    between = any(axis is not None and axis[1] is None for axis in axes)
    if between and setting.xp.library != "numpy":
        return None
    coarse_setting = dataclasses.replace(setting, grid=tuple(grid))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            coarse = type(space).make(coarse_setting)
            image, less = space.apply(u), coarse.apply
            known, known_less = space.forcing(t), coarse.forcing(t)
            if known is not None and known.ndim > u.ndim:
                return None  # boundary data of several components for the state of one
            image = image if known is None else image + known
            if between:
                values = coarse.restrict(_moved(space.embed(u, t), setting.grid, coarse_setting.grid))
                here = _moved(image, _unknowns(setting), _unknowns(coarse_setting))
            else:
                places = [_places(axis, ends) for axis, ends in zip(axes, setting.boundary, strict=True)]
                values, here = _taken(u, places), _taken(image, places)
            defect = less(values) - here if known_less is None else less(values) + known_less - here
            error = coarse.solve(shift, defect)
        largest = float(np.abs(to_host(error)).max(initial=0.0))
    except (HpfraccError, np.linalg.LinAlgError):
        return None
    ratio = max((x.size - 1) / (y.size - 1) for x, y in zip(setting.grid, coarse_setting.grid, strict=True))
    return _Coarser(largest, coarse, coarse_setting, values, ratio) if math.isfinite(largest) else None


def _every_second(x: Array, ends: Any) -> tuple[Array, Array | None] | None:
    """A grid of half as many points and their indices in ``x``; None in place of the indices if it has other points."""
    if isinstance(ends[0], Periodic):
        places = np.arange(0, x.size, 2)
        return (x[places], places) if x.size % 2 == 0 and places.size >= _FEWEST else None
    if x.size // 2 + 1 < _FEWEST:
        return None
    places = np.arange(0, x.size, 2)
    if x.size % 2:
        return x[places], places
    if is_uniform(x):
        return np.linspace(x[0], x[-1], x.size // 2), None
    places[-1] = x.size - 1
    return x[places], places


def _bounds(ends: Any) -> tuple[int, int]:
    """The number of points at each end that are not unknowns."""
    return tuple(int(isinstance(one, Dirichlet | Exterior)) for one in ends)  # type: ignore[return-value]


def _places(axis: Any, ends: Any) -> Array:
    lower, upper = _bounds(ends)
    places: Array = axis[1]
    return places[lower : places.size - upper] - lower


def _unknowns(setting: SpaceSetting) -> tuple[Array, ...]:
    found = []
    for x, ends in zip(setting.grid, setting.boundary, strict=True):
        lower, upper = _bounds(ends)
        found.append(x[lower : x.size - upper])
    return tuple(found)


def _taken(values: Any, places: list[Array]) -> Any:
    for number, chosen in enumerate(places):
        rest = len(places) - 1 - number
        step = slice(int(chosen[0]), int(chosen[-1]) + 1, 2)
        index: Any = step if np.array_equal(np.arange(step.start, step.stop, 2), chosen) else chosen
        values = values[(..., index, *(slice(None),) * rest)]
    return values


def _moved(values: Array, old: tuple[Array, ...], new: tuple[Array, ...]) -> Array:
    """Interpolate by splines of degree 5, whose second derivatives have an error of order 4."""
    from scipy.interpolate import make_interp_spline

    for number, (x, y) in enumerate(zip(old, new, strict=True)):
        axis = number - len(old)
        if x.size != y.size:
            degree = min(5, x.size - 1 - (x.size % 2 == 0))
            values = make_interp_spline(x, values, k=degree, axis=values.ndim + axis)(y)
    return values
