"""Time stepping of linear equations of tensors in their eigenfunctions, many steps of L1 or L2-1sigma at a time.

With PyTorch the steps of a block are a few in-place operations, each of which reads its operands once. With JAX a
block is one compiled function, a scan over its steps. ``marching.py`` does the same with Numba.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, tracks_gradient
from hpfracc._xp import NUMPY
from hpfracc.history.blocks import steps_together
from hpfracc.history.interval_states import ExponentialHistory
from hpfracc.history.intervals import IntervalWeights
from hpfracc.solvers.pde.forms import FrameBlock, ModalForm
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["can_march_tensors", "march_tensors"]

Array = np.ndarray[Any, Any]


def can_march_tensors(problem: EvolutionProblem, form: Any, memory: str) -> bool:
    """Whether blocks of steps can be used: real eigenvalues; JAX with exponentials, PyTorch with direct sums.

    With PyTorch, gradients need the ordinary steps, which also update exponentials in place.
    """
    xp = problem.xp
    if not isinstance(form, ModalForm) or xp.is_complex(form.symbol):
        return False
    if xp.library == "jax":
        return memory == "exponentials"
    given = (problem.u0, form.symbol, *(one for pair in problem.orders for one in pair))
    free = not any(tracks_gradient(one) for one in given)
    return xp.library == "torch" and memory == "direct" and free and not problem.varies


class _Rows:
    """States as rows of real numbers: real and imaginary parts one after the other (JAX) or interleaved (PyTorch)."""

    def __init__(self, problem: EvolutionProblem, form: ModalForm) -> None:
        self.xp, self.form = problem.xp, form
        start = form.encode(problem.u0)
        self.shape, self.complex = tuple(start.shape), problem.xp.is_complex(start)
        symbol = (form.symbol + problem.xp.zeros(self.shape, "float64")).reshape(-1)
        if self.complex:
            two = (symbol, symbol)
            torch = problem.xp.library == "torch"
            symbol = problem.xp.stack(two, 1).reshape(-1) if torch else problem.xp.concatenate(two)
        self.symbol, self.start = symbol, self.flat(start)

    def flat(self, c: Any) -> Any:
        """One row."""
        c = c + self.xp.zeros(self.shape, "float64") if tuple(c.shape) != self.shape else c
        if not self.complex:
            return c.reshape(-1)
        if self.xp.library == "torch":
            whole = c if c.is_complex() else self.xp.complex(c, self.xp.zeros_like(c))
            return self.xp.module.view_as_real(whole).reshape(-1)
        return self.xp.concatenate([c.real.reshape(-1), c.imag.reshape(-1)])

    def block(self, rows: Any) -> FrameBlock:
        """The values of a block of steps."""

        def make() -> Any:
            count = rows.shape[0]
            if not self.complex:
                states = rows.reshape(count, *self.shape)
            elif self.xp.library == "torch":
                states = self.xp.module.view_as_complex(rows.reshape(count, *self.shape, 2))
            else:
                half = rows.shape[1] // 2
                states = self.xp.complex(rows[:, :half], rows[:, half:]).reshape(count, *self.shape)
            return self.form.decode(states)

        return FrameBlock(int(rows.shape[0]), make)


def march_tensors(
    problem: EvolutionProblem,
    form: ModalForm,
    weights: IntervalWeights,
    mesh: Array,
    history: ExponentialHistory | None,
) -> Iterator[FrameBlock]:
    """Make all steps: with PyTorch by direct sums, with JAX by the exponentials of ``history``."""
    rows = _Rows(problem, form)
    plain = all(isinstance(number, int | float) for pair in problem.orders for number in pair)
    if plain:
        given = weights.orders, weights.mesh, float(weights.sigma)
        weights = IntervalWeights(*given, parabola=weights.parabola, xp=NUMPY, breaks=weights.breaks)
    if problem.xp.library == "torch":
        return _march_torch(rows, weights, mesh, problem)
    assert history is not None
    return _march_jax(rows, weights, mesh, problem, history)


def _march_torch(rows: _Rows, weights: IntervalWeights, mesh: Array, problem: EvolutionProblem) -> Iterator[FrameBlock]:
    """``change = (lambda u + known - history) / ((shift - lambda) sigma)``, computed in place."""
    torch, u, symbol = rows.xp.module, rows.start, rows.symbol
    steps, sigma, width = len(mesh) - 1, float(weights.sigma), u.numel()
    block = steps_together(8 * width, steps)
    past = u.new_empty((steps, width))
    known = rows.form.known(problem.t0)
    steady = None if known is None else rows.flat(known)
    divisor: tuple[float, Any] = (math.nan, None)
    for first in range(1, steps + 1, block):
        stop = min(first + block, steps + 1)
        table = np.asarray(weights.rows(first, stop))
        given = rows.xp.array(table)
        before = first - 1
        far = given[:, :before] @ past[:before] if before else u.new_zeros((stop - first, width))
        frames = u.new_empty((stop - first, width))
        for place in range(stop - first):
            n = first + place
            total = far[place]
            if n - 1 > before:
                total.addmv_(past[before : n - 1].T, given[place, before : n - 1])
            total.addcmul_(symbol, u, value=-1.0)
            if steady is not None:
                total.sub_(steady)
            shift = float(table[place, n - 1]) / sigma
            if shift != divisor[0]:
                divisor = (shift, (symbol - shift).mul_(sigma))
            torch.div(total, divisor[1], out=past[n - 1])
            u = torch.add(u, past[n - 1], out=frames[place])
        yield rows.block(frames)


def _known_rows(rows: _Rows, problem: EvolutionProblem, weights: IntervalWeights, ns: range, padded: int) -> Any:
    """Source and boundary data at the evaluation times of some steps; one row if constant, None if absent."""
    if not problem.forced:
        return None
    xp = rows.xp
    if not problem.varies:
        found = rows.form.known(problem.t0)
        return None if found is None else rows.flat(found)[None]
    found = [rows.flat(rows.form.known(problem.t0 + weights.place(n))) for n in ns]
    found += [xp.zeros_like(found[0])] * (padded - len(found))
    return xp.stack(found)


def _march_jax(
    rows: _Rows, weights: IntervalWeights, mesh: Array, problem: EvolutionProblem, history: ExponentialHistory
) -> Iterator[FrameBlock]:
    """The states of the exponentials are carried from block to block."""
    xp, u, sigma = rows.xp, rows.start, weights.sigma
    steps, parabola = len(mesh) - 1, weights.parabola
    block = steps_together(8 * int(u.size), steps)
    zero = xp.zeros_like(u)
    states = xp.zeros((len(history.rates), int(u.size)), "float64")
    carried = (u, zero, zero, states)
    for first in range(1, steps + 1, block):
        stop = min(first + block, steps + 1)
        tables = _exponential_tables(history, steps, range(first, stop), block, parabola=parabola)
        known = _known_rows(rows, problem, weights, range(first, stop), block)
        carried, frames = _called(*carried, tables, xp.array(sigma), rows.symbol, known)
        yield rows.block(frames[: stop - first] if stop - first < block else frames)


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
