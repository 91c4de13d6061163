"""Implicit steps within one block, compiled: Newton's method with a matrix that is kept while it converges quickly.

:func:`implicit` is a generator for a right-hand side in Python, ``run_implicit`` has the same text with a compiled one,
and a compiled Jacobian if there is one; see ``kernels``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.kernels import (
    EVALUATIONS,
    ITERATIONS,
    JACOBIAN,
    JACOBIANS,
    KNOWN,
    REQUEST,
    STUCK,
    compile_kernel,
    fold,
    inline,
    with_functions,
)

__all__ = ["implicit", "run_implicit"]


@inline
def _factorise(now: Any, which: Any, derivative: Any, matrix: Any, exchanges: Any) -> bool:
    """LU factors of ``1 - w J``, with row exchanges and inverse pivots; returns whether the matrix is regular."""
    d = len(matrix)
    exchanges[d] = 0
    for row in range(d):
        for i in range(d):
            matrix[row, i] = -now[0, which[row]] * derivative[row, i]
        matrix[row, row] += 1.0
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
        matrix[i, i] = 1.0 / matrix[i, i]
        for row in range(i + 1, d):
            matrix[row, i] *= matrix[i, i]
            for column in range(i + 1, d):
                matrix[row, column] -= matrix[row, i] * matrix[i, column]
    return True


@inline
def _substitute(factors: Any, exchanges: Any, right: Any) -> None:
    """Solve with the factors; ``right`` is replaced by the solution."""
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
        right[i] *= factors[i, i]


@inline
def _move(guess: Any, i: int, point: Any) -> float:
    """Perturb component i of the guess for a finite difference; returns the perturbation."""
    size = 0.0
    for row in range(len(guess)):
        size = max(size, abs(guess[row]))
        point[row] = guess[row]
    least = 1e-3 * size if size > 0.0 else 1.0
    point[i] = guess[i] + 1.5e-8 * max(abs(guess[i]), least)
    return float(abs(point[i] - guess[i]))


@inline
def _to_guess(y: Any, n: int, guess: Any, point: Any) -> None:
    for row in range(len(guess)):
        y[row, n] = point[row] = guess[row]


@compile_kernel
def implicit(
    grid: tuple[float, float],
    span: tuple[int, int, int],
    data: tuple[Any, Any, Any],
    rules: tuple[Any, Any, Any],
    points: Any,
    value: Any,
    state: Any,
    has_jac: bool,
    matrices: tuple[Any, Any, Any, Any],
    tolerance: tuple[float, Any, float, float],
    limits: tuple[int, float, int, int, float],
) -> Any:
    """``y_n = S_0[n] + w_0[0] f(t_n, y_n)`` by Newton's method with a matrix that is kept while it converges quickly.

    Like ``Newton.solve`` without its damping: if a step fails even with a new matrix, it ends with the request
    ``STUCK``. ``matrices`` are the Jacobian, its factors and row exchanges; followed by whether there are factors, the
    fewest iterations with them, how many more were taken since, and the number of steps since the rate of convergence
    was measured; and finally that rate.
    """
    t0, h = grid
    begin, first, stop = span
    # Unpacked once, because each access to a tuple counts references to its arrays.
    y, f, sums = data
    past, now, which = rules
    derivative, factors, kept, rates = matrices
    rtol, atol, part, digits = tolerance
    most, least_rate, price, remeasure, small = limits
    point, rows = points[0], len(value)
    known, guess, change, here = np.empty((4, rows), y.dtype)
    scale = np.empty(rows)
    for n in range(first, stop):
        t = t0 + n * h
        # The known part, the guess, and the inverse of the error allowed in each component (see ``step_scale``).
        largest = 0.0
        for row in range(rows):
            known[row] = fold(sums, past, which, f, 0, row, begin, n)
            guess[row] = y[row, n - 1]
            if not np.isfinite(guess[row]):  # a Riemann-Liouville solution may start at infinity
                guess[row] = known[row]
            y[row, n] = guess[row]
            if n > 3:  # see ``extrapolate``
                added = 2.0 * guess[row] - 3.0 * y[row, n - 2] + y[row, n - 3]
                if abs(added) <= small * abs(guess[row]):
                    y[row, n] += added
            point[row] = y[row, n]
            scale[row] = max(abs(known[row]), abs(guess[row]))
            largest = max(largest, scale[row])
        for row in range(rows):
            wanted = part * (atol[row] + rtol * scale[row])
            scale[row] = 1.0 / (min(wanted, digits * (largest if largest > 0.0 else 1.0)) + 1e-15 * largest + 1e-290)
        # New factors if there are none, or the existing ones have cost as much as new ones would.
        verdict, turn, first_rate, renewed = 0, 0, 0.5, bool(kept[rows] == 0 or kept[rows + 2] >= price)
        while True:
            if renewed:
                _to_guess(y, n, guess, point)
                state[JACOBIANS] += 1
                if has_jac:
                    state[REQUEST] = JACOBIAN
                    yield t
                    state[REQUEST] = 0
                else:
                    state[EVALUATIONS] += 1
                    yield t
                    here[:] = value
                    for i in range(rows):
                        shift = _move(guess, i, point)
                        state[EVALUATIONS] += 1
                        yield t
                        for row in range(rows):
                            derivative[row, i] = (value[row] - here[row]) / shift
                if not _factorise(now, which, derivative, factors, kept):
                    verdict = 2
                    break
                kept[rows], kept[rows + 1], kept[rows + 2], kept[rows + 3] = 1, most, 0, 0
                rates[0] = np.inf
                _to_guess(y, n, guess, point)
            kept[rows + 3] += 1
            last, first_rate = np.inf, min(2.0 * rates[0], 0.5) if kept[rows + 3] <= remeasure else 0.5
            for count in range(most):
                turn = count
                state[EVALUATIONS] += 1
                state[ITERATIONS] += 1
                yield t
                for row in range(rows):
                    change[row] = y[row, n] - known[row] - now[0, which[row]] * value[row]
                _substitute(factors, kept, change)
                size = 0.0
                for row in range(rows):
                    y[row, n] -= change[row]
                    point[row] = y[row, n]
                    size += (abs(change[row]) * scale[row]) ** 2
                size = float(np.sqrt(size / rows))
                rate = size / last if turn > 0 else first_rate
                if turn == 1:
                    rates[0] = rate
                    kept[rows + 3] = 0
                if size * max(rate, least_rate) <= 1.0:
                    verdict = 1
                elif not rate <= 0.9 or (turn > 1 and size * rate ** (most - turn) > 1.0):
                    verdict = 2  # too slow
                else:
                    verdict = 0
                if verdict != 0:
                    break
                last = size
            if verdict == 1 or renewed:
                break
            renewed = True
        if verdict != 1:
            kept[rows] = 0
            state[REQUEST] = STUCK
            return
        if not renewed:
            kept[rows + 1] = min(kept[rows + 1], turn)
            if turn > 1 or first_rate < 0.5:  # otherwise the extra iteration only measured the rate
                kept[rows + 2] += turn - kept[rows + 1]
        for row in range(rows):
            # Not f(y): for a stiff equation that would amplify the remaining error.
            f[row, n] = (y[row, n] - known[row]) / now[0, which[row]]
        state[KNOWN] = n + 1


run_implicit = with_functions(
    implicit,
    "fun, parameters, jac, jac_parameters",
    """
if state[REQUEST] == JACOBIAN:
    jac.evaluate(t, point, derivative.reshape(-1), jac_parameters)
else:
    fun.evaluate(t, point, value, parameters)
""",
)
