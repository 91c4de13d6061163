"""Boundary conditions, as data only: one for each axis, or a pair for its two ends."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_array
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = [
    "BoundaryCondition",
    "Dirichlet",
    "Ends",
    "Exterior",
    "Neumann",
    "Periodic",
    "Robin",
    "boundary_value",
    "is_homogeneous",
    "read_boundary",
    "varies_in_time",
]

#: A number, ``f(t)``, or ``f(t, x)`` (``f(t, x, y)``) with the coordinates of the points at that end.
BoundaryData = Any


class BoundaryCondition:
    """A condition at an end of an axis."""

    __slots__ = ()


@final
@dataclass(frozen=True, slots=True)
class Periodic(BoundaryCondition):
    """The axis is periodic. Its grid is one period without the end point: ``np.linspace(0, L, n, endpoint=False)``."""


@final
@dataclass(frozen=True, slots=True)
class Dirichlet(BoundaryCondition):
    """``u = value``. The first and last points of the grid lie on the boundary.

    Parameters
    ----------
    value : float or callable
        A number, ``f(t)``, or ``f(t, x)`` (in two dimensions ``f(t, x, y)``) with the coordinates of the end's points.
    """

    value: BoundaryData = 0.0

    def __post_init__(self) -> None:
        _check_data("Dirichlet", self.value)


@final
@dataclass(frozen=True, slots=True)
class Neumann(BoundaryCondition):
    """The derivative along the outward normal is ``slope``. The end points of the grid lie on the boundary.

    A slope of 0 means no flux through the end, also for :class:`~hpfracc.solvers.pde.terms.OneSided` terms, whose flux
    is a fractional derivative.
    """

    slope: BoundaryData = 0.0

    def __post_init__(self) -> None:
        _check_data("Neumann", self.slope)


@final
@dataclass(frozen=True, slots=True)
class Robin(BoundaryCondition):
    """``a u + b du/dn = value``, with n the outward normal and a, b numbers, b not zero."""

    a: float
    b: float
    value: BoundaryData = 0.0

    def __post_init__(self) -> None:
        for name, number in (("a", self.a), ("b", self.b)):
            if not isinstance(number, numbers.Real) or not np.isfinite(float(number)):
                raise InvalidInputError(f"Robin: {name}={number!r} has to be a finite number")
        if self.b == 0:
            raise InvalidInputError("Robin: b=0 leaves a condition on u alone; use Dirichlet(value / a)")
        _check_data("Robin", self.value)


@final
@dataclass(frozen=True, slots=True)
class Exterior(BoundaryCondition):
    """``u = value`` everywhere outside the box, as the integral Laplacian requires; a number or ``f(t, x)``."""

    value: BoundaryData = 0.0

    def __post_init__(self) -> None:
        _check_data("Exterior", self.value)


#: The conditions at the lower and the upper end of an axis.
Ends = tuple[BoundaryCondition, BoundaryCondition]

_NAMES: dict[str, Callable[[], BoundaryCondition]] = {
    "periodic": Periodic,
    "dirichlet": Dirichlet,
    "neumann": Neumann,
    "exterior": Exterior,
}


def read_boundary(boundary: Any, ndim: int) -> tuple[Ends, ...]:
    """Read the boundary conditions into one pair for each axis.

    Parameters
    ----------
    boundary : str, BoundaryCondition, or sequence
        One for all axes, or a sequence with an entry for each axis: a condition for both of its ends, or a pair. In one
        dimension a pair of conditions stands for the two ends.
    ndim : int
        Number of axes in space.
    """
    if isinstance(boundary, str | BoundaryCondition):
        both = _read_one(boundary)
        return ((both, both),) * ndim
    if not isinstance(boundary, list | tuple):
        raise InvalidInputError(
            f"boundary={boundary!r} is not known; use 'periodic', 'dirichlet', 'neumann', Dirichlet(value), "
            "Neumann(slope), Robin(a, b, value), or one of these for each axis"
        )
    entries = list(boundary)
    if ndim == 1 and len(entries) == 2:
        entries = [tuple(entries)]
    if len(entries) != ndim:
        raise ShapeError(
            f"boundary has {len(entries)} entries for {ndim} axes; give one condition for all, or one (or a pair, for "
            "the two ends) for each axis"
        )
    return tuple(_read_ends(entry, axis) for axis, entry in enumerate(entries))


def boundary_value(condition: BoundaryCondition, t: float, coordinates: tuple[Any, ...]) -> Any:
    """The data of a condition at time ``t``, at the points with these coordinates (one array for each axis)."""
    if isinstance(condition, Dirichlet | Robin | Exterior):
        data = condition.value
    elif isinstance(condition, Neumann):
        data = condition.slope
    else:
        return 0.0
    if not callable(data) or is_array(data):
        return data
    return data(t) if _takes_time_alone(data) else data(t, *coordinates)


def is_homogeneous(condition: BoundaryCondition) -> bool:
    """Whether the data are the number zero."""
    if isinstance(condition, Periodic):
        return True
    data: Any = condition.slope if isinstance(condition, Neumann) else getattr(condition, "value", 0.0)
    return not is_array(data) and not callable(data) and bool(data == 0)


def varies_in_time(condition: BoundaryCondition) -> bool:
    """Whether the data are a function."""
    data = condition.slope if isinstance(condition, Neumann) else getattr(condition, "value", 0.0)
    return callable(data) and not is_array(data)


def _takes_time_alone(data: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(data).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return True
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return False
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len([one for one in places if one.default is one.empty]) <= 1


def _read_ends(entry: Any, axis: int) -> Ends:
    if isinstance(entry, list | tuple):
        if len(entry) != 2:
            raise ShapeError(f"boundary of axis {axis} has {len(entry)} entries; give one condition, or two")
        lower, upper = _read_one(entry[0]), _read_one(entry[1])
    else:
        lower = upper = _read_one(entry)
    for kind in (Periodic, Exterior):
        if isinstance(lower, kind) != isinstance(upper, kind):
            raise InvalidInputError(
                f"boundary of axis {axis}: {lower!r} and {upper!r}; {kind.__name__} holds for both ends or none"
            )
    return lower, upper


def _read_one(value: Any) -> BoundaryCondition:
    if isinstance(value, BoundaryCondition):
        return value
    if isinstance(value, str) and value.casefold() in _NAMES:
        return _NAMES[value.casefold()]()
    raise InvalidInputError(
        f"boundary {value!r} is not known; use 'periodic', 'dirichlet', 'neumann', Dirichlet(value), Neumann(slope), "
        "Robin(a, b, value) or Exterior(value)"
    )


def _check_data(who: str, value: Any) -> None:
    if is_array(value) or callable(value):
        return
    if not isinstance(value, numbers.Number) or isinstance(value, bool):
        raise InvalidInputError(f"{who}: {value!r} is neither a number nor a function of t, or of t and x")
    if not np.isfinite(complex(value)):  # type: ignore[call-overload]
        raise InvalidInputError(f"{who}: {value!r} has to be finite")
