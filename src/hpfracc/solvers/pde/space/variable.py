r"""Coefficients that vary in space, advection, and conditions of every kind: finite volumes on a tensor grid."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_array, is_tracer, to_host
from hpfracc._xp import NUMPY
from hpfracc.engine.execution.operation import get_operation
from hpfracc.errors import InvalidInputError, warn
from hpfracc.solvers.pde.boundary import Dirichlet, Ends, Exterior, NoFlux, Periodic, Robin, is_function
from hpfracc.solvers.pde.space import matrix
from hpfracc.solvers.pde.space.axes import AxisBasis, diagonalise, make_axis, matrix_product
from hpfracc.solvers.pde.space.base import (
    GridSpace,
    SpaceSetting,
    axis_part,
    broadcast_points,
    refuse_grid,
    sparse_resolvent,
    trapezoid,
)  # fmt: skip
from hpfracc.solvers.pde.space.krylov import RTOL, conjugate_gradients, gmres
from hpfracc.solvers.pde.terms import Advection, Diffusion, SpaceTerm, coefficients_of

Array = np.ndarray[Any, Any]

_tridiagonal_solve = get_operation("tridiagonal_solve")
#: Distance of the two Gauss points of a cell from its midpoint, relative to its width.
GAUSS = 0.5 / math.sqrt(3.0)
#: Rounding of eigenvalues, relative to the largest; and the largest logarithm of ratios of scales that make a matrix
#: symmetric, by which errors of rounding grow.
_ROUNDING, _STEEPEST = 2.0**-52, math.log(1e4)


@dataclass(slots=True, eq=False)
class CellAxis:
    """One axis: its cells and the coefficients of the terms along it, which broadcast; zero if there are none."""

    place: int  # counted from the end
    x: Array
    conditions: Ends
    steps: Array  # between neighbours, boundary points included
    widths: Array  # of the cells of the unknowns
    faces: Any = 0.0  # the diffusion coefficient between points
    values: Any = 0.0  # and at the unknowns
    ends: tuple[Any, Any] = (0.0, 0.0)  # and on the boundary
    moves: bool = False  # whether there is transport
    speeds: Any = 0.0  # the velocity at points
    carriers: Any = 0.0  # in conservative form, between points
    outflow: tuple[Any, Any] = (0.0, 0.0)  # and on the boundary
    before: Any = 0.0  # the coefficient of the neighbour before each cell, and of that after it
    after: Any = 0.0
    data: list[Any] = field(default_factory=lambda: [None, None])  # the coefficients of the data at the two ends

    @property
    def periodic(self) -> bool:
        """Whether the axis has no ends."""
        return isinstance(self.conditions[0], Periodic)

    def missing(self, end: int) -> bool:
        """Whether the boundary point is excluded from the unknowns."""
        return isinstance(self.conditions[end], Dirichlet)

    @property
    def corners(self) -> Array:
        """The points between which the faces lie, with the end of a period."""
        return np.append(self.x, self.x[-1] + self.steps[-1]) if self.periodic else self.x


def cell_axis(setting: SpaceSetting, axis: int) -> CellAxis:
    """The spacings and cells of an axis, without coefficients."""
    x, ends = setting.grid[axis], setting.boundary[axis]
    periodic = isinstance(ends[0], Periodic)
    widths = trapezoid(x, periodic)
    steps = widths if periodic else np.diff(x)
    first, last = (isinstance(one, Dirichlet) for one in ends)
    return CellAxis(axis - setting.ndim, x, ends, steps, widths[int(first) : x.size - int(last)])


@final
class FiniteVolumes(GridSpace):
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
        super().__init__(setting)
        self.axes = [cell_axis(setting, axis) for axis in range(setting.ndim)]
        #: Iterations of the last linear system; 0 for elimination.
        self.iterations = 0
        for term in setting.terms:
            self._add(term)
        self.assembled(self.axes)
        for one in self.axes:
            self._warn_of_peclet(one)
        self._symmetric = not any(one.moves for one in self.axes) and not setting.complex_state

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Refuses fractional terms, exterior data, and non-uniform grids where a transform preconditions."""
        for term in setting.terms:
            if not isinstance(term, Diffusion | Advection):
                return f"it takes Diffusion and Advection, not {type(term).__name__}"
            each = coefficients_of(term)
            if len(each) not in (1, setting.ndim):
                return f"{type(term).__name__} has {len(each)} coefficients for {setting.ndim} axes"
        if setting.tensors:
            return "it takes diffusion along the axes, no full tensor"
        if any(isinstance(lower, Exterior) for lower, _ in setting.boundary):
            return "data outside have no meaning for local terms; use Dirichlet(value)"
        # In one dimension, and for NumPy arrays, the grid need not be uniform.
        line = setting.ndim == 1 and setting.xp.library == "numpy" and not setting.periodic
        return refuse_grid(setting, uniform=not line)

    def assembled(self, axes: list[CellAxis]) -> FiniteVolumes:
        """Itself, with the coefficients of these axes."""
        self.axes, self._own = axes, 0.0
        for one in axes:
            self._assemble(one)
        first = axes[0]
        # Beside the diagonal of minus A on one axis, without what belongs to the boundary points.
        self._bands = first.before * (self._end(first, 0) - 1.0), first.after * (self._end(first, 1) - 1.0)
        return self

    def _add(self, term: SpaceTerm) -> None:
        each = coefficients_of(term)
        for one, k in zip(self.axes, each * len(self.axes) if len(each) == 1 else each, strict=True):
            at_ends = tuple(self._at(k, one, one.x[place : place + 1]) for place in (0, one.x.size - 1))
            if isinstance(term, Diffusion):
                one.faces = one.faces + self._faces(one, k)
                one.values = one.values + self._at(k, one, self.inside[one.place])
                one.ends = (one.ends[0] + at_ends[0], one.ends[1] + at_ends[1])
            elif isinstance(term, Advection) and (callable(k) or is_array(k) or k != 0):
                one.moves = True
                closed = any(isinstance(end, NoFlux) for end in one.conditions)
                if closed and not term.conservative:
                    self._check_constant(one, k)
                if term.conservative or closed:
                    one.carriers = one.carriers + self._at(k, one, 0.5 * (one.corners[1:] + one.corners[:-1]))
                    one.outflow = (one.outflow[0] + at_ends[0], one.outflow[1] + at_ends[1])
                else:
                    one.speeds = one.speeds + self._at(k, one, self.inside[one.place])

    def _check_constant(self, one: CellAxis, v: Any) -> None:
        """Refuse a velocity that varies along an axis with a closed end."""
        values = self._at(v, one, one.corners)
        if is_array(values) and values.ndim and values.shape[one.place] > 1 and not is_tracer(values):
            lead = axis_part(values, one.place, slice(0, 1))
            if bool((to_host(values) != to_host(lead)).any()):
                raise InvalidInputError(
                    f"Advection with a velocity that varies along axis {len(self.axes) + one.place}, which has an end "
                    "without flux: -v du/dx is not the divergence of a flux; use Advection(v, conservative=True), "
                    "which is -d(v u)/dx, or boundary='neumann'"
                )

    def _at(self, coefficient: Any, one: CellAxis, x: Array) -> Any:
        """A coefficient at coordinates ``x`` of this axis and at the unknowns of the others."""
        if not is_function(coefficient):
            return coefficient if is_array(coefficient) else _number(coefficient)
        places = list(self.inside)
        places[one.place] = x
        found = coefficient(*broadcast_points(self.xp, tuple(places)))
        check_finite(found)
        return found

    def _faces(self, one: CellAxis, k: Any) -> Any:
        middle, width = 0.5 * (one.corners[1:] + one.corners[:-1]), np.diff(one.corners)
        values = [self._at(k, one, middle + side * width) for side in (-GAUSS, GAUSS)]
        for each in values:
            check_positive(each)
        return 2.0 / (1.0 / values[0] + 1.0 / values[1]) if is_function(k) else values[0]

    def _warn_of_peclet(self, one: CellAxis) -> None:
        parts = (one.speeds, one.carriers, one.faces)
        if not one.moves or any(map(is_tracer, parts)):
            return
        sizes = [np.abs(to_host(v)) for v in parts]
        speed, least = max(float(np.max(sizes[0])), float(np.max(sizes[1]))), float(np.min(sizes[2]))
        width = float(one.steps.max())
        self.notes += peclet_notes(speed * width / least if least else math.inf if speed else 0.0, width)

    def _assemble(self, one: CellAxis) -> None:
        """Write the fluxes through the faces of each cell as coefficients of its neighbours, of itself and of data."""
        width = self._column(one, one.widths)
        left, right = self._sides(one, one.faces / self._column(one, one.steps))
        before, after, own = left / width, right / width, -(left + right) / width
        if one.moves:
            left, right = self._sides(one, 0.5 * one.carriers)
            before, after, own = before + left / width, after - right / width, own + (left - right) / width
            # The mean of the adjacent slopes, weighted by the opposite distances; at an end, the slope given there.
            left, right = (to_host(each).reshape(-1) for each in self._sides(one, self._column(one, one.steps)))
            inner = left * right > 0.0
            left, right = np.where(inner, left, 1.0), np.where(inner, right, 1.0)
            behind = one.speeds * self._column(one, inner * right / (left * (left + right)))
            ahead = one.speeds * self._column(one, inner * left / (right * (left + right)))
            before, after, own = before + behind, after - ahead, own + (ahead - behind)
        for end, condition in enumerate(one.conditions):
            if one.periodic or one.missing(end):
                continue
            at, sign, wide = self._end(one, end), -1.0 if end else 1.0, float(one.widths[-end])
            a, b = (condition.a, condition.b) if isinstance(condition, Robin) else (0.0, 1.0)
            weight = one.ends[end] / wide + sign * one.speeds
            if not isinstance(condition, NoFlux):
                own = own + at * (sign / wide * one.outflow[end])
            own = own - at * weight * (a / b)
            one.data[end] = at * weight / b
        for end, neighbour in enumerate((before, after)):
            if one.missing(end):
                one.data[end] = self._end(one, end) * neighbour
        one.before, one.after = before, after
        self._own = self._own + own

    def _sides(self, one: CellAxis, faces: Any) -> tuple[Any, Any]:
        """A coefficient between points, before and after each cell; zero beyond an end that is an unknown."""
        place, whole = one.place, faces + self._column(one, np.zeros(one.steps.size))
        if one.periodic:
            padded = [axis_part(whole, place, slice(-1, None)), whole]
        else:
            none = 0.0 * axis_part(whole, place, slice(0, 1))
            padded = [*([] if one.missing(0) else [none]), whole, *([] if one.missing(1) else [none])]
        joined = self.xp.concatenate(padded, place)
        return axis_part(joined, place, slice(0, -1)), axis_part(joined, place, slice(1, None))

    def _end(self, one: CellAxis, end: int) -> Any:
        """One at the cell of an end, zero elsewhere."""
        return self._column(one, np.eye(1, one.widths.size, end * (one.widths.size - 1))[0])

    def apply(self, u: Any) -> Any:
        """Three coefficients along each axis."""
        total = self._own * u
        for one in self.axes:
            first, last = (axis_part(u, one.place, part) for part in (slice(0, 1), slice(-1, None)))
            ends = (last, first) if one.periodic else (0.0 * first, 0.0 * first)
            full = self.xp.concatenate([ends[0], u, ends[1]], one.place)
            total = total + one.before * axis_part(full, one.place, slice(0, -2))
            total = total + one.after * axis_part(full, one.place, slice(2, None))
        return total

    def forcing(self, t: float) -> Any:
        """The contribution of the boundary data."""
        if not self.forced:
            return None
        lead = () if self.setting.components is None else (self.setting.components,)
        total = self.xp.zeros((*lead, *self.shape), "float64")
        for axis, one in enumerate(self.axes):
            for end, weight in enumerate(one.data):
                total = total if weight is None else total + weight * self.datum(axis, end, t)
        return total

    def lacks_modes(self, accuracy: float) -> str | None:
        """Real, symmetric up to the scale of the unknowns, few enough, and with eigenvalues above rounding."""
        points = math.prod(self.shape)
        parts = (self._own, *(part for one in self.axes for part in (one.before, one.after)))
        why = self.lacks_resolvent()
        if why is not None:
            return why
        if points > matrix.DENSE:
            return f"its {points:,} unknowns are more than {matrix.DENSE:,}"
        if _ROUNDING * float(sum(np.abs(part).max() for part in parts)) > accuracy:
            return (
                "its eigenvalues differ so much that the smallest ones are lost in rounding; a shorter interval helps"
            )
        return None

    def lacks_resolvent(self) -> str | None:
        """Real, and symmetric up to the scale of the unknowns."""
        first, *others = self.axes
        parts = (self._own, *(part for one in self.axes for part in (one.before, one.after)))
        if self.xp.library != "numpy" or any(map(np.iscomplexobj, parts)):
            return "it is not made of real NumPy arrays"
        if any(one.moves for one in self.axes):
            if others or first.periodic:
                return "advection in several dimensions, or around a period, makes it unsymmetric"
            if not (np.all(self._couplings > 0.0) and np.ptp(np.log(self._balance)) < _STEEPEST):
                return "advection is too strong for a symmetric matrix with scaled unknowns"
        return None

    def resolvent(self) -> Callable[[Any, Any], Any]:
        """By sparse factorisation, with the coefficients of neighbours along each axis."""
        from scipy.sparse import coo_array, eye_array

        points = math.prod(self.shape)
        numbers = np.arange(points).reshape(self.shape)
        entries, rows, columns = [np.broadcast_to(self._own, self.shape).reshape(-1)], [numbers.reshape(-1)], []
        columns.append(rows[0])
        for one in self.axes:
            for part, away in ((one.before, 1), (one.after, -1)):
                kept = np.ones(self.shape, bool)
                if not one.periodic:  # beyond an end
                    axis_part(kept, one.place, slice(0, 1) if away == 1 else slice(-1, None))[...] = False
                entries.append(np.broadcast_to(part, self.shape)[kept])
                rows.append(numbers[kept])
                columns.append(np.roll(numbers, away, one.place)[kept])
        places = (np.concatenate(rows), np.concatenate(columns))
        a = coo_array((-np.concatenate(entries), places), shape=(points, points))
        return sparse_resolvent(a, eye_array(points), self.shape)

    @functools.cached_property
    def _couplings(self) -> Array:
        """Products of opposite entries beside the diagonal, on one axis."""
        lower, upper = (np.broadcast_to(band, self.shape) for band in self._bands)
        return np.asarray(lower[1:] * upper[:-1])

    @functools.cached_property
    def _balance(self) -> Array:
        """The scale of the unknowns that makes a matrix on one axis symmetric."""
        lower, upper = (np.broadcast_to(band, self.shape) for band in self._bands)
        return np.append(1.0, np.exp(np.cumsum(0.5 * np.log(upper[:-1] / lower[1:]))))

    def with_modes(self) -> FiniteVolumes:
        """In the eigenvectors of the symmetric matrix, which is tridiagonal on one axis that has ends."""
        return self._modal

    @functools.cached_property
    def _modal(self) -> FiniteVolumes:
        from scipy.linalg import eigh_tridiagonal

        points = math.prod(self.shape)
        if len(self.axes) > 1 or self.axes[0].periodic:
            weights = np.broadcast_to(self._masses, self.shape).reshape(-1)
            columns = self.apply(np.eye(points).reshape(-1, *self.shape)).reshape(points, points)
            values, to, back = diagonalise(weights * columns, 1.0 / weights)
        else:
            own = np.broadcast_to(self._own, self.shape)
            values, vectors = eigh_tridiagonal(own, np.sqrt(self._couplings))
            to, back = vectors.T * self._balance, vectors / self._balance[:, None]
        found = copy.copy(self)
        # Without the coefficients, whose functions may not be picklable.
        found.setting = dataclasses.replace(self.setting, terms=())
        found.symbol = np.where(np.abs(values) < matrix.ZERO * np.abs(values).max(), 0.0, values).reshape(self.shape)
        first, last = (functools.partial(_flat_product, self.shape, each) for each in (to, back))
        found.transforms = (first,), (last,)
        return found

    def step_bytes(self) -> int:
        """The coefficients along each axis with what they are made of, and vectors of the solution."""
        return 8 * (4 + 6 * len(self.shape)) * math.prod(self.shape)

    def _column(self, one: CellAxis, values: Array) -> Any:
        return self.xp.array(values.reshape(-1, *(1,) * (-1 - one.place)))

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """Elimination on one axis, otherwise a preconditioned Krylov method."""
        first, *others = self.axes
        if not others and not first.periodic and (self.xp.library == "numpy" or not first.moves):
            self.iterations = 0
            return self._solve_bands(shift, rhs)
        masses, precondition = self._masses, self._preconditioner(shift)

        def shifted(u: Any) -> Any:
            return masses * (shift * u - self.apply(u))

        def approximate(r: Any) -> Any:
            return precondition(r / masses)

        if self._symmetric:
            found, self.iterations = conjugate_gradients(
                shifted, approximate, masses * rhs, guess, axes=len(self.shape), rtol=rtol
            )
        else:
            found, self.iterations = gmres(shifted, approximate, masses * rhs, guess, rtol=rtol)
        return found

    def _solve_bands(self, shift: Any, rhs: Any) -> Any:
        (lower, upper), diagonal = self._bands, shift - self._own
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

    @functools.cached_property
    def _masses(self) -> Any:
        """The sizes of the cells, relative to the largest."""
        return functools.reduce(operator.mul, (self._column(one, one.widths / one.widths.max()) for one in self.axes))

    def _preconditioner(self, shift: Any) -> Any:
        """The inverse for mean coefficients, in the eigenvectors of second differences along each axis.

        It is scaled from both sides with the root of the local coefficients over their means, evaluated at the mean of
        the eigenvalues (Concus and Golub 1973, with the shift).
        """
        total = local = mean = shift.mean() if getattr(shift, "ndim", 0) == len(self.shape) else shift
        for one, (_, squares) in zip(self.axes, self._bases, strict=True):
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

    @functools.cached_property
    def _bases(self) -> list[tuple[AxisBasis, Any]]:
        """The transform along each axis, and the negated eigenvalues of second differences."""
        setting, found = self.setting, []
        for axis, one in enumerate(self.axes):
            basis = make_axis(self.xp, setting.grid[axis], setting.boundary[axis], half=False)
            squares = basis.squares
            if basis.spectral:  # convert eigenvalues of the derivative to the smaller ones of differences
                h = setting.spacing(axis)
                squares = (2.0 / h * np.sin(0.5 * h * np.sqrt(np.maximum(squares, 0.0)))) ** 2
            found.append((basis, self._column(one, squares)))
        return found


def _flat_product(shape: tuple[int, ...], matrix: Array, u: Array) -> Any:
    """A matrix times states of this shape."""
    return matrix_product(NUMPY, matrix, u.reshape(*u.shape[: u.ndim - len(shape)], -1)).reshape(u.shape)


def _number(value: Any) -> complex | float:
    found = complex(value)
    return found if found.imag else found.real


def check_finite(values: Any) -> None:
    """Refuse values of coefficients that are not finite."""
    if not is_tracer(values) and not np.isfinite(to_host(values)).all():
        raise InvalidInputError("Diffusion or Advection: a coefficient is not finite; give numbers at every point")


def check_positive(values: Any) -> Any:
    """The coefficients of a diffusion; those that are not positive are refused."""
    plain = np.zeros(0) if is_tracer(values) else to_host(values)
    if not np.iscomplexobj(plain) and not np.all(plain > 0.0):
        raise InvalidInputError(
            f"Diffusion: a coefficient of {float(np.min(plain)):g}; it has to be positive everywhere, or the "
            "equation is ill-posed"
        )
    return values


def peclet_notes(number: float, width: float) -> tuple[str, ...]:
    """A note, which is also a warning, on the largest cell Peclet number, of cells with this width, above 2."""
    if number <= 2.0 * (1.0 + 1e-9):
        return ()
    advice = f"use distances of {2.0 * width / number:.2g} or less" if math.isfinite(number) else "add some Diffusion"
    text = f"transport by centred differences with a cell Peclet number of {number:.3g}, above 2, oscillates; {advice}"
    warn(text)
    return (text,)
