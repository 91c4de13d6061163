"""Steps within one block, compiled.

Each scheme is a generator: it writes the state at which it needs the right-hand side to a row of ``points``, yields the
time, and finds the result in ``value`` when it resumes. It cycles through the rows. A right-hand side in Python is
evaluated by an ordinary loop over the generator. :func:`with_functions` makes from the same text the steps with a
compiled right-hand side, given by reference (see ``references``); driving a generator from compiled code takes 1.5 to 2
times as long. Implicit steps are in ``implicit_kernels``.

``state`` is an array of integers that both sides use: see the names below.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import numba
import numpy as np

__all__ = [
    "EVALUATIONS",
    "ITERATIONS",
    "JACOBIAN",
    "JACOBIANS",
    "KNOWN",
    "REQUEST",
    "STATE_SIZE",
    "STUCK",
    "call",
    "compile_kernel",
    "corrected",
    "fold",
    "inline",
    "run_corrected",
    "with_functions",
]

#: Indices in ``state``: number of known points, the generator's request (0 for the right-hand side, or one of the next
#: two), and counters.
KNOWN, REQUEST, EVALUATIONS, ITERATIONS, JACOBIANS = range(5)
STATE_SIZE = 5
JACOBIAN, STUCK = 1, 2

# Sums may be reordered and use fused products; NaN and infinity keep their meaning.
compile_kernel = numba.njit(cache=True, fastmath={"reassoc", "contract"})
# Parts of a step are inlined: a call would count references to each of its arrays.
inline = numba.njit(inline="always")


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


@compile_kernel
def call(fun: Any, t: float, y: Any, out: Any, parameters: Any) -> None:
    """One evaluation."""
    fun.evaluate(t, y, out, parameters)


@compile_kernel
def _is_finite(values: Any) -> bool:
    for value in values:  # noqa: SIM110 - compiled
        if not np.isfinite(value):
            return False
    return True


@compile_kernel
def fold(sums: Any, past: Any, which: Any, f: Any, k: int, row: int, begin: int, n: int) -> Any:
    """``S_k[n]`` of a row: its known part, plus the values since the start of the block."""
    total = sums[k, row, n]
    # Slices: if an index might be negative, the loop is not vectorised and takes three times as long.
    weights, seen = past[k, which[row], past.shape[2] - (n - begin) :], f[row, begin:n]
    for j in range(len(seen)):
        total += weights[j] * seen[j]
    return total


@compile_kernel
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


@inline
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
        if corrections:
            _fold_both(sums, past, which, f, begin, n, point, partial)
        else:
            for row in range(rows):
                y[row, n] = point[row] = fold(sums, past, which, f, 0, row, begin, n)
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
    "fun.evaluate(t, point, value, parameters)\nif not _is_finite(value):\n    return",
)
