"""Steps within one block, compiled. The right-hand side comes as a pointer, so that one compilation serves them all.

``fun(t, y, out, parameters)`` writes ``f(t, y)`` to ``out``. All kernels return the number of points known when they
end: ``stop``, or less where ``flag`` was raised by the right-hand side or Newton's method did not settle (``flag`` 2).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["call", "corrected", "explicit", "implicit"]

# Sums may be added up in any order and with fused products; NaN and infinity keep their meaning.
_compile = numba.njit(cache=True, fastmath={"reassoc", "contract"})


@_compile
def call(fun: Any, t: float, y: Any, out: Any, parameters: Any) -> None:
    """One evaluation."""
    fun(t, y.ctypes, out.ctypes, parameters.ctypes)


@_compile
def _fold(sums: Any, past: Any, which: Any, f: Any, k: int, row: int, begin: int, n: int) -> Any:
    """``S_k[n]`` of a row: what was known of it, and the values since the block began."""
    total = sums[k, row, n]
    # Slices: where an index might be negative the loop is not vectorised, and takes three times as long.
    weights, seen = past[k, which[row], past.shape[2] - (n - begin) :], f[row, begin:n]
    for j in range(len(seen)):
        total += weights[j] * seen[j]
    return total


@_compile
def explicit(
    fun: Any,
    t0: float,
    h: float,
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    past: Any,
    now: Any,
    which: Any,
    scratch: tuple[Any, Any, Any],
    flag: Any,
) -> int:
    """``y_n = S_0[n]``."""
    begin, first, stop = span
    y, f, sums = data
    point, value, parameters = scratch
    rows = y.shape[0]
    for n in range(first, stop):
        for row in range(rows):
            point[row] = _fold(sums, past, which, f, 0, row, begin, n)
            y[row, n] = point[row]
        fun(t0 + n * h, point.ctypes, value.ctypes, parameters.ctypes)
        if flag[0] != 0:
            return n
        for row in range(rows):
            f[row, n] = value[row]
    return stop


@_compile
def corrected(
    fun: Any,
    t0: float,
    h: float,
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    past: Any,
    now: Any,
    which: Any,
    scratch: tuple[Any, Any, Any],
    flag: Any,
    corrections: int,
) -> int:
    """``y_n = S_0[n]``, then ``y_n = S_1[n] + w_1[0] f(t_n, y_n)`` so many times."""
    begin, first, stop = span
    y, f, sums = data
    point, value, parameters = scratch
    rows = y.shape[0]
    partial = np.empty(rows, y.dtype)
    for n in range(first, stop):
        shift = past.shape[2] - (n - begin)
        for row in range(rows):
            one, two = sums[0, row, n], sums[1, row, n]
            first_weights, second_weights = past[0, which[row], shift:], past[1, which[row], shift:]
            seen = f[row, begin:n]  # read once for both
            for j in range(len(seen)):
                one += first_weights[j] * seen[j]
                two += second_weights[j] * seen[j]
            point[row] = one
            partial[row] = two
        t = t0 + n * h
        fun(t, point.ctypes, value.ctypes, parameters.ctypes)
        if flag[0] != 0:
            return n
        for _ in range(corrections):
            for row in range(rows):
                point[row] = partial[row] + now[1, which[row]] * value[row]
                y[row, n] = point[row]
            fun(t, point.ctypes, value.ctypes, parameters.ctypes)
            if flag[0] != 0:
                return n
        for row in range(rows):
            f[row, n] = value[row]
    return stop


@_compile
def implicit(
    fun: Any,
    t0: float,
    h: float,
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    past: Any,
    now: Any,
    which: Any,
    scratch: tuple[Any, Any, Any],
    flag: Any,
    jac: Any,
    has_jac: bool,
    derivative: Any,
    limits: tuple[float, int, int],
    counts: Any,
) -> int:
    """``y_n = S_0[n] + w_0[0] f(t_n, y_n)`` by Newton's method; ``counts``: f, iterations, Jacobians."""
    begin, first, stop = span
    y, f, sums = data
    point, value, parameters = scratch
    tolerance, most, refresh = limits
    rows = y.shape[0]
    known = np.empty(rows, y.dtype)
    residual = np.empty(rows, y.dtype)
    here = np.empty(rows, y.dtype)
    matrix = np.empty((rows, rows), y.dtype)
    for n in range(first, stop):
        t = t0 + n * h
        size_known = 0.0
        for row in range(rows):
            known[row] = _fold(sums, past, which, f, 0, row, begin, n)
            size_known = max(size_known, abs(known[row]))
            y[row, n] = y[row, n - 1]
            if not np.isfinite(y[row, n]):  # a Riemann-Liouville solution may begin at infinity
                y[row, n] = known[row]
            point[row] = y[row, n]
        settled = False
        for turn in range(most):
            fun(t, point.ctypes, value.ctypes, parameters.ctypes)
            counts[0] += 1
            if flag[0] != 0:
                return n
            size, size_y = 0.0, 0.0
            for row in range(rows):
                residual[row] = y[row, n] - known[row] - now[0, which[row]] * value[row]
                size = max(size, abs(residual[row]))
                if not np.isfinite(residual[row]):
                    size = np.inf
                size_y = max(size_y, abs(y[row, n]))
            if size <= tolerance * (size_y + size_known):
                settled = True
                break
            if size == np.inf:
                break
            if turn % refresh == 0:
                counts[2] += 1
                if has_jac:
                    for row in range(rows):  # the right-hand side may have changed it
                        point[row] = y[row, n]
                    jac(t, point.ctypes, derivative.ctypes, parameters.ctypes)
                    if flag[0] != 0:
                        return n
                else:
                    for row in range(rows):
                        here[row] = value[row]
                    for i in range(rows):
                        least = 1e-3 * size_y if size_y > 0.0 else 1.0
                        width = 1.5e-8 * max(abs(y[i, n]), least)
                        for row in range(rows):
                            point[row] = y[row, n]
                        point[i] = y[i, n] + width
                        added = abs(point[i] - y[i, n])
                        fun(t, point.ctypes, value.ctypes, parameters.ctypes)
                        counts[0] += 1
                        if flag[0] != 0:
                            return n
                        for row in range(rows):
                            derivative[row, i] = (value[row] - here[row]) / added
            for row in range(rows):
                for i in range(rows):
                    matrix[row, i] = -now[0, which[row]] * derivative[row, i]
                matrix[row, row] += 1.0
            counts[1] += 1
            if not _solve(matrix, residual):
                break
            change, size_y = 0.0, 0.0
            for row in range(rows):
                y[row, n] -= residual[row]
                point[row] = y[row, n]
                change = max(change, abs(residual[row]))
                size_y = max(size_y, abs(y[row, n]))
            if change <= 4e-16 * size_y:  # lost in rounding: nothing left to gain
                fun(t, point.ctypes, value.ctypes, parameters.ctypes)
                counts[0] += 1
                if flag[0] != 0:
                    return n
                settled = True
                break
        if not settled:
            flag[0] = 2
            return n
        for row in range(rows):
            f[row, n] = value[row]
    return stop


@_compile
def _solve(matrix: Any, right: Any) -> bool:
    """Gaussian elimination with row exchange; both are overwritten, the solution is in ``right``."""
    d = len(right)
    for i in range(d):
        best = i
        for row in range(i + 1, d):
            if abs(matrix[row, i]) > abs(matrix[best, i]):
                best = row
        if not abs(matrix[best, i]) > 0.0:
            return False
        if best != i:
            for column in range(i, d):
                matrix[i, column], matrix[best, column] = matrix[best, column], matrix[i, column]
            right[i], right[best] = right[best], right[i]
        for row in range(i + 1, d):
            factor = matrix[row, i] / matrix[i, i]
            for column in range(i + 1, d):
                matrix[row, column] -= factor * matrix[i, column]
            right[row] -= factor * right[i]
    for i in range(d - 1, -1, -1):
        for column in range(i + 1, d):
            right[i] -= matrix[i, column] * right[column]
        right[i] /= matrix[i, i]
    return True
