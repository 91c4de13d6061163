r"""Diffusion whose coefficient depends on time or on the solution, in conservative form.

:math:`\nabla \cdot (D(t, x, u) \nabla u)` is split into a linear part with a constant coefficient, which the methods
in time treat as their operator, and the difference, which is part of the reaction. The equations of a step are solved
with the operator of the newest coefficient, which is close to the whole.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.boundary import is_function
from hpfracc.solvers.pde.space.base import SpaceSetting, axis_part
from hpfracc.solvers.pde.space.variable import CellAxis, FiniteVolumes
from hpfracc.solvers.pde.terms import Diffusion, coefficients_of
from hpfracc.solvers.stepping.system import StepFailedError

Array = np.ndarray[Any, Any]

#: Negative coefficients up to this share of the largest are zero: iterations reach below fronts, where u is zero.
_BELOW = 0.02
#: Times at which coefficients that do not depend on the solution are looked at before the first step.
_LOOKS = 65


class NegativeCoefficientError(InvalidInputError, StepFailedError):
    """A coefficient that is negative: ends a step, or is an error of the arguments before the first one."""


def _arguments(coefficient: Any, ndim: int) -> tuple[bool, bool]:
    """Whether a coefficient takes t before the coordinates, and u after them, by number and names of its arguments."""
    try:
        names = list(inspect.signature(coefficient).parameters) if is_function(coefficient) else []
    except (TypeError, ValueError):  # some builtins have no signature
        names = []
    return len(names) > ndim and names[0] == "t", len(names) > ndim and names[-1] == "u"


def is_quasilinear(term: Any, ndim: int) -> bool:
    """Whether a term is diffusion with a coefficient that depends on time or on the solution."""
    return isinstance(term, Diffusion) and any(any(_arguments(one, ndim)) for one in coefficients_of(term))


class QuasilinearDiffusion:
    """Finite volumes with a constant coefficient, and what the true one adds.

    The coefficient between two points is the mean of those at the points, so that fronts can enter where it is zero.

    Parameters
    ----------
    setting : SpaceSetting
        The terms, of which some are quasilinear.
    places : tuple of numpy.ndarray
        The coordinates of the whole grid.
    start : numpy.ndarray
        The initial values on the whole grid.
    end : float
        The end of the interval, up to which coefficients that do not depend on the solution are looked at.
    """

    def __init__(self, setting: SpaceSetting, places: tuple[Array, ...], start: Array, end: float) -> None:
        if setting.xp.library != "numpy" or setting.components is not None or setting.complex_state:
            raise InvalidInputError(
                "Diffusion with a coefficient of t or u takes one real equation in NumPy arrays; for others, give a "
                "coefficient of the coordinates"
            )
        self.places = places
        moving = [coefficients_of(term) for term in setting.terms if is_quasilinear(term, setting.ndim)]
        self._coefficients = [each * setting.ndim if len(each) == 1 else each for each in moving]
        first = [self._values(axis, setting.t0, start) for axis in range(setting.ndim)]
        known = not any(_arguments(one, setting.ndim)[1] for each in self._coefficients for one in each)
        for t in np.linspace(setting.t0, end, _LOOKS).tolist() if known else [setting.t0]:
            for values in first if t == setting.t0 else (self._values(axis, t, start) for axis in range(setting.ndim)):
                if not np.all(values >= -1e-12 * np.abs(values).max()):
                    raise InvalidInputError(
                        f"Diffusion: a coefficient of {float(np.min(values)):g} at t = {t:g}, below zero; it has to "
                        "be 0 or more everywhere, or the equation is ill-posed"
                    )
        self._constants = [float(values.max()) or 1.0 for values in first]
        others = tuple(term for term in setting.terms if not is_quasilinear(term, setting.ndim))
        plain = dataclasses.replace(setting, terms=(*others, Diffusion(tuple(self._constants))))
        refusal = FiniteVolumes.refuses(plain)
        if refusal is not None:
            raise InvalidInputError(f"Diffusion with a coefficient of t or u: {refusal}")
        self.space = FiniteVolumes(plain)

    def _values(self, axis: int, t: float, u: Array) -> Array:
        """The coefficient along an axis at all points."""
        total = np.zeros(u.shape)
        for coefficients in self._coefficients:
            k = coefficients[axis]
            in_time, in_state = _arguments(k, len(self.places))
            given = (*((t,) if in_time else ()), *self.places, *((u,) if in_state else ()))
            total = total + (k(*given) if is_function(k) else k)
        return total

    def _with_coefficient(self, t: float, u: Array, *, whole: bool) -> FiniteVolumes:
        """The operator with the coefficient at u; less the constant one, and all other terms, if not ``whole``."""
        moved = copy.copy(self.space)
        frame, axes = self.space.embed(u, t), []
        inside = [self.space.unknowns(axis) for axis in range(frame.ndim)]
        for axis, one in enumerate(self.space.axes):
            values = self._values(axis, t, frame)
            if values.min() < -_BELOW * np.abs(values).max():
                raise NegativeCoefficientError(
                    f"the coefficient of Diffusion is {values.min():.3g} at t = {t:g}, below zero, which is ill-posed; "
                    "check it, and whether u leaves the range that it is made for"
                )
            values = np.maximum(values, 0.0) - self._constants[axis]
            here = (*inside[:axis], slice(None), *inside[axis + 1 :])
            along = values[here]
            padded = np.concatenate([along, axis_part(along, one.place, slice(0, 1))], axis) if one.periodic else along
            faces = 0.5 * (axis_part(padded, one.place, slice(1, None)) + axis_part(padded, one.place, slice(0, -1)))
            ends = axis_part(along, one.place, slice(0, 1)), axis_part(along, one.place, slice(-1, None))
            base = one if whole else CellAxis(one.place, one.x, one.conditions, one.steps, one.widths)
            axes.append(
                dataclasses.replace(
                    base,
                    faces=base.faces + faces,
                    values=base.values + values[tuple(inside)],
                    ends=(base.ends[0] + ends[0], base.ends[1] + ends[1]),
                    data=[None, None],
                )
            )
        return moved.assembled(axes)

    def reaction(self, t: float, u: Array) -> Any:
        """What the coefficient adds to the constant one."""
        moved = self._with_coefficient(t, u, whole=False)
        forcing = moved.forcing(t)
        return moved.apply(u) if forcing is None else moved.apply(u) + forcing

    def frozen(self, t: float, u: Array) -> FiniteVolumes:
        """The operator with the coefficient at u."""
        return self._with_coefficient(t, u, whole=True)
