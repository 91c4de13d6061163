"""Reads states, sources, reactions and histories: arrays and functions on the grid, also by components."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import dtype_name, is_array, library_of, refuse_masked
from hpfracc._xp import Namespace, user_scope
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.solvers.pde.boundary import SIDES, evaluated, is_function, positional_range
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.space.base import of_unknowns

Array = np.ndarray[Any, Any]


def read_names(u0: Any) -> tuple[str, ...]:
    """The names of the components, where u0 is given by names; none otherwise."""
    if not isinstance(u0, dict):
        return ()
    names = tuple(u0)
    for name in names:
        if not isinstance(name, str) or name in SIDES:
            raise InvalidInputError(f"u0: {name!r} is no name of a component; use strings, and not those of ends")
    if not names:
        raise InvalidInputError("u0 is an empty dict; give an entry for each component")
    return names


def component_entries(who: str, value: Any, names: tuple[str, ...]) -> Any:
    """The entries of a dict in the order of the components; what is no dict, as it is."""
    if not isinstance(value, dict):
        return value
    given = ", ".join(map(repr, value))
    if not names:
        raise InvalidInputError(
            f"{who} is given for the components {given}, and those of u0 have no names; give u0 as a dict too"
        )
    strange = [one for one in value if one not in names]
    missing = [one for one in names if one not in value]
    if strange or missing:
        wrong = f"{strange[0]!r}, which is no component" if strange else f"{given}, and not for {missing[0]!r}"
        raise InvalidInputError(f"{who} is given for {wrong}; give an entry for each of {', '.join(map(repr, names))}")
    return [value[one] for one in names]


@dataclass(frozen=True, slots=True)
class StateReader:
    """Reads states on the whole grid as float64 or complex128 of ``xp``, with or without an axis of components.

    Attributes
    ----------
    names : tuple of str
        The names of the components, if they have any.
    places : tuple of numpy.ndarray
        The coordinates of the points of the grid.
    shape : tuple of int
        The shape of the grid.
    xp : Namespace
        The library of the equation.
    outside : numpy.ndarray or None
        The points outside a region, at which values are replaced by zero.
    """

    names: tuple[str, ...]
    places: tuple[Array, ...]
    shape: tuple[int, ...]
    xp: Namespace
    outside: Array | None

    def __call__(self, name: str, value: Any) -> Any:
        """The state with this name in messages; a dict has an entry for each component."""
        if not isinstance(value, dict):
            return self._read(name, value, (len(self.shape), len(self.shape) + 1))
        entries = zip(self.names, component_entries(name, value, self.names), strict=True)
        xp = self.xp
        each = [self._read(f"{name}[{which!r}]", entry, (len(self.shape),)) for which, entry in entries]
        if any(map(xp.is_complex, each)):
            each = [one if xp.is_complex(one) else xp.complex(one, xp.zeros_like(one)) for one in each]
        return xp.stack(each)

    def _read(self, name: str, value: Any, dimensions: tuple[int, ...]) -> Any:
        xp, shape = self.xp, self.shape
        if is_function(value) and not isinstance(value, type):
            value = value(*self.places)
            value = np.broadcast_to(value, shape) if np.ndim(value) <= len(shape) else np.asarray(value)
        elif isinstance(value, numbers.Number) and len(dimensions) == 1:
            value = np.full(shape, value)
        refuse_masked(value, name)
        found = _reading.array(name, value)
        check_dtype(name, found)
        is_complex = "complex" in dtype_name(found)
        if library_of(found) == xp.library:
            found = xp.astype(xp.asarray(found), "complex128" if is_complex else "float64")
        else:
            found = _from_host(xp, np.asarray(found))
        given = tuple(found.shape)
        if given[-len(shape) :] != shape or len(given) not in dimensions or 0 in given:
            system = f", or (components, {', '.join(map(str, shape))}) for a system" if len(dimensions) > 1 else ""
            raise ShapeError(
                f"{name} has shape {given}, and the grid {shape}; give that shape, boundary points included{system}"
            )
        if self.outside is not None:
            found = xp.where(self.outside if xp.library == "numpy" else xp.array(self.outside) > 0, 0.0, found)
        if xp.library == "numpy" and not np.all(np.isfinite(found)):
            place = np.argwhere(~np.isfinite(found))[0].tolist()
            raise InvalidInputError(f"{name} is not finite at index {place}; give finite values")
        return found

    def velocity(self, du0: Any, largest: float, start: Any) -> Any:
        """The derivative in time at t0; None if the largest order needs none."""
        xp = self.xp
        if math.isnan(largest):
            largest = 1.0 if du0 is None else 2.0
        if largest <= 1.0:
            if du0 is not None:
                raise InvalidInputError(
                    f"du0 is given, and alpha={largest:g} needs none; leave it out, or use alpha above 1"
                )
            return None
        if du0 is None:
            raise InvalidInputError(
                f"alpha={largest:g} is above 1 and needs du0, the derivative in time at t0; du0=0 starts from rest"
            )
        if isinstance(du0, numbers.Number) or (is_array(du0) and tuple(du0.shape) == ()):
            velocity = xp.zeros_like(start) + du0
        else:
            velocity = self("du0", du0)
        if xp.is_complex(velocity) and not xp.is_complex(start):
            raise UnsupportedDtypeError("du0 is complex for a real u0; give u0 as complex")
        if tuple(velocity.shape) != tuple(start.shape):
            raise ShapeError(f"du0 has shape {tuple(velocity.shape)} and u0 {tuple(start.shape)}; give the same")
        return velocity + xp.zeros_like(start)


def _from_host(xp: Namespace, host: Array) -> Any:
    return xp.complex(xp.array(host.real), xp.array(host.imag)) if host.dtype.kind == "c" else xp.array(host)


def check_dtype(name: str, value: Any) -> None:
    """Refuse values that are not numbers, and precisions in which no equation is solved."""
    dtype = dtype_name(value)
    if library_of(value) == "numpy" and value.dtype.kind not in "fciub":
        raise UnsupportedDtypeError(f"{name} has dtype {value.dtype}; give real or complex numbers")
    if dtype in ("float16", "bfloat16", "longdouble", "clongdouble", "float128", "complex256"):
        raise UnsupportedDtypeError(
            f"{name} has dtype {dtype}, and equations are solved in double precision; convert it to float64 or "
            "complex128 (float32 and complex64 are converted, and the solution back)"
        )


def read_source(problem: EvolutionProblem, source: Any, places: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    """Set the source of a problem. ``places`` are the coordinates of the whole grid."""
    if source is None:
        return
    space, xp, names = problem.space, problem.xp, problem.names
    whole = tuple(axis.size for axis in space.grid)
    apart = not space.points  # components with unknown points of their own
    shape, points = (whole, places) if apart else (space.shape, space.points)
    lead = () if problem.components is None else (problem.components,)
    steady = True

    def part(name: str, value: Any, target: tuple[int, ...]) -> Callable[[Any], Any]:
        nonlocal steady
        if is_function(value):
            scope, steady = user_scope(), False
            takes = _takes_coordinates(value, name, ("t",), len(points), args, first=True)

            def evaluate(t: Any) -> Any:
                with scope():
                    found = evaluated(value, t, *(points if takes else ()), *args)
                return _fitted(name, found, target, problem)

            return evaluate
        refuse_masked(value, name)
        value = value if is_array(value) else np.asarray(value)
        if not apart and whole != shape and tuple(value.shape[-len(whole) :]) == whole:
            value = space.restrict(value if library_of(value) == xp.library else xp.array(value))
        found = _fitted(name, value, target, problem)
        return lambda t: found

    if isinstance(source, dict):
        entries = zip(names, component_entries("source", source, names), strict=True)
        each = [part(f"source[{name!r}]", value, shape) for name, value in entries]
    else:
        each = [part("source", source, (*lead, *shape))]

    def total(t: Any) -> Any:
        values = [one(t) for one in each]
        found = values[0]
        if isinstance(source, dict):
            found = xp.stack([one + xp.zeros(shape, "float64") for one in values])
        return space.restrict(found + xp.zeros((*lead, *shape), "float64")) if apart else found

    problem.source, problem.steady_source = total, steady
    now = total(problem.t0)
    if steady:
        problem.source = lambda t: now


def _fitted(name: str, value: Any, shape: tuple[int, ...], problem: EvolutionProblem) -> Any:
    """Convert a value that broadcasts to this shape to the library of the state."""
    xp = problem.xp
    if not is_array(value) or library_of(value) != xp.library or xp.library == "numpy":
        host = np.asarray(value)
        check_dtype(name, host)
        value = _from_host(xp, host)
    if xp.is_complex(value) and not xp.is_complex(problem.u0):
        raise UnsupportedDtypeError(f"{name} has complex values for a real u0; give u0 as complex")
    given = tuple(value.shape)
    if given != shape and not _reading.broadcasts(given, shape):
        raise ShapeError(f"{name} has shape {given}, and the unknown points {shape}; give values that broadcast to it")
    return value


def _takes_coordinates(
    function: Callable[..., Any], name: str, lead: tuple[str, ...], ndim: int, args: tuple[Any, ...], *, first: bool
) -> bool:
    """Whether a function takes the coordinates after its ``lead`` arguments, by its signature.

    If it takes both forms, ``first`` is returned.
    """
    span = positional_range(function)
    if span is None:
        return first
    counts = {places: len(lead) + places * ndim + len(args) for places in (first, not first)}
    for places, count in counts.items():
        if span[0] <= count <= span[1]:
            return places
    axes, more = ", ".join("xyz"[:ndim]), ", *args" if args else ""
    forms = [f"{name}({', '.join(lead)}{f', {axes}' if places else ''}{more})" for places in counts]
    raise InvalidInputError(
        f"{name} has to be {' or '.join(forms)}, with {' or '.join(map(str, sorted(counts.values())))} arguments here, "
        f"and it takes {' to '.join(f'{end:g}' for end in dict.fromkeys(span))}; further ones are passed with args="
    )


def read_history(
    history: Any, names: tuple[str, ...], places: tuple[Any, ...], shape: tuple[int, ...]
) -> Callable[[float], Any]:
    """The solution on the whole grid before t0, as a function of time, from one of t, of t and x, or constants."""
    if history is None:
        raise InvalidInputError("delays need a history: give history=, a function of t before t0 or a constant")

    def part(name: str, value: Any) -> Callable[[float], Any]:
        if not callable(value):
            return lambda t: value
        takes = _takes_coordinates(value, name, ("t",), len(places), (), first=False)
        return lambda t: value(t, *(places if takes else ()))

    if not isinstance(history, dict):
        return part("history", history)
    entries = zip(names, component_entries("history", history, names), strict=True)
    each = [part(f"history[{name!r}]", value) for name, value in entries]
    return lambda t: np.stack([np.broadcast_to(one(t), shape[1:]) for one in each])


def read_reaction(
    problem: EvolutionProblem,
    reaction: Callable[..., Any] | None,
    jac: Callable[..., Any] | None,
    args: tuple[Any, ...],
    start: Any,
    coordinates: tuple[Any, ...],
) -> None:
    """Set the reaction of a problem, and its Jacobian."""
    if reaction is None:
        if jac is not None:
            raise InvalidInputError("jac is given without a reaction; leave it out")
        return
    _reading.function("reaction", reaction, "(t, u) or (t, u, x)")
    space, whole, delayed = problem.space, tuple(start.shape), problem.delayed
    apart, lead = not space.points, ("t", "u") if delayed is None else ("t", "u", "delayed")

    def called(function: Callable[..., Any], name: str, shape: tuple[int, ...], cut: bool) -> Callable[[Any, Any], Any]:
        placed = _takes_coordinates(function, name, lead, len(coordinates), args, first=False)
        places = (*(coordinates if placed else ()), *args)
        return of_unknowns(problem, function, name, start, shape, places, cut)

    problem.reaction = called(reaction, "reaction", whole, cut=True)
    problem.reaction(problem.t0, problem.u0)
    if jac is None:
        return
    _reading.function("jac", jac, "(t, u) or (t, u, x)")
    slopes = called(jac, "jac", whole if problem.components is None else (problem.components, *whole), cut=not apart)

    def derivative(t: Any, u: Any) -> Callable[[Any], Any]:
        each = slopes(t, u)

        def product(v: Any) -> Any:
            if apart:  # components meet on the whole grid, where those with given values do not change
                v = space.embed(v, t) - space.embed(0.0 * v, t)
            found = each * v if problem.components is None else (each * v[None]).sum(1)
            return space.restrict(found) if apart else found

        return product

    problem.jacobian = derivative
    problem.jacobian(problem.t0, problem.u0)
