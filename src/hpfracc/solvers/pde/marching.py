"""Compiled marching of linear equations: blocks of steps of L1 and L2-1sigma in the eigenfunctions."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc.solvers.pde.forms import FrameBlock, ModalForm
from hpfracc.solvers.pde.history.exponentials import TABLE_STEPS, ExponentialHistory
from hpfracc.solvers.pde.history.weights import IntervalWeights
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["can_march", "march"]

Array = np.ndarray[Any, Any]

#: Steps of a block of the direct sums, whose part from earlier blocks is one product of matrices.
_BLOCK = 32


def can_march(problem: EvolutionProblem, form: Any) -> bool:
    """Whether the equation falls apart into real ones that do not depend on each other."""
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
    """States as rows of real numbers: the two parts of a complex one side by side."""

    def __init__(self, problem: EvolutionProblem, form: ModalForm) -> None:
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
        """One row for each time, one for all where they are alike, none where there is nothing."""
        if not self.problem.forced:
            return np.empty((0, self.u.size))
        wanted = times if self.problem.varies else times[:1]
        rows = []
        for t in wanted:
            found = self.form.known(float(t))
            rows.append(np.zeros_like(self.u) if found is None else self.flat(found + np.zeros(self.shape)))
        return np.stack(rows)

    def block(self, out: Array) -> FrameBlock:
        """The values of some steps."""

        def make() -> Any:
            rows = out.view(np.complex128) if self.complex else out
            return self.form.decode(rows.reshape(-1, *self.shape))

        return FrameBlock(len(out), make)


def march(
    problem: EvolutionProblem,
    form: ModalForm,
    weights: IntervalWeights,
    mesh: Array,
    history: ExponentialHistory | None,
) -> Iterator[FrameBlock]:
    """All steps, with direct sums where ``history`` is None."""
    kernels = importlib.import_module("hpfracc.solvers.pde.compiled.marching")
    flat = _Flat(problem, form)
    times = mesh[:-1] + float(weights.sigma) * np.diff(mesh)
    if history is None:
        return _march_direct(kernels, flat, weights, times)
    return _march_exponentials(kernels, flat, weights, times, history)


def _march_direct(kernels: Any, flat: _Flat, weights: IntervalWeights, times: Array) -> Iterator[FrameBlock]:
    steps = len(times)
    alphas = np.array([float(alpha) for _, alpha in weights.orders])
    coefficients = np.array([float(c) for c, _ in weights.orders])
    scales = np.array([0.0 if alpha == 1.0 else 1.0 / math.gamma(1.0 - alpha) for alpha in alphas])
    past = np.empty((steps, flat.u.size))
    sigma = float(weights.sigma)

    def made(first: int, stop: int) -> Array:
        found: Array = kernels.weight_rows(
            coefficients, alphas, scales, weights.mesh, sigma, weights.parabola, first, stop
        )
        return found

    rows_of: Callable[[int, int], Array] = made
    lengths = weights.steps
    if not weights.parabola and float(np.ptp(lengths)) <= 1e-12 * float(lengths.mean()):
        # Weights of the distance alone: those of the last row.
        rows_of = _shifted(made(steps, steps + 1)[0])
    for first in range(1, steps + 1, _BLOCK):
        stop = min(first + _BLOCK, steps + 1)
        rows = rows_of(first, stop)
        far = rows[:, : first - 1] @ past[: first - 1]  # zeros for the first block
        out = np.empty((stop - first, flat.u.size))
        known = flat.known(times[first - 1 : stop - 1])
        kernels.march_direct(rows, first, far, past, flat.symbol, known, sigma, flat.u, out)
        yield flat.block(out)


def _shifted(newest: Array) -> Callable[[int, int], Array]:
    """Rows of a Toeplitz matrix from its last one."""
    padded = np.concatenate([newest, np.zeros(_BLOCK)])
    steps = len(newest)

    def rows(first: int, stop: int) -> Array:
        return np.stack([padded[steps - n : steps - n + stop - 1] for n in range(first, stop)])

    return rows


def _march_exponentials(
    kernels: Any, flat: _Flat, weights: IntervalWeights, times: Array, history: ExponentialHistory
) -> Iterator[FrameBlock]:
    steps = len(times)
    states = np.zeros((len(history.rates), flat.u.size))
    last, pending = np.zeros_like(flat.u), np.zeros_like(flat.u)
    own, before = history.newest
    before = np.broadcast_to(np.asarray(before, dtype=np.float64), own.shape)
    for first in range(1, steps + 1, TABLE_STEPS):
        stop = min(first + TABLE_STEPS, steps + 1)
        decay, p, q, g, alive = history.table(first, stop)
        states = states[: max(1, int(alive.max(initial=0)))]
        out = np.empty((stop - first, flat.u.size))
        kernels.march_exponentials(
            states,
            decay,
            p,
            q,
            g,
            alive,
            own[first - 1 : stop - 1],
            np.ascontiguousarray(before[first - 1 : stop - 1]),
            first,
            steps,
            flat.symbol,
            flat.known(times[first - 1 : stop - 1]),
            float(weights.sigma),
            weights.parabola,
            flat.u,
            last,
            pending,
            out,
        )
        yield flat.block(out)
