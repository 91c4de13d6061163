"""One adaptive step, compiled: the polynomials of the newest points, the past, the step's equation, the error.

The same arithmetic as in ``adaptive/arithmetic.py``, for equations whose components share one order. A compiled
right-hand side comes as an address (see ``kernels.py``), and solving ends with 0, with 1 where the iteration does not
converge, with 2 where the right-hand side is not finite. One in Python is called between the parts that steps are made
of: :func:`prepare`, :func:`correct` or :func:`correct_newton` after each evaluation, :func:`finish`, and
:func:`begin_take` before and :func:`end_take` after the evaluation that moves the error along.

Arrays are written where the caller wants them. Numba runs Python code to return an array, in which an interrupt becomes
a SystemError.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from hpfracc.solvers.ode.adaptive.corrector import MOST_ITERATIONS, MOST_NEWTON, PART
from hpfracc.solvers.ode.compiled.kernels import call

__all__ = [
    "attempt", "begin_take", "correct", "correct_newton", "end_take", "finish", "iterate", "newton", "prepare", "take",
]  # fmt: skip

_compile = numba.njit(cache=True)


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
    point, value, parameters, counts = tools
    for i in range(len(y)):
        point[i] = y[i]
    call(fun, t, point, value, parameters)
    counts[0] += 1
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
    out: tuple[Any, Any, Any, Any, Any, Any, Any],
) -> float:
    """The equation of a step, ``y = known + weight f``: the weight, and into ``out`` the rules and what is known.

    ``out``: differences, polynomials and weights, zero before; known, inherited, guess and scale.
    """
    alpha, gamma, power = order
    differences, polynomials, weights, known, inherited, guess, scale = out
    count, n = values.shape
    size = count + 1
    nodes = np.empty(size)
    nodes[0], nodes[1] = 0.0, 1.0
    for i in range(2, size):
        nodes[i] = nodes[i - 1] + lengths[i - 2] / step
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
        inherited[c] = past[n + c]
    return float(rule[0])


@_compile
def correct(known: Any, weight: float, f: Any, y: Any, scale: Any, d: int) -> float:
    """``y = known + weight f``, in place; the size of the change."""
    change = np.empty_like(y)
    for i in range(len(y)):
        moved = known[i] + weight * f[i]
        change[i] = moved - y[i]
        y[i] = moved
    return float(_norm(change, scale, d))


@_compile
def correct_newton(known: Any, weight: float, f: Any, y: Any, scale: Any, d: int, inverse: Any) -> float:
    """One iteration of Newton's method with ``inverse``, in place; the size of the change."""
    residual = np.empty_like(y)
    for i in range(len(y)):
        residual[i] = y[i] - known[i] - weight * f[i]
    change = _apply(inverse, residual)
    for i in range(len(y)):
        y[i] -= change[i]
    return float(_norm(change, scale, d))


@_compile
def iterate(
    fun: Any, t: float, known: Any, weight: float, guess: Any, scale: Any, d: int, tools: Any, y: Any, f: Any
) -> Any:
    """By iteration, into ``y`` and ``f``; also how fast it converged."""
    y[:] = guess
    last, contraction = np.inf, -1.0
    for turn in range(MOST_ITERATIONS):
        status = _evaluate(fun, t, y, f, tools)
        if status:
            return status, contraction
        size = correct(known, weight, f, y, scale, d)
        if size <= PART:
            return 0, contraction
        if turn and size > 0.6 * last:
            break
        contraction, last = size / last, size
    return 1, contraction


@_compile
def newton(
    fun: Any,
    t: float,
    known: Any,
    weight: float,
    guess: Any,
    scale: Any,
    d: int,
    inverse: Any,
    tools: Any,
    y: Any,
    f: Any,
) -> Any:
    """By Newton's method with a matrix that stays, into ``y`` and ``f``."""
    y[:] = guess
    last = np.inf
    for _ in range(MOST_NEWTON):
        status = _evaluate(fun, t, y, f, tools)
        if status:
            return status
        size = correct_newton(known, weight, f, y, scale, d, inverse)
        rate = size / last if np.isfinite(last) else 0.5
        if size * max(rate, 0.1) <= PART:
            for i in range(len(y)):
                f[i] = (y[i] - known[i]) / weight
            return 0
        if not rate <= 0.9:
            break
        last = size
    return 1


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
    out: tuple[Any, Any, Any, Any],
) -> None:
    """What each degree adds, and how large that is; through ``inverse`` where the equation is stiff.

    ``out``: values of the right-hand side, the newest first; terms, errors and scale.
    """
    count, n = values.shape
    atol, rtol, part = tolerance
    joined, terms, errors, scale = out
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
    prepared: tuple[Any, Any, Any, Any, Any, Any, Any],
    new: Any,
    finished: tuple[Any, Any, Any, Any],
) -> Any:
    """:func:`prepare`, :func:`iterate` into ``new`` and :func:`finish` in one; status and contraction."""
    weight = prepare(order, step, degree, lengths, values, start, row, states, tolerance, y, prepared)
    f = np.empty_like(new)
    known, guess, scale = prepared[3], prepared[5], prepared[6]
    status, contraction = iterate(fun, t, known, weight, guess, scale, d, tools, new, f)
    if status == 0:
        finish(values, f, prepared[2], new, y, tolerance, nothing, d, factor, finished)
    return status, contraction


@_compile
def begin_take(
    degree: int,
    y: Any,
    weights: Any,
    terms: Any,
    inherited: Any,
    moved_before: Any,
    known: Any,
    guess: Any,
    other: Any,
) -> None:
    """The equation of the estimated error: what is known of it, a guess, and the state moved by that guess."""
    rows, n = terms.shape
    defect = min(degree + 1, rows - 1)
    newest, older = weights[0, 0] + weights[1, 0], weights[0, 1] + weights[1, 1]
    for c in range(n):
        known[c] = inherited[c] + terms[defect, c] + older * moved_before[c]
        guess[c] = known[c] + newest * moved_before[c]
        other[c] = y[c] + guess[c]


@_compile
def end_take(
    there: bool,
    value: Any,
    known: Any,
    guess: Any,
    time: tuple[float, float],
    degree: int,
    y: Any,
    values: Any,
    rules: tuple[Any, Any, Any],
    before: tuple[Any, Any],
    inverse: Any,
    memory: tuple[Any, Any, Any, int],
    step: float,
    tolerance: tuple[Any, float],
    out: tuple[Any, Any, Any, Any, Any, Any],
) -> float:
    """The estimated global error after a step, the polynomials over it, and the memory with it.

    ``out``: the error, what it moves the right-hand side by, the coefficients of the polynomial, the states of the
    memory, the coefficients with those of the error, zero before, and the largest values so far. The error over the
    tolerance comes back. ``value`` is the right-hand side at the state that :func:`begin_take` moved; not ``there`` if
    it was not finite.
    """
    tau, end = time
    differences, polynomials, weights = rules
    moved_before, largest_before = before
    states, decay, moments, power = memory
    atol, rtol = tolerance
    rows, n = values.shape
    defect = min(degree + 1, rows - 1)
    newest = weights[0, 0] + weights[1, 0]
    error, moved, coefficients, new, both, largest = out
    if not there:
        error[:], moved[:] = known, moved_before
    elif len(inverse):
        residual = np.empty(n, y.dtype)
        for c in range(n):
            residual[c] = guess[c] - known[c] - newest * (value[c] - values[0, c])
        change = _apply(inverse, residual)
        for c in range(n):
            error[c] = guess[c] - change[c]
            moved[c] = (error[c] - known[c]) / newest
    else:
        for c in range(n):
            moved[c] = value[c] - values[0, c]
            error[c] = known[c] + newest * moved[c]

    # Of the right-hand side in the first half of the columns, of its error in the second.
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
    ratio = 0.0
    for c in range(n):
        largest[c] = max(abs(y[c]), largest_before[c] * (tau / end))
        share = abs(error[c]) / (atol[c] + rtol * largest[c])
        ratio = share if share > ratio or np.isnan(share) else ratio
    for q in range(degree + 1):
        for c in range(n):
            coefficients[q, c] = both[q, c]
    return float(ratio)


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
    out: tuple[Any, Any, Any, Any, Any, Any],
) -> Any:
    """:func:`begin_take`, an evaluation and :func:`end_take` in one; whether the value was finite, and the ratio."""
    known, guess, other = np.empty_like(y), np.empty_like(y), np.empty_like(y)
    begin_take(degree, y, rules[2], terms, inherited, before[0], known, guess, other)
    value = np.empty_like(y)
    there = _evaluate(fun, time[0], other, value, tools) == 0
    span = (time[1], time[2])
    ratio = end_take(
        there, value, known, guess, span, degree, y, values, rules, before, inverse, memory, step, tolerance, out
    )
    return there, ratio
