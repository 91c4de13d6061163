"""Product rules against the Mittag-Leffler kernel of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from hpfracc.special import mittag_leffler, mittag_leffler_matrix

__all__ = ["MatrixKernel", "matrix_kernel"]

Array = np.ndarray[Any, Any]

#: From this many steps on the kernel is smooth over two: quadrature keeps the digits that second differences lose.
_FAR = 16
_POINTS, _WEIGHTS = special.roots_legendre(6)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS
#: Eigenvectors are used up to this condition number; beyond it the Schur-Parlett method, matrix by matrix.
_MOST_CONDITION = 1e6


class MatrixKernel:
    r"""Functions :math:`u^{\beta-1} E_{\alpha,\beta}(A u^\alpha)` of one matrix A at many times u."""

    def __init__(self, matrix: Array, alpha: float) -> None:
        self.matrix, self.alpha = matrix, alpha
        self.real = matrix.dtype.kind != "c"
        self.values: Array | None = None
        if np.array_equal(matrix, matrix.conj().T):
            values, vectors = np.linalg.eigh(matrix)
            self.values, self.left, self.right = values.astype(complex), vectors, vectors.conj().T
            return
        values, vectors = np.linalg.eig(matrix)
        if np.linalg.cond(vectors) <= _MOST_CONDITION:
            self.values, self.left, self.right = values.astype(complex), vectors, np.linalg.inv(vectors)

    def __call__(self, u: Array, beta: float) -> Array:
        """Shape (len(u), d, d)."""
        u = np.asarray(u, dtype=float)
        power = (u ** (beta - 1.0))[:, np.newaxis, np.newaxis]
        if self.values is None:
            return np.asarray(
                power * mittag_leffler_matrix(self.matrix * (u**self.alpha)[:, None, None], self.alpha, beta)
            )
        z = np.multiply.outer(u**self.alpha, self.values)
        if np.all(self.values.imag == 0.0):
            z = z.real
        functions = mittag_leffler(z, self.alpha, beta, backend="numpy")
        made = (self.left * functions[:, np.newaxis, :]) @ self.right
        return np.asarray(power * (made.real if self.real else made))

    def rectangle(self, step: float, count: int) -> Array:
        """Weights of the product rectangle, the k-th that of a value k + 1 steps back; shape (count, d, d)."""
        integrals = self(step * np.arange(count + 1.0)[1:], self.alpha + 1.0)
        return np.concatenate([integrals[:1], np.diff(integrals, axis=0)])

    def trapezoid(self, step: float, count: int) -> tuple[Array, Array]:
        """Those of the product trapezoid for k = 0 .. count steps back, and of the first value after so many steps."""
        k = np.arange(count + 2.0)
        once = np.zeros((count + 2, *self.matrix.shape), self.matrix.dtype)
        twice = np.zeros_like(once)
        once[1:], twice[1:] = self(step * k[1:], self.alpha + 1.0), self(step * k[1:], self.alpha + 2.0)
        weights = np.empty((count + 1, *self.matrix.shape), self.matrix.dtype)
        weights[0] = twice[1] / step
        weights[1:] = (twice[2:] - 2.0 * twice[1:-1] + twice[:-2]) / step
        # The first value: half a hat, by what is left of the whole integral; far out by quadrature too.
        first = once[:-1] - (twice[:-1] - np.concatenate([np.zeros_like(twice[:1]), twice[:-2]])) / step
        if count >= _FAR:
            far = k[_FAR : count + 1]
            rising = self._quadrature(far - 1.0, step, lambda x: x)
            weights[_FAR:] = rising + self._quadrature(far, step, lambda x: 1.0 - x)
            first[_FAR:] = rising
        first[0] = 0.0
        return weights, first

    def _quadrature(self, begin: Array, step: float, hat: Callable[[Array], Array]) -> Array:
        u = step * (begin[:, np.newaxis] + _POINTS)
        kernel = self(u.reshape(-1), self.alpha).reshape(*u.shape, *self.matrix.shape)
        return np.asarray(np.einsum("q,kqij->kij", step * _WEIGHTS * hat(_POINTS), kernel))


def matrix_kernel(matrix: Any, alpha: float) -> MatrixKernel:
    """The kernel of a square matrix, real or complex."""
    matrix = np.asarray(matrix)
    return MatrixKernel(matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64), alpha)
