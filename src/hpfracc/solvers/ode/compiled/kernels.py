"""Steps within one block, compiled.

Each scheme is a generator: it writes the state at which it needs the right-hand side to a row of ``points``, yields the
time, and finds the result in ``value`` when it resumes. It cycles through the rows. A right-hand side in Python is
evaluated by an ordinary loop over the generator. :func:`with_functions` makes from the same text the steps with a
compiled right-hand side, given by reference; driving a generator from compiled code takes 1.5 to 2
times as long. Implicit steps use Newton's method with a matrix that is kept while it converges quickly.

``state`` is an array of integers that both sides use: see the names below.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from operator import attrgetter
from typing import Any

import numba
import numpy as np
from numba import types
from numba.experimental import structref

from hpfracc.solvers.stepping.newton import DIGITS, KEPT_ITERATIONS, MIN_RATE, REMEASURE, SMALL_CHANGE

#: Indices in ``state``: number of known points, the generator's request (0 for the right-hand side, or one of the next
#: two), and counters.
KNOWN, REQUEST, EVALUATIONS, ITERATIONS, JACOBIANS = range(5)
STATE_SIZE = 5
JACOBIAN, STUCK = 1, 2

# Sums may be reordered and use fused products; NaN and infinity keep their meaning.
compile_kernel = numba.njit(cache=True, fastmath={"reassoc", "contract"})
# Parts of a step are inlined: a call would count references to each of its arrays.
_inline = numba.njit(inline="always")


class _Calls(ast.NodeTransformer):
    """Replaces each ``yield`` by other statements."""

    def __init__(self, statements: str) -> None:
        self._statements = statements

    def visit_Expr(self, node: ast.Expr) -> Any:
        """The statements, at the place of a ``yield``."""
        if not isinstance(node.value, ast.Yield):
            return node
        return [ast.fix_missing_locations(ast.copy_location(each, node)) for each in ast.parse(self._statements).body]


def with_functions(steps: Any, functions: str, evaluate: str) -> Any:
    """The kernel ``run_...`` with the text of the generator ``steps``, where ``evaluate`` stands for each ``yield``.

    It takes ``functions`` before the arguments of the generator. Its place is that of the generator, so that Numba
    keeps it in its cache.
    """
    text = steps.py_func
    tree = ast.parse(textwrap.dedent(inspect.getsource(text)))
    ast.increment_lineno(tree, text.__code__.co_firstlineno - 1)
    (function,) = _Calls(evaluate).visit(tree).body
    function.decorator_list, function.name = [], f"run_{text.__name__}"
    function.args.args = [*(ast.arg(name.strip()) for name in functions.split(",")), *function.args.args]
    for each in function.args.args:
        each.annotation = None
    scope: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), text.__code__.co_filename, "exec"), text.__globals__, scope)
    return compile_kernel(scope[function.name])


# A kernel takes a function as a value, so that it is compiled and kept on disk once for all functions. Numba has
# function types for that, but unboxes them in Python code at each call of a kernel, in which an interrupt becomes
# another error. So a function is unboxed once, into a structure that kernels take by reference. In
# ``benchmarks/compiled_calls.py``, whole solves take 1 to 7 % longer than if the function is called by its address with
# addresses of arrays; unboxed at each call of a kernel, they take 25 to 69 % longer.
#
# Kernels on disk name this class: once it has another name or place, Numba raises an error when it reads them.
@structref.register
class _FunctionReferenceType(types.StructRef):
    """Numba's type of :class:`FunctionReference`."""


class FunctionReference(structref.StructRefProxy):
    """A function compiled with ``numba.cfunc``, which kernels find in the field ``evaluate``."""

    __slots__ = ("function",)  # keeps the code alive
    # Like Numba's property, but not in Python code: an interrupt there is lost.
    _numba_type_ = property(attrgetter("_type"))


structref.define_proxy(FunctionReference, _FunctionReferenceType, ["evaluate"])


@compile_kernel
def _refer(function: Any) -> Any:
    return FunctionReference(function)


def refer(function: Any) -> FunctionReference:
    """A reference to a function compiled with ``numba.cfunc``."""
    found: FunctionReference = _refer(function)
    found.function = function
    return found


@compile_kernel
def call(fun: Any, t: float, y: Any, out: Any, parameters: Any) -> None:
    """One evaluation."""
    fun.evaluate(t, y, out, parameters)


@compile_kernel
def _fold(sums: Any, past: Any, which: Any, f: Any, k: int, row: int, begin: int, n: int) -> Any:
    """``S_k[n]`` of a row: its known part, plus the values since the start of the block."""
    total = sums[k, row, n]
    # Slices: if an index might be negative, the loop is not vectorised and takes three times as long.
    weights, seen = past[k, which[row], past.shape[2] - (n - begin) :], f[row, begin:n]
    for j in range(len(seen)):
        total += weights[j] * seen[j]
    return total


@_inline
def _next(points: Any, turn: int) -> Any:
    """The row of the next state, and its number."""
    following = turn + 1 if turn + 1 < len(points) else 0
    return points[following], following


@compile_kernel
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
    """``y_n = S_0[n]``, then ``y_n = S_1[n] + w_1[0] f(t_n, y_n)``, repeated; explicit without corrections."""
    t0, h = grid
    begin, first, stop = span
    y, f, sums = data
    past, now, which = rules
    partial = np.empty(len(value), y.dtype)
    rows, turn, point = len(value), 0, points[0]
    for n in range(first, stop):
        for row in range(rows):
            y[row, n] = point[row] = _fold(sums, past, which, f, 0, row, begin, n)
            if corrections:
                partial[row] = _fold(sums, past, which, f, 1, row, begin, n)
        t = t0 + n * h
        yield t
        point, turn = _next(points, turn)
        for _ in range(corrections):
            for row in range(rows):
                y[row, n] = point[row] = partial[row] + now[1, which[row]] * value[row]
            yield t
            point, turn = _next(points, turn)
        for row in range(rows):
            f[row, n] = value[row]
        state[KNOWN] = n + 1


run_corrected = with_functions(
    corrected,
    "fun, parameters",
    "fun.evaluate(t, point, value, parameters)\nif not np.isfinite(value).all():\n    return",
)


# -- implicit steps ---------------------------------------------------------------------------------------------------


@_inline
def multiply(matrix: Any, values: Any, out: Any) -> None:
    """``out = matrix @ values``."""
    for row in range(len(matrix)):
        out[row] = 0.0
        for i in range(len(values)):
            out[row] += matrix[row, i] * values[i]


@_inline
def _invert(matrix: Any, inverse: Any) -> bool:
    """The inverse by Gauss-Jordan elimination, in which the matrix is lost; returns whether it is regular."""
    d = len(matrix)
    inverse[:] = 0.0
    for i in range(d):
        inverse[i, i] = 1.0
    for i in range(d):
        best = i
        for row in range(i + 1, d):
            if abs(matrix[row, i]) > abs(matrix[best, i]):
                best = row
        pivot = matrix[best, i]
        if not abs(pivot) > 0.0:
            return False
        for column in range(d):
            # Row i last, which is also the other one if no rows are exchanged.
            matrix[best, column], matrix[i, column] = matrix[i, column], matrix[best, column] / pivot
            inverse[best, column], inverse[i, column] = inverse[i, column], inverse[best, column] / pivot
        for row in range(d):
            factor = matrix[row, i]
            if row != i:
                for column in range(d):
                    matrix[row, column] -= factor * matrix[i, column]
                    inverse[row, column] -= factor * inverse[i, column]
    return True


@_inline
def _move(guess: Any, i: int, point: Any) -> float:
    """Perturb component i of the guess for a finite difference; returns the perturbation."""
    size = 0.0
    for row in range(len(guess)):
        size = max(size, abs(guess[row]))
        point[row] = guess[row]
    least = 1e-3 * size if size > 0.0 else 1.0
    point[i] = guess[i] + 1.5e-8 * max(abs(guess[i]), least)
    return float(abs(point[i] - guess[i]))


@_inline
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
    tolerance: tuple[float, Any, float, int],
) -> Any:
    """``y_n = S_0[n] + w_0[0] f(t_n, y_n)`` by Newton's method with a matrix that is kept while it converges quickly.

    Like ``Newton.solve`` without its damping: if a step fails even with a new matrix, it ends with the request
    ``STUCK``. ``matrices`` are the Jacobian and the inverse; whether there is an inverse, the fewest iterations with
    it, how many more were taken since, and the number of steps since the rate of convergence was measured; and finally
    that rate. ``tolerance`` ends with the price of a Jacobian in evaluations.
    """
    t0, h = grid
    begin, first, stop = span
    # Unpacked once, because each access to a tuple counts references to its arrays.
    y, f, sums = data
    past, now, which = rules
    derivative, inverse, kept, rates = matrices
    rtol, atol, part, price = tolerance
    point, rows = points[0], len(value)
    known, guess, change, here = np.empty((4, rows), y.dtype)
    scale, matrix = np.empty(rows), np.empty_like(inverse)
    for n in range(first, stop):
        t = t0 + n * h
        # The known part, the guess, and the inverse of the error allowed in each component (see ``step_scale``).
        largest = 0.0
        for row in range(rows):
            known[row] = _fold(sums, past, which, f, 0, row, begin, n)
            guess[row] = y[row, n - 1]
            if not np.isfinite(guess[row]):  # a Riemann-Liouville solution may start at infinity
                guess[row] = known[row]
            y[row, n] = guess[row]
            if n > 3:  # see ``extrapolate``
                added = 2.0 * guess[row] - 3.0 * y[row, n - 2] + y[row, n - 3]
                if abs(added) <= SMALL_CHANGE * abs(guess[row]):
                    y[row, n] += added
            point[row] = y[row, n]
            scale[row] = max(abs(known[row]), abs(guess[row]))
            largest = max(largest, scale[row])
        for row in range(rows):
            wanted = part * (atol[row] + rtol * scale[row])
            scale[row] = 1.0 / (min(wanted, DIGITS * (largest if largest > 0.0 else 1.0)) + 1e-15 * largest + 1e-290)
        # A new matrix if there is none, or the existing one has cost as much as a new one would.
        verdict, turn, first_rate, renewed = 0, 0, 0.5, bool(kept[0] == 0 or kept[2] >= price)
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
                for row in range(rows):
                    for i in range(rows):
                        matrix[row, i] = -now[0, which[row]] * derivative[row, i]
                    matrix[row, row] += 1.0
                if not _invert(matrix, inverse):
                    verdict = 2
                    break
                kept[0], kept[1], kept[2], kept[3] = 1, KEPT_ITERATIONS, 0, 0
                rates[0] = np.inf
                _to_guess(y, n, guess, point)
            kept[3] += 1
            last, first_rate = np.inf, min(2.0 * rates[0], 0.5) if kept[3] <= REMEASURE else 0.5
            for count in range(KEPT_ITERATIONS):
                turn = count
                state[EVALUATIONS] += 1
                state[ITERATIONS] += 1
                yield t
                for row in range(rows):
                    here[row] = y[row, n] - known[row] - now[0, which[row]] * value[row]
                multiply(inverse, here, change)
                size = 0.0
                for row in range(rows):
                    y[row, n] -= change[row]
                    point[row] = y[row, n]
                    size += (abs(change[row]) * scale[row]) ** 2
                size = float(np.sqrt(size / rows))
                rate = size / last if turn > 0 else first_rate
                if turn == 1:
                    rates[0] = rate
                    kept[3] = 0
                if size * max(rate, MIN_RATE) <= 1.0:
                    verdict = 1
                elif not rate <= 0.9 or (turn > 1 and size * rate ** (KEPT_ITERATIONS - turn) > 1.0):
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
            kept[0] = 0
            state[REQUEST] = STUCK
            return
        if not renewed:
            kept[1] = min(kept[1], turn)
            if turn > 1 or first_rate < 0.5:  # otherwise the extra iteration only measured the rate
                kept[2] += turn - kept[1]
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
