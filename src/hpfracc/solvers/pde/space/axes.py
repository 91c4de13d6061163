"""One axis of a box: its unknown points, the eigenfunctions for its boundary conditions, and their transform."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.engine.numerics import trigonometric
from hpfracc.engine.numerics.lengths import largest_factor
from hpfracc.solvers.pde.boundary import (
    BoundaryCondition,
    Dirichlet,
    Ends,
    Neumann,
    NoFlux,
    Periodic,
    Robin,
    is_homogeneous,
)

Array = np.ndarray[Any, Any]

#: Largest number of points of an axis with Robin conditions, whose transform is a dense matrix product.
MAX_DENSE = 2048

#: The transform for each pair of conditions: its name in the engine, and whether the inverse is meant.
_KINDS: dict[tuple[type[BoundaryCondition], type[BoundaryCondition]], tuple[str, bool]] = {
    (Periodic, Periodic): ("fft", False),
    (Dirichlet, Dirichlet): ("dst1", False),
    (Neumann, Neumann): ("dct1", False),
    (Dirichlet, Neumann): ("dst2", True),
    (Neumann, Dirichlet): ("dct2", True),
}


#: Most points for which a matrix product is always at least as fast as a transform: on one core, 3 times for one row
#: and 2 times for 8 to 500 rows of 63 points. Fewest rows and most points for which it is faster than a transform whose
#: length has a prime factor larger than _LARGEST_PRIME: at 128 to 1,008 points, up to 8 times.
_ALWAYS_PRODUCT = 128
_MANY_ROWS = 32
_LONGEST_PRODUCT = 1024
_LARGEST_PRIME = 40


@dataclass(frozen=True, slots=True, eq=False)
class AxisBasis:
    """The eigenfunctions of the second derivative along one axis.

    Attributes
    ----------
    xp : Namespace
        The library of its arrays.
    kind : str
        ``"fft"``, ``"dst1"``, ``"dct1"``, ``"dst2"``, ``"dct2"``, or ``"dense"``.
    inverted : bool
        Whether the coefficients come from the inverse of the transform of that name.
    count : int
        Number of unknowns.
    squares : numpy.ndarray
        The negated eigenvalues, in the order of the transform.
    waves : numpy.ndarray or None
        For periodic axes: signed wave numbers, zero for the Nyquist wave, which has no sign.
    responses : (numpy.ndarray or None, numpy.ndarray or None)
        What a boundary value of 1 at each end adds to the second derivative at the unknowns.
    matrices : (array, array) or None
        Where transforms are products: the matrices to the coefficients and back.
    differences : bool
        Whether the eigenvalues are those of second differences, as for ends with data.
    """

    xp: Namespace
    kind: str
    inverted: bool
    count: int
    squares: Array
    waves: Array | None = None
    responses: tuple[Array | None, Array | None] = (None, None)
    matrices: tuple[Any, Any] | None = None
    differences: bool = False

    @property
    def spectral(self) -> bool:
        """Whether the eigenvalues are those of the derivative itself."""
        return self.kind != "dense" and not self.differences

    def transform(self, axis: int, *, back: bool, real: bool) -> Callable[[Any], Any]:
        """The transform along ``axis``, counted from the end, or the one back, as a function of one array."""
        if self.matrices is not None and real and axis >= -2 and self.xp.library == "numpy":
            matrix = self.matrices[back]
            if axis == -1:
                return functools.partial(np.dot, b=np.ascontiguousarray(matrix.T))
            return matrix.__matmul__  # type: ignore[no-any-return]
        return functools.partial(self.backward if back else self.forward, axis=axis)

    def forward(self, u: Any, axis: int) -> Any:
        """The coefficients along ``axis``, counted from the end."""
        if self.kind == "fft":
            return self.xp.fftn(u, (axis,))
        if self.matrices is not None:
            return matrix_product(self.xp, self.matrices[0], u, axis)
        return self._trigonometric(u, axis, self.inverted)

    def backward(self, c: Any, axis: int) -> Any:
        """The values."""
        if self.kind == "fft":
            return self.xp.ifftn(c, [self.count], (axis,))
        if self.matrices is not None:
            return matrix_product(self.xp, self.matrices[1], c, axis)
        return self._trigonometric(c, axis, not self.inverted)

    def _trigonometric(self, u: Any, axis: int, inverse: bool) -> Any:
        xp = self.xp
        if xp.library == "numpy":
            matrix = _transform_matrix(self.kind, self.count, inverse) if u.size >= _MANY_ROWS * self.count else None
            return _transform(self.kind, inverse, u, axis) if matrix is None else matrix_product(xp, matrix, u, axis)
        transform = trigonometric.backward if inverse else trigonometric.forward
        return xp.moveaxis(transform(xp, self.kind, xp.moveaxis(u, axis, -1)), -1, axis)


def matrix_product(xp: Namespace, matrix: Any, u: Any, axis: int = -1) -> Any:
    """A real matrix times an array along an axis; for complex arrays by real and imaginary part."""
    if xp.is_complex(u):
        return xp.complex(matrix_product(xp, matrix, u.real, axis), matrix_product(xp, matrix, u.imag, axis))
    if axis == -1:
        return xp.matmul(u, matrix.T)
    return xp.moveaxis(xp.matmul(matrix, xp.moveaxis(u, axis, -2)), -2, axis)


def _transform(kind: str, inverse: bool, u: Array, axis: int) -> Array:
    import scipy.fft

    chosen = getattr(scipy.fft, f"{'i' if inverse else ''}{kind[:3]}")
    return np.asarray(chosen(u, int(kind[-1]), axis=axis))


@functools.lru_cache(maxsize=8)
def _transform_matrix(kind: str, n: int, inverse: bool) -> Array | None:
    """The matrix of a transform that is short, or whose length has a large prime factor; None of others."""
    length = {"dst1": n + 1, "dct1": n - 1}.get(kind, n)
    if n > _ALWAYS_PRODUCT and (n > _LONGEST_PRODUCT or largest_factor(length) <= _LARGEST_PRIME):
        return None
    return _transform(kind, inverse, np.eye(n), 0)


def make_axis(xp: Namespace, x: Array, ends: Ends, *, half: bool) -> AxisBasis:
    """The basis for a uniform grid ``x`` with these conditions; ``half``: only non-negative waves, for a real state."""
    lower, upper = ends
    length = float(x[-1] - x[0])
    h = length / (x.size - 1)
    if isinstance(lower, Periodic):
        n = x.size
        whole = np.arange(n // 2 + 1) if half else np.round(np.fft.fftfreq(n) * n)
        kappa = 2.0 * math.pi / (n * h) * whole
        slope = np.where(2 * np.abs(whole) == n, 0.0, kappa)
        return AxisBasis(xp, "fft", False, n, kappa**2, slope)
    count = x.size - isinstance(lower, Dirichlet) - isinstance(upper, Dirichlet)
    if isinstance(lower, Robin) or isinstance(upper, Robin):
        squares, to, back, responses = _robin(count, h, ends)
        return AxisBasis(
            xp, "dense", False, count, squares, responses=responses, matrices=(xp.array(to), xp.array(back))
        )
    first_kind, last_kind = (Neumann if isinstance(one, NoFlux) else type(one) for one in ends)
    kind, inverted = _KINDS[first_kind, last_kind]
    first = 0.0 if kind == "dct1" else 0.5 if inverted else 1.0
    kappa = math.pi / length * (first + np.arange(count))
    matrices = None
    if xp.library == "numpy" and count <= _ALWAYS_PRODUCT:
        matrices = _transform_matrix(kind, count, inverted), _transform_matrix(kind, count, not inverted)
    if is_homogeneous(lower) and is_homogeneous(upper):
        return AxisBasis(xp, kind, inverted, count, kappa**2, matrices=matrices)
    # A lift of the data has kinks in its periodic extension, which would limit a spectral method to h^2 log(1/h).
    squares = (2.0 / h * np.sin(0.5 * h * kappa)) ** 2
    responses = (_response(count, h, lower, 0), _response(count, h, upper, count - 1))
    return AxisBasis(xp, kind, inverted, count, squares, None, responses, matrices, differences=True)


def _response(n: int, h: float, end: BoundaryCondition, place: int) -> Array:
    """What a boundary value of 1 adds to second differences: by the neighbour, or by a ghost point beyond the end."""
    found = np.zeros(n)
    if isinstance(end, Dirichlet):
        found[place] = 1.0 / h**2
    else:
        found[place] = 2.0 / ((float(end.b) if isinstance(end, Robin) else 1.0) * h)
    return found


def _robin(n: int, h: float, ends: Ends) -> tuple[Array, Array, Array, tuple[Array, Array]]:
    """Second differences with ghost points, diagonalised: squares, matrices to the coefficients and back, responses."""
    from scipy.linalg import eigh_tridiagonal

    diagonal, masses = np.full(n, -2.0 / h**2), np.ones(n)
    for end, place in zip(ends, (0, n - 1), strict=True):
        if not isinstance(end, Dirichlet):
            masses[place] = 0.5
        if isinstance(end, Robin):
            diagonal[place] -= 2.0 * float(end.a) / (float(end.b) * h)
    responses = (_response(n, h, ends[0], 0), _response(n, h, ends[1], n - 1))
    # Symmetric after scaling with the square roots of the masses, because rows of end points are doubled.
    root = np.sqrt(masses)
    off = 1.0 / (h**2 * root[:-1] * root[1:])
    squares, vectors = eigh_tridiagonal(-diagonal, -off)
    return squares, vectors.T * root, vectors / root[:, None], responses


def diagonalise(matrix: Array, scale: Array | None = None) -> tuple[Array, Array, Array]:
    """Eigenvalues of ``diag(scale) @ matrix``, and the matrices to coefficients in its eigenvectors and back.

    For a symmetric matrix and positive scales.
    """
    root = np.ones(len(matrix)) if scale is None else np.sqrt(scale)
    values, vectors = np.linalg.eigh(root[:, None] * matrix * root)
    return values, vectors.T / root, root[:, None] * vectors
