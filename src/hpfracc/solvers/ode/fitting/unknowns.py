"""The unknowns of a fit: which numbers are free, their initial guesses, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import library_of, refuse_masked
from hpfracc._frames import refuse_dates
from hpfracc._reading import numbers
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["Quantity", "Unknowns", "on_host", "read_free", "read_times", "read_unknowns"]

Array = np.ndarray[Any, Any]

#: Minimum distance of an order from the integer below it.
_ABOVE = 0.01
#: Default guess of a free order, above the integer below it.
_FIRST_ORDER = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A parameter, the order or an initial state as an affine function of the unknowns ``x``: ``base + select @ x``.

    Attributes
    ----------
    name : str
        Name of the quantity.
    shape : tuple of int
        Shape of the value; ``()`` for a number.
    base : array, shape (size,)
        Fixed entries, and 0 for free ones.
    select : array, shape (size, p)
        1 where an entry is an unknown.
    """

    name: str
    shape: tuple[int, ...]
    base: Array
    select: Array

    @property
    def free(self) -> Array:
        """The indices of its unknowns in ``x``."""
        return np.flatnonzero(self.select.any(0))

    def at(self, x: Array) -> Array:
        """The value, shape ``(..., *shape)`` for x of shape (..., p)."""
        value: Array = self.base + x @ self.select.T
        return value.reshape((*x.shape[:-1], *self.shape))


@dataclass(frozen=True, slots=True, eq=False)
class Unknowns:
    """The unknowns of a fit.

    Attributes
    ----------
    names : tuple of str
        One for each unknown, such as ``"k"``, ``"alpha"``, ``"y0[1]"``.
    start, lower, upper : arrays, shape (p,)
        Guess and bounds.
    parameters : tuple of Quantity
        The parameters in the order of the arguments of ``fun``.
    alpha : Quantity
        The order or orders.
    y0 : tuple of Quantity
        The initial state of each data set.
    """

    names: tuple[str, ...]
    start: Array
    lower: Array
    upper: Array
    parameters: tuple[Quantity, ...]
    alpha: Quantity
    y0: tuple[Quantity, ...]


class _Collector:
    """Collects the unknowns."""

    def __init__(self, bounds: Mapping[str, Any]) -> None:
        self.bounds = bounds
        #: Name, start, and lower and upper bound of each unknown.
        self.unknowns: list[tuple[str, float, float, float]] = []
        #: Name, shape, fixed entries, and places among the unknowns of each quantity.
        self.quantities: list[tuple[str, tuple[int, ...], Array, Array]] = []

    def add(self, name: str, values: Array, free: Array, limits: tuple[float, float], label: str | None = None) -> None:
        """Add a quantity whose entries ``free`` are unknown, with initial guesses ``values``."""
        lower, upper = self.read_bounds(name, values.shape, limits)
        places = np.full(values.size, -1)
        shown = name if label is None else label
        for number in np.flatnonzero(free.reshape(-1)):
            index = np.unravel_index(number, values.shape) if values.ndim else ()
            entry = f"{shown}[{', '.join(map(str, index))}]" if index else shown
            value, low, high = (float(each.flat[number]) for each in (values, lower, upper))
            if not math.isfinite(value):
                raise InvalidInputError(f"{entry} starts at {value}; give a finite guess")
            if not low <= value <= high:
                lifted = "; dy0=[...], the initial derivatives, allows orders above 1" if high < value <= 2.0 else ""
                lifted = lifted if name == "alpha" and name not in self.bounds else ""
                raise InvalidInputError(f"{entry} starts at {value:g}, outside its bounds ({low:g}, {high:g}){lifted}")
            places[number] = len(self.unknowns)
            self.unknowns.append((entry, value, low, high))
        self.quantities.append((name, values.shape, np.where(free, 0.0, values).reshape(-1), places))

    def read_bounds(self, name: str, shape: tuple[int, ...], limits: tuple[float, float]) -> tuple[Array, Array]:
        given = self.bounds.get(name, limits)
        try:
            low, high = given
            lower = np.array(np.broadcast_to(np.asarray(-math.inf if low is None else low, np.float64), shape))
            upper = np.array(np.broadcast_to(np.asarray(math.inf if high is None else high, np.float64), shape))
        except (TypeError, ValueError):
            raise InvalidInputError(f"bounds[{name!r}]={given!r} has to be a pair (lower, upper)") from None
        if np.any(np.isnan(lower)) or np.any(np.isnan(upper)) or not np.all(lower < upper):
            raise InvalidInputError(f"bounds[{name!r}]={given!r}: the lower bound has to be below the upper one")
        if name == "alpha" and not (limits[0] <= lower.min() and upper.max() <= limits[1]):
            raise InvalidInputError(
                f"bounds['alpha']={given!r} leaves ({limits[0]:g}, {limits[1]:g}), the orders for which the initial "
                "values suffice: an order above 1 needs dy0"
            )
        return lower, upper


def read_unknowns(
    parameters: Mapping[str, Any],
    alpha: Any,
    y0: Sequence[Any],
    guess: Mapping[str, Any],
    bounds: Mapping[str, Any],
    derivatives: int,
) -> Unknowns:
    """Read the arguments; ``y0`` has, for each data set, its values and which of them are free."""
    if not isinstance(parameters, Mapping):
        raise InvalidInputError(
            f"parameters={parameters!r} has to name each parameter with its guess, such as {{'k': 1.0}}"
        )
    taken = {"alpha", "y0"} & parameters.keys()
    if taken:
        raise InvalidInputError(f"a parameter is called {taken.pop()!r}, which is a name of fit_fode; rename it")
    known = {*parameters, "alpha", "y0"}
    for what, given in (("bounds", bounds), ("guess", guess)):
        if not isinstance(given, Mapping) or not given.keys() <= known:
            unknown = sorted(given.keys() - known) if isinstance(given, Mapping) else given
            raise InvalidInputError(f"{what} names {unknown}; the names are {', '.join(sorted(known))}")
    collector = _Collector(bounds)
    for name, value in parameters.items():
        start = _numbers(name, value)
        collector.add(name, start, np.ones(start.shape, bool), (-math.inf, math.inf))
    orders, free = read_free("alpha", alpha, guess.get("alpha", derivatives + _FIRST_ORDER))
    limits = (derivatives + _ABOVE, derivatives + 1.0)
    if "alpha" in bounds and "alpha" not in guess:  # a default guess is moved into the bounds
        low, high = collector.read_bounds("alpha", orders.shape, limits)
        orders = np.where(free, np.clip(orders, low, high), orders)
    collector.add("alpha", orders, free, limits)
    several = len(y0) > 1
    for number, (values, loose) in enumerate(y0):
        label = f"y0 of set {number}" if several else "y0"
        collector.add("y0", values, loose, (-math.inf, math.inf), label)
    count = len(collector.unknowns)
    if not count:
        raise InvalidInputError("nothing is free: name parameters, or give alpha='free' or y0='free'")
    quantities = [
        Quantity(name, shape, base, (places[:, None] == np.arange(count)).astype(np.float64))
        for name, shape, base, places in collector.quantities
    ]
    here = len(parameters)
    names, *numbers = zip(*collector.unknowns, strict=True)
    start, lower, upper = map(np.array, numbers)
    return Unknowns(
        names, start, lower, upper, tuple(quantities[:here]), quantities[here], tuple(quantities[here + 1 :])
    )


def read_free(name: str, value: Any, guess: Any) -> tuple[Array, Array]:
    """Values, and which of them are free, of a number, an array, ``"free"``, or a list of numbers and ``"free"``."""
    if isinstance(value, str):
        if value != "free":
            raise InvalidInputError(f"{name}={value!r} is not known; use 'free', or a number")
        start = _numbers(name, guess)
        return start, np.ones(start.shape, bool)
    if isinstance(value, list | tuple) and any(isinstance(each, str) for each in value):
        free = np.array([each == "free" if isinstance(each, str) else False for each in value])
        strange = [each for each in value if isinstance(each, str) and each != "free"]
        if strange:
            raise InvalidInputError(f"{name} holds {strange[0]!r}; use 'free' or a number for each component")
        start = np.broadcast_to(_numbers(name, guess), free.shape)
        fixed = np.array([0.0 if isinstance(each, str) else float(each) for each in value])
        return np.where(free, start, fixed), free
    fixed = _numbers(name, value)
    return fixed, np.zeros(fixed.shape, bool)


def _numbers(name: str, value: Any) -> Array:
    try:
        return np.array(on_host(value), dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError(f"{name}={value!r} has to be a number or an array of numbers") from None


def on_host(value: Any) -> Any:
    """The value without a gradient, as a NumPy array or as given."""
    return value.detach().cpu().numpy() if library_of(value) == "torch" else value


def read_times(t: Any) -> Array:
    """Increasing times, shape (N,)."""
    refuse_dates("t", t)
    refuse_masked(t, "t")
    times = numbers("t", on_host(t), ndim=1)
    if times.size < 1:
        raise ShapeError(f"t has shape {times.shape}; give times along one axis")
    if np.any(np.diff(times) <= 0.0):
        raise InvalidInputError("t has to be strictly increasing")
    return times
