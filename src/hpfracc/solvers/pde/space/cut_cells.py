r"""Masks on a box whose cells are cut by a curve: differences up to the curve along each axis."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.history.intervals import order_value
from hpfracc.solvers.pde.boundary import Dirichlet, is_function
from hpfracc.solvers.pde.space import matrix
from hpfracc.solvers.pde.space.base import SpaceSetting, refuse_complex, trapezoid
from hpfracc.solvers.pde.space.region import ScatteredSpace, coefficient_at
from hpfracc.solvers.pde.space.variable import check_positive
from hpfracc.solvers.pde.terms import Diffusion, FractionalDiffusion, coefficients_of, per_axis

Array = np.ndarray[Any, Any]

#: Halvings of a distance in which the curve is found, and the least share of it: a curve that is nearer is moved there.
_HALVINGS, _LEAST = 50, 1e-4


@final
class CutSpace(ScatteredSpace):
    r""":math:`\nabla \cdot (k \nabla u)`, or a power of the Laplacian, at the points inside a curve.

    Next to the curve, at the distance :math:`\theta h` along an axis, the slope is :math:`(g - u_i)/(\theta h)` with
    the given value g, in differences over a whole cell: the matrix stays symmetric, and the solution has order 2.

    References
    ----------
    F. Gibou, R. P. Fedkiw, L.-T. Cheng, M. Kang, "A second-order-accurate symmetric discretization of the Poisson
    equation on irregular domains", J. Comput. Phys. 176, 2002.
    """

    name = "cut_cells"
    accuracy = "order 2"
    nested = True

    def __init__(self, setting: SpaceSetting) -> None:
        from scipy import sparse

        self.setting, self.grid, region = setting, setting.grid, setting.domain
        inside = ~region.outside()
        sizes, ndim = inside.shape, inside.ndim
        if not inside.any():
            raise InvalidInputError("Region: no point is inside; check the function, or take more points")
        if any(np.take(inside, (0, -1), axis).any() for axis in range(ndim)):
            raise InvalidInputError("Region: with cut=True it must not touch the edges of the box; give a larger box")
        self._active = self._places = np.flatnonzero(inside)
        count, at = self._active.size, np.unravel_index(self._active, sizes)
        number = np.full(inside.size, -1)
        number[self._active] = np.arange(count)
        coordinates = tuple(x[i] for x, i in zip(self.grid, at, strict=True))
        widths = [trapezoid(x)[i] for x, i in zip(self.grid, at, strict=True)]
        masses, volumes, diagonal = math.prod(widths), np.zeros(count), np.zeros(count)
        rows, columns, entries = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0)]
        self._faces, lifts = [], []
        for axis in range(ndim):
            reach = np.zeros(count)
            for end, sign in ((0, -1), (1, 1)):
                step = self.grid[axis][at[axis] + sign] - self.grid[axis][at[axis]]
                neighbour = number[self._active + sign * math.prod(sizes[axis + 1 :])]
                cut, share = np.flatnonzero(neighbour < 0), np.ones(count)
                share[cut] = _share(region, tuple(one[cut] for one in coordinates), axis, step[cut])
                k = self._conductivity(axis, _moved(coordinates, axis, 0.5 * share * step))
                weight = k * masses / (widths[axis] * share * np.abs(step))
                diagonal = diagonal + weight
                # Along a line, all that is left up to the curve belongs to the last point; the mean over all axes.
                reach = reach + np.where(neighbour < 0, share, 0.5) * np.abs(step)
                whole = np.flatnonzero(neighbour >= 0)
                rows, columns, entries = [*rows, whole], [*columns, neighbour[whole]], [*entries, -weight[whole]]
                if cut.size:
                    ends = _moved(tuple(one[cut] for one in coordinates), axis, (share * step)[cut])
                    self._faces.append((axis, end, tuple(map(setting.xp.array, ends))))
                    added = (weight / masses)[cut], (np.arange(cut.size), cut)
                    lifts.append(sparse.csr_array(added, shape=(cut.size, count)))
            volumes += reach * masses / (ndim * widths[axis])
        own = np.arange(count)
        values = (np.concatenate([*entries, diagonal]), (np.concatenate([*rows, own]), np.concatenate([*columns, own])))
        (term, *_) = setting.terms
        power, scale = 1.0, 1.0
        if isinstance(term, FractionalDiffusion):
            power, scale = 0.5 * order_value(term.order), float(check_positive(term.coefficient))
        stiffness = sparse.csr_array(sparse.coo_array(values, shape=(count, count)))
        super().__init__(setting.xp, stiffness, sparse.csr_array(sparse.diags_array(masses)), power, scale)
        xp, lift = self.xp, sparse.csr_array(sparse.vstack(lifts))
        self._lift = lift if xp.library == "numpy" else xp.array(lift.toarray())
        self.points = tuple(map(xp.array, coordinates))
        self._sources = np.full(inside.size, count + lift.shape[0])
        self._sources[self._active], self._volumes = own, xp.array(volumes)
        self._take_conditions()

    def _conductivity(self, axis: int, places: tuple[Array, ...]) -> Any:
        """The coefficient of diffusion along an axis."""
        total = np.zeros(places[0].shape)
        for term in self.setting.terms:
            k = term.coefficient if isinstance(term, Diffusion) else 1.0
            total = total + coefficient_at(per_axis(k, len(places))[axis], places)
        check_positive(total)
        return total

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports Diffusion along the axes or a spectral power, with real numbers and Dirichlet conditions."""
        if not setting.domain.cut:
            return "it takes a Region with cut=True"
        for term in setting.terms:
            power = isinstance(term, FractionalDiffusion) and term.kind == "spectral" and len(setting.terms) == 1
            each = coefficients_of(term)
            if not (power and not is_function(each[0])) and not isinstance(term, Diffusion):
                return "cut=True takes Diffusion, or a FractionalDiffusion(order, 'spectral') of constant coefficient"
            if len(each) not in (1, setting.ndim):
                return f"{type(term).__name__} has {len(each)} coefficients for {setting.ndim} axes"
        if setting.tensors or not all(isinstance(one, Dirichlet) for ends in setting.boundary for one in ends):
            return "cut=True takes Dirichlet conditions, and diffusion along the axes"
        if setting.xp.library != "numpy" and math.prod(x.size for x in setting.grid) > matrix.DENSE:
            return f"it takes NumPy arrays, or boxes of at most {matrix.DENSE:,} points"
        return next(filter(None, map(refuse_complex, setting.terms)), None)


def _share(region: Any, places: tuple[Array, ...], axis: int, step: Array) -> Array:
    """How far along a step from inside to outside the curve is, by bisection."""
    low, high = np.zeros(step.size), np.ones(step.size)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        holds = region.holds(_moved(places, axis, middle * step))
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return np.maximum(high, _LEAST)


def _moved(places: tuple[Array, ...], axis: int, distance: Array) -> tuple[Array, ...]:
    return tuple(one + distance if number == axis else one for number, one in enumerate(places))
