"""Boundary conditions, as data only: one for each axis, or a pair for its two ends."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_array
from hpfracc.errors import InvalidInputError, ShapeError

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
        check_data("Dirichlet", self.value)


@final
@dataclass(frozen=True, slots=True)
class Neumann(BoundaryCondition):
    """The derivative along the outward normal is ``slope``. The end points of the grid lie on the boundary.

    With diffusion alone, a slope of 0 means no flux through the end. Advection carries mass through such an end; use
    :class:`NoFlux` to close it. With :class:`~hpfracc.solvers.pde.terms.OneSided` terms, whose flux is a fractional
    derivative, a slope of 0 stands for no flux at all, advection included.
    """

    slope: BoundaryData = 0.0

    def __post_init__(self) -> None:
        check_data("Neumann", self.slope)


@final
@dataclass(frozen=True, slots=True)
class NoFlux(BoundaryCondition):
    r"""No flux through the end: :math:`k\,\partial_n u = (v \cdot n)\,u`, with advection and diffusion together.

    Mass is conserved to rounding if both ends are closed. Without :class:`~hpfracc.solvers.pde.terms.Advection` it is
    the same as :class:`Neumann` with slope 0. A velocity that varies along the axis needs
    ``Advection(v, conservative=True)``, because :math:`-v\,u_x` alone is not the divergence of a flux.
    """


@final
@dataclass(frozen=True, slots=True)
class Robin(BoundaryCondition):
    """``a u + b du/dn = value``, with n the outward normal and a, b numbers, b not zero."""

    a: float
    b: float
    value: BoundaryData = 0.0

    def __post_init__(self) -> None:
        _reading.number("Robin: a", self.a)
        _reading.number("Robin: b", self.b)
        if self.b == 0:
            raise InvalidInputError("Robin: b=0 leaves a condition on u alone; use Dirichlet(value / a)")
        check_data("Robin", self.value)


@final
@dataclass(frozen=True, slots=True)
class Exterior(BoundaryCondition):
    """``u = value`` everywhere outside the box, as the integral Laplacian requires; a number or ``f(t, x)``."""

    value: BoundaryData = 0.0

    def __post_init__(self) -> None:
        check_data("Exterior", self.value)


#: The conditions at the lower and the upper end of an axis.
Ends = tuple[BoundaryCondition, BoundaryCondition]

#: The names of the ends of each axis.
_SIDES = (("left", "right"), ("bottom", "top"), ("back", "front"))
SIDES = frozenset(name for pair in _SIDES for name in pair)

_NAMES: dict[str, Callable[[], BoundaryCondition]] = {
    "periodic": Periodic,
    "dirichlet": Dirichlet,
    "neumann": Neumann,
    "no_flux": NoFlux,
    "exterior": Exterior,
}


def read_boundary(boundary: Any, ndim: int) -> tuple[Ends, ...]:
    """Read the boundary conditions into one pair for each axis.

    Parameters
    ----------
    boundary : str, BoundaryCondition, number, sequence or dict
        One for all axes, or a sequence with an entry for each axis: a condition for both of its ends, or a pair. In one
        dimension a pair of conditions stands for the two ends. Or a dict with the names of all ends. A number or a
        function is the value of u.
    ndim : int
        Number of axes in space.
    """
    if isinstance(boundary, dict):
        sides = _SIDES[:ndim]
        wanted = [name for pair in sides for name in pair]
        if set(boundary) != set(wanted):
            raise InvalidInputError(
                f"boundary has the ends {', '.join(map(repr, boundary)) or 'of an empty dict'}; give a condition for "
                f"each of {', '.join(map(repr, wanted))}; conditions for each component by its name need u0 by name too"
            )
        entries = [(boundary[lower], boundary[upper]) for lower, upper in sides]
    elif not isinstance(boundary, list | tuple):
        entries = [boundary] * ndim
    else:
        entries = [tuple(boundary)] if ndim == 1 and len(boundary) == 2 else list(boundary)
    if len(entries) != ndim:
        raise ShapeError(
            f"boundary has {len(entries)} entries for {ndim} axes; give one condition for all, or one (or a pair, for "
            "the two ends) for each axis"
        )
    return tuple(_read_ends(entry, axis) for axis, entry in enumerate(entries))


def is_function(value: Any) -> bool:
    """Whether a value is a function, and not an array that can be called."""
    return callable(value) and not is_array(value)


def _data_of(condition: BoundaryCondition) -> Any:
    """The data of a condition; zero if it has none."""
    return condition.slope if isinstance(condition, Neumann) else getattr(condition, "value", 0.0)


def boundary_value(condition: BoundaryCondition, t: float, coordinates: tuple[Any, ...]) -> Any:
    """The data of a condition at time ``t``, at the points with these coordinates (one array for each axis)."""
    data = _data_of(condition)
    if not is_function(data):
        return data
    least, most = positional_range(data) or (1, 1)
    return evaluated(data, t, *(() if least <= 1 and most < math.inf else coordinates))


def evaluated(function: Callable[..., Any], *args: Any) -> Any:
    """The value of a function of the user; infinite where that cannot be computed, as for ``0.0**-0.5`` at t0."""
    with np.errstate(divide="ignore", over="ignore"):
        try:
            return function(*args)
        except ArithmeticError:
            return math.inf


def is_homogeneous(condition: BoundaryCondition) -> bool:
    """Whether the data are the number zero."""
    data = _data_of(condition)
    return not is_array(data) and not callable(data) and bool(data == 0)


def varies_in_time(condition: BoundaryCondition) -> bool:
    """Whether the data are a function."""
    return is_function(_data_of(condition))


def positional_range(function: Callable[..., Any]) -> tuple[int, float] | None:
    """The fewest and the most positional arguments of a function; None if it has no signature, as some builtins."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    least = sum(one.default is one.empty for one in places)
    return least, math.inf if any(one.kind is one.VAR_POSITIONAL for one in parameters) else len(places)


def _read_ends(entry: Any, axis: int) -> Ends:
    pair = entry if isinstance(entry, list | tuple) else (entry, entry)
    if len(pair) != 2:
        raise ShapeError(f"boundary of axis {axis} has {len(pair)} entries; give one condition, or two")
    lower, upper = map(_read_one, pair)
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
    if not isinstance(value, str | type) and (is_function(value) or isinstance(value, numbers.Number)):
        return Dirichlet(value)
    raise InvalidInputError(
        f"boundary {value!r} is not known; use 'periodic', 'dirichlet', 'neumann', 'no_flux', Dirichlet(value), "
        "Neumann(slope), Robin(a, b, value) or Exterior(value), one for all axes, or one or a pair for each"
    )


def check_data(who: str, value: Any, takes: str = "t, or of t and x") -> None:
    """Refuse data that are no finite number, no array and no function."""
    if is_array(value) or callable(value):
        return
    if not isinstance(value, numbers.Number) or isinstance(value, bool):
        raise InvalidInputError(f"{who}: {_reading.shown(value)} is neither a number nor a function of {takes}")
    try:
        finite = np.isfinite(complex(value))  # type: ignore[call-overload]
    except OverflowError:  # of a long integer
        finite = False
    if not finite:
        raise InvalidInputError(f"{who}: {_reading.shown(value)} has to be finite")
