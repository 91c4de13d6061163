"""Jacobians of the right-hand side: given or by differences, dense or sparse, and factorised for Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import refuse_masked
from hpfracc._reading import check_value, shown
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]
#: A function of t and y.
Function = Callable[[float, Array], Any]

#: Sparse Jacobians with at most this number of components are treated as dense, because LAPACK is faster.
DENSE_BELOW = 64


def is_sparse(value: Any) -> bool:
    """Whether a value is one of SciPy's sparse matrices or arrays."""
    return hasattr(value, "tocsc") and hasattr(value, "nnz")


def read_sparsity(given: Any, d: int) -> Any:
    """The pattern of a Jacobian of d components, as a sparse boolean array; None if not given.

    Parameters
    ----------
    given : sparse matrix, array_like or pair of int
        Of shape (d, d), nonzero where the Jacobian may be nonzero; or the numbers of diagonals below and above the main
        one.
    """
    if given is None:
        return None
    from scipy.sparse import csc_array, diags_array

    refuse_masked(given, "jac_sparsity")
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(each, int | np.integer) for each in given):
        lower, upper = (int(each) for each in given)
        if lower < 0 or upper < 0:
            raise InvalidInputError(f"jac_sparsity={given}: numbers of diagonals have to be 0 or more")
        offsets = range(-min(lower, d - 1), min(upper, d - 1) + 1)
        pattern = diags_array([np.ones(d - abs(each)) for each in offsets], offsets=list(offsets), shape=(d, d))
        return csc_array(pattern).astype(bool)
    try:
        pattern = csc_array(given if is_sparse(given) else np.atleast_2d(np.asarray(given)))
    except (TypeError, ValueError):
        wanted = f"a matrix of shape {(d, d)}, sparse or dense, or a pair (lower, upper)"
        raise InvalidInputError(f"jac_sparsity={shown(given)}: give {wanted}") from None
    if pattern.shape != (d, d):
        raise ShapeError(f"jac_sparsity has shape {pattern.shape}, and the Jacobian {(d, d)}: give one of that shape")
    pattern = pattern.astype(bool)
    pattern.eliminate_zeros()
    return pattern


def check_jacobian(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The result of ``jac`` for a state of ``shape``: an array of shape (..., d, d), or sparse if d is large."""
    wanted = (*shape, shape[-1])
    if is_sparse(value) and len(shape) > 1:
        raise ShapeError(f"jac(t, y) returned a sparse matrix for a batch; return an array of shape {wanted}")
    if np.shape(value) != wanted:
        raise ShapeError(f"jac(t, y) returned shape {np.shape(value)}; return {wanted}, a row for each component")
    if not is_sparse(value) or shape[-1] <= DENSE_BELOW:
        return check_value(value.toarray() if is_sparse(value) else value, wanted, dtype, "jac")
    from scipy.sparse import csc_array

    return csc_array(value, dtype=check_value(value.data, value.data.shape, dtype, "jac").dtype)


def _column_groups(pattern: Any) -> Array:
    """Group number of each column. Columns of a group share no row, so one difference covers all of them."""
    by_row = pattern.tocsr()
    columns = [by_row.indices[begin:end] for begin, end in pairwise(by_row.indptr)]
    group = np.full(pattern.shape[1], -1)
    for column, (begin, end) in enumerate(pairwise(pattern.indptr)):
        taken = {number for row in pattern.indices[begin:end] for number in group[columns[row]].tolist()}
        group[column] = next(number for number in range(len(group)) if number not in taken)
    return group


class JacobianSource:
    """``df/dy`` for flat states, of shape (batch, d, d), or sparse.

    Parameters
    ----------
    shape, dtype
        Of the state, (..., d).
    evaluate : callable
        ``f(t, y)`` for y of that shape.
    jac : callable or None
        ``jac(t, y)``, of shape (..., d, d) or sparse; forward differences if None.
    sparsity : sparse array or None
        Where the Jacobian may be nonzero. Columns that share no row are differenced together.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, evaluate: Function, jac: Function | None, sparsity: Any = None
    ) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.evaluate, self.jac = evaluate, jac
        self._entries = None if jac is not None or sparsity is None else sparsity.tocoo()
        self._groups = np.arange(shape[-1]) if self._entries is None else _column_groups(sparsity)
        #: Number of evaluations of the right-hand side per Jacobian.
        self.evaluations = 2 if jac is not None else int(self._groups.max(initial=-1)) + 1

    def __call__(self, t: float, y: Array, value: Array, share: float = 1.5e-8) -> Any:
        """The Jacobian at a flat state with its flat right-hand side; by differences over a share of the state."""
        d = self.shape[-1]
        state = y.reshape(self.shape)
        if self.jac is not None:
            found = self.jac(t, state.copy())
            return found if is_sparse(found) else np.array(found).reshape(-1, d, d)
        base = value.reshape(self.shape)
        largest = np.abs(state).max(axis=-1, keepdims=True)
        least = np.where(largest > 0.0, 1e-3 * largest, 1.0)
        moved = state + share * np.maximum(np.abs(state), least)
        width = (moved - state).real  # the actual increment after rounding
        differences = np.empty((self.evaluations, *self.shape), self.dtype)
        for number in range(self.evaluations):
            differences[number] = self.evaluate(t, np.where(self._groups == number, moved, state)) - base
        slopes = np.moveaxis(differences, 0, -1)
        if self._entries is None:
            return (slopes / width[..., None, :]).reshape(-1, d, d)
        rows, columns = self._entries.row, self._entries.col
        entries = slopes[..., rows, self._groups[columns]] / width[..., columns]
        if len(self.shape) == 1 and d > DENSE_BELOW:
            from scipy.sparse import csc_array

            return csc_array((entries, (rows, columns)), shape=(d, d))
        dense = np.zeros((*self.shape, d), self.dtype)
        dense[..., rows, columns] = entries
        return dense.reshape(-1, d, d)


class Factors(NamedTuple):
    """Factors of a matrix: the inverses of the members of a batch, shape (batch, d, d), or sparse LU factors of one."""

    inverse: Array | None
    sparse: Any = None

    def solve(self, residual: Array) -> Array:
        """Solve for a flat right-hand side, or for several rows of them."""
        if self.inverse is None:
            return np.asarray(self.sparse.solve(residual.T).T)
        count, d, _ = self.inverse.shape
        return np.asarray((self.inverse @ residual.reshape(*residual.shape[:-1], count, d, 1)).reshape(residual.shape))

    def growth(self, size: int) -> float:
        """By how much a residual of ``size`` elements may grow: a norm of the inverse, or what is seen of it."""
        rows = self.solve(np.ones(size)) if self.inverse is None else np.abs(self.inverse).sum(axis=-1)
        return float(np.abs(rows).max())


def factorise(slopes: Any, weight: Any, size: int) -> Factors | None:
    """Factors of ``1 - weight slopes``, with one weight or one for each component; None if it is singular."""
    rows = np.broadcast_to(weight, size)
    try:
        if not is_sparse(slopes):
            d = slopes.shape[-1]
            return Factors(np.linalg.inv(np.eye(d) - rows.reshape(-1, d, 1) * slopes))
        from scipy.sparse import csc_array, diags_array, eye_array
        from scipy.sparse.linalg import splu

        return Factors(None, splu(csc_array(eye_array(size) - diags_array(rows) @ slopes)))
    except (np.linalg.LinAlgError, RuntimeError):  # SuperLU raises RuntimeError for a singular matrix
        return None
