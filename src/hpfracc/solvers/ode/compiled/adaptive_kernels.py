"""One adaptive step, compiled: the polynomials of the newest points, the past, the step's equation, the error.

The same arithmetic as in ``adaptive/arithmetic.py``, for equations whose components share one order. The right-hand
side comes as an address, compiled or in Python (see ``kernels.py``). Solving ends with 0, or with 1 where the iteration
does not converge, 2 where the right-hand side is not finite, 3 where it raised ``flag``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from hpfracc.solvers.ode.adaptive.corrector import MOST_ITERATIONS, MOST_NEWTON, PART

__all__ = ["attempt", "finish", "iterate", "newton", "prepare", "take"]

_compile = numba.njit(cache=True)


@intrinsic
def _call(typing: Any, address: Any, t: Any, y: Any, out: Any, parameters: Any) -> Any:
    """A function by its address: to find the type of a pointer takes Numba 20 us at each call of a kernel."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, number = context.get_value_type(types.intp), context.get_value_type(types.float64)
        kind = type(builder.function.function_type)(context.get_value_type(types.void), (number, word, word, word))
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.intp, types.float64, types.intp, types.intp, types.intp), generate


@_compile
def _norm(values: Any, scale: Any, d: int) -> float:
    """Root mean square over the d components of a member, the largest over the batch."""
    worst = 0.0
    for first in range(0, len(values), d):
        total = 0.0
        for i in range(first, first + d):
            ratio = abs(values[i]) / scale[i]
            total += ratio * ratio
        worst = total if total > worst or np.isnan(total) else worst
    return float(np.sqrt(worst / d))


@_compile
def _apply(inverse: Any, residual: Any) -> Any:
    """The inverse of each member's matrix times its part."""
    d = inverse.shape[1]
    found = np.empty_like(residual)
    for member in range(len(inverse)):
        for i in range(d):
            total = residual[0] * 0.0
            for j in range(d):
                total += inverse[member, i, j] * residual[member * d + j]
            found[member * d + i] = total
    return found


@_compile
def _evaluate(fun: Any, t: float, y: Any, out: Any, tools: Any) -> int:
    point, value, parameters, flag, counts = tools
    for i in range(len(y)):
        point[i] = y[i]
    _call(fun, t, point.ctypes.data, value.ctypes.data, parameters.ctypes.data)
    counts[0] += 1
    if flag[0] != 0:
        return 3
    for i in range(len(y)):
        out[i] = value[i]
        if not np.isfinite(out[i]):
            return 2
    return 0


@_compile
def prepare(
    order: tuple[float, float, int],
    step: float,
    degree: int,
    lengths: Any,
    values: Any,
    start: Any,
    row: Any,
    states: Any,
    tolerance: tuple[Any, float, float],
    y: Any,
) -> Any:
    """The equation of a step: ``y = known + weight f``, with the rules it is made of."""
    alpha, gamma, power = order
    count, n = values.shape
    size = count + 1
    nodes = np.empty(size)
    nodes[0], nodes[1] = 0.0, 1.0
    for i in range(2, size):
        nodes[i] = nodes[i - 1] + lengths[i - 2] / step
    differences, polynomials, weights = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))
    polynomials[0, 0] = differences[0, 0] = 1.0
    for r in range(1, size):
        for q in range(r, -1, -1):
            polynomials[r, q] = (polynomials[r - 1, q - 1] if q else 0.0) - nodes[r - 1] * polynomials[r - 1, q]
        for i in range(r + 1):
            product = 1.0
            for j in range(r + 1):
                if j != i:
                    product *= nodes[i] - nodes[j]
            differences[r, i] = 1.0 / product
    factor = step**alpha / gamma
    for r in range(size):
        integral = 0.0
        for q in range(r + 1):
            integral += polynomials[r, q] / (alpha + q)
        for i in range(r + 1):
            weights[r, i] = factor * integral * differences[r, i]
    rule = np.zeros(size)
    for r in range(degree + 1):
        for i in range(r + 1):
            rule[i] += weights[r, i]

    past = np.zeros(2 * n, y.dtype)
    binomial = 1.0
    for k in range(power + 1):
        if k:
            binomial *= (power - k + 1) / k
        share = binomial * step ** (power - k)
        for j in range(states.shape[1]):
            each = share * row[j]
            for c in range(2 * n):
                past[c] += each * states[k, j, c]
    known, guess, scale = np.empty(n, y.dtype), np.empty(n, y.dtype), np.empty(n)
    ahead = min(degree + 1, count)
    atol, rtol, part = tolerance
    for c in range(n):
        total, next_value = start[c] + past[c], y[c] * 0.0
        for i in range(1, size):
            total += rule[i] * values[i - 1, c]
            next_value -= differences[ahead, i] * values[i - 1, c]
        known[c] = total
        guess[c] = total + rule[0] * (next_value / differences[ahead, 0])
        scale[c] = (atol[c] + rtol * max(abs(y[c]), abs(guess[c]))) * part
    return differences, polynomials, weights, rule[0], known, past[n:], guess, scale


@_compile
def iterate(fun: Any, t: float, known: Any, weight: float, guess: Any, scale: Any, d: int, tools: Any) -> Any:
    """By iteration; also how fast it converged."""
    y, f = guess.copy(), np.empty_like(guess)
    moved, change = np.empty_like(guess), np.empty_like(guess)
    last, contraction = np.inf, -1.0
    for turn in range(MOST_ITERATIONS):
        status = _evaluate(fun, t, y, f, tools)
        if status:
            return status, contraction, y, f
        for i in range(len(y)):
            moved[i] = known[i] + weight * f[i]
            change[i] = moved[i] - y[i]
            y[i] = moved[i]
        size = _norm(change, scale, d)
        if size <= PART:
            return 0, contraction, y, f
        if turn and size > 0.6 * last:
            break
        contraction, last = size / last, size
    return 1, contraction, y, f


@_compile
def newton(
    fun: Any, t: float, known: Any, weight: float, guess: Any, scale: Any, d: int, inverse: Any, tools: Any
) -> Any:
    """By Newton's method with a matrix that stays."""
    y, f = guess.copy(), np.empty_like(guess)
    residual = np.empty_like(guess)
    last = np.inf
    for _ in range(MOST_NEWTON):
        status = _evaluate(fun, t, y, f, tools)
        if status:
            return status, y, f
        for i in range(len(y)):
            residual[i] = y[i] - known[i] - weight * f[i]
        change = _apply(inverse, residual)
        for i in range(len(y)):
            y[i] -= change[i]
        size = _norm(change, scale, d)
        rate = size / last if np.isfinite(last) else 0.5
        if size * max(rate, 0.1) <= PART:
            for i in range(len(y)):
                f[i] = (y[i] - known[i]) / weight
            return 0, y, f
        if not rate <= 0.9:
            break
        last = size
    return 1, y, f


@_compile
def finish(
    values: Any,
    f: Any,
    weights: Any,
    y: Any,
    before: Any,
    tolerance: tuple[Any, float, float],
    inverse: Any,
    d: int,
    factor: float,
) -> Any:
    """What each degree adds, and how large that is; through ``inverse`` where the equation is stiff."""
    count, n = values.shape
    atol, rtol, part = tolerance
    joined, terms = np.empty((count + 1, n), y.dtype), np.empty((count + 1, n), y.dtype)
    scale, errors = np.empty(n), np.empty(count + 1)
    for c in range(n):
        joined[0, c] = f[c]
        scale[c] = (atol[c] + rtol * max(abs(y[c]), abs(before[c]))) * part
        for i in range(count):
            joined[i + 1, c] = values[i, c]
    for r in range(count + 1):
        for c in range(n):
            total = y[c] * 0.0
            for i in range(r + 1):
                total += weights[r, i] * joined[i, c]
            terms[r, c] = total
        felt = _apply(inverse, terms[r]) if len(inverse) else terms[r]
        errors[r] = factor * _norm(felt, scale, d)
    return joined, terms, errors, scale


@_compile
def attempt(
    fun: Any,
    t: float,
    order: tuple[float, float, int],
    step: float,
    degree: int,
    lengths: Any,
    values: Any,
    start: Any,
    row: Any,
    states: Any,
    tolerance: tuple[Any, float, float],
    y: Any,
    d: int,
    nothing: Any,
    factor: float,
    tools: Any,
) -> Any:
    """:func:`prepare`, :func:`iterate` and :func:`finish` in one."""
    differences, polynomials, weights, weight, known, inherited, guess, scale = prepare(
        order, step, degree, lengths, values, start, row, states, tolerance, y
    )
    status, contraction, new, f = iterate(fun, t, known, weight, guess, scale, d, tools)
    joined, terms, errors, scale = finish(values, f, weights, new, y, tolerance, nothing, d, factor)
    return status, contraction, differences, polynomials, weights, inherited, new, joined, terms, errors, scale


@_compile
def take(
    fun: Any,
    time: tuple[float, float, float],
    degree: int,
    y: Any,
    values: Any,
    rules: tuple[Any, Any, Any],
    terms: Any,
    inherited: Any,
    before: tuple[Any, Any],
    inverse: Any,
    memory: tuple[Any, Any, Any, int],
    step: float,
    tolerance: tuple[Any, float],
    tools: Any,
) -> Any:
    """The estimated global error after a step, the polynomials over it, and the memory with it."""
    t, tau, end = time
    differences, polynomials, weights = rules
    moved_before, largest_before = before
    states, decay, moments, power = memory
    atol, rtol = tolerance
    rows, n = values.shape
    defect = min(degree + 1, rows - 1)
    newest, older = weights[0, 0] + weights[1, 0], weights[0, 1] + weights[1, 1]
    known, guess, other = np.empty(n, y.dtype), np.empty(n, y.dtype), np.empty(n, y.dtype)
    error, moved = np.empty(n, y.dtype), np.empty(n, y.dtype)
    for c in range(n):
        known[c] = inherited[c] + terms[defect, c] + older * moved_before[c]
        guess[c] = known[c] + newest * moved_before[c]
        other[c] = y[c] + guess[c]
    status = _evaluate(fun, t, other, moved, tools)
    if status == 3:
        return status, error, moved, terms, states, terms, 0.0, largest_before
    if status == 2:
        error[:], moved[:] = known, moved_before
    elif len(inverse):
        residual = np.empty(n, y.dtype)
        for c in range(n):
            residual[c] = guess[c] - known[c] - newest * (moved[c] - values[0, c])
        change = _apply(inverse, residual)
        for c in range(n):
            error[c] = guess[c] - change[c]
            moved[c] = (error[c] - known[c]) / newest
    else:
        for c in range(n):
            moved[c] -= values[0, c]
            error[c] = known[c] + newest * moved[c]

    # Of the right-hand side in the first half of the columns, of its error in the second.
    both = np.zeros((defect + 1, 2 * n), y.dtype)
    for r in range(defect + 1):
        for c in range(n):
            total = y[c] * 0.0
            for i in range(r + 1):
                total += differences[r, i] * values[i, c]
            if r <= degree:
                for q in range(r + 1):
                    both[q, c] += polynomials[r, q] * total
            if r == defect:
                for q in range(r + 1):
                    both[q, n + c] = polynomials[r, q] * total
    for c in range(n):
        both[0, n + c] += moved[c]
        both[1, n + c] += moved_before[c] - moved[c]

    count = states.shape[1]
    new = np.empty_like(states)
    for k in range(power + 1):
        scale = step ** (k + 1)
        for j in range(count):
            for c in range(2 * n):
                total = states[k, j, c]
                binomial = 1.0
                for i in range(k - 1, -1, -1):
                    binomial *= (i + 1) / (k - i)
                    total += binomial * step ** (k - i) * states[i, j, c]
                added = total * 0.0
                for q in range(defect + 1):
                    added += moments[j, k + q] * both[q, c]
                new[k, j, c] = decay[j] * total + scale * added
    largest, ratio = np.empty(n), 0.0
    for c in range(n):
        largest[c] = max(abs(y[c]), largest_before[c] * (tau / end))
        share = abs(error[c]) / (atol[c] + rtol * largest[c])
        ratio = share if share > ratio or np.isnan(share) else ratio
    return status, error, moved, both[: degree + 1, :n].copy(), new, both, ratio, largest
