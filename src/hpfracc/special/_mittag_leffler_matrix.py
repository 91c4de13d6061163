"""The Mittag-Leffler function of a matrix, by the Schur-Parlett method with derivatives.

R. Garrappa, M. Popolizio, J. Sci. Comput. 77 (2018) 129-153, with the blocking of P. I. Davies and N. J. Higham,
SIAM J. Matrix Anal. Appl. 25 (2003) 464-485: close eigenvalues share a diagonal block, whose function is a Taylor
series about their mean; the blocks above the diagonal follow from Sylvester equations.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg

from hpfracc import _reading
from hpfracc._arrays import refuse_masked
from hpfracc.engine.execution.operation import get_operation
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["mittag_leffler_matrix"]

#: Eigenvalues closer than this share a block (the value of Davies and Higham).
_CLOSE = 0.1
#: Maximum terms of a block's Taylor series.
_MAX_DERIVATIVES = 80
Array = np.ndarray[Any, Any]


def mittag_leffler_matrix(a: Any, alpha: float, beta: float = 1.0) -> Array:
    """The Mittag-Leffler function E_{alpha,beta} of a square matrix.

    Parameters
    ----------
    a : array_like, shape (..., n, n)
        Real or complex; leading axes are a batch.
    alpha, beta : float
        As in :func:`hpfracc.special.mittag_leffler`.

    Returns
    -------
    numpy.ndarray, shape (..., n, n)
        Real for real ``a``. The solution of D^alpha y = A y, y(0) = y0 (Caputo, alpha <= 1) is
        ``mittag_leffler_matrix(A * t**alpha, alpha) @ y0``.

    See Also
    --------
    mittag_leffler, solve_fode

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc.special as special
    >>> special.mittag_leffler_matrix(np.diag([0.0, 1.0]), 1.0).round(6)
    array([[1.      , 0.      ],
           [0.      , 2.718282]])
    """
    refuse_masked(a, "a")
    a = _reading.array("a", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"a has shape {a.shape}, which is not square; use matrices of shape (..., n, n)")
    if not np.isfinite(a).all():
        raise InvalidInputError("a contains nan or inf, which is not supported; remove them")
    real = a.dtype.kind != "c"
    result = np.empty(a.shape, np.float64 if real else np.complex128)
    for index in np.ndindex(a.shape[:-2]):
        value = _function(a[index].astype(np.float64 if real else np.complex128), alpha, beta)
        result[index] = value.real if real else value
    return result


def _scalar(z: Array, alpha: float, beta: float, order: int = 0) -> Array:
    # NumPy, which is the fastest backend for a few values.
    return np.asarray(get_operation("mittag_leffler")(z, alpha=alpha, beta=beta, order=order, backend="numpy"))


def _function(a: Array, alpha: float, beta: float) -> Array:
    if a.shape[0] == 0:
        return a
    if np.array_equal(a, a.conj().T):
        values, vectors = np.linalg.eigh(a)
        return np.asarray((vectors * _scalar(values, alpha, beta)) @ vectors.conj().T)
    triangle, basis = linalg.schur(a, output="complex")
    blocks = _blocks(np.diag(triangle))
    triangle, basis, edges = _reorder(triangle, basis, blocks)
    function = np.zeros_like(triangle)
    parts = [slice(low, high) for low, high in pairwise(edges)]
    for part in parts:
        function[part, part] = _atomic(triangle[part, part], alpha, beta)
    for width in range(1, len(parts)):
        for row in range(len(parts) - width):
            _fill(triangle, function, parts, row, row + width)
    return np.asarray(basis @ function @ basis.conj().T)


def _blocks(eigenvalues: Array) -> Array:
    """Labels of the eigenvalues: equal for those connected by a chain of close ones."""
    labels = np.arange(eigenvalues.size)
    for i, value in enumerate(eigenvalues):
        close = np.unique(labels[np.abs(eigenvalues - value) <= _CLOSE])
        labels[np.isin(labels, close)] = labels[i]
    return labels


def _reorder(triangle: Array, basis: Array, labels: Array) -> tuple[Array, Array, list[int]]:
    """Reorder the Schur form so that eigenvalues of a block are adjacent; also returns the edges of the blocks."""
    swap = linalg.get_lapack_funcs("trexc", (triangle, basis))
    order = list(labels)
    edges, position = [0], 0
    while position < len(order):
        label = order[position]
        for source in range(position, len(order)):
            if order[source] == label:
                if source != position:
                    triangle, basis, info = swap(triangle, basis, source + 1, position + 1)
                    if info:
                        raise InvalidInputError(
                            "eigenvalues that are too close could not be reordered; scale the matrix"
                        )
                    order.insert(position, order.pop(source))
                position += 1
        edges.append(position)
    return np.triu(triangle), basis, edges


def _atomic(block: Array, alpha: float, beta: float) -> Array:
    """Function of a block of close eigenvalues, by the Taylor series about their mean."""
    size = block.shape[0]
    centre = np.diag(block).mean()
    if size == 1:
        return _scalar(np.diag(block), alpha, beta).reshape(1, 1)
    shifted = block - centre * np.eye(size)
    power = np.eye(size, dtype=complex)
    total = np.zeros_like(block)
    small = 0
    for order in range(_MAX_DERIVATIVES):
        term = power * (complex(_scalar(np.array(centre), alpha, beta, order)) / math.factorial(order))
        total = total + term
        # The powers of a block become negligible only from its size on.
        negligible = np.abs(term).max() <= 2.0**-54 * np.abs(total).max()
        small = small + 1 if negligible else 0
        if small >= 2 and (order >= size or not power.any()):
            return total
        power = power @ shifted
    raise InvalidInputError(
        f"a cluster of {size} eigenvalues around {centre:.6g} is too wide for a Taylor series; scale the matrix"
    )


def _fill(triangle: Array, function: Array, parts: list[slice], row: int, column: int) -> None:
    """Solve for one block above the diagonal; the blocks between it and the diagonal are known."""
    i, j = parts[row], parts[column]
    between = slice(parts[row].stop, parts[column].start)
    right = function[i, i] @ triangle[i, j] - triangle[i, j] @ function[j, j]
    right += function[i, between] @ triangle[between, j] - triangle[i, between] @ function[between, j]
    solve = linalg.get_lapack_funcs("trsyl", (triangle,))
    solution, scale, info = solve(triangle[i, i], triangle[j, j], right, isgn=-1)
    if info < 0:
        raise InvalidInputError("a Sylvester equation of the Schur form could not be solved; scale the matrix")
    function[i, j] = solution / scale
