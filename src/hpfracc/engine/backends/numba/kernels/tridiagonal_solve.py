"""Tridiagonal systems in Numba: the Thomas algorithm, row by row."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array, behaved, spread
from hpfracc.engine.workers import even_blocks, run_blocks


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _factor(lower, diagonal, upper, ratios, scales):  # type: ignore[no-untyped-def]
    """Eliminate the matrices: returns the eliminated superdiagonal, and the reciprocal pivots."""
    for row in range(diagonal.shape[0]):
        ratio = diagonal[row, 0] * 0.0
        for i in range(diagonal.shape[1]):
            # As a function: the operator raises ZeroDivisionError for complex numbers, whatever the error model.
            scale = np.divide(1.0, diagonal[row, i] - lower[row, i] * ratio if i else diagonal[row, 0])
            ratio = upper[row, i] * scale
            ratios[row, i] = ratio
            scales[row, i] = scale


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _substitute(lower, ratios, scales, rhs, out):  # type: ignore[no-untyped-def]
    n = rhs.shape[1]
    for row in range(rhs.shape[0]):
        which = row if ratios.shape[0] > 1 else 0
        x = rhs[row, 0] * scales[which, 0]
        out[row, 0] = x
        for i in range(1, n):
            x = (rhs[row, i] - lower[which, i] * x) * scales[which, i]
            out[row, i] = x
        good = np.isfinite(x)
        for i in range(n - 2, -1, -1):
            x = out[row, i] - ratios[which, i] * x
            out[row, i] = x
            good = good and np.isfinite(x)
        if not good:
            for i in range(n):
                out[row, i] = np.nan


def solve_thomas(lower: Array, diagonal: Array, upper: Array, rhs: Array, *, workers: int = 1) -> Array:
    """Rows are divided among threads; a shared matrix is eliminated once."""
    shape = np.broadcast_shapes(lower.shape, diagonal.shape, upper.shape, rhs.shape)
    found = np.empty(shape, rhs.dtype)
    if not found.size:
        return found
    n, rows = shape[-1], math.prod(shape[:-1])
    matrix = np.broadcast_shapes(lower.shape, diagonal.shape, upper.shape)
    own = matrix[:-1] != (1,) * (len(matrix) - 1)
    to = shape if own else (1, n)
    a, d, c = (
        behaved(spread(one if own else one.reshape(1, n), to).reshape(-1, n)) for one in (lower, diagonal, upper)
    )
    b, out = behaved(spread(rhs, shape).reshape(rows, n)), found.reshape(rows, n)
    ratios, scales = np.empty_like(d), np.empty_like(d)
    if not own:
        _factor(a, d, c, ratios, scales)
    parts = even_blocks(rows, workers)

    def work(number: int) -> None:
        here = slice(*parts[number])
        if own:
            _factor(a[here], d[here], c[here], ratios[here], scales[here])
        some = here if own else slice(None)
        _substitute(a[some], ratios[some], scales[some], b[here], out[here])

    run_blocks(work, range(len(parts)), workers)
    return found


KERNELS: dict[str, Kernel] = {"thomas": Kernel(solve_thomas)}
