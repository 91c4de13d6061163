"""The Toeplitz matrices of terms in space on the interior points of a uniform grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._arrays import is_array, is_tracer, library_of
from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.sequences import binomials, centred_binomials
from hpfracc.operators.rules.lattice_power import lattice_power_weights
from hpfracc.solvers.pde.problem import order_value, plain_order
from hpfracc.solvers.pde.space.base import SpaceSetting, broadcast_points
from hpfracc.solvers.pde.space.preconditioner import ToeplitzPart
from hpfracc.solvers.pde.space.shifted_weights import shifted_grunwald
from hpfracc.solvers.pde.terms import Advection, Diffusion, FractionalDiffusion, OneSided, SpaceTerm

__all__ = ["constant_coefficient", "merge_parts", "toeplitz_parts"]


def toeplitz_parts(term: SpaceTerm, setting: SpaceSetting, shifts: tuple[int, ...] = (1, 0)) -> list[ToeplitzPart]:
    """The matrices of a term, on the interior points."""
    ndim, points = setting.ndim, broadcast_points(setting.xp, tuple(x[1:-1] for x in setting.grid))
    if isinstance(term, OneSided):
        axis = range(ndim)[term.axis]
        count = setting.grid[axis].size
        order = plain_order(term.order)
        if not isinstance(order, float):
            return [_tracked_part(term, setting, axis, points)]
        weights, lead = shifted_grunwald(order, count + 1, shifts)
        if lead > 1:
            raise InvalidInputError(
                f"shifts={shifts!r}: a shift of more than 1 reaches beyond the boundary; use (1, 0)"
            )
        weights = weights * setting.spacing(axis) ** -order
        near, far = np.zeros(count), np.zeros(count)
        near[: count + 1 - lead] = weights[lead:][:count]
        far[0] = near[0]
        far[1 : lead + 1] = weights[:lead][::-1]
        lower, upper = (near, far) if term.side == "left" else (far, near)
        coefficient = _signed(_values(term.coefficient, points, setting), order)
        return [ToeplitzPart(axis - ndim, lower, upper, coefficient)]
    if isinstance(term, FractionalDiffusion):
        order, coefficient = plain_order(term.order), _values(term.coefficient, points, setting)
        if not isinstance(order, float):
            found = []
            for axis in range(ndim):
                scale = -setting.xp.exp(-math.log(setting.spacing(axis)) * order)
                weights = scale * centred_binomials(setting.xp, order, setting.grid[axis].size)
                found.append(ToeplitzPart(axis - ndim, weights, weights, coefficient))
            return found
        if term.kind == "integral" and ndim > 1:
            steps = [setting.spacing(axis) for axis in range(ndim)]
            sizes = tuple(x.size - 1 for x in setting.grid)
            ratios = tuple((steps[0] / step) ** 2 for step in steps)
            weights = -(steps[0] ** -order) * np.asarray(lattice_power_weights(NUMPY, order, sizes, ratios))
            return [ToeplitzPart(None, weights, weights, coefficient)]
        found = []
        for axis in range(ndim):
            weights = -(setting.spacing(axis) ** -order) * np.asarray(
                centred_binomials(NUMPY, order, setting.grid[axis].size)
            )
            found.append(ToeplitzPart(axis - ndim, weights, weights, coefficient))
        return found
    found = []
    each = term.coefficient if isinstance(term, Diffusion) else term.velocity if isinstance(term, Advection) else ()
    several = tuple(each) if isinstance(each, tuple | list) else (each,) * ndim
    for axis, one in enumerate(several):
        h, size = setting.spacing(axis), setting.grid[axis].size
        lower, upper = np.zeros(size), np.zeros(size)
        if isinstance(term, Diffusion):
            lower[:2] = upper[:2] = -2.0 / h**2, 1.0 / h**2
        else:
            lower[1], upper[1] = 0.5 / h, -0.5 / h
        found.append(ToeplitzPart(axis - ndim, lower, upper, _values(one, points, setting)))
    return found


def _tracked_part(term: OneSided, setting: SpaceSetting, axis: int, points: tuple[Any, ...]) -> ToeplitzPart:
    """Shifts (1, 0), with weights that carry the gradient of the order."""
    xp, count, order = setting.xp, setting.grid[axis].size, term.order.reshape(())
    g = binomials(xp, order, count + 1)
    mean = 0.5 * order * g[1:] + (1.0 - 0.5 * order) * g[:-1]
    scale = xp.exp(-math.log(setting.spacing(axis)) * order)
    first = xp.stack([mean[0], 0.5 * order * g[0]])
    near = scale * mean
    far = scale * xp.concatenate([first, xp.zeros((count - 2,), "float64", like=g)])
    known, coefficient = order_value(order), _values(term.coefficient, points, setting)
    if not math.isnan(known):
        coefficient = _signed(coefficient, known)
    lower, upper = (near, far) if term.side == "left" else (far, near)
    return ToeplitzPart(axis - setting.ndim, lower, upper, coefficient, "lower" if term.side == "left" else "upper")


def merge_parts(parts: list[ToeplitzPart]) -> tuple[ToeplitzPart, ...]:
    """Merge parts of one axis with plain real coefficients into one matrix."""
    kept: list[ToeplitzPart] = []
    sums: dict[int, ToeplitzPart] = {}
    for part in parts:
        if part.axis is None or not isinstance(part.coefficient, float) or not part.plain:
            kept.append(part)
            continue
        c, before = part.coefficient, sums.get(part.axis)
        lower, upper = c * part.lower, c * part.upper
        if before is not None:
            lower, upper = lower + before.lower, upper + before.upper
        sums[part.axis] = ToeplitzPart(part.axis, lower, upper, 1.0)
    return (*sums.values(), *kept)


def _values(coefficient: Any, points: tuple[Any, ...], setting: SpaceSetting) -> Any:
    """A number as float or complex, a tensor unchanged, a function as its values at the unknowns."""
    if callable(coefficient) and not is_array(coefficient):
        shape = tuple(x.size - 2 for x in setting.grid)
        values = coefficient(*points)
        return values + setting.xp.array(np.zeros(shape))
    if is_array(coefficient) and library_of(coefficient) != "numpy":
        return coefficient
    value = complex(coefficient)
    return value if value.imag else value.real


def constant_coefficient(coefficient: Any, setting: SpaceSetting, order: float = math.nan) -> Any:
    """A constant coefficient in any form that a term accepts; with an ``order``, that of a one-sided term."""
    one = coefficient[0] if isinstance(coefficient, tuple | list) else coefficient
    return _signed(_values(one, (), setting), order)


def _signed(coefficient: Any, order: float) -> Any:
    """The coefficient; refused if it makes the equation ill-posed."""
    if isinstance(coefficient, complex) or is_tracer(coefficient):
        return coefficient
    plain = isinstance(coefficient, float)
    low, high = (coefficient,) * 2 if plain else (order_value(coefficient.min()), order_value(coefficient.max()))
    if order > 1.0 and low < 0.0:
        raise InvalidInputError(
            f"OneSided: a coefficient of {low:g} with order {order:g} is diffusion backwards, which is ill-posed; use "
            "coefficients of 0 and above"
        )
    if order < 1.0 and high > 0.0:
        raise InvalidInputError(
            f"OneSided: a coefficient of {high:g} with order {order:g}, below 1, lets waves grow; use coefficients of "
            "0 and below"
        )
    return coefficient
