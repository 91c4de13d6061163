"""The interface between a discretisation in space and a method in time."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hpfracc._arrays import is_array, library_of
from hpfracc._xp import NUMPY, Namespace
from hpfracc.errors import ShapeError
from hpfracc.solvers.pde.boundary import Ends, Periodic, is_homogeneous
from hpfracc.solvers.pde.domain import Disc
from hpfracc.solvers.pde.terms import SpaceTerm

__all__ = ["Semidiscretisation", "SpaceSetting", "broadcast_points", "is_uniform"]

Array = np.ndarray[Any, Any]

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
    disc : Disc or None
        The domain, if it is a disc; ``grid`` then contains its radii and angles.
    """

    terms: tuple[SpaceTerm, ...]
    grid: tuple[Array, ...]
    boundary: tuple[Ends, ...]
    xp: Namespace = field(default=NUMPY)
    complex_state: bool = False
    t0: float = 0.0
    backend: str = "auto"
    components: int | None = None
    disc: Disc | None = None

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
        found = value if is_array(value) else np.asarray(value)
        if xp.library != "numpy" or not isinstance(found, np.ndarray):
            found = xp.asarray(found) if is_array(found) and library_of(found) == xp.library else xp.array(found)
        face = np.broadcast_shapes(*(tuple(one.shape) for one in coordinates))
        shape = tuple(found.shape)
        if shape == ():
            return found
        if self.components is not None and shape == (self.components,):
            return found.reshape((self.components, *(1,) * self.ndim))
        lead = () if self.components is None else (self.components,)
        flat = face[:axis] + face[axis + 1 :]
        if shape == flat and shape != face:
            return found.reshape(face)
        for allowed in (face, (*lead, *face)):
            try:
                if np.broadcast_shapes(shape, allowed) == allowed:
                    return found
            except ValueError:
                continue
        raise ShapeError(
            f"boundary data of shape {shape} at the {'upper' if end else 'lower'} end of axis {axis}, whose points "
            f"have shape {face}; give a number, or a function that returns that shape"
        )


def is_uniform(x: Array) -> bool:
    """Whether the points of ``x`` are equally spaced, up to the rounding of decimals."""
    steps = np.diff(x)
    mean = float(steps.mean())
    return bool(np.all(np.abs(steps - mean) <= _UNIFORM * mean))


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
        The coordinates of the unknowns, one array per axis, shaped to broadcast against ``u``.
    grid : tuple of numpy.ndarray
        The whole grid, boundary points included, one array per axis.
    symbol : array or None
        The eigenvalues of A in the basis of :meth:`forward`; None if A is not diagonalised. Its shape is that of a
        transformed state, without leading axes.
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
    xp: Namespace = NUMPY
    notes: tuple[str, ...] = ()
    #: Whether it can be made for every second point of its grid, to estimate its error; others estimate it from u.
    coarsens: bool = True
    #: The highest order that its largest error has; infinite for spectral methods.
    best_order: float = 2.0
    #: Whether ``forcing`` is nonzero, and whether it depends on time.
    forced: bool = False
    forcing_varies: bool = False

    @classmethod
    @abc.abstractmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Why it does not support this setting, as a sentence that says what to do instead; None if it does."""

    @classmethod
    @abc.abstractmethod
    def make(cls, setting: SpaceSetting) -> Semidiscretisation:
        """The discretisation of a supported setting."""

    def forward(self, u: Any) -> Any:
        """The coefficients of ``u`` in the eigenvectors of A."""
        raise NotImplementedError(f"{self.name} is not diagonalised")

    def backward(self, c: Any) -> Any:
        """The values with the coefficients ``c``."""
        raise NotImplementedError(f"{self.name} is not diagonalised")

    @abc.abstractmethod
    def apply(self, u: Any) -> Any:
        """``A u``, for homogeneous boundary data."""

    @abc.abstractmethod
    def solve(self, shift: Any, rhs: Any, guess: Any = None) -> Any:
        """``(shift - A)^-1 rhs``; iterative methods start from ``guess``."""

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

    def space_error(self, u: Any) -> float:
        """An estimate of the largest error of ``u`` due to the grid, from ``u`` alone; nan if there is none."""
        return math.nan

    def unresolved(self, u: Any) -> Any:
        """The size of what the points do not resolve in the values ``u``, by coefficients; None if that is unknown."""
        return None

    def step_bytes(self) -> int:
        """Bytes that :meth:`solve` needs besides its operands, for the memory forecast."""
        return 4 * 8 * math.prod(self.shape)


def broadcast_points(xp: Namespace, axes: tuple[Array, ...]) -> tuple[Any, ...]:
    """One array per axis, shaped ``(1, .., n, .., 1)``."""
    count = len(axes)
    return tuple(xp.array(x.reshape((1,) * axis + (-1,) + (1,) * (count - 1 - axis))) for axis, x in enumerate(axes))
