r"""Coefficients that vary in space, advection, and conditions of every kind: finite volumes on a tensor grid."""

from __future__ import annotations

import math
import warnings
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_array, library_of, to_host
from hpfracc.engine.execution.operation import get_operation
from hpfracc.errors import AccuracyWarning, InvalidInputError
from hpfracc.solvers.pde.boundary import (
    Exterior,
    Neumann,
    NoFlux,
    Periodic,
    Robin,
    boundary_value,
    is_homogeneous,
    varies_in_time,
)
from hpfracc.solvers.pde.space.axes import AxisBasis, make_axis
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting, broadcast_points
from hpfracc.solvers.pde.space.cells import CellAxis, cell_axis
from hpfracc.solvers.pde.space.krylov import conjugate_gradients, gmres
from hpfracc.solvers.pde.terms import Advection, Diffusion, SpaceTerm

__all__ = ["FiniteVolumes"]

Array = np.ndarray[Any, Any]

_tridiagonal_solve = get_operation("tridiagonal_solve")
#: Distance of the two Gauss points of a cell from its midpoint, relative to its width.
_GAUSS = 0.5 / math.sqrt(3.0)


@final
class FiniteVolumes(Semidiscretisation):
    r""":math:`\nabla \cdot (k \nabla u) - v \cdot \nabla u` with coefficients that may vary, of order 2.

    Cells around the grid's points exchange :math:`k\,(u_{i+1} - u_i)/h`, with k the harmonic mean between the two
    points (by two Gauss points), which is also accurate where k jumps. What leaves one cell enters the next, so mass is
    conserved to rounding. Advection is by centred differences of u; in conservative form, and along axes with an end
    without flux, by the flux :math:`v (u_i + u_{i+1})/2`. In one dimension the grid need not be uniform. Conditions may
    be Dirichlet, Neumann, Robin or periodic, with data that depend on time, or no flux.

    Linear systems: elimination in one dimension. In more dimensions, for periodic axes, and for tensors with advection,
    conjugate gradients (GMRES with advection) preconditioned by the sine, cosine or Fourier transform for the mean
    coefficient. The number of iterations grows with the ratio of the largest coefficient to the smallest, not with the
    number of points.
    """

    name = "finite_volumes"
    accuracy = "order 2"

    def __init__(self, setting: SpaceSetting) -> None:
        self.setting, self.xp, self.grid = setting, setting.xp, setting.grid
        self._axes = [cell_axis(setting, axis) for axis in range(setting.ndim)]
        self._points = tuple(one.x[int(one.missing(0)) : one.x.size - int(one.missing(1))] for one in self._axes)
        self.shape = tuple(x.size for x in self._points)
        self.points = broadcast_points(self.xp, self._points)
        #: Iterations of the last linear system; 0 for elimination.
        self.iterations = 0
        ends = [one for pair in setting.boundary for one in pair]
        self.forced = not all(map(is_homogeneous, ends))
        self.forcing_varies = any(map(varies_in_time, ends))
        for term in setting.terms:
            self._add(term)
        for one in self._axes:
            self._warn_of_peclet(one)
        self._symmetric = all(one.symmetric for one in self._axes) and not setting.complex_state
        self._bands: Any = None
        self._bases: list[tuple[AxisBasis, Any]] | None = None
        self._masses: Any = None
        quadrature = [one.trapezoid() for one in self._axes]
        self._quadrature = [self.xp.array(one) for one in quadrature]

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Refuses fractional terms, exterior data, and non-uniform grids where a transform preconditions."""
        for term in setting.terms:
            if not isinstance(term, Diffusion | Advection):
                return f"it takes Diffusion and Advection, not {type(term).__name__}"
            each = term.coefficient if isinstance(term, Diffusion) else term.velocity
            if isinstance(each, tuple | list) and len(each) != setting.ndim:
                return f"{type(term).__name__} has {len(each)} coefficients for {setting.ndim} axes"
        for axis, (lower, _) in enumerate(setting.boundary):
            if isinstance(lower, Exterior):
                return "data outside have no meaning for local terms; use Dirichlet(value)"
            if setting.grid[axis].size < 4:
                return f"the grid of axis {axis} has {setting.grid[axis].size} points; use 4 or more"
            if not setting.uniform(axis):
                if isinstance(lower, Periodic):
                    return f"the grid of axis {axis} is periodic and not uniform; use equal distances"
                if setting.ndim > 1 or setting.xp.library != "numpy":
                    return (
                        f"the grid of axis {axis} is not uniform, which it takes in one dimension and for NumPy "
                        "arrays only; use equal distances"
                    )
        return None

    @classmethod
    def make(cls, setting: SpaceSetting) -> FiniteVolumes:
        """Computes the coefficients at the faces of all cells."""
        return cls(setting)

    def _add(self, term: SpaceTerm) -> None:
        if isinstance(term, Diffusion):
            each = _per_axis(term.coefficient, len(self._axes))
            for one, k in zip(self._axes, each, strict=True):
                faces = self._faces(one, k)
                one.faces = faces if one.faces is None else one.faces + faces
                values = self._at(k, one, self._points[len(self._axes) + one.place])
                one.values = values if one.values is None else one.values + values
                ends = tuple(self._at(k, one, one.x[place : place + 1]) for place in (0, one.x.size - 1))
                one.ends = ends if one.ends[0] is None else (one.ends[0] + ends[0], one.ends[1] + ends[1])
        elif isinstance(term, Advection):
            each = _per_axis(term.velocity, len(self._axes))
            for one, v in zip(self._axes, each, strict=True):
                if not callable(v) and not is_array(v) and v == 0:
                    continue
                if term.conservative or one.closed:
                    self._add_carrier(one, v, conservative=term.conservative)
                    continue
                speeds = self._at(v, one, self._points[len(self._axes) + one.place])
                one.speeds = speeds if one.speeds is None else one.speeds + speeds

    def _add_carrier(self, one: CellAxis, v: Any, *, conservative: bool) -> None:
        x = np.append(one.x, one.x[-1] + one.steps[-1]) if one.periodic else one.x
        at_points = self._at(v, one, x)
        if not conservative and is_array(at_points) and at_points.ndim and at_points.shape[one.place] > 1:
            lead = _part(at_points, one.place, slice(0, 1))
            if library_of(at_points) != "jax" and bool((to_host(at_points) != to_host(lead)).any()):
                raise InvalidInputError(
                    f"Advection with a velocity that varies along axis {len(self._axes) + one.place}, which has an end "
                    "without flux: -v du/dx is not the divergence of a flux; use Advection(v, conservative=True), "
                    "which is -d(v u)/dx, or boundary='neumann'"
                )
        middle = self._at(v, one, 0.5 * (x[1:] + x[:-1]))
        ends = tuple(self._at(v, one, one.x[place : place + 1]) for place in (0, one.x.size - 1))
        one.carriers = middle if one.carriers is None else one.carriers + middle
        before = one.outflow
        one.outflow = ends if before[0] is None else (before[0] + ends[0], before[1] + ends[1])

    def _at(self, coefficient: Any, one: CellAxis, x: Array) -> Any:
        """A coefficient at coordinates ``x`` of this axis and at the unknowns of the others."""
        if not callable(coefficient) or is_array(coefficient):
            return coefficient if is_array(coefficient) else _number(coefficient)
        places = list(self._points)
        places[len(places) + one.place] = x
        return coefficient(*broadcast_points(self.xp, tuple(places)))

    def _faces(self, one: CellAxis, k: Any) -> Any:
        if not callable(k) or is_array(k):
            self._check_positive(k)
            return k if is_array(k) else _number(k)
        x = np.append(one.x, one.x[-1] + one.steps[-1]) if one.periodic else one.x
        middle, width = 0.5 * (x[1:] + x[:-1]), np.diff(x)
        values = [self._at(k, one, middle + side * width) for side in (-_GAUSS, _GAUSS)]
        for each in values:
            self._check_positive(each)
        return 2.0 / (1.0 / values[0] + 1.0 / values[1])

    def _check_positive(self, values: Any) -> None:
        if is_array(values) and library_of(values) == "jax":
            return  # may be traced
        plain = to_host(values) if is_array(values) else np.asarray(values)
        if not np.iscomplexobj(plain) and not np.all(plain > 0.0):
            raise InvalidInputError(
                f"Diffusion: a coefficient of {float(np.min(plain)):g}; it has to be positive everywhere, or the "
                "equation is ill-posed"
            )

    def _warn_of_peclet(self, one: CellAxis) -> None:
        moving = [v for v in (one.speeds, one.carriers) if v is not None]
        if not moving or any(is_array(v) and library_of(v) == "jax" for v in (*moving, one.faces)):
            return  # may be traced
        speed = max(float(np.max(np.abs(to_host(v) if is_array(v) else v))) for v in moving)
        if one.faces is None:
            least = 0.0
        else:
            least = float(np.min(np.abs(to_host(one.faces) if is_array(one.faces) else one.faces)))
        widest = float(one.steps.max())
        number = speed * widest / least if least else math.inf
        if number > 2.0 * (1.0 + 1e-9) and speed:
            advice = f"use distances of {2.0 * least / speed:.2g} or less" if least else "add some Diffusion"
            text = f"transport by centred differences with a cell Peclet number of {number:.3g}, above 2, oscillates"
            self.notes = (*self.notes, f"{text}; {advice}")
            warnings.warn(f"{text}; {advice}", AccuracyWarning, stacklevel=2)

    def apply(self, u: Any) -> Any:
        """Differences of the fluxes between cells, along each axis."""
        return self._sum(u, None)

    def forcing(self, t: float) -> Any:
        """The operator applied to the boundary data, with zero at all unknowns."""
        if not self.forced:
            return None
        lead = () if self.setting.components is None else (self.setting.components,)
        return self._sum(self.xp.zeros((*lead, *self.shape), "float64"), t)

    def _sum(self, u: Any, t: float | None) -> Any:
        total: Any = None
        for one in self._axes:
            part = self._along(one, u, t)
            if part is not None:
                total = part if total is None else total + part
        return 0.0 * u if total is None else total

    def _along(self, one: CellAxis, u: Any, t: float | None) -> Any:
        xp, place = self.xp, one.place
        if one.faces is None and one.symmetric:
            return None
        # With neighbours on both sides: the Dirichlet boundary, the periodic image, or none.
        edges = [self._edge(one, end, u, t) for end in (0, 1)]
        if one.periodic:
            full = xp.concatenate([_part(u, place, slice(-1, None)), u, _part(u, place, slice(0, 1))], place)
        else:
            full = xp.concatenate([*edges[0], u, *edges[1]], place)
        steps = self._column(one, np.append(one.steps, one.steps[-1]) if one.periodic else one.steps)
        slopes = (_part(full, place, slice(1, None)) - _part(full, place, slice(0, -1))) / steps
        normal = [self._boundary_slope(one, end, u, t) for end in (0, 1)]
        fluxes = []
        if one.faces is not None:
            faces = self._wrapped(one, one.faces)
            ends = [None if each is None else k * each for k, each in zip(one.ends, normal, strict=True)]
            fluxes.append((faces * slopes, ends))
        if one.carriers is not None:
            mean = 0.5 * (_part(full, place, slice(1, None)) + _part(full, place, slice(0, -1)))
            fluxes.append((-self._wrapped(one, one.carriers) * mean, self._carried_out(one, u)))
        result: Any = None
        for inner, ends in fluxes:
            flux = [each for each in (ends[0], inner, ends[1]) if each is not None]
            joined = xp.concatenate(flux, place) if len(flux) > 1 else flux[0]
            change = _part(joined, place, slice(1, None)) - _part(joined, place, slice(0, -1))
            part = change / self._column(one, one.widths)
            result = part if result is None else result + part
        if one.speeds is not None:
            result = self._transport(one, slopes, normal, result)
        return result

    def _wrapped(self, one: CellAxis, faces: Any) -> Any:
        """Coefficients between points, with the one before the first point if the axis is periodic."""
        if one.periodic and is_array(faces) and faces.ndim and faces.shape[one.place] > 1:
            return self.xp.concatenate([_part(faces, one.place, slice(-1, None)), faces], one.place)
        return faces

    def _carried_out(self, one: CellAxis, u: Any) -> list[Any]:
        """Minus the flux of the carriers through each end; None where the end is no unknown."""
        found: list[Any] = []
        for end, condition in enumerate((one.lower, one.upper)):
            if one.periodic or one.missing(end):
                found.append(None)
                continue
            here = _part(u, one.place, slice(-1, None) if end else slice(0, 1))
            found.append(0.0 * here if isinstance(condition, NoFlux) else -one.outflow[end] * here)
        return found

    def _transport(self, one: CellAxis, slopes: Any, normal: list[Any], result: Any) -> Any:
        """Minus v times the slope at a point: the mean of the adjacent slopes, weighted by the opposite distances."""
        xp, place = self.xp, one.place
        steps = np.append(one.steps, one.steps[-1]) if one.periodic else one.steps
        share = self._column(one, steps[1:] / (steps[1:] + steps[:-1]))
        middle = [share * _part(slopes, place, slice(0, -1)) + (1.0 - share) * _part(slopes, place, slice(1, None))]
        if normal[0] is not None:
            middle.insert(0, normal[0])
        if normal[1] is not None:
            middle.append(normal[1])
        slope = xp.concatenate(middle, place) if len(middle) > 1 else middle[0]
        carried = -one.speeds * slope
        return carried if result is None else result + carried

    def _edge(self, one: CellAxis, end: int, u: Any, t: float | None) -> list[Any]:
        """The value on a Dirichlet boundary, as a list of one array; an empty list otherwise."""
        if not one.missing(end):
            return []
        edge = 0.0 * _part(u, one.place, slice(0, 1))
        return [edge if t is None else edge + self._datum(one, end, t)]

    def _boundary_slope(self, one: CellAxis, end: int, u: Any, t: float | None) -> Any:
        """The derivative along the axis on the boundary, from a Neumann or Robin condition; otherwise None."""
        condition = (one.lower, one.upper)[end]
        if not isinstance(condition, Neumann | NoFlux | Robin):
            return None
        here = _part(u, one.place, slice(-1, None) if end else slice(0, 1))
        outward = 0.0 * here if t is None else 0.0 * here + self._datum(one, end, t)
        if isinstance(condition, Robin):
            outward = (outward - condition.a * here) / condition.b
        return outward if end else -outward

    def _datum(self, one: CellAxis, end: int, t: float) -> Any:
        axis = len(self._axes) + one.place
        condition = (one.lower, one.upper)[end]
        if is_homogeneous(condition):
            return 0.0
        place = self.xp.array(np.full((1,) * len(self._axes), one.x[-end]))
        here = tuple(place if number == axis else each for number, each in enumerate(self.points))
        return self.setting.face(boundary_value(condition, t, here), axis, end, here)

    def _column(self, one: CellAxis, values: Array) -> Any:
        return self.xp.array(values.reshape(-1, *(1,) * (-1 - one.place)))

    def solve(self, shift: Any, rhs: Any, guess: Any = None) -> Any:
        """Elimination on one axis, otherwise a preconditioned Krylov method."""
        (first, *others) = self._axes
        if not others and not first.periodic and (self.xp.library == "numpy" or first.symmetric):
            self.iterations = 0
            return self._solve_bands(shift, rhs)
        masses, precondition = self._cell_masses(), self._preconditioner(shift)

        def operator(u: Any) -> Any:
            return masses * (shift * u - self.apply(u))

        def approximate(r: Any) -> Any:
            return precondition(r / masses)

        if self._symmetric:
            found, self.iterations = conjugate_gradients(
                operator, approximate, masses * rhs, guess, axes=len(self.shape)
            )
        else:
            found, self.iterations = gmres(operator, approximate, masses * rhs, guess)
        return found

    def _solve_bands(self, shift: Any, rhs: Any) -> Any:
        if self._bands is None:
            self._bands = self._find_bands()
        lower, middle, upper = self._bands
        diagonal = shift + middle
        if self.xp.library == "numpy" and not np.all(np.abs(diagonal) >= np.abs(lower) + np.abs(upper)):
            return self._solve_pivoted(lower, diagonal, upper, rhs)  # strong advection
        backend = None if self.setting.backend == "auto" else self.setting.backend
        return _tridiagonal_solve(lower, diagonal, upper, rhs, backend=backend)

    def _solve_pivoted(self, lower: Array, diagonal: Array, upper: Array, rhs: Array) -> Any:
        from scipy.linalg import solve_banded

        if diagonal.ndim > 1:  # one per component
            parts = [self._solve_pivoted(lower, one, upper, part) for one, part in zip(diagonal, rhs, strict=True)]
            return np.stack(parts)
        bands = np.stack([np.roll(upper, 1), diagonal, np.roll(lower, -1)])
        flat = rhs.reshape(-1, self.shape[0])
        return solve_banded((1, 1), bands, flat.T, overwrite_ab=True, check_finite=False).T.reshape(rhs.shape)

    def _find_bands(self) -> tuple[Any, Any, Any]:
        """The three diagonals of minus A, by applying A to three vectors with non-overlapping columns."""
        xp, number = self.xp, np.arange(self.shape[0])
        images = [self.apply(xp.array((number % 3 == colour).astype(float))) for colour in range(3)]
        bands = []
        for offset in (-1, 0, 1):
            column = number + offset
            inside = (column >= 0) & (column < number.size)
            parts = [images[c] * xp.array(((column % 3 == c) & inside).astype(float)) for c in range(3)]
            bands.append(-(parts[0] + parts[1] + parts[2]))
        return bands[0], bands[1], bands[2]

    def _cell_masses(self) -> Any:
        if self._masses is None:
            total: Any = 1.0
            for one in self._axes:
                total = total * self._column(one, one.widths / one.widths.max())
            self._masses = total
        return self._masses

    def _preconditioner(self, shift: Any) -> Any:
        """The inverse for mean coefficients, in the eigenvectors of second differences along each axis.

        It is scaled from both sides with the root of the local coefficients over their means, evaluated at the mean of
        the eigenvalues (Concus and Golub 1973, with the shift).
        """
        if self._bases is None:
            self._bases = self._make_bases()
        total: Any = shift
        local: Any = shift
        mean: Any = shift
        for one, (_, squares) in zip(self._axes, self._bases, strict=True):
            if one.values is None:
                continue
            middle = float(to_host(squares).mean())
            average = one.values.mean() if is_array(one.values) else one.values
            total = total + average * squares
            local, mean = local + one.values * middle, mean + average * middle
        ratio = local / mean
        scale = self.xp.sqrt(ratio) if is_array(ratio) and not self.xp.is_complex(ratio) else 1.0
        bases = [basis for basis, _ in self._bases]

        def inverse(r: Any) -> Any:
            c = r / scale
            for place, basis in enumerate(bases, -len(bases)):
                c = basis.forward(c, place)
            c = c / total
            for place, basis in enumerate(bases, -len(bases)):
                c = basis.backward(c, place)
            return (c if self.setting.complex_state or not self.xp.is_complex(c) else c.real) / scale

        return inverse

    def _make_bases(self) -> list[tuple[AxisBasis, Any]]:
        """The transform along each axis, and the negated eigenvalues of second differences."""
        setting, count = self.setting, self.setting.ndim
        found = []
        for axis in range(count):
            basis = make_axis(self.xp, setting.grid[axis], setting.boundary[axis], half=False)
            squares = basis.squares
            if basis.spectral:  # convert eigenvalues of the derivative to the smaller ones of differences
                h = setting.spacing(axis)
                squares = (2.0 / h * np.sin(0.5 * h * np.sqrt(np.maximum(squares, 0.0)))) ** 2
            column = squares.reshape((1,) * axis + (-1,) + (1,) * (count - 1 - axis))
            found.append((basis, self.xp.array(column)))
        return found

    def embed(self, u: Any, t: float) -> Any:
        """Adds the values on Dirichlet boundaries; at corners those of the later axis."""
        coordinates = list(self.points)
        for axis, one in enumerate(self._axes):
            edges: list[list[Any]] = [[], []]
            for end in (0, 1):
                if one.missing(end):
                    edge = 0.0 * _part(u, one.place, slice(0, 1))
                    condition = (one.lower, one.upper)[end]
                    if not is_homogeneous(condition):
                        place = self.xp.array(np.full((1,) * len(self._axes), one.x[-end]))
                        here = tuple(place if number == axis else each for number, each in enumerate(coordinates))
                        edge = edge + self.setting.face(boundary_value(condition, t, here), axis, end, here)
                    edges[end] = [edge]
            u = self.xp.concatenate([*edges[0], u, *edges[1]], one.place)
            coordinates[axis] = broadcast_points(self.xp, self.grid)[axis]
        return u

    def restrict(self, values: Any) -> Any:
        """Removes the points of Dirichlet boundaries."""
        inside = [slice(int(one.missing(0)), one.x.size - int(one.missing(1))) for one in self._axes]
        return values[(..., *inside)]

    def integrate(self, values: Any) -> Any:
        """The sum over cells."""
        for weights in reversed(self._quadrature):
            values = (values * weights).sum(-1)
        return values


def _per_axis(value: Any, count: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * count


def _number(value: Any) -> complex | float:
    found = complex(value)
    return found if found.imag else found.real


def _part(values: Any, axis: int, part: slice) -> Any:
    return values[(..., part, *(slice(None),) * (-axis - 1))]
