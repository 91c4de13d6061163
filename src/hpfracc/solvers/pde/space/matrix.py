r"""Sparse matrices: those of finite elements or of a graph, from the user, and those of a region."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._xp import Namespace
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.pde.space.axes import matrix_product
from hpfracc.solvers.pde.space.base import Semidiscretisation, SpaceSetting, sparse_resolvent
from hpfracc.solvers.pde.space.krylov import RTOL
from hpfracc.solvers.pde.terms import Matrix

Array = np.ndarray[Any, Any]

#: Number of nodes up to which the matrix is diagonalised.
DENSE = 2000
#: Number of lowest eigenvalues that are looked at, among them all zeros.
_LOWEST = 6
#: Number of shifts whose factorisations are kept.
_KEPT = 4
#: Eigenvalues below this, relative to the largest, are zero; below its negative, the matrix is not semidefinite.
ZERO = 1e-13
#: Distance of the logarithms of the poles, how far they reach beyond the eigenvalues, and points of the fit: relative
#: errors of 4e-9 or less for ratios of the eigenvalues up to 1e8.
_APART, _BEYOND, _SAMPLES = 0.5, 5.0, 400
_INDEFINITE = (
    "Matrix: {}; it has to be positive semidefinite, such as a stiffness matrix or the Laplacian D - W of a graph: it "
    "stands for minus second differences"
)


class SparseSpace(Semidiscretisation):
    r""":math:`-c\,(M^{-1} A)^p u` with sparse matrices, of which A is symmetric and positive semidefinite if p < 1.

    Up to 2,000 unknowns by the eigenvectors of :math:`A v = \lambda M v` where A is symmetric, else by sparse
    factorisations of :math:`\sigma M + c A`. A power there is a rational function with fixed poles,
    :math:`f(\lambda) \approx w_0 + \sum_k w_k/(\lambda + p_k)`, whose weights are fitted for each f: that of the power
    itself and that of its shifted inverse. One factorisation for each pole serves all steps.

    References
    ----------
    S. Harizanov, R. Lazarov, S. Margenov, P. Marinov, Y. Vutov, "Optimal solvers for linear systems with fractional
    powers of sparse SPD matrices", Numer. Linear Algebra Appl. 25, 2018.
    """

    def __init__(
        self, xp: Namespace, a: Any, m: Any, power: float = 1.0, coefficient: float = 1.0, *, symmetric: bool = True
    ) -> None:
        from scipy.linalg import eigh

        self.xp, self._a, self._m, self._power, self._coefficient = xp, a, m, power, coefficient
        count = a.shape[0]
        self.shape = (count,)
        self._symmetric = symmetric
        if symmetric and count <= DENSE:
            try:
                values, vectors = eigh(a.toarray(), m.toarray())
            except np.linalg.LinAlgError:
                raise InvalidInputError("Matrix: mass is not positive definite; give that of all nodes") from None
            both = vectors.T @ m, vectors
            to, back = (functools.partial(matrix_product, xp, xp.array(each)) for each in both)
            self.transforms = (to,), (back,)
            if values[0] < -ZERO * count * values[-1]:
                raise InvalidInputError(_INDEFINITE.format(f"an eigenvalue of {values[0]:.3g}"))
            self._eigenvalues = xp.array(np.where(values < ZERO * values[-1], 0.0, values))
            self.symbol = -coefficient * self._eigenvalues**power
            return
        # Of the newest shifts and the masses; or of all poles and the masses.
        self._factors = functools.lru_cache(_KEPT + 1 if power == 1.0 else None)(self._factorise)
        self._weights_of = functools.lru_cache(_KEPT)(self._fit)
        if power < 1.0:
            self._weights_of(None)  # refuses what it cannot fit before the first step

    def apply(self, u: Any) -> Any:
        """In the eigenvectors; or by the sparse matrices, for a power times the function of power - 1."""
        if self.symbol is not None:
            return super().apply(u)
        return -self._coefficient * self.lowered(self._solved(0.0, 1.0, u @ self._a.T))

    def lowered(self, u: Any) -> Any:
        """``(M^-1 A)^(power - 1) u``, zero for eigenvectors of zero."""
        if self._power == 1.0:
            return u
        if self.symbol is None:
            return self._rational(None, u)
        values, xp = self._eigenvalues, self.xp
        factors = xp.where(values > 0, xp.where(values > 0, values, 1.0) ** (self._power - 1.0), 0.0)
        return self.backward(factors * self.forward(u))

    def solve(self, shift: Any, rhs: Any, guess: Any = None, rtol: float = RTOL) -> Any:
        """In the eigenvectors, by a sparse factorisation, or by one for each pole."""
        if self.symbol is not None:
            return super().solve(shift, rhs)
        if self._power == 1.0:
            return self._solved(self._coefficient, shift, rhs @ self._m)
        return self._rational(float(shift), rhs)

    def lacks_resolvent(self) -> str | None:
        """Powers, and matrices with advection, lack it."""
        if self._power != 1.0 or not self._symmetric or self.xp.library != "numpy":
            return "it has no symmetric matrix"
        return None

    def resolvent(self) -> Callable[[Any, Any], Any]:
        """By sparse factorisation."""
        return sparse_resolvent(self._coefficient * self._a, self._m, self.shape)

    def _factorise(self, a: float, m: float) -> Any:
        from scipy.sparse.linalg import splu

        return splu((a * self._a + m * self._m).tocsc())

    def _solved(self, a: float, m: float, rhs: Any) -> Any:
        """``(a A + m M)^-1 rhs``."""
        if np.iscomplexobj(rhs):
            return self._solved(a, m, rhs.real) + 1j * self._solved(a, m, rhs.imag)
        return self._factors(a, m).solve(rhs.reshape(-1, self.shape[0]).T).T.reshape(rhs.shape)

    def _rational(self, shift: float | None, u: Any) -> Any:
        """The shifted inverse of the power, or the function of power - 1, of ``M^-1 A``, times u."""
        poles, weights = self._weights_of(shift)
        kernel = u @ self._m @ self._spectrum[2] @ self._spectrum[2].T
        u = u - kernel
        total, image = weights[0] * u, u @ self._m
        if shift is not None:
            total = total + kernel / shift
        for pole, weight in zip(poles, weights[1:], strict=True):
            total = total + weight * pole * self._solved(1.0, pole, image)
        return total

    def _fit(self, shift: float | None) -> tuple[list[float], list[float]]:
        """The poles, and the weights of a constant and of ``p / (lambda + p)``."""
        c, power = self._coefficient, self._power
        low, high, _ = self._spectrum
        reach = math.log(high / low) + 2.0 * _BEYOND
        poles = low * np.exp(np.linspace(-_BEYOND, reach - _BEYOND, math.ceil(reach / _APART) + 1))
        samples = np.geomspace(low, high, _SAMPLES)
        wanted = samples ** (power - 1.0) if shift is None else 1.0 / (shift + c * samples**power)
        basis = np.column_stack([np.ones_like(samples), *(pole / (samples + pole) for pole in poles)])
        relative = basis / wanted[:, None]
        sizes = np.linalg.norm(relative, axis=0)
        weights = np.linalg.lstsq(relative / sizes, np.ones_like(wanted), rcond=1e-15)[0] / sizes
        return poles.tolist(), weights.tolist()

    @functools.cached_property
    def _spectrum(self) -> tuple[float, float, Array]:
        """The lowest positive and the largest eigenvalue, and eigenvectors of zero."""
        from scipy.sparse.linalg import eigsh

        (high,) = eigsh(self._a, 1, self._m, return_eigenvectors=False, tol=1e-3)
        values, vectors = eigsh(self._a, _LOWEST, self._m, -1e-3 * high / self.shape[0])
        positive = values > ZERO * self.shape[0] * high
        if not positive.any():
            raise InvalidInputError(
                f"Matrix: {_LOWEST} or more eigenvalues are zero, as of a graph in as many parts; solve each on its own"
            )
        return 0.9 * float(values[positive].min()), 1.1 * float(high), vectors[:, ~positive]

    def weighted(self, u: Any, periodic: tuple[bool, ...]) -> Any:
        """The product with the mass matrix."""
        return (np.asarray(to_host(u)) + np.zeros(self.shape)) @ self._m

    def step_bytes(self) -> int:
        """The eigenvectors, or factors of some ten times the entries of the matrix for each pole or shift."""
        if self.symbol is not None:
            return 16 * self.shape[0] ** 2
        return 16 * 10 * int(self._a.nnz) * (_KEPT if self._power == 1.0 else 60)


@final
class MatrixSpace(SparseSpace):
    """The matrices of a :class:`~hpfracc.pde.Matrix`, at the nodes of a mesh or graph."""

    name = "matrix"
    accuracy = "that of the matrix"
    coarsens = False

    def __init__(self, setting: SpaceSetting) -> None:
        (term,) = setting.terms
        assert isinstance(term, Matrix)
        a, m = term.sparse()
        if term.nodes > DENSE:
            _check_definite(a, m)
        super().__init__(setting.xp, a, m, term.power, term.coefficient)
        self.grid = setting.grid
        self.points = tuple(map(self.xp.array, term.coordinates()))
        self._weights = self.xp.array(m.sum(axis=0))

    @classmethod
    def refuses(cls, setting: SpaceSetting) -> str | None:
        """Supports a Matrix alone; above 2,000 nodes for NumPy arrays."""
        if len(setting.terms) != 1 or not isinstance(setting.terms[0], Matrix):
            return "a Matrix is the whole operator; add other terms to the matrix itself"
        if setting.xp.library != "numpy" and setting.terms[0].nodes > DENSE:
            return f"above {DENSE:,} nodes it takes NumPy arrays, and there are {setting.terms[0].nodes:,}"
        return None

    def embed(self, u: Any, t: float) -> Any:
        """All nodes are unknowns."""
        return u

    def restrict(self, values: Any) -> Any:
        """All nodes are unknowns."""
        return values

    def integrate(self, values: Any) -> Any:
        """The sum, weighted by the mass matrix."""
        return (values * self._weights).sum(-1)


def _check_definite(a: Any, m: Any) -> None:
    """Refuse matrices with negative pivots, by Sylvester's law."""
    from scipy.sparse.linalg import splu

    small = 1e-10 * float(abs(a).max() / m.diagonal().min())
    for matrix, words in ((m, "a mass matrix"), (a + small * m, "a matrix")):
        options = {"diag_pivot_thresh": 0.0, "permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
        if splu(matrix.tocsc(), **options).U.diagonal().min() <= 0.0:
            raise InvalidInputError(_INDEFINITE.format(f"{words} with negative eigenvalues"))
