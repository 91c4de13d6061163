"""Tridiagonal systems in NumPy: LAPACK's elimination, matrix by matrix, or the generic reduction of all rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.tridiagonal_solve import make_kernels
from hpfracc.engine.backends.numpy.library import LIBRARY

Array = np.ndarray[Any, Any]


def solve_lapack(lower: Array, diagonal: Array, upper: Array, rhs: Array) -> Array:
    """By ``gtsv``: one call for each matrix, with all its right-hand sides."""
    shape = np.broadcast_shapes(lower.shape, diagonal.shape, upper.shape, rhs.shape)
    found = np.empty(shape, rhs.dtype)
    if not found.size:
        return found
    matrix = np.broadcast_shapes(lower.shape, diagonal.shape, upper.shape)
    n = shape[-1]
    gtsv = _routine(rhs.dtype.char)
    if matrix[:-1] == (1,) * (len(matrix) - 1):
        rows = np.broadcast_to(rhs, shape).reshape(-1, n)
        found.reshape(-1, n)[...] = _gtsv(gtsv, lower.reshape(n), diagonal.reshape(n), upper.reshape(n), rows.T).T
    else:
        given = [np.broadcast_to(one, shape).reshape(-1, n) for one in (lower, diagonal, upper, rhs)]
        target = found.reshape(-1, n)
        for number, (a, d, c, b) in enumerate(zip(*given, strict=True)):
            target[number] = _gtsv(gtsv, a, d, c, b)
    return _cleared(found)


@functools.cache
def _routine(kind: str) -> Any:
    """The routine for a dtype, cached; the lookup takes as long as a system of a hundred points."""
    from scipy.linalg import get_lapack_funcs

    (found,) = get_lapack_funcs(("gtsv",), dtype=kind)
    return found


def _gtsv(gtsv: Any, lower: Array, diagonal: Array, upper: Array, rhs: Array) -> Array:
    if diagonal.size == 1:  # LAPACK's wrapper does not accept empty diagonals
        with np.errstate(all="ignore"):
            return np.asarray(rhs / diagonal[0])
    *_, x, info = gtsv(lower[1:], diagonal, upper[:-1], rhs)
    return np.asarray(x) if info == 0 else np.full(rhs.shape, np.nan, rhs.dtype)


def _cleared(found: Array) -> Array:
    """Rows that are not finite are nan throughout."""
    if not np.isfinite(found.sum()):
        found[~np.isfinite(found).all(-1)] = np.nan
    return found


KERNELS: dict[str, Kernel] = {"lapack": Kernel(solve_lapack), **make_kernels(LIBRARY)}
