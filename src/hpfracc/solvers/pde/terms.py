"""The terms of a partial differential equation in space: data only, summed with ``+``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_array, library_of
from hpfracc._choices import HasShape, SideName
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.pde.boundary import check_data
from hpfracc.solvers.pde.orders import checked_order

#: A number (a tensor or JAX scalar carries its gradient), or a function of the coordinates.
Coefficient = complex | HasShape | Callable[..., Any]

#: Largest condition number of eigenvectors that count as independent.
_INDEPENDENT = 1e6
KINDS = ("spectral", "integral", "riesz")


class SpaceTerm:
    """A term of the right-hand side; ``a + b`` is a sum of terms."""

    __slots__ = ()

    def __add__(self, other: SpaceTerm | TermSum) -> TermSum:
        return TermSum((self,)) + other


@final
@dataclass(frozen=True, slots=True)
class TermSum:
    """A sum of terms.

    Attributes
    ----------
    terms : tuple of SpaceTerm
        In the order in which they were added.
    """

    terms: tuple[SpaceTerm, ...]

    def __add__(self, other: SpaceTerm | TermSum) -> TermSum:
        if isinstance(other, SpaceTerm):
            return TermSum((*self.terms, other))
        if isinstance(other, TermSum):
            return TermSum((*self.terms, *other.terms))
        return NotImplemented

    def __iter__(self) -> Iterator[SpaceTerm]:
        return iter(self.terms)


@final
@dataclass(frozen=True, slots=True)
class Diffusion(SpaceTerm):
    r""":math:`\nabla \cdot (k \nabla u)`.

    Parameters
    ----------
    coefficient : float, callable, or one for each axis
        k: a number, ``k(x)`` (``k(x, y)`` in two dimensions) with arrays of coordinates, or a tuple with one of these
        for each axis. A complex one gives a Schrödinger equation. ``k(t, x)``, ``k(x, u)`` and ``k(t, x, u)`` are
        recognised by the names t, the first, and u, the last of their arguments; such coefficients may be zero.

        Or a full tensor D, for :math:`\nabla \cdot (D \nabla u)`: a symmetric positive definite matrix with a row for
        each axis, or a function of the coordinates that returns its rows, ``[[a, b], [b, c]]``, of numbers or arrays.
        Slopes of :class:`Neumann` and :class:`Robin` are then those along :math:`D n / (n \cdot D n)`; 0 stands for
        no flux.
    """

    coefficient: Coefficient | Sequence[Coefficient | Sequence[float]] = 1.0

    def __post_init__(self) -> None:
        if is_tensor(self.coefficient):
            tensor = _reading.numbers("Diffusion: the tensor", self.coefficient, ndim=2)
            check_definite(tensor)
            object.__setattr__(self, "coefficient", tuple(map(tuple, tensor.tolist())))
        else:
            _check_coefficients(self)


@final
@dataclass(frozen=True, slots=True)
class CrossDiffusion(SpaceTerm):
    r""":math:`\sum_j D_{ij} \Delta u_j` in the equation of the component i of a system.

    The combinations of components that are the eigenvectors of D diffuse each with its eigenvalue, so the system has
    the discretisation of one equation. It stands alone: transport and other operators are no part of it.

    Parameters
    ----------
    coefficient : array_like, shape (components, components)
        D: real numbers, with eigenvalues of positive real part (complex ones for components that chase each other), and
        as many independent eigenvectors as components.

    References
    ----------
    V. K. Vanag, I. R. Epstein, "Cross-diffusion and pattern formation in reaction-diffusion systems", Phys. Chem. Chem.
    Phys. 11, 2009.

    See Also
    --------
    Diffusion

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc import pde
    >>> x = np.linspace(0.0, np.pi, 17)
    >>> start = np.stack([np.cos(x), 0.0 * x])
    >>> space = pde.CrossDiffusion([[1.0, 0.5], [0.5, 1.0]])
    >>> result = hf.solve_fpde(None, (0.0, 1.0), start, x=x, space=space, boundary="neumann")
    >>> bool(np.allclose(result.u[-1, :, 0], [np.exp(-1.0) * np.cosh(0.5), -np.exp(-1.0) * np.sinh(0.5)]))
    True
    """

    coefficient: Any

    def __post_init__(self) -> None:
        matrix = _reading.numbers("CrossDiffusion", self.coefficient, ndim=2)
        if matrix.shape[0] != matrix.shape[1]:
            raise ShapeError(f"CrossDiffusion: shape {matrix.shape}; give a row and a column for each component")
        values, vectors = np.linalg.eig(matrix)
        if not values.real.min() > 0.0:
            raise InvalidInputError(
                f"CrossDiffusion: an eigenvalue of {values[values.real.argmin()]:.3g}; their real parts have to be "
                "positive, or the equation is ill-posed"
            )
        if np.linalg.cond(vectors) > _INDEPENDENT:
            raise InvalidInputError(
                "CrossDiffusion: the matrix has fewer independent eigenvectors than components; change an entry by a "
                "part in a million"
            )
        object.__setattr__(self, "coefficient", tuple(map(tuple, matrix.tolist())))


@final
@dataclass(frozen=True, slots=True)
class Advection(SpaceTerm):
    r""":math:`-v \cdot \nabla u`: transport with the velocity v; :math:`-\nabla \cdot (v u)` if ``conservative``.

    Parameters
    ----------
    velocity : float, callable, or one for each axis
        A number or function of the coordinates in one dimension; in more, a tuple with one of these for each axis.
    conservative : bool
        Whether v is inside the derivative, so that mass is conserved for velocities that vary. The same for constant
        ones.
    """

    velocity: Coefficient | tuple[Coefficient, ...]
    conservative: bool = False

    def __post_init__(self) -> None:
        _check_coefficients(self)
        _reading.flag("Advection: conservative", self.conservative)


@final
@dataclass(frozen=True, slots=True)
class FractionalDiffusion(SpaceTerm):
    r""":math:`-c\,(-\Delta)^{\alpha/2} u`, of order :math:`0 < \alpha \le 2`.

    Parameters
    ----------
    order : float or scalar array
        The order alpha, twice the power s; the Laplacian at 2. A tensor or JAX scalar carries its gradient, except on a
        disc and with ``"integral"`` in several dimensions.
    kind : {"spectral", "integral", "riesz"}, optional
        Which Laplacian. It may be omitted on a periodic box, where each wave is multiplied by :math:`|\kappa|^\alpha`.
        On a bounded set the kinds differ, and it must be given:

        - ``"spectral"``: the power of the Laplacian with the boundary condition of the problem, by its eigenfunctions.
        - ``"integral"``: the singular integral over the whole space; needs exterior data (:class:`Exterior`).
        - ``"riesz"``: the sum of the one-dimensional integral operators over the axes.
    coefficient : float or callable
        c: a number, or a function of the coordinates.
    """

    order: Any
    kind: str | None = None
    coefficient: Coefficient = 1.0

    def __post_init__(self) -> None:
        checked_order("FractionalDiffusion: order", self.order)
        if self.kind is not None:
            _reading.choice("FractionalDiffusion: kind", self.kind, KINDS)
        _check_coefficients(self)


@final
@dataclass(frozen=True, slots=True)
class OneSided(SpaceTerm):
    r""":math:`c\,D^{\beta} u`, the Riemann-Liouville derivative from one end of the interval.

    It needs Dirichlet conditions, with zero data at the end where it starts. Constant coefficients with orders above 1
    in one dimension also allow ``boundary="neumann"``: no flux :math:`-c\,D^{\beta-1} u` through either end, which
    conserves mass.

    Parameters
    ----------
    order : float or scalar array
        Beta, in (0, 2), not 1. A tensor or JAX scalar carries its gradient.
    side : {"left", "right"}
        The end it starts from.
    coefficient : float or callable
        c, a number or a function of x. Diffusion (beta above 1) needs ``c >= 0``, transport from the left (beta below
        1) ``c <= 0``.
    axis : int
        The axis it runs along.
    """

    order: Any
    side: SideName = "left"
    coefficient: Coefficient = 1.0
    axis: int = 0

    def __post_init__(self) -> None:
        checked_order("OneSided: order", self.order, one_sided=True)
        _reading.choice("OneSided: side", self.side, ("left", "right"))
        _check_coefficients(self)
        _reading.whole("OneSided: axis", self.axis)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Matrix(SpaceTerm):
    r""":math:`-c\,(M^{-1} A)^p u` at the nodes of a mesh or graph, with matrices of your own.

    A is symmetric and positive semidefinite, as the stiffness matrix of finite elements or the Laplacian D - W of a
    graph: it stands for :math:`-\Delta` with its boundary conditions. ``solve_fpde`` takes no ``x`` and no ``boundary``
    with it; nodes with given values are left out of the matrices.

    Parameters
    ----------
    operator : sparse or dense matrix, shape (n, n)
        A.
    mass : sparse or dense matrix, shape (n, n), or array, shape (n,), optional
        M, symmetric and positive definite, or its diagonal; the identity by default.
    power : float
        p, in (0, 1].
    coefficient : float
        c, above 0.
    points : array_like, shape (n,) or (dimensions, n), optional
        Coordinates of the nodes, with which functions of x (x and y, ...) are called; their numbers by default.
    """

    operator: Any
    mass: Any = None
    power: float = 1.0
    coefficient: float = 1.0
    points: Any = None

    def __post_init__(self) -> None:
        _reading.number("Matrix: power", self.power, above=0.0, most=1.0)
        _reading.number("Matrix: coefficient", self.coefficient, above=0.0)
        self.sparse()
        if self.coordinates()[0].shape != (self.nodes,):
            raise ShapeError(f"Matrix: points of shape {np.shape(self.points)} for {self.nodes} nodes")

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(np.shape(self.operator)[0])

    def coordinates(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The coordinates of the nodes, one array for each dimension."""
        if self.points is None:
            return (np.arange(self.nodes, dtype=float),)
        return tuple(np.atleast_2d(_reading.numbers("Matrix: points", self.points)))

    def sparse(self) -> tuple[Any, Any]:
        """A and M as sparse matrices."""
        from scipy import sparse

        found: list[Any] = []
        for name, given in (("operator", self.operator), ("mass", self.mass)):
            if given is None and name == "mass":
                given = np.ones(found[0].shape[0])
            values = _reading.numbers(f"Matrix: {name}", given.data if sparse.issparse(given) else given)
            if not sparse.issparse(given):
                given = sparse.diags_array(values) if values.ndim == 1 and found else values
            if len(given.shape) != 2 or given.shape != (given.shape[0],) * 2 or not given.shape[0]:
                raise ShapeError(f"Matrix: {name} of shape {given.shape}; give a square matrix for all nodes")
            if found and given.shape != found[0].shape:
                raise ShapeError(
                    f"Matrix: mass of shape {given.shape} for {found[0].shape[0]} nodes; give one for each"
                )
            matrix = sparse.csr_array(given, dtype=float)
            if abs(matrix - matrix.T).max() > 1e-10 * abs(matrix).max():
                raise InvalidInputError(
                    f"Matrix: {name} is not symmetric; multiply it by its mass matrix, and give that"
                )
            found.append(matrix)
        if found[1].diagonal().min() <= 0.0:
            raise InvalidInputError(
                f"Matrix: mass has {found[1].diagonal().min():g} on its diagonal; it has to be positive definite"
            )
        return found[0], found[1]


def read_space(space: Any, components: int | None) -> tuple[tuple[SpaceTerm, ...], ...]:
    """The terms of each component; one entry where all components share them.

    Parameters
    ----------
    space : SpaceTerm, TermSum or sequence of these
        A sum for all components, or a list with one sum for each.
    components : int or None
        Number of components of the state; None for a single equation.
    """
    if isinstance(space, SpaceTerm):
        return ((space,),)
    if isinstance(space, TermSum):
        return (space.terms,)
    if isinstance(space, list | tuple) and space and all(isinstance(one, SpaceTerm | TermSum) for one in space):
        if components is None or len(space) != components:
            have = "one equation" if components is None else f"{components} components"
            raise InvalidInputError(
                f"space is a list of {len(space)} sums, and u0 has {have}; give one sum for each component, or one for "
                "all (terms are added with +)"
            )
        return tuple((one,) if isinstance(one, SpaceTerm) else one.terms for one in space)
    raise InvalidInputError(
        f"space={space!r} is no sum of terms; use Diffusion(k), Advection(v), FractionalDiffusion(order, kind) and "
        "OneSided(order, side), added with +, Matrix(A), or a list with one sum for each component"
    )


def is_tensor(value: Any) -> bool:
    """Whether the value of a coefficient is a full tensor: rows, of which a number at each point is none."""
    if isinstance(value, tuple | list):
        return bool(value) and isinstance(value[0], tuple | list | np.ndarray)
    return is_array(value) and value.ndim > 1


def tensor_at(coefficient: Any, places: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """A full tensor of diffusion at these points, of shape (points, axes, axes)."""
    count = len(places)
    value = coefficient(*places) if callable(coefficient) else coefficient
    if [len(row) for row in value] != [count] * count:
        raise ShapeError(f"Diffusion: a tensor with rows of {[len(row) for row in value]} entries for {count} axes")
    rows = [np.stack([np.broadcast_to(one, places[0].shape) for one in row], axis=-1) for row in value]
    found = np.stack(rows, axis=-2)
    check_definite(found)
    return found


def check_definite(tensors: np.ndarray[Any, Any]) -> None:
    """Refuse tensors, in the last two axes, that are not symmetric or not positive definite."""
    if tensors.shape[-1] != tensors.shape[-2]:
        raise ShapeError(f"Diffusion: a tensor of shape {tensors.shape[-2:]}; give one row and column for each axis")
    if not np.allclose(tensors, np.swapaxes(tensors, -1, -2), rtol=1e-10):
        raise InvalidInputError("Diffusion: the tensor is not symmetric; give its symmetric part")
    least = float(np.linalg.eigvalsh(tensors).min())
    if not least > 0.0:
        raise InvalidInputError(
            f"Diffusion: the tensor has an eigenvalue of {least:.3g}; it has to be positive definite everywhere, or "
            "the equation is ill-posed"
        )


def per_axis(value: Any, count: int) -> tuple[Any, ...]:
    """One coefficient for each axis."""
    return tuple(value) if isinstance(value, tuple | list) else (value,) * count


def coefficients_of(term: Any) -> tuple[Any, ...]:
    """The coefficients of a term, as many as were given."""
    return per_axis(term.velocity if isinstance(term, Advection) else term.coefficient, 1)


def _check_coefficients(term: Any) -> None:
    who = type(term).__name__
    for value in coefficients_of(term):
        if not is_array(value):
            check_data(f"{who}: coefficient", value, "the coordinates")
            continue
        if tuple(value.shape) not in ((), (1,)):
            raise InvalidInputError(
                f"{who}: a coefficient of shape {tuple(value.shape)}; give a number, a function of the coordinates, or "
                "a tuple with one for each axis"
            )
        if library_of(value) == "numpy":  # others may be traced
            check_data(f"{who}: coefficient", value.item(), "the coordinates")
