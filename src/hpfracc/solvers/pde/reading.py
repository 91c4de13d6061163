"""Reads and checks the arguments of ``solve_fpde`` before any step is made."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import dtype_name, is_array, library_of, refuse_chunked, refuse_masked, to_host
from hpfracc._xp import NUMPY, Namespace, namespace, user_scope
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.history.intervals import order_value
from hpfracc.solvers.pde.boundary import Dirichlet, Ends, Periodic, is_function, positional_range, read_boundary
from hpfracc.solvers.pde.delays import DelayedFrames
from hpfracc.solvers.pde.grid_error import resample
from hpfracc.solvers.pde.orders import read_orders, read_varying
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.quasilinear import QuasilinearDiffusion, is_quasilinear
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting, broadcast_points, read_grid
from hpfracc.solvers.pde.space.components import discretise_components
from hpfracc.solvers.pde.space.disc import Annulus, Disc
from hpfracc.solvers.pde.space.region import Region
from hpfracc.solvers.pde.space.variable import FiniteVolumes
from hpfracc.solvers.pde.terms import Matrix, SpaceTerm, coefficients_of, read_space

Array = np.ndarray[Any, Any]

#: Relative distance between u0 and the boundary data above which a warning is given.
_COMPATIBLE = 1e-6


def read_evolution(
    reaction: Callable[..., Any] | None,
    t_span: Sequence[float],
    u0: Any,
    *,
    x: Any,
    space: Any,
    boundary: Any,
    alpha: Any,
    du0: Any,
    source: Any,
    args: Any,
    jac: Callable[..., Any] | None,
    terms: Sequence[Any],
    backend: str,
    form: str = "caputo",
    delays: Sequence[float] = (),
    history: Any = None,
) -> EvolutionProblem:
    """Read the whole problem and discretise it in space."""
    given = dict(locals())
    t0, t1 = _reading.pair("t_span", t_span)
    domain = x if isinstance(x, Annulus | Disc | Region) else None
    grid: tuple[Array, ...]
    places: tuple[Array, ...]
    terms_given = space[0] if isinstance(space, list | tuple) and space else space
    if isinstance(terms_given, Matrix):
        if x is not None or boundary is not None:
            raise InvalidInputError("a Matrix has its nodes and their conditions in it; leave out x and boundary")
        grid, places, boundary = (np.arange(terms_given.nodes, dtype=float),), terms_given.coordinates(), "neumann"
    elif x is None or boundary is None:
        raise InvalidInputError("x and boundary are needed: the grid, and the conditions at its ends")
    elif isinstance(domain, Annulus | Disc):
        integral = isinstance(domain, Disc) and getattr(terms_given, "kind", None) == "integral"
        order = (order_value(terms_given.order),) if integral else ()
        grid, places = domain.grid(*order), domain.coordinates(*order)
    else:
        grid = read_grid(x) if domain is None else domain.grid
        places = broadcast_points(NUMPY, grid)
    shape = tuple(axis.size for axis in grid)
    library, device = _library(u0, alpha, space, terms)
    xp = NUMPY if library == "numpy" else namespace(library, device)
    extra = tuple(args) if isinstance(args, tuple | list) else (args,)
    with xp.scope():
        ends = read_boundary(boundary, 1 if isinstance(domain, Annulus | Disc) else len(grid))
        if isinstance(domain, Annulus | Disc):
            if isinstance(domain, Disc) and ends[0][0] != ends[0][1]:
                raise InvalidInputError("boundary: a disc has one circle, and a pair was given; give one condition")
            ends = (*ends, (Periodic(), Periodic()))
        periodic = tuple(isinstance(lower, Periodic) for lower, _ in ends)
        outside = domain.outside(periodic) if isinstance(domain, Region) else None
        start = _read_state("u0", u0, places, shape, xp, outside)
        components = None if start.ndim == len(shape) else int(start.shape[0])
        varying = read_varying(alpha, (t0, t1), places, components)
        orders = read_orders(alpha if varying is None else varying.most, terms)
        if library != "numpy" and any(order_value(order) < 0.0 for _, order in orders):
            raise InvalidInputError("terms: integrals (orders below 0) take NumPy arrays")
        sums = read_space(space, components)
        if varying is not None:
            if len(orders) > 1 or form != "caputo" or library != "numpy":
                raise InvalidInputError(
                    "an alpha for each component, or one that varies, takes NumPy arrays, form='caputo' and no terms"
                )
            if varying.kind == "components" and len(sums) == 1:
                sums *= components or 1  # each has an operator of its own
        complex_state = xp.is_complex(start) or _is_complex_space(sums)
        if complex_state and not xp.is_complex(start):
            start = xp.complex(start, xp.zeros_like(start))
        settings = [SpaceSetting(one, grid, ends, xp, complex_state, t0, backend, components, domain) for one in sums]
        moving: QuasilinearDiffusion | None = None
        if any(is_quasilinear(term, len(grid)) for one in sums for term in one):
            moving = QuasilinearDiffusion(settings[0], places, start)
        discretised: Semidiscretisation
        if varying is not None and varying.kind == "space":
            why = "it takes one equation" if components else FiniteVolumes.refuses(settings[0])
            if why is not None or moving is not None:
                raise InvalidInputError(f"alpha varies in space: {why or 'Diffusion must not depend on t or u'}")
            discretised = local = FiniteVolumes(settings[0])  # whose steps may have a shift for each point
            at = varying.at
            varying = dataclasses.replace(varying, at=lambda t: local.restrict(np.broadcast_to(at(t), shape)))
        else:
            discretised = discretise_components(settings) if moving is None else moving.space
        velocity = _read_velocity(du0, orders, places, start, xp, outside)
        if varying is not None and velocity is not None and np.any(velocity[varying.at(t0).reshape(-1) <= 1.0]):
            raise InvalidInputError("du0 is not 0 for a component whose order is at most 1; give 0 there")
        problem = EvolutionProblem(
            discretised,
            orders,
            t0,
            t1,
            discretised.restrict(start),
            None if velocity is None else discretised.restrict(velocity),
            components,
            periodic=periodic,
            varying=varying,
            start_power=None if varying is None else varying.least,
        )
        problem.notes += discretised.notes
        if components == len(ends[0]) and len(grid) == 1 and isinstance(boundary, list | tuple):
            lower, upper = (type(one).__name__ for one in ends[0])
            if lower != upper:
                problem.notes.append(
                    f"boundary: {lower} holds at the lower end and {upper} at the upper one, for both components; the "
                    "entries of a pair are the two ends, and not the components"
                )
        _read_source(problem, source, extra)
        if len(delays) or history is not None:
            if reaction is None or library != "numpy" or not len(delays):
                raise InvalidInputError("delays and history= are for a reaction, in NumPy arrays; give all, or none")
            problem.delayed = DelayedFrames(delays, history, discretised, t0, start, problem.u0)
        _read_reaction(problem, reaction, jac, extra, start, tuple(map(xp.array, places)))
        if _reading.choice("form", form, ("caputo", "fokker_planck")) == "fokker_planck":
            _read_memory_outside(problem, moving is not None)
        if moving is not None:
            if jac is not None:
                raise InvalidInputError("jac is given, and Diffusion depends on t or u; leave it out")
            own, added = problem.reaction, moving.reaction
            problem.reaction = added if own is None else lambda t, u: own(t, u) + added(t, u)
            problem.frozen = moving.frozen
        problem.compatible = _check_compatible(discretised, ends, places, start, t0)
    if discretised.coarsens:
        problem.on_grid = functools.partial(_on_grid, problem, given, start, velocity)
    return problem


def _on_grid(
    problem: EvolutionProblem, given: dict[str, Any], start: Any, velocity: Any, axes: tuple[Array, ...]
) -> EvolutionProblem:
    """The same equation on another grid: functions are evaluated there, arrays are resampled."""
    xp = problem.xp

    def moved(values: Any, old: tuple[Array, ...], new: tuple[Array, ...]) -> Any:
        if values is None or values.ndim == 0:
            return values
        found = resample(np.asarray(to_host(xp.stop_gradient(values))), old, new, problem.periodic)
        return found if xp.library == "numpy" else xp.asarray(found)

    region = given["x"] if isinstance(given["x"], Region) else None
    changed: dict[str, Any] = {"x": axes if region is None else region.on_grid(axes, problem.periodic)}
    for name, values in (("u0", start), ("du0", velocity)):
        if not is_function(given[name]):
            changed[name] = moved(values, problem.space.grid, axes)
    if problem.steady_source:
        changed["source"] = None
    if problem.delayed is not None:
        before = problem.delayed.history
        changed["history"] = lambda t: moved(np.asarray(before(t)), problem.space.grid, axes)
    other = read_evolution(**{**given, **changed})
    if problem.steady_source:
        assert problem.source is not None
        steady = problem.source(problem.t0)
        if problem.space.scattered and steady.ndim:
            box = problem.space.embed(steady + xp.zeros(problem.state_shape, "float64"), problem.t0)
            steady = other.space.restrict(moved(xp.where(xp.isfinite(box), box, 0.0), problem.space.grid, axes))
        else:
            old, new = (tuple(to_host(x).reshape(-1) for x in one.space.points) for one in (problem, other))
            steady = moved(steady, old, new)
        other.source, other.steady_source = lambda t: steady, True
    return other


def _library(u0: Any, alpha: Any, space: Any, terms: Any) -> tuple[str, Any]:
    """The library and device of the arrays: those of u0, or of a coefficient that carries a gradient."""
    if library_of(u0) == "cupy":
        raise UnsupportedDtypeError("u0 is a CuPy array; give a PyTorch tensor or a JAX array for a GPU")
    sums = space if isinstance(space, list | tuple) else (space,)
    parts = [term for one in sums for term in getattr(one, "terms", (one,)) if isinstance(term, SpaceTerm)]
    found = [u0, alpha, *(value for term in parts for value in (*coefficients_of(term), getattr(term, "order", None)))]
    for pair in terms if isinstance(terms, list | tuple) else ():
        found += list(pair) if isinstance(pair, tuple | list) else []
    for value in found:
        library = library_of(value)
        if library in ("torch", "jax"):
            return library, value.device if library == "torch" else None
    return "numpy", None


def _is_complex_space(sums: tuple[tuple[SpaceTerm, ...], ...]) -> bool:
    values = [value for terms in sums for term in terms for value in coefficients_of(term)]
    return any(isinstance(value, complex) or (is_array(value) and "complex" in dtype_name(value)) for value in values)


def _read_state(
    name: str,
    value: Any,
    places: tuple[Array, ...],
    shape: tuple[int, ...],
    xp: Namespace,
    outside: Array | None = None,
) -> Any:
    """Read a state as float64 or complex128 of ``xp`` on the whole grid, with or without an axis of components.

    Values at the points ``outside`` a region are replaced by zero.
    """
    if is_function(value) and not isinstance(value, type):
        value = value(*places)
        value = np.broadcast_to(value, shape) if np.ndim(value) <= len(shape) else np.asarray(value)
    refuse_masked(value, name)
    found = _reading.array(name, value)
    _check_dtype(name, found)
    is_complex = "complex" in dtype_name(found)
    if library_of(found) == xp.library:
        found = xp.astype(xp.asarray(found), "complex128" if is_complex else "float64")
    else:
        found = _from_host(xp, np.asarray(found))
    given = tuple(found.shape)
    if given[-len(shape) :] != shape or len(given) not in (len(shape), len(shape) + 1) or 0 in given:
        raise ShapeError(
            f"{name} has shape {given}, and the grid {shape}; give that shape, boundary points included, or "
            f"(components, {', '.join(map(str, shape))}) for a system"
        )
    if outside is not None:
        found = xp.where(outside if xp.library == "numpy" else xp.array(outside) > 0, 0.0, found)
    if xp.library == "numpy" and not np.all(np.isfinite(found)):
        place = np.argwhere(~np.isfinite(found))[0].tolist()
        raise InvalidInputError(f"{name} is not finite at index {place}; give finite values")
    return found


def _from_host(xp: Namespace, host: Array) -> Any:
    return xp.complex(xp.array(host.real), xp.array(host.imag)) if host.dtype.kind == "c" else xp.array(host)


def _check_dtype(name: str, value: Any) -> None:
    """Refuse values that are not numbers, and precisions in which no equation is solved."""
    dtype = dtype_name(value)
    if library_of(value) == "numpy" and value.dtype.kind not in "fciub":
        raise UnsupportedDtypeError(f"{name} has dtype {value.dtype}; give real or complex numbers")
    if dtype in ("float16", "bfloat16", "longdouble", "clongdouble", "float128", "complex256"):
        raise UnsupportedDtypeError(
            f"{name} has dtype {dtype}, and equations are solved in double precision; convert it to float64 or "
            "complex128 (float32 and complex64 are converted, and the solution back)"
        )


def _read_velocity(
    du0: Any,
    orders: tuple[tuple[Any, Any], ...],
    places: tuple[Array, ...],
    start: Any,
    xp: Namespace,
    outside: Array | None,
) -> Any:
    largest = order_value(orders[0][1])
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
    shape = np.broadcast_shapes(*(one.shape for one in places))
    if isinstance(du0, numbers.Number) or (is_array(du0) and tuple(du0.shape) == ()):
        velocity = xp.zeros_like(start) + du0
    else:
        velocity = _read_state("du0", du0, places, shape, xp, outside)
    if xp.is_complex(velocity) and not xp.is_complex(start):
        raise UnsupportedDtypeError("du0 is complex for a real u0; give u0 as complex")
    if tuple(velocity.shape) != tuple(start.shape):
        raise ShapeError(f"du0 has shape {tuple(velocity.shape)} and u0 {tuple(start.shape)}; give the same")
    return velocity + xp.zeros_like(start)


def _read_source(problem: EvolutionProblem, source: Any, args: tuple[Any, ...]) -> None:
    if source is None:
        return
    xp, whole = problem.xp, tuple(axis.size for axis in problem.space.grid)
    if is_function(source):
        scope, points = user_scope(), problem.space.points
        if not _takes_coordinates(source, "source", ("t",), len(points), args, first=True):
            points = ()

        def evaluate(t: Any) -> Any:
            with scope():
                value = source(t, *points, *args)
            return _fitted("source", value, problem)

        problem.source = evaluate
        with contextlib.suppress(ArithmeticError):  # such as 0.0**-0.5: the data need not be finite at t0
            evaluate(problem.t0)
        return
    refuse_chunked(source, "source")
    value = source if is_array(source) else np.asarray(source)
    if tuple(value.shape[-len(whole) :]) == whole and whole != problem.space.shape:
        value = problem.space.restrict(value if library_of(value) == xp.library else xp.array(value))
    steady = _fitted("source", value, problem)
    problem.source = lambda t: steady
    problem.steady_source = True


def _fitted(name: str, value: Any, problem: EvolutionProblem) -> Any:
    """Convert a value that broadcasts to the state to the library of the state."""
    xp, shape = problem.xp, problem.state_shape
    if not is_array(value) or library_of(value) != xp.library or xp.library == "numpy":
        host = np.asarray(value)
        _check_dtype(name, host)
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


def _read_reaction(
    problem: EvolutionProblem,
    reaction: Callable[..., Any] | None,
    jac: Callable[..., Any] | None,
    args: tuple[Any, ...],
    start: Any,
    coordinates: tuple[Any, ...],
) -> None:
    if reaction is None:
        if jac is not None:
            raise InvalidInputError("jac is given without a reaction; leave it out")
        return
    _reading.function("reaction", reaction, "(t, u) or (t, u, x)")
    space, xp, scope = problem.space, problem.xp, user_scope()
    whole, ndim, delayed = tuple(start.shape), len(coordinates), problem.delayed
    bare = tuple(axis.size for axis in space.grid) == space.shape

    def called(function: Callable[..., Any], name: str, shape: tuple[int, ...]) -> Callable[[Any, Any], Any]:
        lead = ("t", "u") if delayed is None else ("t", "u", "delayed")
        placed = _takes_coordinates(function, name, lead, ndim, args, first=False)
        places = coordinates if placed else ()

        def evaluate(t: Any, u: Any) -> Any:
            values = u if bare else space.embed(u, t)
            then = () if delayed is None else (delayed(t, u),)
            with scope():
                found = function(t, values, *then, *places, *args)
            if not (is_array(found) and library_of(found) == xp.library):
                found = xp.array(np.asarray(found)) if not np.iscomplexobj(found) else np.asarray(found)
            if tuple(found.shape) != shape:
                raise ShapeError(f"{name}(t, u) returned shape {tuple(found.shape)}; it has to return {shape}")
            if xp.is_complex(found) and not xp.is_complex(u):
                raise UnsupportedDtypeError(f"{name}(t, u) returned complex values for a real u; give u0 as complex")
            problem.count(f"{name}s")
            return found if bare else space.restrict(found)

        return evaluate

    problem.reaction = called(reaction, "reaction", whole)
    problem.reaction(problem.t0, problem.u0)
    if jac is not None:
        _reading.function("jac", jac, "(t, u) or (t, u, x)")
        shape = whole if problem.components is None else (problem.components, *whole)
        problem.jacobian = called(jac, "jac", shape)
        problem.jacobian(problem.t0, problem.u0)


def _read_memory_outside(problem: EvolutionProblem, quasilinear: bool) -> None:
    """Integrate source and reaction of ``u_t = D^(1-alpha) A u + source + reaction`` by ``1 - alpha``."""
    if len(problem.orders) > 1 or problem.alpha_value > 1.0:
        given = "terms or a DistributedOrder" if len(problem.orders) > 1 else f"alpha={problem.alpha_value:g}"
        raise InvalidInputError(f"form='fokker_planck' takes one order in (0, 1], and not {given}")
    if problem.alpha_value == 1.0 or (problem.source is None and problem.reaction is None):
        return  # both forms are the same
    if quasilinear:
        raise InvalidInputError("form='fokker_planck' takes Diffusion of t or u without source and reaction alone")
    if (
        problem.xp.library == "numpy"
        and problem.source is not None
        and not np.isfinite(problem.source(problem.t0)).all()
    ):
        raise InvalidInputError("form='fokker_planck': the source is not finite at t0; give one that is")
    problem.integrated = 1.0 - problem.alpha


def _check_compatible(
    space: Semidiscretisation, boundary: tuple[Ends, ...], places: tuple[Array, ...], start: Any, t0: float
) -> bool:
    """Whether u0 has the values that Dirichlet conditions require; warns if it does not."""
    if space.xp.library != "numpy" or not any(isinstance(one, Dirichlet) for ends in boundary for one in ends):
        return True
    held = space.embed(space.restrict(start), t0)
    gaps = np.nan_to_num(np.abs(start - held))
    gap = float(gaps.max())
    if not gap > _COMPATIBLE * max(float(np.abs(start).max()), float(np.nanmax(np.abs(held)))):
        return True
    at = np.unravel_index(int(gaps.argmax()), gaps.shape)[-len(boundary) :]
    shape = gaps.shape[-len(boundary) :]
    point = ", ".join(f"{np.broadcast_to(one, shape)[at]:g}" for one in places)
    warnings.warn(
        f"u0 differs by {gap:.3g} from the boundary data at the point ({point}): the solution starts with a layer "
        "there. The boundary data hold. L1 on a graded mesh (method='l1') resolves the start; or give u0 that has the "
        "boundary values",
        AccuracyWarning,
        stacklevel=5,
    )
    return False
