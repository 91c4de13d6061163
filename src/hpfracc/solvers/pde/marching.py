"""Compiled time stepping of linear equations: blocks of steps of L1 and L2-1sigma in the eigenfunctions.

By Numba for NumPy, and by JAX for its own arrays.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer
from hpfracc.engine.selection.rent_or_buy import KernelPrice
from hpfracc.history.blocks import steps_together
from hpfracc.history.interval_states import ExponentialHistory
from hpfracc.history.intervals import IntervalWeights
from hpfracc.solvers.pde.problem import EvolutionProblem, FrameBlock, StepForm

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


def can_march(problem: EvolutionProblem, form: StepForm) -> bool:
    """Whether the equation is diagonal with real eigenvalues, so that each mode can be stepped independently."""
    symbol = problem.space.symbol
    plain = all(isinstance(alpha, int | float) and isinstance(c, int | float) for c, alpha in problem.orders)
    return (
        problem.xp.library == "numpy"
        and form.modal
        and not problem.features
        and isinstance(symbol, np.ndarray)
        and symbol.dtype.kind == "f"
        and plain
    )


def can_scan(problem: EvolutionProblem, form: StepForm) -> bool:
    """Whether JAX can scan over the steps of each mode: a diagonal equation with real eigenvalues."""
    modal = problem.xp.library == "jax" and form.modal and not problem.features
    return modal and not problem.xp.is_complex(form.symbol)


class _Flat:
    """States as rows of real numbers, with real and imaginary parts interleaved."""

    def __init__(self, problem: EvolutionProblem, form: StepForm) -> None:
        self.form, self.problem = form, problem
        start = form.encode(problem.u0)
        self.shape, self.complex = start.shape, start.dtype.kind == "c"
        symbol = np.broadcast_to(problem.space.symbol, start.shape).reshape(-1)
        self.symbol = np.ascontiguousarray(np.repeat(symbol, 2) if self.complex else symbol, dtype=np.float64)
        self.u = self.flat(start).copy()

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
        rows = out.view(np.complex128) if self.complex else out
        return FrameBlock(len(out), lambda: self.form.decode(rows.reshape(-1, *self.shape)))


def march(
    problem: EvolutionProblem,
    form: StepForm,
    weights: IntervalWeights,
    mesh: Array,
    history: ExponentialHistory | None,
) -> Iterator[FrameBlock]:
    """Make all steps, with direct sums if ``history`` is None.

    Within a block, steps see each other through their own weights. Earlier steps enter for the whole block at once, as
    a matrix product: of weights and increments, or of the exponentials and their states, which are updated once per
    block.
    """
    march_block = MARCHING.time_first(importlib.import_module("hpfracc.solvers.pde.compiled.marching").march_block)
    flat = _Flat(problem, form)
    times = mesh[:-1] + float(weights.sigma) * np.diff(mesh)
    steps, modes = len(times), flat.u.size
    block = steps_together(flat.u.nbytes, steps)
    lead = 1 if history is not None and weights.parabola else 0
    past = np.zeros((lead + (block if history is not None else steps), modes))
    states = np.zeros((0 if history is None else len(history.rates), modes))
    out = np.empty((block, modes))
    for first in range(1, steps + 1, block):
        stop = min(first + block, steps + 1)
        rows: Array = weights.rows(first, stop, 0 if history is None else max(0, first - 1 - lead))
        if lead and first == 1:  # no increment precedes the first
            rows = np.pad(rows, ((0, 0), (1, 0)))
        count = stop - first
        if history is None:
            far = rows[:, : first - 1] @ past[: first - 1]  # zeros for the first block
            rows, near = np.ascontiguousarray(rows[:, first - 1 :]), past[first - 1 : stop - 1]
        else:
            decay, taken, read = history.block(first, stop)
            states = states[: len(decay)]
            far, near = read @ states, past[: lead + count]
        known = flat.known(times[first - 1 : stop - 1])
        march_block(rows, far, near, flat.symbol, known, float(weights.sigma), flat.u, out[:count])
        if history is not None and stop <= steps:
            states *= decay[:, None]
            states += taken @ near
            past[:lead] = near[count:]
        yield flat.block(out[:count])


# -- JAX: a block is one compiled function, a scan over its steps -----------------------------------------------------


def march_jax(
    problem: EvolutionProblem, form: StepForm, weights: IntervalWeights, mesh: Array, history: ExponentialHistory
) -> Iterator[FrameBlock]:
    """Make all steps; the states of the exponentials are carried from block to block."""
    xp, start = problem.xp, form.encode(problem.u0)
    shape, steps = tuple(start.shape), len(mesh) - 1
    zero = xp.zeros_like(start).reshape(-1)
    symbol, u = (form.symbol + xp.zeros(shape, "float64")).reshape(-1), start.reshape(-1)
    block = steps_together(8 * int(u.size), steps)
    carried = (u, zero, zero, xp.zeros((len(history.rates), 1), "float64") * zero)
    for first in range(1, steps + 1, block):
        stop = min(first + block, steps + 1)
        tables = _exponential_tables(history, steps, range(first, stop), block, parabola=weights.parabola)
        known = None
        if problem.forced:
            times = [problem.t0 + weights.place(n) for n in (range(first, stop) if problem.varies else (1,))]
            rows = [(form.known(t) + xp.zeros(shape, "float64")).reshape(-1) for t in times]
            # All blocks have one shape, so that one function serves them.
            known = xp.stack(rows + [zero] * (block - len(rows) if problem.varies else 0))
        carried, frames = _called(*carried, tables, xp.array(weights.sigma), symbol, known)
        yield _block_of(form, frames[: stop - first], shape)


def _block_of(form: StepForm, rows: Any, shape: tuple[int, ...]) -> FrameBlock:
    return FrameBlock(int(rows.shape[0]), lambda: form.decode(rows.reshape(-1, *shape)))


def _exponential_tables(
    history: ExponentialHistory, steps: int, ns: range, block: int, *, parabola: bool
) -> tuple[Any, ...]:
    """For each of ``block`` steps: the weights of the newest increments, and the factors that update the states."""
    xp, terms = history.xp, len(history.rates)
    own, before = history.newest
    places = np.minimum(np.arange(ns.start - 1, ns.start - 1 + block), steps - 1)
    owns = own[places]
    befores = before[places] if parabola else xp.zeros((block,), "float64")
    # The states are not updated after the first step of a parabola, nor after the very last step.
    moving = np.array([n for n in ns if (2 if parabola else 1) <= n < steps], dtype=int)
    if not len(moving):
        empty = xp.zeros((block, terms), "float64")
        return owns, befores, empty + 1.0, empty, empty, empty
    decay, p, q, g = (None if one is None else xp.array(one) for one in history.tables(moving))
    if not parabola:
        p, q = None, p  # only the newest increment enters
    lead, rest = int(moving[0]) - ns.start, block - len(moving) - (int(moving[0]) - ns.start)
    found = []
    for one, empty in ((decay, 1.0), (p, 0.0), (q, 0.0), (g, 0.0)):
        part = xp.zeros((len(moving), terms), "float64") if one is None else one
        ends = [xp.zeros((size, terms), "float64") + empty for size in (lead, rest)]
        found.append(xp.concatenate([ends[0], part, ends[1]]))
    return owns, befores, *found


def _called(*args: Any) -> Any:
    """Run a block; its buffers are donated unless gradients may need them."""
    leaves = sys.modules["jax"].tree_util.tree_leaves(args)
    return _compiled(over=not any(is_tracer(one) for one in leaves))(*args)


@functools.cache
def _compiled(*, over: bool) -> Any:
    """The function of a block, compiled by JAX once per shape and process."""
    return sys.modules["jax"].jit(_exponential_block, donate_argnums=(3,) if over else ())


def _exponential_block(
    u: Any, last: Any, pending: Any, states: Any, tables: tuple[Any, ...], sigma: Any, symbol: Any, known: Any
) -> tuple[tuple[Any, ...], Any]:
    jax = sys.modules["jax"]
    block = tables[0].shape[0]
    data = known if known is not None and known.shape[0] == block and block > 1 else None

    def step(carried: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        u, last, pending, states = carried
        (own, before, decay, p, q, g), data = given
        total = pending + before * last - symbol * u
        if data is not None:
            total = total - data
        elif known is not None:
            total = total - known[0]
        change = total / ((symbol - own / sigma) * sigma)
        u = u + change
        states = decay[:, None] * states + p[:, None] * last + q[:, None] * change
        return (u, change, g @ states, states), u

    carried, frames = jax.lax.scan(step, (u, last, pending, states), (tables, data))
    return carried, frames
