"""Reads and checks the arguments of ``solve_fpde`` before any step is made."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import dtype_name, is_array, library_of, to_host
from hpfracc._xp import NUMPY, namespace
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError, warn
from hpfracc.history.intervals import order_value
from hpfracc.operators._distributed_order import DistributedOrder
from hpfracc.solvers.pde.boundary import SIDES, Dirichlet, Ends, Periodic, is_function, read_boundary
from hpfracc.solvers.pde.fields import (
    StateReader,
    component_entries,
    read_history,
    read_names,
    read_reaction,
    read_source,
)
from hpfracc.solvers.pde.grid_error import resample
from hpfracc.solvers.pde.orders import VaryingOrder, read_orders, read_varying
from hpfracc.solvers.pde.problem import DelayedFrames, EvolutionProblem, read_singular
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
    names = read_names(u0)
    space, alpha = component_entries("space", space, names), component_entries("alpha", alpha, names)
    domain = x if isinstance(x, Annulus | Disc | Region) else None
    grid, places, boundary = _read_places(x, domain, space, boundary)
    shape = tuple(axis.size for axis in grid)
    library, device = _library(u0, alpha, space, terms)
    xp = NUMPY if library == "numpy" else namespace(library, device)
    extra = tuple(args) if isinstance(args, tuple | list) else (args,)
    with xp.scope():
        each = _read_conditions(boundary, names, domain, len(grid))
        ends = each[0]
        periodic = tuple(isinstance(lower, Periodic) for lower, _ in ends)
        outside = domain.outside(periodic) if isinstance(domain, Region) else None
        states = StateReader(names, places, shape, xp, outside)
        start = states("u0", u0)
        components = None if start.ndim == len(shape) else int(start.shape[0])
        distribution = alpha.resolved(t1 - t0) if isinstance(alpha, DistributedOrder) else None
        alpha = alpha if distribution is None else distribution
        varying = read_varying(alpha, (t0, t1), places, components)
        orders = read_orders(alpha if varying is None else varying.most, terms)
        if library != "numpy" and any(order_value(order) < 0.0 for _, order in orders):
            raise InvalidInputError("terms: integrals (orders below 0) take NumPy arrays")
        sums = read_space(space, components)
        if varying is not None and (len(orders) > 1 or form != "caputo" or library != "numpy"):
            raise InvalidInputError(
                "an alpha for each component, or one that varies, takes NumPy arrays, form='caputo' and no terms"
            )
        if len(sums) == 1 and (len(each) > 1 or (varying is not None and varying.kind == "components")):
            sums *= components or 1  # each has an operator of its own
        complex_state = xp.is_complex(start) or _is_complex_space(sums)
        if complex_state and not xp.is_complex(start):
            start = xp.complex(start, xp.zeros_like(start))
        spread = each if len(each) > 1 else each * len(sums)
        shared = None if len(each) > 1 else components  # the length of boundary data for all components
        settings = [
            SpaceSetting(one, grid, own, xp, complex_state, t0, backend, shared, domain)
            for one, own in zip(sums, spread, strict=True)
        ]
        moving: QuasilinearDiffusion | None = None
        if any(is_quasilinear(term, len(grid)) for one in sums for term in one):
            moving = QuasilinearDiffusion(dataclasses.replace(settings[0], components=components), places, start, t1)
        discretised, varying = _discretise(settings, varying, moving, shape)
        velocity = states.velocity(du0, order_value(orders[0][1]), start)
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
            distribution=distribution,
            names=names,
        )
        problem.notes += discretised.notes
        if components == len(ends[0]) and len(grid) == 1 and isinstance(boundary, list | tuple):
            lower, upper = (type(one).__name__ for one in ends[0])
            if lower != upper:
                problem.notes.append(
                    f"boundary: {lower} holds at the lower end and {upper} at the upper one, for both components; the "
                    "entries of a pair are the two ends, and not the components"
                )
        coordinates = tuple(map(xp.array, places))
        read_source(problem, source, coordinates, extra)
        if len(delays) or history is not None:
            if reaction is None or library != "numpy" or not len(delays):
                raise InvalidInputError("delays and history= are for a reaction, in NumPy arrays; give all, or none")
            before = read_history(history, names, places, tuple(start.shape))
            problem.delayed = DelayedFrames(delays, before, discretised, t0, start, problem.u0)
        read_reaction(problem, reaction, jac, extra, start, coordinates)
        if _reading.choice("form", form, ("caputo", "fokker_planck")) == "fokker_planck":
            _read_memory_outside(problem, moving is not None)
        plain = library == "numpy" and len(orders) == 1 and varying is None and problem.alpha_value <= 1.0
        if problem.source is not None and not problem.steady_source and plain and t0 == 0.0:
            rise = problem.alpha_value if problem.integrated is None else 1.0
            problem.singular = read_singular(problem.source, t1, rise)
        if problem.integrated is not None:
            _refuse_infinite(problem)
        if moving is not None:
            if jac is not None:
                raise InvalidInputError("jac is given, and Diffusion depends on t or u; leave it out")
            own, added = problem.reaction, moving.reaction
            problem.reaction = added if own is None else lambda t, u: own(t, u) + added(t, u)
            problem.frozen = moving.frozen
        problem.compatible = _check_compatible(discretised, each, places, start, t0)
    if discretised.coarsens:
        problem.on_grid = functools.partial(_on_grid, problem, given, start, velocity)
    return problem


def _read_places(x: Any, domain: Any, space: Any, boundary: Any) -> tuple[tuple[Array, ...], tuple[Array, ...], Any]:
    """The grid, the coordinates of its points, and the boundary, which a Matrix has in it."""
    terms = space[0] if isinstance(space, list | tuple) and space else space
    if isinstance(terms, Matrix):
        if x is not None or boundary is not None:
            raise InvalidInputError("a Matrix has its nodes and their conditions in it; leave out x and boundary")
        return (np.arange(terms.nodes, dtype=float),), terms.coordinates(), "neumann"
    if x is None or boundary is None:
        raise InvalidInputError("x and boundary are needed: the grid, and the conditions at its ends")
    if isinstance(domain, Annulus | Disc):
        integral = isinstance(domain, Disc) and getattr(terms, "kind", None) == "integral"
        order = (order_value(terms.order),) if integral else ()
        return domain.grid(*order), domain.coordinates(*order), boundary
    grid = read_grid(x) if domain is None else domain.grid
    return grid, broadcast_points(NUMPY, grid), boundary


def _read_conditions(boundary: Any, names: tuple[str, ...], domain: Any, ndim: int) -> list[tuple[Ends, ...]]:
    """The conditions of each component; one entry where all share them."""
    entries = [boundary]
    if isinstance(boundary, dict) and names and not SIDES.issuperset(boundary):
        entries = component_entries("boundary", boundary, names)
    found = []
    for entry in entries:
        ends = read_boundary(entry, 1 if isinstance(domain, Annulus | Disc) else ndim)
        if isinstance(domain, Annulus | Disc):
            if isinstance(domain, Disc) and ends[0][0] != ends[0][1]:
                raise InvalidInputError("boundary: a disc has one circle, and a pair was given; give one condition")
            ends = (*ends, (Periodic(), Periodic()))
        found.append(ends)
    for name, ends in zip(names, found, strict=False):
        for axis, pairs in enumerate(zip(ends, found[0], strict=True)):
            if len({isinstance(lower, Periodic) for lower, _ in pairs}) > 1:
                raise InvalidInputError(
                    f"boundary: of axis {axis}, one of {names[0]!r} and {name!r} is periodic, whose grid is without "
                    "its end, and the other one is not; give both of a kind"
                )
    return found


def _discretise(
    settings: list[SpaceSetting],
    varying: VaryingOrder | None,
    moving: QuasilinearDiffusion | None,
    shape: tuple[int, ...],
) -> tuple[Semidiscretisation, VaryingOrder | None]:
    """The discretisation, and orders that vary at its unknown points."""
    if varying is None or varying.kind == "time":
        return discretise_components(settings) if moving is None else moving.space, varying
    at = varying.at
    if varying.kind == "components":
        space = discretise_components(settings) if moving is None else moving.space
        column = (-1, *(1,) * len(space.shape))
        return space, dataclasses.replace(varying, at=lambda t: at(t).reshape(column))
    why = "it takes one equation" if settings[0].components else FiniteVolumes.refuses(settings[0])
    if why is not None or moving is not None:
        raise InvalidInputError(f"alpha varies in space: {why or 'Diffusion must not depend on t or u'}")
    local = FiniteVolumes(settings[0])  # whose steps may have a shift for each point
    return local, dataclasses.replace(varying, at=lambda t: local.restrict(np.broadcast_to(at(t), shape)))


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
        if isinstance(given[name], dict):
            parts = zip(problem.names, values, strict=True)
            arrays = {which: moved(part, problem.space.grid, axes) for which, part in parts}
            changed[name] = arrays | {which: one for which, one in given[name].items() if is_function(one)}
        elif not is_function(given[name]):
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
    states = list(u0.values()) if isinstance(u0, dict) else [u0]
    if any(library_of(one) == "cupy" for one in states):
        raise UnsupportedDtypeError("u0 is a CuPy array; give a PyTorch tensor or a JAX array for a GPU")
    sums = space if isinstance(space, list | tuple) else (space,)
    parts = [term for one in sums for term in getattr(one, "terms", (one,)) if isinstance(term, SpaceTerm)]
    found = [
        *states,
        alpha,
        *(value for term in parts for value in (*coefficients_of(term), getattr(term, "order", None))),
    ]
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


def _read_memory_outside(problem: EvolutionProblem, quasilinear: bool) -> None:
    """Integrate source and reaction of ``u_t = D^(1-alpha) A u + source + reaction`` by ``1 - alpha``."""
    if len(problem.orders) > 1 or problem.alpha_value > 1.0:
        given = "terms or a DistributedOrder" if len(problem.orders) > 1 else f"alpha={problem.alpha_value:g}"
        raise InvalidInputError(f"form='fokker_planck' takes one order in (0, 1], and not {given}")
    if problem.alpha_value == 1.0 or (problem.source is None and problem.reaction is None):
        return  # both forms are the same
    if quasilinear:
        raise InvalidInputError("form='fokker_planck' takes Diffusion of t or u without source and reaction alone")
    problem.integrated = 1.0 - problem.alpha


def _refuse_infinite(problem: EvolutionProblem) -> None:
    """Refuse an integrated source that is infinite at t0, unless like a power."""
    if problem.xp.library != "numpy" or problem.source is None or problem.singular is not None:
        return
    if not np.isfinite(problem.source(problem.t0)).all():
        raise InvalidInputError(
            "form='fokker_planck': the source is not finite at t0; give one that is, or c(x) t^p with p > -1 and a "
            "bounded rest, from t0 = 0 on"
        )


def _check_compatible(
    space: Semidiscretisation, each: list[tuple[Ends, ...]], places: tuple[Array, ...], start: Any, t0: float
) -> bool:
    """Whether u0 has the values that Dirichlet conditions require; warns if it does not."""
    conditions = [one for boundary in each for ends in boundary for one in ends]
    if space.xp.library != "numpy" or not any(isinstance(one, Dirichlet) for one in conditions):
        return True
    held = space.embed(space.restrict(start), t0)
    gaps = np.nan_to_num(np.abs(start - held))
    gap = float(gaps.max())
    if not gap > _COMPATIBLE * max(float(np.abs(start).max()), float(np.nanmax(np.abs(held)))):
        return True
    ndim = len(space.grid)
    at, shape = np.unravel_index(int(gaps.argmax()), gaps.shape)[-ndim:], gaps.shape[-ndim:]
    point = ", ".join(f"{np.broadcast_to(one, shape)[at]:g}" for one in places)
    warn(
        f"u0 differs by {gap:.3g} from the boundary data at the point ({point}): the solution starts with a layer "
        "there. The boundary data hold. L1 on a graded mesh (method='l1') resolves the start; or give u0 that has the "
        "boundary values"
    )
    return False


#: The arguments of ``solve_fpde`` that make up the equation, without those that its functions take in addition.
EQUATION = tuple(name for name in inspect.signature(read_evolution).parameters if name not in ("args", "backend"))
