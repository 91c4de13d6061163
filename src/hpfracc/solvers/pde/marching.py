"""Compiled time stepping of linear equations: blocks of steps of L1 and L2-1sigma in the eigenfunctions."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpfracc.engine.selection.kernels import KernelPrice
from hpfracc.history.blocks import steps_together
from hpfracc.history.interval_states import ExponentialHistory
from hpfracc.history.intervals import IntervalWeights
from hpfracc.solvers.pde.forms import FrameBlock, ModalForm
from hpfracc.solvers.pde.problem import EvolutionProblem
from hpfracc.solvers.pde.space.modes import BoxModes

__all__ = ["MARCHING", "can_march", "march"]

Array = np.ndarray[Any, Any]

#: The price of the compiled loop. Its seconds, without and with a copy in Numba's cache, are used until the first
#: measurement (two shared cores, Numba 0.68).
MARCHING = KernelPrice(
    family="pde marching",
    item="pde marching",
    cold=4.0,
    cached=0.4,
    source=Path(__file__).parent / "compiled" / "marching.py",
    function="march_block",
)


def can_march(problem: EvolutionProblem, form: Any) -> bool:
    """Whether the equation is diagonal with real eigenvalues, so that each mode can be stepped independently."""
    symbol = problem.space.symbol
    plain = all(isinstance(alpha, int | float) and isinstance(c, int | float) for c, alpha in problem.orders)
    return (
        problem.xp.library == "numpy"
        and isinstance(form, ModalForm)
        and isinstance(symbol, np.ndarray)
        and symbol.dtype.kind == "f"
        and plain
    )


class _Flat:
    """States as rows of real numbers, with real and imaginary parts interleaved."""

    def __init__(self, problem: EvolutionProblem, form: ModalForm) -> None:
        self.form, self.problem = form, problem
        start = form.encode(problem.u0)
        self.shape, self.complex = start.shape, start.dtype.kind == "c"
        symbol = np.broadcast_to(problem.space.symbol, start.shape).reshape(-1)
        self.symbol = np.ascontiguousarray(np.repeat(symbol, 2) if self.complex else symbol, dtype=np.float64)
        self.u = self.flat(start).copy()
        space = problem.space
        self.sines = isinstance(space, BoxModes) and space.sine_series and len(self.shape) == 1 and not self.complex

    def flat(self, c: Array) -> Array:
        line = np.ascontiguousarray(c).reshape(-1)
        return line.view(np.float64) if self.complex else line

    def known(self, times: Array) -> Array:
        """One row for each time; a single row if they are all equal, and none without source and boundary data."""
        if not self.problem.forced:
            return np.empty((0, self.u.size))
        problem, blank = self.problem, np.zeros(self.shape, complex if self.complex else float)
        if not problem.varies:
            return self.flat(self.form.known(float(times[0])) + blank)[None]
        # One transform for all of them.
        zero = np.zeros(problem.state_shape)
        found = self.form.encode(np.stack([problem.known(float(t)) + zero for t in times]))
        return self.flat(found + blank).reshape(len(times), -1)

    def block(self, out: Array) -> FrameBlock:
        """The values of a block of steps."""

        def make() -> Any:
            rows = out.view(np.complex128) if self.complex else out
            return self.form.decode(rows.reshape(-1, *self.shape))

        def fill(values: Array) -> None:
            importlib.import_module("hpfracc.solvers.pde.compiled.sines").sine_values(out, values)

        return FrameBlock(len(out), make, fill if self.sines else None)


def march(
    problem: EvolutionProblem,
    form: ModalForm,
    weights: IntervalWeights,
    mesh: Array,
    history: ExponentialHistory | None,
) -> Iterator[FrameBlock]:
    """Make all steps, with direct sums if ``history`` is None.

    Within a block, steps see each other through their own weights. Earlier steps enter for the whole block at once, as
    a matrix product: of weights and increments, or of the exponentials and their states, which are updated once per
    block.
    """
    kernels = importlib.import_module("hpfracc.solvers.pde.compiled.marching")
    new = not MARCHING.is_bought
    copy, started = new and MARCHING.find_copy(), time.perf_counter()
    flat = _Flat(problem, form)
    times = mesh[:-1] + float(weights.sigma) * np.diff(mesh)
    steps, modes = len(times), flat.u.size
    block = steps_together(flat.u.nbytes, steps)
    rows_of = _make_rows(kernels, weights, steps, block, whole=history is None)
    lead = 1 if history is not None and weights.parabola else 0
    past = np.zeros((lead + (block if history is not None else steps), modes))
    states = np.zeros((0 if history is None else len(history.rates), modes))
    out = np.empty((block, modes))
    for first in range(1, steps + 1, block):
        stop = min(first + block, steps + 1)
        rows = rows_of(first, stop)
        count = stop - first
        if history is None:
            far = rows[:, : first - 1] @ past[: first - 1]  # zeros for the first block
            rows, near = np.ascontiguousarray(rows[:, first - 1 :]), past[first - 1 : stop - 1]
        else:
            decay, taken, read = history.block(first, stop)
            states = states[: len(decay)]
            far, near = read @ states, past[: lead + count]
        known = flat.known(times[first - 1 : stop - 1])
        kernels.march_block(rows, far, near, flat.symbol, known, float(weights.sigma), flat.u, out[:count])
        if new and first == 1:
            MARCHING.buy(time.perf_counter() - started, copy=copy)
        if history is not None and stop <= steps:
            states *= decay[:, None]
            states += taken @ near
            past[:lead] = near[count:]
        yield flat.block(out[:count])


def _make_rows(
    kernels: Any, weights: IntervalWeights, steps: int, block: int, *, whole: bool
) -> Callable[[int, int], Array]:
    """``rows(first, stop)``: the weights of all increments, or of those not yet in the exponentials' states."""
    alphas = np.array([float(alpha) for _, alpha in weights.orders])
    coefficients = np.array([float(c) for c, _ in weights.orders])
    scales = np.array([0.0 if alpha == 1.0 else 1.0 / math.gamma(1.0 - alpha) for alpha in alphas])
    lengths, sigma = weights.steps, float(weights.sigma)
    pieces = bool(weights.breaks)
    given = (coefficients, alphas, scales, weights.mesh, sigma, weights.parabola, weights.following, pieces)

    def made(first: int, stop: int) -> Array:
        begin = 0 if whole else max(0, first - 1 - int(weights.parabola))
        ns, columns = np.arange(first, stop), np.arange(begin, stop - 1)
        # Powers are needed for completed intervals only; the newest interval touches the singularity.
        gap = weights.mesh[ns - 1][:, None] - weights.mesh[columns + 1]
        middles = np.maximum(gap, 0.0, out=gap)
        middles += (sigma * lengths[ns - 1])[:, None]
        middles += 0.5 * lengths[columns]
        logs = np.log(middles, out=middles)
        powers = np.empty((len(alphas), *logs.shape))
        for one, alpha, scale in zip(powers, alphas, scales, strict=True):
            np.multiply(logs, -alpha, out=one)
            np.exp(one, out=one)
            one *= scale
        found: Array = kernels.weight_rows(*given, first, stop, begin, powers)
        if not whole and weights.parabola and first == 1:
            found = np.pad(found, ((0, 0), (1, 0)))  # no increment precedes the first
        return found

    if weights.parabola or not weights.uniform:
        return made
    # The weights depend on the distance alone: every row is a shifted part of the last one.
    newest = made(steps, steps + 1)[0] if whole else made(1, block + 1)[-1]
    padded = np.concatenate([newest, np.zeros(block)])

    same: dict[int, Array] = {}  # rows within a block are the same for all blocks of equal length

    def shifted(first: int, stop: int) -> Array:
        if stop - first in same:
            return same[stop - first]
        columns, last = (stop - 1, len(newest) - first) if whole else (stop - first, len(newest) - 1)
        found = np.stack([padded[place : place + columns] for place in range(last, last - (stop - first), -1)])
        if not whole:
            same[stop - first] = found
        return found

    return shifted
