"""Adaptive steps, compiled: polynomials through the newest points, history, the equation of the step, and the error.

For equations whose components share one order; the stencil is that of ``adaptive/arithmetic.py``. :func:`iterate` and
:func:`take` are generators: they write the state at which they need the right-hand side, yield, and find its value when
they resume. A right-hand side in Python is evaluated by an ordinary loop over the generator; the ``run_...`` of the
same text take a compiled one by reference (see ``kernels.with_functions``).

Results are written to the caller's arrays: to return an array Numba runs Python code, in which an interrupt becomes a
SystemError. The arrays are combined into a few, because each takes time at each call:

``rules``, shape (3, R, R)
    Differences and polynomials of the stencil, and weights.
``vectors``, shape (3, n)
    The known part of the equation, the inherited error, and the guess.
``reals``, ``sizes``
    The order alpha, Gamma(alpha), the step, rtol, the share of the tolerance for a step, the amplification of its
    error, and the steps before; the power of the kernel, the degree, and the number of components.
``found``, shape (n + R,)
    The tolerance of the step, and the size of each degree's contribution.
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

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from hpfracc.solvers.ode.adaptive import arithmetic
from hpfracc.solvers.ode.adaptive import corrector as correction
from hpfracc.solvers.ode.adaptive.system import FlatSystem
from hpfracc.solvers.ode.compiled import call_kernel
from hpfracc.solvers.ode.compiled.functions import CompiledFunction
from hpfracc.solvers.ode.compiled.kernels import call, multiply, with_functions
from hpfracc.solvers.ode.problem import NotFiniteError
from hpfracc.solvers.stepping.newton import Norm

Array = np.ndarray[Any, Any]

_compile = numba.njit(cache=True)
_divided_differences, _contributions = _compile(arithmetic.divided_differences), _compile(arithmetic.contributions)
_usual_change = _compile(arithmetic.usual_change)

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
        part = slice(member * d, member * d + d)
        multiply(inverse[member], residual[part], found[part])
    return found


@_compile
def _product(matrix: Any, values: Any) -> Any:
    """``matrix @ values``, which Numba has for two matrices of one dtype only."""
    found = np.zeros((len(matrix), values.shape[1]), values.dtype)
    for r in range(len(matrix)):
        for i in range(matrix.shape[1]):
            for c in range(values.shape[1]):
                found[r, c] += matrix[r, i] * values[i, c]
    return found


@_compile
def _evaluate(fun: Any, t: float, y: Any, out: Any, scratch: Any, parameters: Any) -> int:
    point, value = scratch[0], scratch[1]
    point[:] = y
    call(fun, t, point, value, parameters)
    out[:] = value
    return 0 if np.isfinite(value).all() else 2


@_compile
def prepare(
    reals: Any, sizes: Any, values: Any, start: Any, row: Any, states: Any, atol: Any, y: Any, rules: Any,
    vectors: Any, scale: Any,
) -> float:  # fmt: skip
    """The equation of a step, ``y = known + weight f``: returns the weight, and fills rules, vectors and scale."""
    alpha, gamma, step, rtol, part = reals[0], reals[1], reals[2], reals[3], reals[4]
    power, degree = sizes[0], sizes[1]
    known, inherited, guess = vectors[0], vectors[1], vectors[2]
    count, n = values.shape
    nodes = np.ones(count + 1)
    nodes[0] = 0.0
    nodes[2:] += np.cumsum(reals[6 : 5 + count]) / step
    differences, polynomials = _divided_differences(nodes)
    rules[0], rules[1] = differences, polynomials
    integrals = (step**alpha / gamma) / (alpha + np.arange(len(polynomials)))
    rules[2] = _contributions(integrals, differences, polynomials)
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
    newest = differences[min(degree + 1, count)]
    known[:] = start + history[:n]
    inherited[:] = history[n:]
    guess[:] = 0.0
    for i in range(count):
        known += summed[i + 1] * values[i]
        guess -= newest[i + 1] * values[i]
    guess[:] = known + summed[0] * (guess / newest[0])
    scale[:] = (atol + rtol * np.maximum(np.abs(y), np.abs(guess))) * part
    return float(summed[0])


@_compile
def iterate(known: Any, weight: float, guess: Any, scale: Any, d: int, inverse: Any, solution: Any, state: Any) -> Any:
    """Solve ``y = known + weight f`` by iteration, or by Newton's method with the matrix of ``inverse``, if any.

    ``solution`` receives the state and the right-hand side.
    """
    point, value = solution[0], solution[1]
    point[:] = guess
    last, stiff = np.inf, len(inverse) > 0
    for turn in range(correction.MAX_NEWTON if stiff else correction.MAX_ITERATIONS):
        state[EVALUATIONS] += 1
        yield turn
        if state[STATUS]:
            return
        change = point - known - weight * value
        if stiff:
            change = _apply(inverse, change)
        point -= change
        size = _norm(change, scale, d)
        rate = size / last if turn else 0.5
        if size * (max(rate, correction.MIN_RATE) if stiff else 1.0) <= correction.PART:
            if stiff:
                value[:] = (point - known) / weight
            return
        if not rate <= (0.9 if stiff else 0.6):
            break
        last = size
    state[STATUS] = 1


run_iterate = with_functions(iterate, _FUNCTIONS, _EVALUATE)


@_compile
def finish(
    reals: Any, sizes: Any, values: Any, f: Any, y: Any, before: Any, atol: Any, inverse: Any, rules: Any, table: Any,
    found: Any,
) -> bool:  # fmt: skip
    """The contribution of each degree and its size, through ``inverse`` if the equation is stiff; ``Trial.sudden``."""
    rtol, part, factor = reals[3], reals[4], reals[5]
    n = len(y)
    scale, terms = found[:n], table[1]
    table[0, 0] = f
    table[0, 1:] = values
    scale[:] = (atol + rtol * np.maximum(np.abs(y), np.abs(before))) * part
    terms[:] = _product(rules[2], table[0])
    for r in range(len(terms)):
        felt = _apply(inverse, terms[r]) if len(inverse) else terms[r]
        found[n + r] = factor * _norm(felt, scale, sizes[2])
    if len(values) < 2:
        return False
    return bool((np.abs(f - values[0]) > _usual_change(table[0], reals[6:], reals[2])).any())


@_compile
def take(
    reals: Any, sizes: Any, y: Any, rules: Any, table: Any, inherited: Any, moved_before: Any, largest_before: Any,
    inverse: Any, states: Any, decay: Any, moments: Any, atol: Any, errors: Any, found: Any, both: Any, new: Any,
    equation: Any, state: Any,
) -> Any:  # fmt: skip
    """The estimated global error after a step, the polynomials over it, and the updated memory.

    The equation of the error is solved with one evaluation at the state shifted by a guess, or two if its solution is
    far from that (see ``Corrector.propagate``); if the right-hand side is not finite there, the error is its known
    part. ``equation`` receives the shifted state and the right-hand side there; ``errors`` the error and the change of
    the right-hand side due to it; ``both`` the coefficients of the polynomial and of its error; ``new`` the states of
    the memory; ``found`` the largest values so far, the ratio of the error to the tolerance and its size. The fifth of
    ``reals`` is the factor by which the largest values so far fade, the sixth the share of the tolerance that is known.
    """
    step, rtol, shrunk = reals[2], reals[3], reals[4]
    degree, polynomials, weights = sizes[1], rules[1], rules[2]
    values, terms = table[0], table[1]
    point, value, error, moved = equation[0], equation[1], errors[0], errors[1]
    rows, n = values.shape
    defect = min(degree + 1, rows - 1)
    newest, older = weights[0, 0] + weights[1, 0], weights[0, 1] + weights[1, 1]
    known = inherited + terms[defect] + older * moved_before
    guess = known + newest * moved_before
    if len(inverse):
        rho = weights[: degree + 1, 0].sum() / newest
        guess[:] = known
        for _ in range(correction.LINEAR_ITERATIONS):
            guess[:] = _apply(inverse, rho * known + (1.0 - rho) * guess)
    point[:] = y + guess
    state[EVALUATIONS] += 1
    yield 0
    if not len(inverse) and not state[STATUS]:
        error[:] = known + newest * (value - values[0])
        if np.max(np.abs(error - guess)) > correction.FAR * np.max(np.abs(error)):
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
    divided = _product(rules[0][: defect + 1], values)
    both[:] = 0.0
    both[: degree + 1, :n] = _product(polynomials[: degree + 1, : degree + 1].T, divided[: degree + 1])
    for q in range(defect + 1):
        both[q, n:] = polynomials[defect, q] * divided[defect]
    both[0, n:] += moved
    both[1, n:] += moved_before - moved
    _advance(states, decay, moments, sizes[0], step, both, new)
    found[:n] = np.maximum(np.abs(y), largest_before * shrunk)
    tolerance = atol + rtol * found[:n]
    found[n] = np.max(np.abs(error) / tolerance)
    found[n + 1] = np.max(np.maximum(np.abs(error), reals[5] * tolerance * (error != 0.0)))


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


class CompiledArithmetic:
    """Like :class:`NumpyArithmetic`, for components that share one order.

    Parameters
    ----------
    system : FlatSystem
        The equation, without delays.
    fun : CompiledFunction or None
        Its compiled right-hand side; None if that stays in Python.
    abandon : callable
        Called with the reason if the compiled right-hand side is no longer used.
    """

    def __init__(self, system: FlatSystem, fun: CompiledFunction | None, abandon: Callable[[str], None]) -> None:
        self.system = system
        self._fun, self._abandon, self._kind = fun, abandon, system.dtype.kind
        self._scratch = np.zeros((2, system.size), system.dtype)
        (alpha, _), *_ = system.groups
        # Reused at each step, because making an array takes as long as some of the arithmetic.
        self._order = alpha, math.gamma(alpha)
        self._sizes = np.array([math.ceil(alpha) - 1, 0, system.components])
        self._state = np.zeros(2, np.int64)
        self._nothing = np.zeros((0, 1, 1), system.dtype)
        empty: Array = np.asarray(())
        self._reals, self._rules, self._table = empty, empty, empty  # of the latest trial

    def attempt(self, stepper: Any, step: float, end: float, degree: int) -> arithmetic.Trial | None:
        """Solve the equation of a step."""
        system, corrector, memory, past = self.system, stepper.corrector, stepper.memories[0], stepper.values
        corrector.loops = self
        if self._fun is not None and not self._fun.unchanged():
            self._leave("a captured value changed during the solve")
        tables = memory.tables(step)
        start = system.start(end).astype(system.dtype, copy=False)
        share, factor, sizes = stepper.share, stepper.distance_factor(step, end), self._sizes
        self._reals = reals = np.array([*self._order, step, stepper.rtol, share, factor, *stepper.steps])
        sizes[1] = degree
        size, n, dtype = len(past) + 1, system.size, system.dtype
        rules, vectors, found = np.empty((3, size, size)), np.empty((3, n), dtype), np.empty(n + size)
        table, scale = np.empty((2, size, n), dtype), found[:n]
        given = (reals, sizes, past, start, tables.weighted, memory.states, stepper.atol, stepper.y)
        weight = call_kernel(prepare, self._kind, *given, rules, vectors, scale)
        norm = Norm(scale, system.components)
        solved = corrector.solve(end, vectors[0], weight, vectors[2], norm, stepper.accepted + stepper.rejected)
        if solved is None:
            return None
        inverse = self._nothing if corrector.inverse is None else corrector.inverse
        y, f = solved
        values = (past, f, y, stepper.y, stepper.atol, inverse)
        sudden = call_kernel(finish, self._kind, reals, sizes, *values, rules, table, found)
        self._rules, self._table = rules, table
        stencil, errors = arithmetic.Stencil(rules[0], rules[1]), found[n:].tolist()
        return arithmetic.Trial(y, table[0], stencil, rules[2], table[1], errors, scale, vectors[1], weight, sudden)

    def solve(
        self, tau: float, known: Array, weight: Any, guess: Array, norm: Norm, inverse: Array | None = None
    ) -> correction.Solved:
        """Run the corrector's loop, with a matrix if the equation is stiff."""
        out = np.empty((2, guess.size), guess.dtype)
        matrix = self._nothing if inverse is None else inverse
        arguments = (known, float(weight), guess, norm.scale, norm.components, matrix, out)
        status = self._run(iterate, run_iterate, tau, arguments, out)
        if status == 2:  # compiled, it was not finite; in Python it may raise an error
            self.system(tau, self._scratch[0].copy())
            self._leave(f"compiled, it failed where Python could evaluate it, at t = {self.system.time(tau):g}")
            return self.solve(tau, known, weight, guess, norm, inverse)
        return None if status else (out[0], out[1])

    def _run(self, steps: Any, run: Any, tau: float, arguments: tuple[Any, ...], point: Array) -> int:
        """Run a kernel with the right-hand side at ``point[0]`` in ``point[1]``, from here or compiled; its outcome."""
        state = self._state
        state.fill(0)
        if self._fun is not None:
            functions = (self._fun.reference, self.system.time(tau), self._scratch, self._fun.parameters)
            call_kernel(run, self._kind, *functions, *arguments, state)
            self.system.nfev += int(state[EVALUATIONS])
        else:
            for _ in call_kernel(steps, self._kind, *arguments, state):
                point[1] = self.system(tau, point[0])
        return int(state[STATUS])

    def take(
        self, stepper: Any, trial: arithmetic.Trial, step: float, end: float, degree: int
    ) -> tuple[Array, Array, Array, Array, float, float]:
        """Propagate the error, and add the step to the memory; see :meth:`NumpyArithmetic.take`."""
        system, memory, inverse = self.system, stepper.memories[0], stepper.corrector.inverse
        tables = memory.tables(step)
        states = memory.trimmed(tables)
        n, dtype = system.size, system.dtype
        defect = min(degree + 1, len(trial.values) - 1)
        errors, found, equation = np.empty((2, n), dtype), np.empty(n + 2), np.empty((2, n), dtype)
        both, new = np.empty((defect + 1, 2 * n), dtype), np.empty_like(states)
        self._reals[4:6] = stepper.tau / end, arithmetic.RESOLVED * stepper.share
        arguments = (
            *(self._reals, self._sizes, trial.y, self._rules, self._table, trial.inherited),
            *(stepper.moved, stepper.largest, self._nothing if inverse is None else inverse),
            *(states, tables.decay, tables.moments, stepper.atol, errors, found, both, new, equation),
        )
        if self._fun is None or self._run(take, run_take, end, arguments, equation):
            self._state.fill(0)
            for _ in call_kernel(take, self._kind, *arguments, self._state):
                try:
                    equation[1] = system(end, equation[0])
                except NotFiniteError:
                    self._state[STATUS] = 2
        memory.replace(new, step, both)
        return errors[0], errors[1], both[: degree + 1, :n], found[:n], float(found[n]), float(found[n + 1])

    def _leave(self, why: str) -> None:
        self._fun = None
        self._abandon(why)
