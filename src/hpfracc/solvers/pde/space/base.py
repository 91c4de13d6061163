"""The interface between a discretisation in space and a method in time."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_array, is_tracer, library_of, refuse_masked, to_host
from hpfracc._xp import NUMPY, Namespace, user_scope
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.solvers.pde.boundary import (
    Dirichlet,
    Ends,
    Exterior,
    Periodic,
    Robin,
    boundary_value,
    is_function,
    is_homogeneous,
    varies_in_time,
)
from hpfracc.solvers.pde.space.krylov import RTOL
from hpfracc.solvers.pde.terms import Diffusion, SpaceTerm, coefficients_of, is_tensor

Array = np.ndarray[Any, Any]
#: Values along some axes to coefficients, or back.
Transform = Callable[[Any], Any]

#: Largest relative deviation of the spacings of a uniform grid, to allow for rounded decimals.
_UNIFORM = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class SpaceSetting:
    """Everything that determines a discretisation.

    Attributes
    ----------
    terms : tuple of SpaceTerm
        The sum of terms, for one component.
    grid : tuple of numpy.ndarray
        The coordinates along each axis as the user gave them, increasing, float64; boundary points included except for
        the end of a period.
    boundary : tuple of pairs
        The conditions at both ends of each axis.
    xp : Namespace
        The library whose arrays it works on.
    complex_state : bool
        Whether the state is complex.
    t0 : float
        Start of the interval in time.
    backend : str
        Passed to the engine's functions.
    components : int or None
        Number of components of the state; None if the state has no axis of components.
    domain : Disc, Annulus, Region or None
        The domain, if it is not the whole box. Of a disc or annulus, ``grid`` contains the radii and angles.
    """

    terms: tuple[SpaceTerm, ...]
    grid: tuple[Array, ...]
    boundary: tuple[Ends, ...]
    xp: Namespace = field(default=NUMPY)
    complex_state: bool = False
    t0: float = 0.0
    backend: str = "auto"
    components: int | None = None
    domain: Any = None

    @property
    def ndim(self) -> int:
        """Number of axes in space."""
        return len(self.grid)

    @property
    def periodic(self) -> bool:
        """Whether every axis is periodic."""
        return all(isinstance(lower, Periodic) for lower, _ in self.boundary)

    @property
    def homogeneous(self) -> bool:
        """Whether all boundary data are zero."""
        return all(is_homogeneous(one) for ends in self.boundary for one in ends)

    @property
    def tensors(self) -> tuple[Diffusion, ...]:
        """The terms of diffusion with a full tensor; functions are called at a point to see what they return."""
        place = tuple(self.xp.array(x[x.size // 2 :][:1]) for x in self.grid)
        found = []
        for term in self.terms:
            if isinstance(term, Diffusion):
                k: Any = term.coefficient
                with np.errstate(all="ignore"):
                    found += [term] if is_tensor(k(*place) if is_function(k) and self.ndim > 1 else k) else []
        return tuple(found)

    def uniform(self, axis: int) -> bool:
        """Whether the grid of ``axis`` is equally spaced."""
        return is_uniform(self.grid[axis])

    def spacing(self, axis: int) -> float:
        """The spacing of a uniform grid."""
        x = self.grid[axis]
        return float((x[-1] - x[0]) / (x.size - 1))

    def face(self, value: Any, axis: int, end: int, coordinates: tuple[Any, ...]) -> Any:
        """Data of an end as an array of ``xp`` that broadcasts against a face with the points ``coordinates``."""
        xp = self.xp
        found = value if is_array(value) and library_of(value) == xp.library else xp.array(np.asarray(value))
        face = np.broadcast_shapes(*(tuple(one.shape) for one in coordinates))
        shape, lead = tuple(found.shape), () if self.components is None else (self.components,)
        if lead and shape == lead:
            return found.reshape((*lead, *(1,) * len(face)))
        if face[axis : axis + 1] == (1,) and shape == face[:axis] + face[axis + 1 :] != face:
            return found.reshape(face)
        if _reading.broadcasts(shape, face) or _reading.broadcasts(shape, (*lead, *face)):
            return found
        raise ShapeError(
            f"boundary data of shape {shape} at the {'upper' if end else 'lower'} end of axis {axis}, whose points "
            f"have shape {face}; give a number, or a function that returns that shape"
        )


def refuse_grid(setting: SpaceSetting, least: int = 4, *, uniform: bool = True) -> str | None:
    """Why the grid has too few points, or is not uniform; None if neither."""
    for axis, x in enumerate(setting.grid):
        if x.size < least:
            return f"the grid of axis {axis} has {x.size} points; use {least} or more"
        if uniform and not is_uniform(x):
            return f"the grid of axis {axis} is not uniform, which it needs; use equal distances (np.linspace)"
    return None


def refuse_complex(term: Any) -> str | None:
    """Why the coefficients and the order of a term are not real numbers or functions; None if they are."""
    values = [*coefficients_of(term), getattr(term, "order", 1.0)]
    if any(isinstance(one, complex) or (is_array(one) and library_of(one) != "numpy") for one in values):
        return f"{type(term).__name__} has a coefficient or order that is complex or a tensor; give real numbers"
    return None


def refuse_conditions(setting: SpaceSetting, power: bool) -> str | None:
    """Why the Laplacian with these conditions is not negative, or has no power; None if it is and has one."""
    for one in (one for ends in setting.boundary for one in ends):
        if isinstance(one, Exterior):
            return "local operators and spectral powers take conditions on the boundary, no exterior data"
        if isinstance(one, Robin) and one.a / one.b < 0:
            return "the Laplacian with this Robin condition may have positive eigenvalues; use a / b of 0 and above"
        if power and not isinstance(one, Dirichlet) and not is_homogeneous(one):
            return "a spectral power with data for the slope is not defined; use zero, or Dirichlet data"
    return None


def refuse_backwards(coefficient: Any) -> None:
    """Refuse a real coefficient of fractional diffusion that is negative or not finite anywhere."""
    values = np.zeros(1) if is_tracer(coefficient) else to_host(coefficient)
    if not np.iscomplexobj(values) and not np.all((values >= 0.0) & (values < np.inf)):
        raise InvalidInputError(
            f"FractionalDiffusion: a coefficient of {float(np.min(values)):g}; diffusion backwards is ill-posed: use "
            "coefficients of 0 and above"
        )


def is_uniform(x: Array) -> bool:
    """Whether the points of ``x`` are equally spaced, up to the rounding of decimals."""
    steps = np.diff(x)
    mean = float(steps.mean())
    return bool(np.all(np.abs(steps - mean) <= _UNIFORM * mean))


def read_grid(x: Any) -> tuple[Array, ...]:
    """The coordinates along each axis."""
    given = list(x) if isinstance(x, tuple | list) and len(x) and np.ndim(x[0]) == 1 else [x]
    if not 1 <= len(given) <= 3:
        raise ShapeError(f"x has {len(given)} axes; give the points of one to three")
    axes = []
    for number, points in enumerate(given):
        refuse_masked(points, f"x[{number}]")
        axis = _reading.numbers(f"x[{number}]", to_host(points) if is_array(points) else points)
        if axis.ndim != 1 or axis.size < 3:
            raise ShapeError(f"x[{number}] has shape {axis.shape}; give at least 3 points along one axis")
        down = np.flatnonzero(np.diff(axis) <= 0.0)
        if down.size:
            at = int(down[0])
            raise InvalidInputError(
                f"x[{number}] does not increase: {axis[at]:g} is followed by {axis[at + 1]:g}; sort it, without repeats"
            )
        axes.append(axis)
    return tuple(axes)


class Semidiscretisation(abc.ABC):
    r"""A sum of space terms with its boundary conditions, as a linear operator on the unknown points of a grid.

    .. math:: D^\alpha u = A u + b(t) + \text{source} + \text{reaction}

    All arrays belong to the library of ``xp``; ``u`` has the shape ``(..., *shape)``, where leading axes are a batch.

    Attributes
    ----------
    name : str
        Name for reports.
    accuracy : str
        The order in space, in words.
    shape : tuple of int
        Number of unknowns along each axis; points with a Dirichlet condition are not among them.
    points : tuple of arrays
        The coordinates of the unknowns, one array per axis, shaped to broadcast against ``u``; empty if the components
        of a system have unknown points of their own.
    grid : tuple of numpy.ndarray
        The whole grid, boundary points included, one array per axis.
    symbol : array or None
        The eigenvalues of A in the basis of :meth:`forward`; None if A is not diagonalised. Its shape is that of a
        transformed state, without leading axes.
    transforms : pair of tuple of callables
        Applied in turn they give the coefficients in the eigenvectors of A, and the values back.
    xp : Namespace
        The library of the arrays.
    notes : tuple of str
        Remarks on this discretisation for the user.
    """

    name: ClassVar[str]
    accuracy: str
    shape: tuple[int, ...]
    points: tuple[Any, ...]
    grid: tuple[Array, ...]
    symbol: Any = None
    transforms: tuple[tuple[Transform, ...], tuple[Transform, ...]] = ((), ())
    xp: Namespace = NUMPY
    notes: tuple[str, ...] = ()
    #: Whether it can be made for every second point of its grid, to estimate its error; others estimate it from u.
    coarsens: bool = True
    #: The highest order that its largest error has; infinite for spectral methods.
    best_order: float = 2.0
    #: Whether its unknowns are points of the box in one vector, whatever the number of axes.
    scattered: bool = False
    #: Whether a coarser grid has to consist of points of its grid.
    nested: bool = False
    #: Whether the components of a system are coupled by it, so that linear systems take one shift for all.
    mixes: bool = False
    #: Whether ``forcing`` is nonzero, and whether it depends on time.
    forced: bool = False
    forcing_varies: bool = False

    @classmethod
    @abc.abstractmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Why it does not support this setting, as a sentence that says what to do instead; None if it does."""

    def forward(self, u: Any) -> Any:
        """The coefficients of ``u`` in the eigenvectors of A."""
        for transform in self.transforms[0]:
            u = transform(u)
        return u

    def backward(self, c: Any) -> Any:
        """The values with the coefficients ``c``."""
        for transform in self.transforms[1]:
            c = transform(c)
        return c

    def lacks_modes(self, accuracy: float) -> str | None:
        """Why :meth:`with_modes` gives no eigenvectors; None if it does.

        ``accuracy`` is how far from its value an eigenvalue may be.
        """
        return "it has no symmetric matrix, or too many unknowns" if self.symbol is None else None

    def with_modes(self) -> Semidiscretisation:
        """Itself, or the same operator in its eigenvectors."""
        return self

    def lacks_resolvent(self) -> str | None:
        """Why :meth:`resolvent` gives none; None if it does, and the eigenvalues of A are real and not positive."""
        return "it has no sparse matrix"

    def resolvent(self) -> Callable[[Any, Any], Any]:
        """``solve(shift, rhs)``: ``(shift - A)^-1 rhs`` of one state, for complex shifts, one for all or each point."""
        raise NotImplementedError

    def apply(self, u: Any) -> Any:
        """``A u``, for homogeneous boundary data; in the eigenvectors."""
        return self.backward(self.symbol * self.forward(u))

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """``(shift - A)^-1 rhs``, in the eigenvectors; iterative methods start from ``guess``, and stop at ``rtol``."""
        to, back = self.transforms
        for transform in to:
            rhs = transform(rhs)
        rhs = rhs / (shift - self.symbol)
        for transform in back:
            rhs = transform(rhs)
        return rhs

    def largest(self, u: Any) -> float:
        """The largest absolute value of a state."""
        sizes = self.xp.abs(self.xp.stop_gradient(u))
        return float(sizes.item(sizes.argmax()) if self.xp is NUMPY else sizes.max())  # the faster of equals

    def forcing(self, t: float) -> Any:
        """``b(t)``, from boundary or exterior data; None if there are none."""
        return None

    @abc.abstractmethod
    def embed(self, u: Any, t: float) -> Any:
        """Values on the whole grid at time ``t``, boundary points included."""

    @abc.abstractmethod
    def restrict(self, values: Any) -> Any:
        """The values at the unknown points, from values on the whole grid."""

    @abc.abstractmethod
    def integrate(self, values: Any) -> Any:
        """The integral over the box of values on the whole grid, over the last axes."""

    def weighted(self, u: Any, periodic: tuple[bool, ...]) -> Any:
        """The values times the weights of their points in the trapezoidal rule, for inner products."""
        weights = np.ones(())
        for points, wraps in zip(self.grid, periodic, strict=True):
            weights = weights[..., None] * trapezoid(points, wraps)
        return self.restrict(self.xp.array(weights)) * u

    def space_error(self, u: Any) -> float:
        """An estimate of the largest error of ``u`` due to the grid, from ``u`` alone; nan if there is none."""
        return math.nan

    def unresolved(self, u: Any, *, source: bool = False) -> Any:
        """The size of what the points do not resolve in a state or source, by coefficients; None if that is unknown."""
        return None

    def step_bytes(self) -> int:
        """Bytes that :meth:`solve` needs besides its operands, for the memory forecast."""
        return 4 * 8 * math.prod(self.shape)


class GridSpace(Semidiscretisation):
    """A discretisation whose unknowns are points of the grid; ends with given values are no unknowns."""

    def __init__(self, setting: SpaceSetting) -> None:
        self.setting, self.xp, self.grid = setting, setting.xp, setting.grid
        #: Whether the first and the last point of each axis are no unknowns.
        self.missing = [tuple(isinstance(one, Dirichlet | Exterior) for one in ends) for ends in setting.boundary]
        self.inside = tuple(x[self.unknowns(axis)] for axis, x in enumerate(setting.grid))
        self.shape = tuple(x.size for x in self.inside)
        self.points = broadcast_points(self.xp, self.inside)
        self._everywhere = broadcast_points(self.xp, self.grid)
        self.forced = not setting.homogeneous
        self.forcing_varies = any(varies_in_time(one) for ends in setting.boundary for one in ends)
        both = zip(setting.grid, setting.boundary, strict=True)
        weights = [trapezoid(x, isinstance(lower, Periodic)) for x, (lower, _) in both]
        self._quadrature = [self.xp.array(one) for one in weights]
        #: The place of the unknowns in values on the whole grid.
        self._inner: Any = (..., *(self.unknowns(axis) for axis in range(len(self.grid))))
        self._whole = tuple(x.size for x in setting.grid)
        #: Values on the whole grid without those of the unknowns, if they are steady.
        self._frame: Any = None
        if setting.xp.library == "numpy" and not self.forcing_varies:
            lead = () if setting.components is None or not self.forced else (setting.components,)
            frame = self.embed(np.zeros((*lead, *self.shape)), setting.t0)
            self._frame = frame if frame.dtype.kind == "f" else None

    def unknowns(self, axis: int) -> slice:
        """The points of an axis that are unknowns."""
        lower, upper = self.missing[axis]
        return slice(int(lower), self.grid[axis].size - int(upper))

    def datum(self, axis: int, end: int, t: float, coordinates: tuple[Any, ...] | None = None) -> Any:
        """The data of an end, at the unknowns of the other axes or at these points, broadcastable to a face."""
        condition = self.setting.boundary[axis][end]
        if is_homogeneous(condition):
            return 0.0
        place = self.xp.array(np.full((1,) * len(self.grid), self.grid[axis][-end]))
        given = self.points if coordinates is None else coordinates
        here = tuple(place if one == axis else each for one, each in enumerate(given))
        return self.setting.face(boundary_value(condition, t, here), axis, end, here)

    def embed(self, u: Any, t: float) -> Any:
        """Adds the given values at the ends; at corners those of the later axis."""
        if self._frame is not None:
            whole = np.zeros((*u.shape[: -len(self._whole)], *self._whole), u.dtype)
            if self.forced:
                whole[...] = self._frame
            whole[self._inner] = u
            return whole
        for axis, missing in enumerate(self.missing):
            if not any(missing):
                continue
            place = axis - len(self.grid)
            edge = self.xp.zeros_like(axis_part(u, place, slice(0, 1)))
            values = [edge, edge]
            if self.forced:
                coordinates = (*self._everywhere[:axis], *self.points[axis:])
                values = [edge + self.datum(axis, end, t, coordinates) if missing[end] else edge for end in (0, 1)]
            u = self.xp.concatenate([*values[: int(missing[0])], u, *values[2 - int(missing[1]) :]], place)
        return u

    def restrict(self, values: Any) -> Any:
        """Removes the ends with given values."""
        return values[self._inner]

    def integrate(self, values: Any) -> Any:
        """The trapezoidal rule."""
        for weights in reversed(self._quadrature):
            values = (values * weights).sum(-1)
        return values


def sparse_resolvent(a: Any, masses: Any, shape: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """``(shift + M^-1 a)^-1 rhs`` for sparse matrices, by a factorisation each time."""
    from scipy.sparse import csc_array

    return functools.partial(_resolve, csc_array(a), csc_array(masses), shape)


def _resolve(a: Any, masses: Any, shape: tuple[int, ...], shift: Any, rhs: Any) -> Any:
    from scipy.sparse import csc_array, diags_array
    from scipy.sparse.linalg import splu

    shifts = np.broadcast_to(shift, shape).reshape(-1).astype(complex)
    return splu(csc_array(a + masses @ diags_array(shifts))).solve(masses @ rhs.reshape(-1)).reshape(shape)


def of_unknowns(
    problem: Any, function: Callable[..., Any], name: str, start: Any, shape: tuple[int, ...], places: Any, cut: bool
) -> Callable[[Any, Any], Any]:
    """A user's function of t, values on the whole grid and ``places``, as a function of t and the unknowns.

    Its values, of the given shape, are of the kind of ``start``, and ``cut`` to the unknowns. Calls are counted.
    """
    space, xp, delayed, stats, counter = problem.space, problem.xp, problem.delayed, problem.stats, f"{name}s"
    native, real = type(start), not xp.is_complex(start)
    bare = bool(space.points) and tuple(axis.size for axis in space.grid) == space.shape
    embed, restrict = None if bare else space.embed, space.restrict if cut and not bare else None
    scope = user_scope() if xp.library == "jax" else None

    def evaluate(t: Any, u: Any) -> Any:
        values = u if embed is None else embed(u, t)
        more = places if delayed is None else (delayed(t, u), *places)
        if scope is None:
            found = function(t, values, *more)
        else:
            with scope():
                found = function(t, values, *more)
        if type(found) is not native and not (is_array(found) and library_of(found) == xp.library):
            found = xp.array(np.asarray(found)) if not np.iscomplexobj(found) else np.asarray(found)
        if found.shape != shape:
            raise ShapeError(f"{name}(t, u) returned shape {tuple(found.shape)}; it has to return {shape}")
        if real and found.dtype != u.dtype and xp.is_complex(found) and not xp.is_complex(u):
            raise UnsupportedDtypeError(f"{name}(t, u) returned complex values for a real u; give u0 as complex")
        stats[counter] += 1
        return found if restrict is None else restrict(found)

    return evaluate


def trapezoid(x: Array, periodic: bool = False) -> Array:
    """Weights of the trapezoidal rule; of a uniform grid, if it is periodic."""
    steps = np.diff(x)
    if periodic:
        return np.full(x.size, steps.mean())
    weights = np.zeros(x.size)
    weights[:-1] += 0.5 * steps
    weights[1:] += 0.5 * steps
    return weights


def axis_part(values: Any, axis: int, part: slice) -> Any:
    """A part of an array along an axis, which is counted from the end."""
    return values[(..., part, *(slice(None),) * (-axis - 1))]


def broadcast_points(xp: Namespace, axes: tuple[Array, ...]) -> tuple[Any, ...]:
    """One array per axis, shaped ``(1, .., n, .., 1)``."""
    count = len(axes)
    return tuple(xp.array(x.reshape((1,) * axis + (-1,) + (1,) * (count - 1 - axis))) for axis, x in enumerate(axes))
