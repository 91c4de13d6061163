"""One adaptive step, compiled: polynomials through the newest points, history, the step's equation, and the error.

The same arithmetic as in ``adaptive/arithmetic.py``, for equations whose components share one order. A compiled
right-hand side is given by reference (see ``references.py``), and solving returns 0 on success, 1 if the iteration does
not converge, and 2 if the right-hand side is not finite. A right-hand side in Python is called between the parts of a
step: :func:`prepare`, :func:`correct` or :func:`correct_newton` after each evaluation, :func:`finish`, and
:func:`begin_take` before and :func:`end_take` after the evaluation that propagates the error.

Results are written to the caller's arrays: to return an array Numba runs Python code, in which an interrupt becomes a
SystemError. The arrays are combined into a few, because each takes time at each call:

``rules``, shape (3, R, R)
    Differences and polynomials of the stencil, and weights; zero on entry.
``vectors``, shape (5, n)
    The known part of the equation, the inherited error, the guess, the solution, and the right-hand side there.
``reals``, shape (n + R,)
    The tolerance of the step, and the size of each degree's contribution.
``table``, shape (2, R, n)
    Values of the right-hand side, newest first, and each degree's contribution.
``scratch``, shape (2, n)
    Input and output of a compiled right-hand side.
``fun``, ``parameters``
    The reference to a compiled right-hand side, and the numbers that it reads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from hpfracc.solvers.ode.adaptive.corrector import FAR, LINEAR_ITERATIONS, MAX_ITERATIONS, MAX_NEWTON, PART
from hpfracc.solvers.ode.compiled.kernels import call

__all__ = [
    "attempt", "begin_take", "correct", "correct_newton", "end_take", "finish", "is_far", "iterate", "newton",
    "prepare", "take",
]  # fmt: skip

_compile = numba.njit(cache=True)


@_compile
def _norm(values: Any, scale: Any, d: int) -> float:
    """Root mean square over the d components of a member, then the largest over the batch."""
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
    """The inverse of each member's matrix times its part of the residual."""
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
def _evaluate(fun: Any, t: float, y: Any, out: Any, scratch: Any, parameters: Any) -> int:
    point, value = scratch[0], scratch[1]
    for i in range(len(y)):
        point[i] = y[i]
    call(fun, t, point, value, parameters)
    for i in range(len(y)):
        out[i] = value[i]
        if not np.isfinite(out[i]):
            return 2
    return 0


@_compile
def prepare(
    alpha: float,
    gamma: float,
    power: int,
    step: float,
    degree: int,
    lengths: Any,
    values: Any,
    start: Any,
    row: Any,
    states: Any,
    atol: Any,
    rtol: float,
    part: float,
    y: Any,
    rules: Any,
    vectors: Any,
    scale: Any,
) -> float:
    """The equation of a step, ``y = known + weight f``: returns the weight, and fills rules and vectors."""
    differences, polynomials, weights = rules[0], rules[1], rules[2]
    known, inherited, guess = vectors[0], vectors[1], vectors[2]
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
    """``y = known + weight f``, in place; returns the size of the change."""
    change = np.empty_like(y)
    for i in range(len(y)):
        moved = known[i] + weight * f[i]
        change[i] = moved - y[i]
        y[i] = moved
    return float(_norm(change, scale, d))


@_compile
def correct_newton(known: Any, weight: float, f: Any, y: Any, scale: Any, d: int, inverse: Any) -> float:
    """One iteration of Newton's method with ``inverse``, in place; returns the size of the change."""
    residual = np.empty_like(y)
    for i in range(len(y)):
        residual[i] = y[i] - known[i] - weight * f[i]
    change = _apply(inverse, residual)
    for i in range(len(y)):
        y[i] -= change[i]
    return float(_norm(change, scale, d))


@_compile
def iterate(fun: Any, t: float, weight: float, d: int, vectors: Any, scale: Any, scratch: Any, parameters: Any) -> Any:
    """Solve by iteration, into ``vectors``; returns status, rate of convergence, and number of evaluations."""
    known, guess, y, f = vectors[0], vectors[2], vectors[3], vectors[4]
    y[:] = guess
    last, contraction = np.inf, -1.0
    for turn in range(MAX_ITERATIONS):
        status = _evaluate(fun, t, y, f, scratch, parameters)
        if status:
            return status, contraction, turn + 1
        size = correct(known, weight, f, y, scale, d)
        if size <= PART:
            return 0, contraction, turn + 1
        if turn and size > 0.6 * last:
            return 1, contraction, turn + 1
        contraction, last = size / last, size
    return 1, contraction, MAX_ITERATIONS


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
    scratch: Any,
    parameters: Any,
    out: Any,
) -> Any:
    """Solve by Newton's method with a fixed matrix, into ``out``; returns status and number of evaluations."""
    y, f = out[0], out[1]
    y[:] = guess
    last = np.inf
    for turn in range(MAX_NEWTON):
        status = _evaluate(fun, t, y, f, scratch, parameters)
        if status:
            return status, turn + 1
        size = correct_newton(known, weight, f, y, scale, d, inverse)
        rate = size / last if np.isfinite(last) else 0.5
        if size * max(rate, 0.1) <= PART:
            for i in range(len(y)):
                f[i] = (y[i] - known[i]) / weight
            return 0, turn + 1
        if not rate <= 0.9:
            return 1, turn + 1
        last = size
    return 1, MAX_NEWTON


@_compile
def finish(
    values: Any,
    f: Any,
    y: Any,
    before: Any,
    atol: Any,
    rtol: float,
    part: float,
    inverse: Any,
    d: int,
    factor: float,
    rules: Any,
    table: Any,
    reals: Any,
) -> None:
    """The contribution of each degree and its size; through ``inverse`` if the equation is stiff."""
    count, n = values.shape
    weights, joined, terms, scale = rules[2], table[0], table[1], reals[:n]
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
        reals[n + r] = factor * _norm(felt, scale, d)


@_compile
def attempt(
    fun: Any,
    t: float,
    alpha: float,
    gamma: float,
    power: int,
    step: float,
    degree: int,
    lengths: Any,
    values: Any,
    start: Any,
    row: Any,
    states: Any,
    atol: Any,
    rtol: float,
    part: float,
    y: Any,
    d: int,
    nothing: Any,
    factor: float,
    scratch: Any,
    parameters: Any,
    rules: Any,
    vectors: Any,
    reals: Any,
    table: Any,
) -> Any:
    """:func:`prepare`, :func:`iterate` and :func:`finish` in one; returns status, contraction and evaluations."""
    scale = reals[: len(y)]
    weight = prepare(
        alpha,
        gamma,
        power,
        step,
        degree,
        lengths,
        values,
        start,
        row,
        states,
        atol,
        rtol,
        part,
        y,
        rules,
        vectors,
        scale,
    )
    status, contraction, evaluations = iterate(fun, t, weight, d, vectors, scale, scratch, parameters)
    if status == 0:
        finish(values, vectors[4], vectors[3], y, atol, rtol, part, nothing, d, factor, rules, table, reals)
    return status, contraction, evaluations


@_compile
def begin_take(
    degree: int, y: Any, rules: Any, inherited: Any, table: Any, moved_before: Any, inverse: Any, out: Any
) -> None:
    """The equation of the estimated error: its known part, a guess, and the state shifted by that guess.

    If the equation is stiff, the guess solves the linear equation; see ``Corrector.propagate``.
    """
    weights, terms = rules[2], table[1]
    known, guess, other = out[0], out[1], out[2]
    rows, n = terms.shape
    defect = min(degree + 1, rows - 1)
    newest, older = weights[0, 0] + weights[1, 0], weights[0, 1] + weights[1, 1]
    for c in range(n):
        known[c] = inherited[c] + terms[defect, c] + older * moved_before[c]
        guess[c] = known[c] + newest * moved_before[c]
    if len(inverse):
        rho = 0.0
        for r in range(degree + 1):
            rho += weights[r, 0] / newest
        guess[:] = known
        for _ in range(LINEAR_ITERATIONS):
            guess[:] = _apply(inverse, rho * known + (1.0 - rho) * guess)
    for c in range(n):
        other[c] = y[c] + guess[c]


@_compile
def is_far(y: Any, rules: Any, table: Any, value: Any, inverse: Any, equation: Any) -> bool:
    """Whether the estimated error is far from its guess, which it then replaces; see ``Corrector.propagate``."""
    if len(inverse):
        return False
    weights, values = rules[2], table[0]
    known, guess, other = equation[0], equation[1], equation[2]
    newest = weights[0, 0] + weights[1, 0]
    apart, size = 0.0, 0.0
    for c in range(len(y)):
        other[c] = known[c] + newest * (value[c] - values[0, c])
        apart, size = max(apart, abs(other[c] - guess[c])), max(size, abs(other[c]))
    if apart > FAR * size:
        guess[:] = other
    other[:] = y + guess
    return bool(apart > FAR * size)


@_compile
def end_take(
    there: bool,
    value: Any,
    equation: Any,
    tau: float,
    end: float,
    degree: int,
    y: Any,
    rules: Any,
    table: Any,
    moved_before: Any,
    largest_before: Any,
    inverse: Any,
    states: Any,
    decay: Any,
    moments: Any,
    power: int,
    step: float,
    atol: Any,
    rtol: float,
    errors: Any,
    largest: Any,
    both: Any,
    new: Any,
) -> float:
    """The estimated global error after a step, the polynomials over it, and the updated memory.

    ``value`` is the right-hand side at the state shifted by :func:`begin_take`; ``there`` is False if it was not
    finite. ``errors`` receives the error and the change of the right-hand side due to it; ``both``, zero on entry, the
    coefficients of the polynomial and of its error; ``new`` the states of the memory. Returns the ratio of the error to
    the tolerance.
    """
    differences, polynomials, weights = rules[0], rules[1], rules[2]
    values, known, guess, error, moved = table[0], equation[0], equation[1], errors[0], errors[1]
    rows, n = values.shape
    defect = min(degree + 1, rows - 1)
    newest = weights[0, 0] + weights[1, 0]
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

    # The right-hand side in the first half of the columns, its error in the second.
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
    return float(ratio)


@_compile
def take(
    fun: Any,
    t: float,
    inherited: Any,
    scratch: Any,
    parameters: Any,
    tau: float,
    end: float,
    degree: int,
    y: Any,
    rules: Any,
    table: Any,
    moved_before: Any,
    largest_before: Any,
    inverse: Any,
    states: Any,
    decay: Any,
    moments: Any,
    power: int,
    step: float,
    atol: Any,
    rtol: float,
    errors: Any,
    largest: Any,
    both: Any,
    new: Any,
) -> Any:
    """:func:`begin_take`, one or two evaluations, :func:`end_take`; whether values were finite, ratio, evaluations."""
    equation, value = np.empty((3, len(y)), y.dtype), np.empty_like(y)
    begin_take(degree, y, rules, inherited, table, moved_before, inverse, equation)
    there = _evaluate(fun, t, equation[2], value, scratch, parameters) == 0
    evaluations = 1
    if there and is_far(y, rules, table, value, inverse, equation):
        there = _evaluate(fun, t, equation[2], value, scratch, parameters) == 0
        evaluations = 2
    ratio = end_take(
        there, value, equation, tau, end, degree, y, rules, table, moved_before, largest_before, inverse,
        states, decay, moments, power, step, atol, rtol, errors, largest, both, new,
    )  # fmt: skip
    return there, ratio, evaluations
