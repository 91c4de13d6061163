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
    matrices: tuple[Any, Any, Any],
    tolerance: tuple[float, Any, float, float],
    limits: tuple[int, float, int],
    counts: Any,
) -> int:
    """``y_n = S_0[n] + w_0[0] f(t_n, y_n)`` by Newton's method with a matrix that is kept while it converges quickly.

    As ``Newton.solve`` without its damping: a step for which a new matrix does not do either is left to that, with
    ``flag`` 2. ``matrices``: the Jacobian, its factors, row exchanges; after these whether there are factors, the
    fewest iterations with them, and how many more were taken since. ``counts``: f, iterations, Jacobians.
    """
    begin, first, stop = span
    y, f, sums = data
    point, value, parameters = scratch
    derivative, factors, exchanges = matrices
    rtol, atol, part, digits = tolerance
    most, least_rate, price = limits
    rows = y.shape[0]
    known = np.empty(rows, y.dtype)
    residual = np.empty(rows, y.dtype)
    guess = np.empty(rows, y.dtype)
    here = np.empty(rows, y.dtype)
    scale = np.empty(rows)
    for n in range(first, stop):
        t = t0 + n * h
        largest = 0.0
        for row in range(rows):
            known[row] = _fold(sums, past, which, f, 0, row, begin, n)
            guess[row] = y[row, n - 1]
            if not np.isfinite(guess[row]):  # a Riemann-Liouville solution may begin at infinity
                guess[row] = known[row]
            scale[row] = max(abs(known[row]), abs(guess[row]))
            largest = max(largest, scale[row])
        for row in range(rows):
            wanted = part * (atol[row] + rtol * scale[row])
            scale[row] = min(wanted, digits * (largest if largest > 0.0 else 1.0)) + 1e-15 * largest + 1e-290
        settled = False
        for fresh in range(2):
            for row in range(rows):
                y[row, n] = guess[row]
                point[row] = guess[row]
            if fresh == 1 or exchanges[rows] == 0 or exchanges[rows + 2] >= price:
                fun(t, point.ctypes, value.ctypes, parameters.ctypes)
                counts[0] += 1
                if flag[0] != 0:
                    return n
                fresh = 1
                counts[2] += 1
                if has_jac:
                    for row in range(rows):  # the right-hand side may have changed it
                        point[row] = guess[row]
                    jac(t, point.ctypes, derivative.ctypes, parameters.ctypes)
                    if flag[0] != 0:
                        return n
                else:
                    size_y = 0.0
                    for row in range(rows):
                        here[row] = value[row]
                        size_y = max(size_y, abs(guess[row]))
                    least = 1e-3 * size_y if size_y > 0.0 else 1.0
                    for i in range(rows):
                        for row in range(rows):
                            point[row] = guess[row]
                        point[i] = guess[i] + 1.5e-8 * max(abs(guess[i]), least)
                        added = abs(point[i] - guess[i])
                        fun(t, point.ctypes, value.ctypes, parameters.ctypes)
                        counts[0] += 1
                        if flag[0] != 0:
                            return n
                        for row in range(rows):
                            derivative[row, i] = (value[row] - here[row]) / added
                for row in range(rows):
                    for i in range(rows):
                        factors[row, i] = -now[0, which[row]] * derivative[row, i]
                    factors[row, row] += 1.0
                exchanges[rows] = 0
                if not _factorise(factors, exchanges):
                    break
                exchanges[rows], exchanges[rows + 1], exchanges[rows + 2] = 1, most, 0
                for row in range(rows):
                    point[row] = guess[row]
            last = np.inf
            for turn in range(most):
                fun(t, point.ctypes, value.ctypes, parameters.ctypes)
                counts[0] += 1
                counts[1] += 1
                if flag[0] != 0:
                    return n
                for row in range(rows):
                    residual[row] = y[row, n] - known[row] - now[0, which[row]] * value[row]
                _substitute(factors, exchanges, residual)
                size = 0.0
                for row in range(rows):
                    y[row, n] -= residual[row]
                    point[row] = y[row, n]
                    ratio = abs(residual[row]) / scale[row]
                    size += ratio * ratio
                size = np.sqrt(size / rows)
                rate = size / last if turn > 0 else 0.5
                if size * max(rate, least_rate) <= 1.0:
                    settled = True
                    if fresh == 0:
                        exchanges[rows + 1] = min(exchanges[rows + 1], turn)
                        exchanges[rows + 2] += turn - exchanges[rows + 1]
                    break
                if not rate <= 0.9 or (turn > 1 and size * rate ** (most - turn) > 1.0):
                    break
                last = size
            if settled or fresh == 1:
                break
        if not settled:
            exchanges[rows] = 0
            flag[0] = 2
            return n
        for row in range(rows):
            f[row, n] = (y[row, n] - known[row]) / now[0, which[row]]
    return stop


@_compile
def _factorise(matrix: Any, exchanges: Any) -> bool:
    """LU factors in place, with row exchanges; whether the matrix is regular."""
    d = len(matrix)
    for i in range(d):
        best = i
        for row in range(i + 1, d):
            if abs(matrix[row, i]) > abs(matrix[best, i]):
                best = row
        exchanges[i] = best
        if not abs(matrix[best, i]) > 0.0:
            return False
        if best != i:
            for column in range(d):
                matrix[i, column], matrix[best, column] = matrix[best, column], matrix[i, column]
        for row in range(i + 1, d):
            matrix[row, i] /= matrix[i, i]
            for column in range(i + 1, d):
                matrix[row, column] -= matrix[row, i] * matrix[i, column]
    return True


@_compile
def _substitute(factors: Any, exchanges: Any, right: Any) -> None:
    """Solve with the factors; ``right`` becomes the solution."""
    d = len(factors)
    for i in range(d):
        best = exchanges[i]
        if best != i:
            right[i], right[best] = right[best], right[i]
    for i in range(d):
        for column in range(i):
            right[i] -= factors[i, column] * right[column]
    for i in range(d - 1, -1, -1):
        for column in range(i + 1, d):
            right[i] -= factors[i, column] * right[column]
        right[i] /= factors[i, i]
