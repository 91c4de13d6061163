"""Steps within one block, compiled.

Each scheme is a generator: it writes the state at which it needs the right-hand side to a row of ``points``, yields the
time, and finds the value in ``value`` when it goes on. The next time it takes the next row, and after the last the
first. A right-hand side in Python is evaluated by an ordinary loop over the generator. :func:`run_explicit`,
:func:`run_corrected` and :func:`run_implicit` are the same steps with a compiled right-hand side; to drive a generator
by compiled code takes 1.5 to 2 times as long.

``state`` is an array of integers that both sides read: see the names below.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

__all__ = [
    "EVALUATIONS",
    "ITERATIONS",
    "JACOBIAN",
    "JACOBIANS",
    "KNOWN",
    "REQUEST",
    "STATE_SIZE",
    "call",
    "call_by_address",
    "corrected",
    "explicit",
    "implicit",
    "run_corrected",
    "run_explicit",
    "run_implicit",
]  # fmt: skip

#: Places in ``state``: points known, what the generator asks for (0 the right-hand side, 1 the Jacobian), and counters.
KNOWN, REQUEST, EVALUATIONS, ITERATIONS, JACOBIANS = range(5)
STATE_SIZE = 5
JACOBIAN = 1

# Sums may be added up in any order and with fused products; NaN and infinity keep their meaning.
_compile = numba.njit(cache=True, fastmath={"reassoc", "contract"})


@intrinsic
def call_by_address(typing: Any, address: Any, t: Any, y: Any, out: Any, parameters: Any) -> Any:
    """Call a function compiled with ``numba.cfunc`` by its address.

    An address is a plain integer: to unbox anything else Numba runs Python code at each call, in which an interrupt
    becomes another error.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, number = context.get_value_type(types.intp), context.get_value_type(types.float64)
        kind = type(builder.function.function_type)(context.get_value_type(types.void), (number, word, word, word))
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.intp, types.float64, types.intp, types.intp, types.intp), generate


@_compile
def call(fun: int, t: float, y: Any, out: Any, parameters: Any) -> None:
    """One evaluation."""
    call_by_address(fun, t, y.ctypes.data, out.ctypes.data, parameters.ctypes.data)


@_compile
def _is_finite(values: Any) -> bool:
    for value in values:  # noqa: SIM110 - compiled
        if not np.isfinite(value):
            return False
    return True


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
def _fold_both(sums: Any, past: Any, which: Any, f: Any, begin: int, n: int, point: Any, partial: Any) -> None:
    """``S_0[n]`` and ``S_1[n]`` of all rows; the values are read once for both."""
    shift = past.shape[2] - (n - begin)
    for row in range(len(point)):
        one, two = sums[0, row, n], sums[1, row, n]
        first_weights, second_weights = past[0, which[row], shift:], past[1, which[row], shift:]
        seen = f[row, begin:n]
        for j in range(len(seen)):
            one += first_weights[j] * seen[j]
            two += second_weights[j] * seen[j]
        point[row] = one
        partial[row] = two


@_compile
def _next(turn: int, points: Any) -> int:
    return turn + 1 if turn + 1 < len(points) else 0


@_compile
def explicit(
    grid: tuple[float, float],
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    rules: tuple[Any, Any, Any],
    points: Any,
    value: Any,
    state: Any,
) -> Any:
    """``y_n = S_0[n]``."""
    t0, h = grid
    begin, first, stop = span
    y, f, sums = data
    past, _, which = rules
    rows, turn = len(value), 0
    for n in range(first, stop):
        for row in range(rows):
            y[row, n] = points[turn, row] = _fold(sums, past, which, f, 0, row, begin, n)
        turn = _next(turn, points)
        yield t0 + n * h
        for row in range(rows):
            f[row, n] = value[row]
        state[KNOWN] = n + 1


@_compile
def corrected(
    grid: tuple[float, float],
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    rules: tuple[Any, Any, Any],
    points: Any,
    value: Any,
    state: Any,
    corrections: int,
) -> Any:
    """``y_n = S_0[n]``, then ``y_n = S_1[n] + w_1[0] f(t_n, y_n)`` so many times."""
    t0, h = grid
    begin, first, stop = span
    y, f, sums = data
    past, now, which = rules
    partial = np.empty(len(value), y.dtype)
    rows, turn = len(value), 0
    for n in range(first, stop):
        _fold_both(sums, past, which, f, begin, n, points[turn], partial)
        turn = _next(turn, points)
        t = t0 + n * h
        yield t
        for _ in range(corrections):
            for row in range(rows):
                y[row, n] = points[turn, row] = partial[row] + now[1, which[row]] * value[row]
            turn = _next(turn, points)
            yield t
        for row in range(rows):
            f[row, n] = value[row]
        state[KNOWN] = n + 1


@_compile
def run_explicit(
    fun: int,
    parameters: Any,
    grid: tuple[float, float],
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    rules: tuple[Any, Any, Any],
    points: Any,
    value: Any,
    state: Any,
) -> None:
    """As :func:`explicit`, with a compiled right-hand side, as far as its values are finite."""
    t0, h = grid
    begin, first, stop = span
    y, f, sums = data
    past, _, which = rules
    point, rows = points[0], len(value)
    for n in range(first, stop):
        for row in range(rows):
            y[row, n] = point[row] = _fold(sums, past, which, f, 0, row, begin, n)
        call(fun, t0 + n * h, point, value, parameters)
        if not _is_finite(value):
            return
        for row in range(rows):
            f[row, n] = value[row]
        state[KNOWN] = n + 1


@_compile
def run_corrected(
    fun: int,
    parameters: Any,
    grid: tuple[float, float],
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    rules: tuple[Any, Any, Any],
    points: Any,
    value: Any,
    state: Any,
    corrections: int,
) -> None:
    """As :func:`corrected`, with a compiled right-hand side, as far as its values are finite."""
    t0, h = grid
    begin, first, stop = span
    y, f, sums = data
    past, now, which = rules
    point, rows = points[0], len(value)
    partial = np.empty(rows, y.dtype)
    for n in range(first, stop):
        _fold_both(sums, past, which, f, begin, n, point, partial)
        t = t0 + n * h
        call(fun, t, point, value, parameters)
        for _ in range(corrections):
            for row in range(rows):
                y[row, n] = point[row] = partial[row] + now[1, which[row]] * value[row]
            if not _is_finite(value):
                return
            call(fun, t, point, value, parameters)
        if not _is_finite(value):
            return
        for row in range(rows):
            f[row, n] = value[row]
        state[KNOWN] = n + 1


@_compile
def _begin_newton(
    data: tuple[Any, Any, Any], rules: tuple[Any, Any, Any], begin: int, n: int, known: Any, point: Any
) -> float:
    """What is known of step n, and the first guess; the size of the former."""
    y, f, sums = data
    past, _, which = rules
    size = 0.0
    for row in range(len(known)):
        known[row] = _fold(sums, past, which, f, 0, row, begin, n)
        size = max(size, abs(known[row]))
        y[row, n] = y[row, n - 1]
        if not np.isfinite(y[row, n]):  # a Riemann-Liouville solution may begin at infinity
            y[row, n] = known[row]
        point[row] = y[row, n]
    return float(size)


@_compile
def _residual(y: Any, n: int, known: Any, rules: tuple[Any, Any, Any], value: Any, residual: Any) -> Any:
    """``y - known - w f``; its size, and that of y."""
    _, now, which = rules
    size, size_y = 0.0, 0.0
    for row in range(len(known)):
        residual[row] = y[row, n] - known[row] - now[0, which[row]] * value[row]
        size = max(size, abs(residual[row]))
        if not np.isfinite(residual[row]):
            size = np.inf
        size_y = max(size_y, abs(y[row, n]))
    return size, size_y


@_compile
def _copy_column(y: Any, n: int, point: Any) -> None:
    for row in range(len(point)):
        point[row] = y[row, n]


@_compile
def _move(y: Any, n: int, i: int, size: float, point: Any) -> float:
    """The state with component i moved a little, for a difference; by how much."""
    least = 1e-3 * size if size > 0.0 else 1.0
    _copy_column(y, n, point)
    point[i] = y[i, n] + 1.5e-8 * max(abs(y[i, n]), least)
    return float(abs(point[i] - y[i, n]))


@_compile
def _apply_newton(
    y: Any, n: int, rules: tuple[Any, Any, Any], derivative: Any, matrix: Any, residual: Any, point: Any
) -> Any:
    """One iteration: the size of the change and of y; the former is -1 where the matrix is singular."""
    _, now, which = rules
    rows = len(residual)
    for row in range(rows):
        for i in range(rows):
            matrix[row, i] = -now[0, which[row]] * derivative[row, i]
        matrix[row, row] += 1.0
    if not _solve(matrix, residual):
        return -1.0, 0.0
    change, size_y = 0.0, 0.0
    for row in range(rows):
        y[row, n] -= residual[row]
        point[row] = y[row, n]
        change = max(change, abs(residual[row]))
        size_y = max(size_y, abs(y[row, n]))
    return change, size_y


@_compile
def implicit(
    grid: tuple[float, float],
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    rules: tuple[Any, Any, Any],
    points: Any,
    value: Any,
    state: Any,
    has_jac: bool,
    derivative: Any,
    limits: tuple[float, int, int],
) -> Any:
    """``y_n = S_0[n] + w_0[0] f(t_n, y_n)`` by Newton's method; ends early where that does not converge."""
    t0, h = grid
    begin, first, stop = span
    y, f = data[0], data[1]
    tolerance, most, refresh = limits
    point, rows = points[0], len(value)
    known, residual, here = np.empty(rows, y.dtype), np.empty(rows, y.dtype), np.empty(rows, y.dtype)
    matrix = np.empty((rows, rows), y.dtype)
    for n in range(first, stop):
        t = t0 + n * h
        size_known = _begin_newton(data, rules, begin, n, known, point)
        settled = False
        for turn in range(most):
            state[EVALUATIONS] += 1
            yield t
            size, size_y = _residual(y, n, known, rules, value, residual)
            if size <= tolerance * (size_y + size_known):
                settled = True
                break
            if size == np.inf:
                break
            if turn % refresh == 0:
                state[JACOBIANS] += 1
                if has_jac:
                    _copy_column(y, n, point)  # the right-hand side may have changed it
                    state[REQUEST] = JACOBIAN
                    yield t
                    state[REQUEST] = 0
                else:
                    here[:] = value
                    for i in range(rows):
                        added = _move(y, n, i, size_y, point)
                        state[EVALUATIONS] += 1
                        yield t
                        for row in range(rows):
                            derivative[row, i] = (value[row] - here[row]) / added
            state[ITERATIONS] += 1
            change, size_y = _apply_newton(y, n, rules, derivative, matrix, residual, point)
            if change < 0.0:
                break
            if change <= 4e-16 * size_y:  # lost in rounding: nothing left to gain
                state[EVALUATIONS] += 1
                yield t
                settled = True
                break
        if not settled:
            return
        for row in range(rows):
            f[row, n] = value[row]
        state[KNOWN] = n + 1


@_compile
def run_implicit(
    fun: int,
    parameters: Any,
    grid: tuple[float, float],
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    rules: tuple[Any, Any, Any],
    points: Any,
    value: Any,
    state: Any,
    jac: int,
    jac_parameters: Any,
    derivative: Any,
    limits: tuple[float, int, int],
) -> None:
    """As :func:`implicit`, with a compiled right-hand side; ``jac`` is 0 where there is no Jacobian."""
    t0, h = grid
    begin, first, stop = span
    y, f = data[0], data[1]
    tolerance, most, refresh = limits
    point, rows = points[0], len(value)
    known, residual, here = np.empty(rows, y.dtype), np.empty(rows, y.dtype), np.empty(rows, y.dtype)
    matrix = np.empty((rows, rows), y.dtype)
    for n in range(first, stop):
        t = t0 + n * h
        size_known = _begin_newton(data, rules, begin, n, known, point)
        settled = False
        for turn in range(most):
            call(fun, t, point, value, parameters)
            state[EVALUATIONS] += 1
            size, size_y = _residual(y, n, known, rules, value, residual)
            if size <= tolerance * (size_y + size_known):
                settled = True
                break
            if size == np.inf:
                break
            if turn % refresh == 0:
                state[JACOBIANS] += 1
                if jac:
                    _copy_column(y, n, point)  # the right-hand side may have changed it
                    call_by_address(jac, t, point.ctypes.data, derivative.ctypes.data, jac_parameters.ctypes.data)
                else:
                    here[:] = value
                    for i in range(rows):
                        added = _move(y, n, i, size_y, point)
                        call(fun, t, point, value, parameters)
                        state[EVALUATIONS] += 1
                        for row in range(rows):
                            derivative[row, i] = (value[row] - here[row]) / added
            state[ITERATIONS] += 1
            change, size_y = _apply_newton(y, n, rules, derivative, matrix, residual, point)
            if change < 0.0:
                break
            if change <= 4e-16 * size_y:  # lost in rounding: nothing left to gain
                call(fun, t, point, value, parameters)
                state[EVALUATIONS] += 1
                settled = _is_finite(value)
                break
        if not settled:
            return
        for row in range(rows):
            f[row, n] = value[row]
        state[KNOWN] = n + 1


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
