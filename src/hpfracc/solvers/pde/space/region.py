r"""Masks on a box: finite volumes on the staircase of their cells."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.history.intervals import order_value
from hpfracc.solvers.pde.boundary import (
    Dirichlet,
    NoFlux,
    Periodic,
    Robin,
    boundary_value,
    is_function,
    is_homogeneous,
    varies_in_time,
)
from hpfracc.solvers.pde.space import matrix
from hpfracc.solvers.pde.space.base import SpaceSetting, broadcast_points, read_grid, refuse_complex, refuse_conditions
from hpfracc.solvers.pde.space.matrix import SparseSpace
from hpfracc.solvers.pde.space.variable import GAUSS, check_finite, check_positive, peclet_notes
from hpfracc.solvers.pde.terms import Advection, Diffusion, FractionalDiffusion, coefficients_of, per_axis, tensor_at

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Region:
    r"""A part of a box, given in place of a grid: the cells between grid points that a mask selects.

    The boundary of the region consists of faces of cells, along grid lines. A curve becomes a staircase, for which the
    order in space is 1. With ``cut`` the boundary is where a function changes between two points, and the order is 2,
    for Dirichlet conditions and diffusion along the axes. The conditions of ``boundary`` hold on the faces by the
    direction of the outward normal: those of the lower end of an axis where it points down that axis, those of the
    upper end where it points up; at cuts, by the direction of the grid line. Solutions have the shape of the box, with
    nan outside.

    Parameters
    ----------
    grid : array_like or tuple of array_like
        The points of the box, increasing, one array for each axis.
    inside : array_like of bool or callable
        Which cells are inside: a function of the coordinates, evaluated at their midpoints; an array with an entry for
        each cell, one less than points along each axis; or an array with an entry for each point, of which the cells
        with all corners inside are taken.
    cut : bool
        Whether the cells are cut by the boundary. The region must not touch the edges of the box.

    See Also
    --------
    Disc, Diffusion

    Examples
    --------
    Heat in three quarters of a square, through whose boundary nothing passes:

    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc import pde
    >>> x = np.linspace(-1.0, 1.0, 17)
    >>> shape = pde.Region((x, x), lambda x, y: (x < 0) | (y < 0))
    >>> space = pde.Diffusion(1.0)
    >>> result = hf.solve_fpde(None, (0.0, 2.0), lambda x, y: 2.0 + x + y, x=shape, space=space, boundary="neumann")
    >>> [round(float(mass), 12) for mass in result.mass[[0, -1]]]  # 3 times the mean, 5/3
    [5.0, 5.0]
    >>> bool(np.isnan(result.u[-1, -1, -1]))
    True
    """

    grid: Any
    inside: Any
    cut: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", read_grid(self.grid))
        if _reading.flag("Region: cut", self.cut) and not is_function(self.inside):
            raise InvalidInputError("Region: cut=True needs a function of the coordinates, which says where a curve is")
        if not is_function(self.inside):
            object.__setattr__(self, "inside", _check_mask(np.asarray(self.inside)))

    def cells(self, periodic: tuple[bool, ...] | None = None) -> Array:
        """Which cells are inside, of one less than points along each axis that is not periodic."""
        wraps = periodic or (False,) * len(self.grid)
        edges = _edges(self.grid, wraps)
        shape, given = tuple(one.size - 1 for one in edges), tuple(x.size for x in self.grid)
        if is_function(self.inside):
            found = self.holds(broadcast_points(NUMPY, _middles(edges)))
        elif self.inside.shape == given:
            found = self.inside
            for axis, count in enumerate(shape):
                found = (found & np.roll(found, -1, axis)).take(range(count), axis)
        elif self.inside.shape == shape:
            found = self.inside
        else:
            raise ShapeError(
                f"Region: inside has shape {self.inside.shape}; give that of the points, {given}, or that of the cells "
                f"between them, {shape}"
            )
        if not found.any():
            raise InvalidInputError("Region: no cell is inside; check the mask, or take more points")
        return found

    def outside(self, periodic: tuple[bool, ...] | None = None) -> Array:
        """Which points of the box are not corners of cells inside."""
        if self.cut:
            return ~self.holds(broadcast_points(NUMPY, self.grid))
        found = self.cells(periodic)
        for axis, x in enumerate(self.grid):
            if found.shape[axis] < x.size:
                found = np.insert(found, found.shape[axis], False, axis)
            found = found | np.roll(found, 1, axis)
        return ~found

    def holds(self, places: tuple[Array, ...]) -> Array:
        """Whether points are inside, by the function."""
        shape = np.broadcast_shapes(*(one.shape for one in places))
        found = _check_mask(np.asarray(self.inside(*places)))
        if not _reading.broadcasts(found.shape, shape):
            raise ShapeError(f"Region: inside returned shape {found.shape} for points of shape {shape}")
        return np.broadcast_to(found, shape)

    def on_grid(self, axes: tuple[Array, ...], periodic: tuple[bool, ...]) -> Region:
        """The same region on some of its points."""
        places = [np.searchsorted(x, y) for x, y in zip(self.grid, axes, strict=True)]
        if not all(np.isin(y, x).all() for x, y in zip(self.grid, axes, strict=True)):
            raise InvalidInputError("Region: a coarser grid has to consist of points of the grid")
        if is_function(self.inside):
            return Region(axes, self.inside, self.cut)
        every = some = self.cells(periodic)
        for axis, (at, wraps) in enumerate(zip(places, periodic, strict=True)):
            starts = at if wraps else at[:-1]
            every = np.logical_and.reduceat(every, starts, axis)
            some = np.logical_or.reduceat(some, starts, axis)
        if not np.array_equal(every, some):
            raise InvalidInputError("the region has details of one cell; give a function, or a finer mask")
        return Region(axes, every)


def _check_mask(found: Array) -> Array:
    if found.dtype != bool:
        raise InvalidInputError(f"Region: inside has dtype {found.dtype}; give True and False, as in u > 0")
    return found


class ScatteredSpace(SparseSpace):
    """Some points of a box, with data on the faces or at the cuts around them."""

    scattered = True
    setting: SpaceSetting
    _faces: list[tuple[int, int, tuple[Any, ...]]]  # the axis, the end, and the points of each group of data
    _lift: Any  # what data add, shape (data, unknowns)
    _sources: Array  # for each point of the box its place among unknowns, data and nan
    _active: Array  # the numbers in the box of the points that have a volume
    _places: Array  # and of the unknowns
    _volumes: Any

    def _take_conditions(self) -> None:
        conditions = [self.setting.boundary[axis][end] for axis, end, _ in self._faces]
        self.forced = not all(map(is_homogeneous, conditions))
        self.forcing_varies = any(map(varies_in_time, conditions))

    def _data(self, t: float) -> Any:
        """The data of all faces at time ``t``, in one vector (or one for each component)."""
        xp, found = self.xp, []
        lead = () if self.setting.components is None else (self.setting.components,)
        for axis, end, places in self._faces:
            value = boundary_value(self.setting.boundary[axis][end], t, places)
            found.append(self.setting.face(value, axis, end, places) + xp.zeros((*lead, *places[0].shape), "float64"))
        return xp.concatenate(found, -1)

    def forcing(self, t: float) -> Any:
        """The contribution of the boundary data; a spectral power acts on the difference to a harmonic function."""
        return self._coefficient * self.lowered(self._data(t) @ self._lift) if self.forced else None

    def embed(self, u: Any, t: float) -> Any:
        """The box, with given values on the boundary and nan outside."""
        xp, lead = self.xp, tuple(u.shape[:-1])
        blank = xp.zeros_like(u[..., :1])
        data = self._data(t) if self.forced else xp.zeros((self._lift.shape[0],), "float64")
        values = xp.concatenate([u, blank + data if self._faces else u[..., :0], blank + math.nan], -1)
        return values[..., self._sources].reshape((*lead, *(x.size for x in self.grid)))

    def _at_points(self, values: Any, points: Array) -> Any:
        count = len(self.grid)
        return values.reshape((*values.shape[: values.ndim - count], -1))[..., points]

    def restrict(self, values: Any) -> Any:
        """The values at the unknown points inside."""
        return self._at_points(values, self._places)

    def integrate(self, values: Any) -> Any:
        """The integral over the cells inside, by the trapezoidal rule."""
        return (self._at_points(values, self._active) * self._volumes).sum(-1)


@final
class RegionSpace(ScatteredSpace):
    r""":math:`\nabla \cdot (D \nabla u) - v \cdot \nabla u`, or a power of the Laplacian, on cells of a tensor grid.

    In each cell, at each of its corners, the gradient is that of the differences along the edges that meet there. The
    sum of :math:`(\nabla w)^T (D \nabla u - v u)` over the corners of all cells, with their shares of the volume, is
    the weak form of the equation. Every point has the volume of its parts of the cells inside. For diagonal D these are
    the fluxes of finite volumes; in general the matrix of diffusion is symmetric and positive semidefinite, and what
    leaves one point enters another. :math:`-v \cdot \nabla u` is :math:`-\nabla \cdot (v u) + u\,\nabla \cdot v`.
    """

    name = "region"
    accuracy = "order 2"

    def __init__(self, setting: SpaceSetting) -> None:
        from scipy import sparse

        self.setting, self.grid, self.nested = setting, setting.grid, setting.domain is not None
        if self.nested:
            self.accuracy += ", 4/3 near re-entrant corners, 1 where a staircase stands for a curve"
        self._mesh = mesh = _CellMesh(setting)
        power = scale = 1.0
        along, carried, plain = np.zeros((3, *mesh.edges[0].shape))
        across = np.zeros((len(mesh.parts), setting.ndim, setting.ndim))
        self._tensors = setting.tensors
        for term in setting.terms:
            if isinstance(term, Diffusion) and term in self._tensors:
                across += tensor_at(term.coefficient, mesh.middles)
            elif isinstance(term, Diffusion):
                along += mesh.diffusivity(term.coefficient)
            elif isinstance(term, Advection):
                speeds = carried if term.conservative else plain
                speeds += mesh.along(term.velocity)
            elif isinstance(term, FractionalDiffusion):
                power, scale = 0.5 * order_value(term.order), float(check_positive(term.coefficient))
                along += 1.0
        along += across.diagonal(0, 1, 2)[:, None]
        speeds = np.abs(carried) + np.abs(plain)
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers = np.where(speeds > 0.0, speeds * mesh.widths[:, None] / along, 0.0)
        self.notes = peclet_notes(float(numbers.max()), float(mesh.widths.max()))
        flow = mesh.advection(plain)
        held, own, responses = self._boundary(flow.sum(axis=1))
        self._unknown = np.flatnonzero(held < 0)
        if not self._unknown.size:
            raise InvalidInputError("Region: every point lies on its boundary, where u is given; take more points")
        fixed = np.flatnonzero(held >= 0)
        stiffness = mesh.diffusion(along, across) + mesh.advection(carried) + flow + sparse.diags_array(own)
        rows, masses = sparse.csr_array(stiffness)[self._unknown], mesh.masses[self._unknown]
        #: What the data add to M du/dt: given values by their neighbours, slopes by the areas.
        given = sparse.csr_array((np.ones(fixed.size), (fixed, held[fixed])), shape=responses.shape)
        lift = sparse.diags_array(1.0 / masses) @ (responses[self._unknown] - rows @ given)
        super().__init__(
            setting.xp,
            rows[:, self._unknown],
            sparse.csr_array(sparse.diags_array(masses)),
            power,
            scale,
            symmetric=not speeds.any(),
        )
        xp = self.xp
        self._lift = lift.T if xp.library == "numpy" else xp.array(lift.T.toarray())
        self.points = tuple(xp.array(one[self._unknown]) for one in mesh.coordinates)
        # Where the value of each point of the box comes from: the unknowns, the data, or a last entry, which is nan.
        count, data = self._unknown.size, responses.shape[1]
        self._sources = np.full(math.prod(x.size for x in self.grid), count + data)
        self._sources[mesh.active[self._unknown]] = np.arange(count)
        self._sources[mesh.active[fixed]] = count + held[fixed]
        self._active, self._places, self._volumes = mesh.active, mesh.active[self._unknown], xp.array(mesh.masses)
        self._take_conditions()

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports Diffusion and Advection, or a spectral power of the Laplacian alone, with real numbers."""
        if setting.domain is not None and setting.domain.cut:
            return "a staircase is not what cut=True asks for"
        for term in setting.terms:
            who, each = type(term).__name__, coefficients_of(term)
            if isinstance(term, FractionalDiffusion):
                if len(setting.terms) > 1 or term.kind != "spectral" or is_function(each[0]):
                    return "it takes FractionalDiffusion(order, kind='spectral') with a constant coefficient, alone"
            elif not isinstance(term, Diffusion | Advection):
                return f"it takes Diffusion, Advection and FractionalDiffusion, not {who}"
            if len(each) not in (1, setting.ndim):
                return f"{who} has {len(each)} coefficients for {setting.ndim} axes"
        if setting.xp.library != "numpy" and math.prod(x.size for x in setting.grid) > matrix.DENSE:
            return f"it takes NumPy arrays, or boxes of at most {matrix.DENSE:,} points"
        refusals = (refuse_complex(term) for term in setting.terms)
        return next(filter(None, refusals), None) or refuse_conditions(
            setting, isinstance(setting.terms[0], FractionalDiffusion)
        )

    def _boundary(self, divergences: Array) -> tuple[Array, Array, Any]:
        """The column of the data that each point has as its value, or -1; what is added to the diagonal; responses.

        Data of all faces are one vector, whose entries are the points on the faces of each axis and end in turn.
        """
        from scipy import sparse

        mesh, setting, ndim = self._mesh, self.setting, self.setting.ndim
        held, own = np.full(mesh.count, -1), -divergences
        self._faces = []
        points, slopes, data = [np.empty(0, int)], [np.empty(0)], 0
        for axis, end in itertools.product(range(ndim), (0, 1)):
            condition, areas = setting.boundary[axis][end], mesh.faces(axis, end)
            at = np.flatnonzero(areas)
            if not at.size:
                continue
            places, area, weights = tuple(one[at] for one in mesh.coordinates), areas[at], np.zeros(at.size)
            self._faces.append((axis, end, tuple(map(setting.xp.array, places))))
            given = isinstance(condition, Dirichlet)
            if given:
                held[at] = data + np.arange(at.size)
            for term in () if given else setting.terms:
                if isinstance(term, Advection):
                    out = (2 * end - 1) * area * coefficient_at(per_axis(term.velocity, ndim)[axis], places)
                    own[at] += out * ((not isinstance(condition, NoFlux)) - (not term.conservative))
                elif isinstance(term, Diffusion) and term in self._tensors:
                    weights += area * tensor_at(term.coefficient, places)[:, axis, axis]
                else:
                    k = term.coefficient if isinstance(term, Diffusion) else 1.0
                    weights += area * coefficient_at(per_axis(k, ndim)[axis], places)
            a, b = (condition.a, condition.b) if isinstance(condition, Robin) else (0.0, 1.0)
            own[at] += weights * (a / b)
            points, slopes, data = [*points, at], [*slopes, weights / b], data + at.size
        entries = (np.concatenate(slopes), (np.concatenate(points), np.arange(data)))
        return held, own, sparse.csr_array(entries, shape=(mesh.count, data))


class _CellMesh:
    """The cells inside a box, the points at their corners, and matrices that are sums over them.

    Attributes
    ----------
    active : numpy.ndarray, shape (count,)
        The numbers of the points in the box.
    coordinates : tuple of numpy.ndarray
        Their coordinates.
    masses : numpy.ndarray, shape (count,)
        Their volumes.
    middles, widths : tuple of numpy.ndarray, numpy.ndarray of shape (cells, ndim)
        The midpoints of the cells, and their lengths along each axis.
    edges : tuple of numpy.ndarray, shape (cells, corners, ndim)
        The coordinates of the midpoints of the edges that meet at each corner of a cell.
    parts : numpy.ndarray, shape (cells,)
        The share of each corner in the volume of its cell.
    """

    def __init__(self, setting: SpaceSetting) -> None:
        grid, ndim = setting.grid, setting.ndim
        self.wraps = tuple(isinstance(lower, Periodic) for lower, _ in setting.boundary)
        edges = _edges(grid, self.wraps)
        region = setting.domain
        self.inside = np.ones([one.size - 1 for one in edges], bool) if region is None else region.cells(self.wraps)
        sizes = tuple(x.size for x in grid)
        corners = np.indices((2,) * ndim).reshape(ndim, -1)
        cells = np.nonzero(self.inside)
        numbers = [(at[:, None] + corner) % size for at, corner, size in zip(cells, corners, sizes, strict=True)]
        self.active, own = np.unique(np.ravel_multi_index(numbers, sizes), return_inverse=True)
        self.count, self.corners, self._own = self.active.size, corners, own.reshape(numbers[0].shape)
        self.coordinates = tuple(x[at] for x, at in zip(grid, np.unravel_index(self.active, sizes), strict=True))
        self.middles = tuple(middle[at] for middle, at in zip(_middles(edges), cells, strict=True))
        self.widths = np.stack([np.diff(one)[at] for one, at in zip(edges, cells, strict=True)], axis=-1)
        self.parts = self.widths.prod(axis=1) / 2**ndim
        self.masses = self._sum(self._own, self.parts)
        aside = (corners.T[:, None, :] - 0.5) * (1 - np.eye(ndim))
        self.edges = tuple(
            self.middles[one][:, None, None] + self.widths[:, one, None, None] * aside[..., one] for one in range(ndim)
        )
        # The difference along each edge that meets a corner, of shape (corners, axes, corners).
        ends = corners.T[:, None, :] * (1 - np.eye(ndim, dtype=int))
        bits = 2 ** np.arange(ndim)[::-1]
        everywhere = np.arange(2**ndim)
        lower = (ends @ bits)[..., None] == everywhere
        upper = ((ends + np.eye(ndim, dtype=int)) @ bits)[..., None] == everywhere
        self._slopes, self._means = upper - 1.0 * lower, 0.5 * upper + 0.5 * lower

    def _sum(self, points: Array, each: Array) -> Array:
        """A number of each cell, added to these of its points."""
        return np.bincount(points.reshape(-1), np.repeat(each, points.shape[1]), self.count)

    def _matrix(self, elements: Array) -> Any:
        from scipy import sparse

        rows, columns = np.broadcast_arrays(self._own[:, :, None], self._own[:, None, :])
        entries = (elements.reshape(-1), (rows.reshape(-1), columns.reshape(-1)))
        return sparse.csr_array(sparse.coo_array(entries, shape=(self.count, self.count)))

    def diffusion(self, along: Array, across: Array) -> Any:
        """The matrix of minus diffusion, times the volumes: along the edges, and across them by the other entries."""
        slopes = self._slopes
        scaled = along * (self.parts[:, None] / self.widths**2)[:, None]
        elements = np.einsum("koa,oai,oaj->kij", scaled, slopes, slopes, optimize=True)
        if across.any():
            pairs = across * (self.parts[:, None, None] / (self.widths[:, :, None] * self.widths[:, None, :]))
            pairs = pairs * (1.0 - np.eye(self.widths.shape[1]))
            elements = elements + np.einsum("kab,oai,obj->kij", pairs, slopes, slopes, optimize=True)
        return self._matrix(elements)

    def advection(self, speeds: Array) -> Any:
        """The matrix of transport in conservative form between points, times the volumes."""
        scaled = -speeds * (self.parts[:, None] / self.widths)[:, None]
        return self._matrix(np.einsum("koa,oai,oaj->kij", scaled, self._slopes, self._means, optimize=True))

    def along(self, coefficient: Any, side: float = 0.0) -> Array:
        """A coefficient at the edges, or at this distance from their midpoints, in units of their lengths."""
        found = np.empty(self.edges[0].shape)
        for axis, k in enumerate(per_axis(coefficient, len(self.edges))):
            places = [one[..., axis] for one in self.edges]
            places[axis] = places[axis] + side * self.widths[:, axis, None]
            found[..., axis] = coefficient_at(k, tuple(places))
        return found

    def diffusivity(self, coefficient: Any) -> Array:
        """The coefficient of diffusion along the edges, the harmonic mean of two Gauss points."""
        low, high = self.along(coefficient, -GAUSS), self.along(coefficient, GAUSS)
        check_positive(low)
        check_positive(high)
        return np.asarray(2.0 / (1.0 / low + 1.0 / high))

    def faces(self, axis: int, end: int) -> Array:
        """The areas at each point of the faces whose outward normal points along this axis, up or down."""
        other = np.roll(self.inside, 1 - 2 * end, axis)
        if not self.wraps[axis]:
            np.moveaxis(other, axis, 0)[-end] = False
        bare = (self.inside & ~other)[self.inside]
        areas = 2.0 * self.parts / self.widths[:, axis]
        return self._sum(self._own[bare][:, self.corners[axis] == end], areas[bare])


def _edges(grid: tuple[Array, ...], wraps: tuple[bool, ...]) -> list[Array]:
    """The points between which the cells lie, with the end of a period."""
    steps = [(x[-1] - x[0]) / (x.size - 1) for x in grid]
    return [np.append(x, x[-1] + step) if wrap else x for x, step, wrap in zip(grid, steps, wraps, strict=True)]


def _middles(edges: list[Array]) -> tuple[Array, ...]:
    return tuple(0.5 * (one[1:] + one[:-1]) for one in edges)


def coefficient_at(value: Any, places: tuple[Array, ...]) -> Any:
    """A coefficient at these points."""
    found = np.broadcast_to(value(*places) if is_function(value) else value, places[0].shape)
    check_finite(found)
    return found
