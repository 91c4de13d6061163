"""PECE over blocks of steps on tensors, differentiable in O(N d) memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from hpfracc._arrays import tracks_gradient
from hpfracc.solvers.ode._progress import Report
from hpfracc.solvers.ode.tensors.on_torch.history import SegmentSums
from hpfracc.solvers.ode.tensors.weights import Weights

__all__ = ["solve_pece"]

#: Steps of a block: within it each step sums over the steps before it, once for all between blocks.
BLOCK = 64


def solve_pece(
    fun: Callable[[float, torch.Tensor], torch.Tensor],
    t0: float,
    step: float,
    steps: int,
    initial: list[torch.Tensor],
    weights: Weights,
    corrections: int,
    report: Report,
) -> torch.Tensor:
    """All states, shape (steps + 1, ..., d), or fewer where the user broke it off.

    Where autograd records, each block is run again during the backward pass (checkpointing) from what it was given:
    nothing but states and values of the right-hand side is kept between. ``torch.func`` and forward mode go through
    the same steps without that.
    """
    f0 = fun(t0, initial[0]).clone()  # the function may return the same tensor each time
    seen = [f0, *initial, *weights]
    wrapped = any(torch._C._functorch.is_functorch_wrapped_tensor(each) for each in seen)
    tracked = torch.is_grad_enabled() and not wrapped and any(each.requires_grad for each in seen)
    block = _Block(fun, t0, step, initial, weights, corrections, any(map(tracks_gradient, seen)))
    sums = SegmentSums([weights.predictor, weights.corrector])
    count = -(-(steps + 1) // BLOCK)
    pending: list[torch.Tensor | None] = [None] * count  # what earlier blocks add to each, of shape (2, BLOCK, ...)
    states: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    for number in range(count):
        length = min(BLOCK, steps + 1 - number * BLOCK)
        given = pending[number]
        pending[number] = None
        try:
            y, f = (
                checkpoint(block, number * BLOCK, length, given, f0, use_reentrant=False)
                if tracked
                else block(number * BLOCK, length, given, f0)
            )
        except KeyboardInterrupt:
            if not states:
                raise
            break
        states.append(y)
        values.append(f)
        done = number + 1
        newest = y[-1].detach()
        report(t0 + (number * BLOCK + length - 1) * step, lambda newest=newest: newest)  # type: ignore[misc]
        if done == count:
            break
        # The largest power of two that divides the blocks done: as many are summed for as many to come.
        width = done & -done
        segment = values[done - width : done]
        if tracked:
            added = checkpoint(_segment_sums, sums, *segment, use_reentrant=False)
        else:
            added = _segment_sums(sums, *segment)
        for offset in range(min(width, count - done)):
            piece = added[:, offset * BLOCK : (offset + 1) * BLOCK]
            before = pending[done + offset]
            pending[done + offset] = piece if before is None else before + piece
    return torch.cat(states)


def _segment_sums(sums: SegmentSums, *segment: torch.Tensor) -> torch.Tensor:
    return sums(torch.cat(segment) if len(segment) > 1 else segment[0])


class _Block:
    """The steps of one block, given what the past adds to each."""

    def __init__(
        self,
        fun: Callable[[float, torch.Tensor], torch.Tensor],
        t0: float,
        step: float,
        initial: list[torch.Tensor],
        weights: Weights,
        corrections: int,
        apart: bool,
    ) -> None:
        self.fun, self.t0, self.step, self.initial = fun, t0, step, initial
        self.weights, self.corrections, self.apart = weights, corrections, apart
        self.reversed = torch.stack([each[1 : BLOCK + 1].flip(0) for each in weights[:2]])

    def __call__(
        self, begin: int, length: int, given: torch.Tensor | None, f0: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        states: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        # Values that carry a derivative stay apart; others are written into one block of memory.
        store = None if self.apart else f0.new_empty((length, *f0.shape))
        for index in range(length):
            n = begin + index
            if n == 0:
                y, f = self.initial[0].to(f0.dtype), f0
            else:
                y, f = self._step(n, index, given, f0, values, store)
            states.append(y)
            values.append(f)
            if store is not None:
                store[index] = f
        return torch.stack(states), torch.stack(values) if store is None else store

    def _step(
        self,
        n: int,
        index: int,
        given: torch.Tensor | None,
        f0: torch.Tensor,
        values: list[torch.Tensor],
        store: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        t = self.t0 + n * self.step
        base = self._start(n)
        predicted, known = base, base + self.weights.first[n] * f0
        if given is not None:
            predicted, known = predicted + given[0, index], known + given[1, index]
        if index:
            past = torch.stack(values) if store is None else store[:index]
            recent = self._recent(index, past)
            predicted, known = predicted + recent[0], known + recent[1]
        newest = self.weights.corrector[0]
        y = predicted
        for _ in range(self.corrections):
            y = known + newest * self.fun(t, y)
        return y, self.fun(t, y)

    def _recent(self, index: int, past: torch.Tensor) -> torch.Tensor:
        """``sum_j w[index - j] f[j]`` over the steps of this block, for both sequences."""
        rows = self.reversed[:, self.reversed.shape[1] - index :]
        if rows.ndim == 2:
            flat = past.reshape(index, -1)
            return (rows.to(flat.dtype) @ flat).reshape(2, *past.shape[1:])
        return (rows.reshape(2, index, *(1,) * (past.ndim + 1 - rows.ndim), *rows.shape[2:]) * past).sum(1)

    def _start(self, n: int) -> torch.Tensor:
        total = self.initial[0]
        for number, value in enumerate(self.initial[1:], start=1):
            total = total + value * ((n * self.step) ** number / math.factorial(number))
        return total
