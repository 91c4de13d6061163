"""Boxes by eigenfunctions: sines, cosines and waves along the axes, which diagonalise constant coefficients."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_array, is_tracer, to_host, tracks_gradient
from hpfracc._xp import Namespace
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.boundary import Periodic, Robin, is_function, is_homogeneous
from hpfracc.solvers.pde.space.axes import MAX_DENSE, make_axis
from hpfracc.solvers.pde.space.base import GridSpace, SpaceSetting, refuse_conditions, refuse_grid
from hpfracc.solvers.pde.terms import (
    Advection,
    Diffusion,
    FractionalDiffusion,
    OneSided,
    coefficients_of,
    is_tensor,
    per_axis,
)

Array = np.ndarray[Any, Any]


@final
class BoxModes(GridSpace):
    r"""Constant coefficients on a box, in the eigenfunctions of the Laplacian with the conditions of each axis.

    Along an axis of length L these are :math:`e^{2\pi i k x/L}` (periodic), :math:`\sin(\pi k x/L)` (Dirichlet),
    :math:`\cos(\pi k x/L)` (Neumann), :math:`\sin(\pi (k-1/2) x/L)` and its mirror image (one of each), with the
    eigenvalues :math:`-\kappa^2` of the Laplacian itself, not of differences: exact to rounding for each of them, and
    spectrally accurate for solutions whose extension (periodic, odd or even, like the eigenfunctions) is smooth. For u0
    and sources that are not zero at an end with a Dirichlet condition, whose coefficients are found from samples, the
    order is that of the equation in space: 2 (up to a logarithm in several dimensions), or s for
    :math:`(-\Delta)^{s/2}` alone. Along an axis with data at its ends, and with Robin conditions, the eigenvalues are
    those of second differences, of order 2.
    """

    name = "modes"

    def __init__(self, setting: SpaceSetting) -> None:
        super().__init__(setting)
        xp, count = setting.xp, setting.ndim
        waves = [axis for axis, (lower, _) in enumerate(setting.boundary) if isinstance(lower, Periodic)]
        # For a real state, the last periodic axis keeps only half of the waves.
        halved = None if setting.complex_state or not waves else waves[-1]
        self._axes = tuple(
            make_axis(xp, setting.grid[axis], setting.boundary[axis], half=axis == halved) for axis in range(count)
        )
        real = not setting.complex_state and not waves
        others = [(basis, axis - count) for axis, basis in enumerate(self._axes) if axis not in waves]
        to, back = ([basis.transform(axis, back=one, real=real) for basis, axis in others] for one in (False, True))
        if waves:  # all periodic axes together, first, and last on the way back
            together, sizes = tuple(axis - count for axis in waves), [self._axes[axis].count for axis in waves]
            to.insert(0, functools.partial(xp.fftn if halved is None else xp.rfftn, axes=together))
            inverse = xp.ifftn if halved is None else xp.irfftn
            back.append(functools.partial(inverse, sizes=sizes, axes=together))
        self.transforms = tuple(to), tuple(back)
        squares = [basis.squares.reshape(_along(axis, count)) for axis, basis in enumerate(self._axes)]
        self._squares = [xp.array(one) for one in squares]
        self.symbol = self._make_symbol()
        self._check_growth()
        spectral = all(basis.spectral for basis in self._axes)
        self.accuracy = "spectral for data smooth when extended like the eigenfunctions, else that of the equation"
        if not spectral:
            self.accuracy = "2"
        self.best_order = math.inf if spectral else 2.0
        self._steady: Any = None
        self._responses = self._make_responses() if self.forced else []

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Needs constant coefficients and uniform grids; advection only along periodic axes."""
        for axis, (x, ends) in enumerate(zip(setting.grid, setting.boundary, strict=True)):
            if any(isinstance(one, Robin) for one in ends) and x.size > MAX_DENSE:
                return f"axis {axis} has Robin conditions and more than {MAX_DENSE:,} points"
        return refuse_grid(setting, 3) or next(
            filter(None, (_refuse_term(term, setting) for term in setting.terms)), None
        )

    def _make_symbol(self) -> Any:
        xp, count = self.xp, len(self._axes)
        parts: list[Any] = []
        for term in self.setting.terms:
            if isinstance(term, Diffusion) and is_tensor(term.coefficient):
                tensor = np.array(term.coefficient)
                parts += [-float(tensor[axis, axis]) * one for axis, one in enumerate(self._squares)]
                slopes = [
                    xp.array(np.asarray(one.waves).reshape(_along(axis, count))) for axis, one in enumerate(self._axes)
                ]
                for one, other in itertools.combinations(range(count), 2):
                    parts.append(-2.0 * float(tensor[one, other]) * slopes[one] * slopes[other])
            elif isinstance(term, Diffusion):
                parts += [
                    _scalar(k) * -one for k, one in zip(per_axis(term.coefficient, count), self._squares, strict=True)
                ]
            elif isinstance(term, Advection):
                for axis, v in enumerate(per_axis(term.velocity, count)):
                    waves = self._axes[axis].waves
                    if waves is not None:
                        slopes = xp.array(waves.reshape(_along(axis, count)))
                        parts.append(xp.complex(xp.zeros_like(slopes), -slopes) * _scalar(v))
            elif isinstance(term, FractionalDiffusion):
                bases = self._squares if term.kind == "riesz" else [sum(self._squares)]
                parts += [-_scalar(term.coefficient) * _power(xp, one, term.order) for one in bases]
        return sum(parts) + xp.zeros(self._spectrum_shape(), "float64")

    def _check_growth(self) -> None:
        """Refuse equations whose shortest waves grow along any axis."""
        if is_tracer(self.symbol) or tracks_gradient(self.symbol):
            return
        squares = [basis.squares for basis in self._axes]
        for axis, own in enumerate(squares):
            place = tuple(int(np.argmax(own) if one == axis else np.argmin(each)) for one, each in enumerate(squares))
            value = complex(to_host(self.symbol[place]))
            if value.real > 1e-12 * abs(value):
                raise InvalidInputError(
                    f"the shortest wave of axis {axis} grows, with the rate {value.real:.3g}: diffusion backwards is "
                    "ill-posed. Use coefficients of 0 and above; where a term of higher order damps short waves, take "
                    "more points in x"
                )

    def _spectrum_shape(self) -> tuple[int, ...]:
        return tuple(int(basis.squares.size) for basis in self._axes)

    def _make_responses(self) -> list[tuple[int, int, Any]]:
        """For each end with data: the axis, the end, and what a boundary value of 1 there adds to the Laplacian."""
        found = []
        for axis, (ends, basis) in enumerate(zip(self.setting.boundary, self._axes, strict=True)):
            for end in (0, 1):
                response = basis.responses[end]
                if response is not None and not is_homogeneous(ends[end]):
                    found.append((axis, end, self.xp.array(response.reshape(_along(axis, len(self._axes))))))
        return found

    def forcing(self, t: float) -> Any:
        r"""The contribution of the boundary data to the terms.

        In second differences they enter at the neighbours of an end, or at a ghost point beyond it. A spectral power
        acts on :math:`u - w`, where the harmonic function w has the boundary data: the response of the Laplacian is
        multiplied by :math:`\lambda^{s-1}`.

        References
        ----------
        H. Antil, J. Pfefferer, S. Rogovs, Commun. Math. Sci. 16 (2018) 1395-1426.
        """
        if not self.forced:
            return None
        if self._steady is not None:
            return self._steady
        along: dict[int, Any] = {}
        for axis, end, response in self._responses:
            along[axis] = along.get(axis, 0.0) + response * self.datum(axis, end, t)
        total = sum(self._term_forcing(term, along) for term in self.setting.terms)
        if not self.forcing_varies:
            self._steady = total
        return total

    def _term_forcing(self, term: Any, along: dict[int, Any]) -> Any:
        if isinstance(term, Diffusion):
            factors = per_axis(term.coefficient, len(self._axes))
            return sum(_scalar(factors[axis]) * one for axis, one in along.items())
        if isinstance(term, FractionalDiffusion):
            full = sum(along.values()) + self.xp.zeros(self.shape, "float64")
            factor = _scalar(term.coefficient) * _power(self.xp, sum(self._squares), term.order - 2.0)
            return self.backward(factor * self.forward(full))
        return 0.0

    def space_error(self, u: Any) -> float:
        """The sum of the absolute coefficients in the highest third of the modes, relative to the largest value.

        nan if the eigenvalues of an axis are those of differences.
        """
        if not all(basis.spectral for basis in self._axes):
            return math.nan
        largest = float(np.abs(np.asarray(to_host(u))).max(initial=0.0))
        if largest == 0.0:
            return 0.0
        high = np.zeros(self._spectrum_shape(), bool)
        for axis, basis in enumerate(self._axes):
            waves = np.sqrt(basis.squares)
            high |= waves.reshape(_along(axis, len(self._axes))) > (2.0 / 3.0) * float(waves.max())
        c = np.abs(to_host(self.forward(u)))
        return largest * float((c * high).sum()) / float(c.sum())


def _along(axis: int, count: int) -> tuple[int, ...]:
    return (1,) * axis + (-1,) + (1,) * (count - 1 - axis)


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) else value


def _power(xp: Namespace, squares: Any, order: Any) -> Any:
    """``squares^(order/2)``, zero where the square is zero."""
    positive = squares > 0
    safe = xp.where(positive, squares, 1.0)
    return xp.where(positive, xp.exp(0.5 * order * xp.log(safe)), 0.0)


def _refuse_term(term: Any, setting: SpaceSetting) -> str | None:
    who, each = type(term).__name__, coefficients_of(term)
    if isinstance(term, OneSided):
        return "a one-sided derivative is not diagonal in the eigenfunctions of a box"
    if len(each) not in (1, setting.ndim):
        return f"{who} has {len(each)} coefficients for {setting.ndim} axes"
    if isinstance(term, Advection):
        for axis, v in enumerate(per_axis(term.velocity, setting.ndim)):
            still = not is_array(v) and not callable(v) and v == 0
            if not still and not isinstance(setting.boundary[axis][0], Periodic):
                return f"transport along axis {axis} needs a periodic boundary to be diagonal"
    if isinstance(term, FractionalDiffusion):
        if term.kind in ("integral", "riesz") and not setting.periodic:
            return f"kind={term.kind!r} on a bounded set is not diagonal in the eigenfunctions of a box"
        refusal = refuse_conditions(setting, power=True)
        if refusal is not None:
            return refusal
    if is_tensor(term.coefficient if isinstance(term, Diffusion) else 1.0) and not setting.periodic:
        return "a full tensor is diagonal in waves, with periodic boundaries alone"
    if any(map(is_function, each)):
        return f"{who} has a coefficient that varies in space, which no transform diagonalises"
    return None
