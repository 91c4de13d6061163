r"""One kernel: each thread solves trajectories from the first step to the last.

The functions below are templates. :func:`build_kernel` compiles them with their upper-case names, ``cuda`` and
``evaluate`` bound, so that sizes and precision are constants. Most arrays have the member, or the thread, as their
last axis: neighbouring threads then read neighbouring numbers.

The source of the right-hand side is the one that the host compiles too. The steps differ: the host advances all rows by
a block of steps, whose past it adds by FFT, and a thread advances only its own trajectory.

The memory of a trajectory is one of two kinds:

- direct: all values of the right-hand side, ``memory[row, j, slot]``, summed again at each step;
- exponentials: for weights that are a sum of exponentials from two steps on, the states
  ``X_k[n] = a_k X_k[n-1] + f[n-2]`` in ``memory[row, k, slot]``; the newest value is weighted as it is.

From two steps on the weights of the product rules are integrals of :math:`t^{\alpha-1}/\Gamma(\alpha)`, where that is a
sum :math:`\sum_k c_k e^{-s_k t}` for orders up to 1. With :math:`z = s_k h` and :math:`m = (1 - e^{-z})/z` a term adds

.. math:: c_k h m \, e^{-z (j-1)} \quad\text{and}\quad c_k h m^2 e^{-z (j-1)}

to the weights of the product rectangle and the product trapezoid for a value that lies j steps back.
"""

from __future__ import annotations

import functools
import io
import math
import tokenize
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import factorial, rgamma

from hpfracc._xp import NUMPY
from hpfracc.history.exponentials import MIN_TOLERANCE, exponential_sum
from hpfracc.solvers.ode.compiled.functions import MATHEMATICS, function_lines
from hpfracc.solvers.ode.fixed.grid import UniformGrid

Array = np.ndarray[Any, Any]

#: Threads of a block; not tuned.
THREADS = 64
#: Relative error of weights as sums of exponentials: in double precision that of the library's most accurate sums.
_TOLERANCES = {"float64": MIN_TOLERANCE, "float32": 1e-8}
#: Minimum number of steps per term for which sums of exponentials are used. On an H200 both took the same time at
#: about 60 steps with 28 terms (benchmarks/ensemble_kernel.py prints them over the number of steps).
_STEPS_PER_TERM = 2.25

# Bound when a kernel is built.
cuda: Any = None
evaluate: Any = None
recall: Any = None
SIZE, CORRECTIONS, EXPONENTIALS = 1, 0, False
REAL, INDEX, NAN, SHIFT = np.float64, np.uint64, math.nan, 2.0**52


def _recall(
    memory: Any, weights: Any, decays: Any, gains: Any, value: Any, older: Any, row: int, n: int, slot: int
) -> Any:
    """The contribution of the past to step n, with the weights of the predictor and with those of the corrector.

    Indices are unsigned: for signed ones Numba checks the sign at each access, which costs more than the sum itself.
    """
    one, two = REAL(0.0), REAL(0.0)
    r, s = INDEX(row), INDEX(slot)
    last = INDEX(weights.shape[2]) - INDEX(1)
    k = INDEX(0)
    if EXPONENTIALS:
        one = weights[INDEX(0), r, last - INDEX(1)] * value[r]
        if CORRECTIONS > 0:
            two = weights[INDEX(1), r, last - INDEX(1)] * value[r]
        stop = INDEX(decays.shape[1]) if n > 1 else INDEX(0)
        added = older[r]
        while k < stop:
            state = decays[r, k] * memory[r, k, s] + added
            memory[r, k, s] = state
            one += gains[INDEX(0), r, k] * state
            if CORRECTIONS > 0:
                two += gains[INDEX(1), r, k] * state
            k += INDEX(1)
    else:
        stop = INDEX(n)
        shift = last - stop
        while k < stop:
            seen = memory[r, k, s]
            one += weights[INDEX(0), r, shift + k] * seen
            if CORRECTIONS > 0:
                two += weights[INDEX(1), r, shift + k] * seen
            k += INDEX(1)
    return one, two


def _solve(
    count: int, times: Any, powers: Any, initial: Any, p: Any, shared: Any, own: Any, weights: Any, first: Any,
    decays: Any, gains: Any, memory: Any, places: Any, kept: Any, head: Any, bad: Any,
) -> None:  # fmt: skip
    """All trajectories, in a grid-stride loop.

    ``initial[k, i, row]`` times ``powers[k, n]`` are the terms of the initial data. ``places[n]`` is the index in
    ``kept`` for step n, or -1. ``head`` receives the first values of the right-hand side, for as many members as it has
    room for, and ``bad[i]`` the first step that is not finite, or -1.
    """
    slot = cuda.grid(1)
    point, partial = cuda.local.array(SIZE, REAL), cuda.local.array(SIZE, REAL)
    value, older, begun = cuda.local.array(SIZE, REAL), cuda.local.array(SIZE, REAL), cuda.local.array(SIZE, REAL)
    steps = times.shape[0]
    for i in range(slot, count, cuda.gridsize(1)):
        bad[i] = -1
        for row in range(SIZE):
            older[row] = REAL(0.0)
            value[row] = REAL(0.0)
            begun[row] = REAL(0.0)
            if EXPONENTIALS:
                for k in range(decays.shape[1]):
                    memory[row, k, slot] = REAL(0.0)
        for n in range(steps):
            for row in range(SIZE):
                start = initial[0, i, row]
                for k in range(1, initial.shape[0]):
                    start += initial[k, i, row] * powers[k, n]
                point[row] = start
                partial[row] = start
                if n > 0:
                    one, two = recall(memory, weights, decays, gains, value, older, row, n, slot)
                    point[row] = start + one
                    if CORRECTIONS > 0:
                        partial[row] = start + first[row, n] * begun[row] + two
            for row in range(SIZE):
                older[row] = value[row]
            evaluate(times[n], point, value, p, shared, own, i)
            if n > 0:
                for _ in range(CORRECTIONS):
                    for row in range(SIZE):
                        point[row] = partial[row] + weights[-1, row, weights.shape[2] - 1] * value[row]
                    evaluate(times[n], point, value, p, shared, own, i)
            finite = True
            for row in range(SIZE):
                finite = finite and math.isfinite(point[row]) and math.isfinite(value[row])
            if not finite:
                bad[i] = n
                break
            for row in range(SIZE):
                if places[n] >= 0:
                    kept[places[n], row, i] = point[row]
                if n < head.shape[0] and i < head.shape[2]:
                    head[n, row, i] = value[row]
                if n == 0:
                    begun[row] = value[row]
                if not EXPONENTIALS:
                    memory[row, n, slot] = value[row]
        if bad[i] >= 0:
            for n in range(bad[i], steps):
                for row in range(SIZE):
                    if places[n] >= 0:
                        kept[places[n], row, i] = NAN
                    if n < head.shape[0] and i < head.shape[2]:
                        head[n, row, i] = NAN


def _rint(x: Any) -> Any:
    """Round to the nearest integer, halves to even. From ``SHIFT`` on all numbers are integers."""
    size = abs(x)
    return math.copysign((size + SHIFT) - SHIFT, x) if size < SHIFT else x


@functools.lru_cache(maxsize=64)
def build_kernel(module: Any, source: str, size: int, corrections: int, exponentials: bool, dtype: str) -> Any:
    """The kernel for the right-hand side ``source`` of a member; Numba compiles it at the first launch."""
    real = np.dtype(dtype).type
    nan, shift = real(math.nan), real(2.0 ** (52 if real is np.float64 else 23))
    scope: dict[str, Any] = {
        **MATHEMATICS,
        **{name: getattr(math, name) for name in ("fmod", "floor", "ceil", "trunc")},
        **{"math": math, "abs": abs, "range": range, "cuda": module, "nan": nan, "inf": real(math.inf)},
        "SIZE": size,
        "CORRECTIONS": corrections,
        "EXPONENTIALS": exponentials,
        "REAL": real,
        "INDEX": np.uint64,
        "NAN": nan,
        "SHIFT": shift,
    }
    device = module.jit(device=True)
    scope["rint"] = device(_bind(_rint, scope))
    body = function_lines(source, ("for n in range(SIZE):", "    out[n] = nan", "return"))
    text = "\n".join(["def evaluate(t, y, out, p, shared, own, i):", *body])
    if real is not np.float64:
        text = _rounded(text)
    exec(compile(text, "<hpfracc right-hand side>", "exec"), scope)
    scope["evaluate"] = device(scope["evaluate"])
    scope["recall"] = device(_bind(_recall, scope))
    return module.jit(_bind(_solve, scope))


def _bind(template: Any, scope: dict[str, Any]) -> FunctionType:
    return FunctionType(template.__code__, scope, template.__name__)


def _rounded(text: str) -> str:
    """Convert float literals to the kernel's precision: a double would promote all that follows."""
    tokens = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_float = token.type == tokenize.NUMBER and not token.string.isdigit()
        tokens.append((token.type, f"REAL({token.string})" if is_float else token.string))
    return tokenize.untokenize(tokens)


# -- tables that all trajectories share -------------------------------------------------------------------------------


class StepTables(NamedTuple):
    """Tables that the kernel reads, for each component of the state.

    Attributes
    ----------
    times : array, shape (N + 1,)
        Times of the steps.
    powers : array, shape (C, N + 1)
        ``(t - t0)^k / k!``, for the initial data.
    weights : array, shape (K, d, N + 1), or (K, d, 2) for exponentials
        Weights of the method, that of the newest value last.
    first : array, shape (d, N + 1)
        Additional weight of the value at t0 in the corrector; of shape (1, 1) without one.
    decays, gains : array, shapes (d, Q) and (K, d, Q)
        Factors per step, and weights of the states; Q is 0 for direct sums.
    """

    times: Array
    powers: Array
    weights: Array
    first: Array
    decays: Array
    gains: Array

    @property
    def terms(self) -> int:
        """Number of exponentials; 0 for direct sums."""
        return int(self.decays.shape[1])

    @property
    def depth(self) -> int:
        """Stored numbers per component."""
        return self.terms or len(self.times)


def make_tables(orders: Array, grid: UniformGrid, rule: Any, ceiling: int, dtype: str) -> StepTables:
    """The tables for components of these orders, computed in double precision."""
    scale = grid.step ** orders[:, None]
    made = [rule.weights(NUMPY, float(alpha), grid.count) for alpha in orders]
    weights = np.array([each for each, _ in made]).transpose(1, 0, 2) * scale
    first = np.array([each for _, each in made]) * scale if rule.corrections else np.zeros((1, 1))
    k = np.arange(ceiling)[:, None]
    powers = grid.elapsed() ** k / factorial(k)
    decays, gains = np.zeros((len(orders), 0)), np.zeros((*weights.shape[:2], 0))
    if float(np.max(orders)) <= 1.0:
        found = _exponentials(orders, grid, len(weights), _TOLERANCES[dtype])
        if grid.steps > _STEPS_PER_TERM * found[0].shape[1]:
            (decays, gains), weights = found, weights[:, :, :2]
    times = np.concatenate([[grid.t0], grid.t0 + grid.elapsed(1)])
    return StepTables(times, powers, weights[:, :, ::-1], first, decays, gains)


def _exponentials(orders: Array, grid: UniformGrid, kinds: int, rtol: float) -> tuple[Array, Array]:
    """Decays and gains of all components; those with fewer terms are padded with zeros."""
    columns = []
    for alpha in orders.tolist():
        rates, amounts = np.zeros(1), np.full(1, grid.step)  # for order 1
        if alpha < 1.0:
            # The trapezoid's weight of the oldest value reaches one step beyond the interval.
            found = exponential_sum(1.0 - alpha, 1.0, grid.steps + 1.0, rtol)
            rates, amounts = found.rates, found.weights * (rgamma(alpha) * grid.step**alpha)
        mean = np.ones(len(rates))
        np.divide(-np.expm1(-rates), rates, out=mean, where=rates > 0.0)
        decay = np.exp(-rates)
        columns.append([decay, *(amounts * decay * mean ** (kind + 1) for kind in range(kinds))])
    most = max(len(each[0]) for each in columns)
    padded = np.array([[np.pad(row, (0, most - len(row))) for row in each] for each in columns])
    return padded[:, 0], np.ascontiguousarray(padded[:, 1:].swapaxes(0, 1))
