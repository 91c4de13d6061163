"""One adaptive step, compiled: polynomials through the newest points, history, the step's equation, and the error.

For equations whose components share one order; the stencil is that of ``adaptive/arithmetic.py``. :func:`attempt`,
:func:`newton` and :func:`take` are generators: they write the state at which they need the right-hand side, yield, and
find its value when they resume. A right-hand side in Python is evaluated by an ordinary loop over the generator; the
``run_...`` of the same text take a compiled one by reference (see ``kernels.with_functions``).

Results are written to the caller's arrays: to return an array Numba runs Python code, in which an interrupt becomes a
SystemError. The arrays are combined into a few, because each takes time at each call:

``rules``, shape (3, R, R)
    Differences and polynomials of the stencil, and weights.
``vectors``, shape (5, n)
    The known part of the equation, the inherited error, the guess, the solution, and the right-hand side there.
``reals``, ``sizes``
    The order alpha, Gamma(alpha), the step, rtol, the share of the tolerance for a step, and the amplification of its
    error; the power of the kernel, the degree, and the number of components.
``found``, shape (n + R + 1,)
    The tolerance of the step, the size of each degree's contribution, and the rate of convergence, -1 if unknown.
``table``, shape (2, R, n)
    Values of the right-hand side, newest first, and each degree's contribution.
``state``
    The outcome, 0 for success, 1 if the iteration does not converge, 2 if the right-hand side is not finite; and the
    number of evaluations.
``scratch``, shape (2, n)
    Input and output of a compiled right-hand side.
``fun``, ``parameters``
    The reference to a compiled right-hand side, and the numbers that it reads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from hpfracc.solvers.ode.adaptive.arithmetic import write_contributions, write_stencil
from hpfracc.solvers.ode.adaptive.corrector import FAR, LINEAR_ITERATIONS, MAX_ITERATIONS, MAX_NEWTON, MIN_RATE, PART
from hpfracc.solvers.ode.compiled.kernels import call, with_functions

__all__ = ["attempt", "finish", "newton", "prepare", "run_attempt", "run_newton", "run_take", "take"]

_compile = numba.njit(cache=True)
_write_stencil, _write_contributions = _compile(write_stencil), _compile(write_contributions)

#: Indices in ``state``.
STATUS, EVALUATIONS = range(2)
_EVALUATE = "state[STATUS] = _evaluate(fun, t, point, value, scratch, parameters)"
_FUNCTIONS = "fun, t, scratch, parameters"


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
    reals: Any, sizes: Any, lengths: Any, values: Any, start: Any, row: Any, states: Any, atol: Any, y: Any, rules: Any,
    vectors: Any, scale: Any,
) -> float:  # fmt: skip
    """The equation of a step, ``y = known + weight f``: returns the weight, and fills rules and vectors."""
    alpha, gamma, step, rtol, part = reals[0], reals[1], reals[2], reals[3], reals[4]
    power, degree = sizes[0], sizes[1]
    known, inherited, guess = vectors[0], vectors[1], vectors[2]
    count, n = values.shape
    nodes = np.ones(count + 1)
    nodes[0] = 0.0
    for i in range(2, count + 1):
        nodes[i] = nodes[i - 1] + lengths[i - 2] / step
    _write_stencil(nodes, rules[0], rules[1])
    _write_contributions(alpha, rules[0], rules[1], rules[2])
    rules[2] *= step**alpha / gamma
    summed = rules[2][: degree + 1].sum(axis=0)
    history = np.zeros(2 * n, y.dtype)
    binomial = 1.0
    for k in range(power + 1):
        if k:
            binomial *= (power - k + 1) / k
        share = binomial * step ** (power - k)
        for j in range(states.shape[1]):
            each = share * row[j]
            for c in range(2 * n):
                history[c] += each * states[k, j, c]
    newest = rules[0][min(degree + 1, count)]
    for c in range(n):
        total, next_value = start[c] + history[c], y[c] * 0.0
        for i in range(count):
            total += summed[i + 1] * values[i, c]
            next_value -= newest[i + 1] * values[i, c]
        known[c] = total
        guess[c] = total + summed[0] * (next_value / newest[0])
        scale[c] = (atol[c] + rtol * max(abs(y[c]), abs(guess[c]))) * part
        inherited[c] = history[n + c]
    return float(summed[0])


@_compile
def _write_product(matrix: Any, values: Any, out: Any) -> None:
    """``matrix @ values``, which Numba has for two matrices of one dtype only."""
    for r in range(len(matrix)):
        for c in range(values.shape[1]):
            total = values[0, c] * 0.0
            for i in range(matrix.shape[1]):
                total += matrix[r, i] * values[i, c]
            out[r, c] = total


@_compile
def finish(
    reals: Any, sizes: Any, values: Any, f: Any, y: Any, before: Any, atol: Any, inverse: Any, rules: Any, table: Any,
    found: Any,
) -> None:  # fmt: skip
    """The contribution of each degree and its size; through ``inverse`` if the equation is stiff."""
    rtol, part, factor = reals[3], reals[4], reals[5]
    count, n = values.shape
    weights, joined, terms, scale = rules[2], table[0], table[1], found[:n]
    for c in range(n):
        joined[0, c] = f[c]
        scale[c] = (atol[c] + rtol * max(abs(y[c]), abs(before[c]))) * part
        for i in range(count):
            joined[i + 1, c] = values[i, c]
    _write_product(weights, joined, terms)
    for r in range(count + 1):
        felt = _apply(inverse, terms[r]) if len(inverse) else terms[r]
        found[n + r] = factor * _norm(felt, scale, sizes[2])


@_compile
def attempt(
    reals: Any, sizes: Any, lengths: Any, values: Any, start: Any, row: Any, states: Any, atol: Any, y: Any,
    inverse: Any, rules: Any, table: Any, found: Any, vectors: Any, state: Any,
) -> Any:  # fmt: skip
    """Prepare the equation of a step, solve it by iteration, into ``vectors``, and finish; ``inverse`` is empty."""
    scale, d = found[: len(y)], sizes[2]
    weight = prepare(reals, sizes, lengths, values, start, row, states, atol, y, rules, vectors, scale)
    known, point, value = vectors[0], vectors[3], vectors[4]
    point[:] = vectors[2]
    change = np.empty_like(y)
    last = np.inf
    found[len(found) - 1] = -1.0
    for turn in range(MAX_ITERATIONS):
        state[EVALUATIONS] += 1
        yield turn
        if state[STATUS]:
            return
        for i in range(len(point)):
            moved = known[i] + weight * value[i]
            change[i] = moved - point[i]
            point[i] = moved
        size = _norm(change, scale, d)
        if size <= PART:
            finish(reals, sizes, values, value, point, y, atol, inverse, rules, table, found)
            return
        if turn and size > 0.6 * last:
            break
        found[len(found) - 1] = size / last
        last = size
    state[STATUS] = 1


run_attempt = with_functions(attempt, _FUNCTIONS, _EVALUATE)


@_compile
def newton(known: Any, weight: float, guess: Any, scale: Any, d: int, inverse: Any, solution: Any, state: Any) -> Any:
    """Solve by Newton's method with a fixed matrix; ``solution`` receives the state and the right-hand side."""
    point, value = solution[0], solution[1]
    point[:] = guess
    residual = np.empty_like(guess)
    last = np.inf
    for turn in range(MAX_NEWTON):
        state[EVALUATIONS] += 1
        yield turn
        if state[STATUS]:
            return
        for i in range(len(point)):
            residual[i] = point[i] - known[i] - weight * value[i]
        change = _apply(inverse, residual)
        for i in range(len(point)):
            point[i] -= change[i]
        size = _norm(change, scale, d)
        rate = size / last if turn else 0.5
        if size * max(rate, MIN_RATE) <= PART:
            for i in range(len(point)):
                value[i] = (point[i] - known[i]) / weight
            return
        if not rate <= 0.9:
            break
        last = size
    state[STATUS] = 1


run_newton = with_functions(newton, _FUNCTIONS, _EVALUATE)


@_compile
def take(
    reals: Any, sizes: Any, y: Any, rules: Any, table: Any, inherited: Any, moved_before: Any, largest_before: Any,
    inverse: Any, states: Any, decay: Any, moments: Any, atol: Any, errors: Any, found: Any, both: Any, new: Any,
    equation: Any, state: Any,
) -> Any:  # fmt: skip
    """The estimated global error after a step, the polynomials over it, and the updated memory.

    The equation of the error is solved with one evaluation at the state shifted by a guess, or two if its solution is
    far from that (see ``Corrector.propagate``); if the right-hand side is not finite there, the error is its known
    part. ``equation`` receives that part, the guess, the shifted state and the right-hand side there; ``errors`` the
    error and the change of the right-hand side due to it; ``both`` the coefficients of the polynomial
    and of its error; ``new`` the states of the memory; ``found`` the largest values so far and the ratio of the error
    to the tolerance. The fifth of ``reals`` is the factor by which the largest values so far fade.
    """
    step, rtol, shrunk = reals[2], reals[3], reals[4]
    power, degree = sizes[0], sizes[1]
    differences, polynomials, weights = rules[0], rules[1], rules[2]
    values, terms = table[0], table[1]
    known, guess, point, value = equation[0], equation[1], equation[2], equation[3]
    error, moved = errors[0], errors[1]
    rows, n = values.shape
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
    point[:] = y + guess
    state[EVALUATIONS] += 1
    yield 0
    if not len(inverse) and not state[STATUS]:
        apart, size = 0.0, 0.0
        for c in range(n):
            error[c] = known[c] + newest * (value[c] - values[0, c])
            apart, size = max(apart, abs(error[c] - guess[c])), max(size, abs(error[c]))
        if apart > FAR * size:
            point[:] = y + error
            state[EVALUATIONS] += 1
            yield 1
    if state[STATUS]:
        error[:] = known
        moved[:] = moved_before
    elif len(inverse):
        error[:] = guess - _apply(inverse, guess - known - newest * (value - values[0]))
        moved[:] = (error - known) / newest
    else:
        moved[:] = value - values[0]
        error[:] = known + newest * moved

    # The right-hand side in the first half of the columns, its error in the second.
    divided = np.empty((defect + 1, n), y.dtype)
    _write_product(differences[: defect + 1], values, divided)
    both[:] = 0.0
    _write_product(polynomials[: degree + 1, : degree + 1].T, divided[: degree + 1], both[: degree + 1, :n])
    for q in range(defect + 1):
        both[q, n:] = polynomials[defect, q] * divided[defect]
    for c in range(n):
        both[0, n + c] += moved[c]
        both[1, n + c] += moved_before[c] - moved[c]
    _advance(states, decay, moments, power, step, both, new)
    found[n] = 0.0
    for c in range(n):
        found[c] = max(abs(y[c]), largest_before[c] * shrunk)
        share = abs(error[c]) / (atol[c] + rtol * found[c])
        found[n] = share if share > found[n] or np.isnan(share) else found[n]


@_compile
def _advance(states: Any, decay: Any, moments: Any, power: int, step: float, both: Any, new: Any) -> None:
    """The states of the memory after a step over which the functions are the polynomials ``both``."""
    for k in range(power + 1):
        scale = step ** (k + 1)
        for j in range(states.shape[1]):
            for c in range(states.shape[2]):
                total = states[k, j, c]
                binomial = 1.0
                for i in range(k - 1, -1, -1):
                    binomial *= (i + 1) / (k - i)
                    total += binomial * step ** (k - i) * states[i, j, c]
                added = total * 0.0
                for q in range(len(both)):
                    added += moments[j, k + q] * both[q, c]
                new[k, j, c] = decay[j] * total + scale * added


run_take = with_functions(take, _FUNCTIONS, _EVALUATE)
