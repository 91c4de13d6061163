"""Blocks of steps on tensors, differentiable in O(N d) memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from hpfracc._arrays import is_transformed, tracks_gradient
from hpfracc._interrupts import raise_if_nested
from hpfracc._torch_transforms import is_wrapped
from hpfracc.solvers.ode.progress import Report
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.history import SegmentSums
from hpfracc.solvers.ode.tensors.on_torch.leaves import Bind, Leaves
from hpfracc.solvers.ode.tensors.on_torch.newton import check_members, solve_step
from hpfracc.solvers.ode.tensors.on_torch.recomputation import recomputed, surroundings_of
from hpfracc.solvers.ode.tensors.on_torch.stored import StoredSolve, solve_stored
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule

__all__ = ["solve_blocks"]

#: Steps of a block. Within a block each step sums over the previous ones; between blocks there is one sum for all.
BLOCK = 64


def solve_blocks(
    bind: Bind,
    rule: TensorRule,
    t0: float,
    step: float,
    steps: int,
    initial: list[torch.Tensor],
    sums: Sums,
    report: Report,
    known: list[torch.Tensor],
    buffers: Buffers,
) -> torch.Tensor:
    """All states, shape (steps + 1, ..., d), or fewer after an interrupt.

    Where autograd records, each block is run again during the backward pass from what it was given: nothing but states
    and values of the right-hand side is kept between. ``torch.func`` and forward mode go through the same steps without
    that. ``rule.adjoint`` ``"stored"`` has the steps transposed instead, ``"direct"`` leaves everything to autograd.

    ``known`` are the tensors of ``args``, and ``bind`` gives the right-hand side and its Jacobian with those or others.
    ``buffers`` are those of its modules; only the evaluations of the steps change them.
    """
    fun, jacobian = bind(known)
    # The function may return the same tensor each time.
    f0 = torch.zeros_like(initial[0]) if rule.starts_blind else fun(t0, initial[0]).clone()
    seen = [f0, *initial, *sums.sequences]
    if rule.starts_blind:  # its dependencies, which f0 would have shown
        with buffers.unchanged():
            seen.append(fun(t0 + step, initial[0]))
    buffers.leave_out_constants()
    wrapped = any(map(is_wrapped, seen))
    tracked = torch.is_grad_enabled() and not wrapped and any(each.requires_grad for each in seen)
    apart = any(map(tracks_gradient, seen))
    if tracked and rule.implicit:
        with buffers.unchanged():
            check_members(partial(fun, t0 + step), initial[0])
    leaves: Leaves | None = None
    if tracked and rule.adjoint != "direct":
        begin = t0 + step if rule.starts_blind else t0
        with buffers.unchanged():
            leaves = Leaves(bind, known, begin, initial[0], t0 + steps * step)
    if leaves is not None and rule.adjoint == "stored":
        leaves.check_stored()
        found, first = leaves, f0.detach()

        def forward(initial: list[torch.Tensor], sums: Sums, points: torch.Tensor | None) -> torch.Tensor:
            plain = _Block(found.fun, found.jacobian, rule, t0, step, initial, sums, False, False, points)
            return _in_place(plain, SegmentSums(list(sums.sequences)), steps, first, report, _PlainRecord())

        plan = StoredSolve(leaves.own, leaves.jacobian, rule, t0, step, steps, BLOCK, forward, leaves, buffers)
        return solve_stored(plan, initial, sums)
    block = _Block(fun, jacobian, rule, t0, step, initial, sums, apart, wrapped)
    record: _PlainRecord = _PlainRecord()
    if leaves is not None:
        # A graph from outside the function lives on in the nodes of a checkpoint; those carry forward mode, too.
        lasting = leaves.outside is not None or any(map(is_transformed, seen))
        record = _CheckpointedRecord(buffers) if lasting else _RecomputedRecord(leaves, buffers)
    segments = SegmentSums(list(sums.sequences))
    run = _with_derivatives if apart else _in_place
    return run(block, segments, steps, f0, report, record)


class _PlainRecord:
    """Blocks and sums as they are: autograd keeps everything, or nothing is asked for."""

    def block(
        self,
        block: _Block,
        begin: int,
        length: int,
        given: torch.Tensor | None,
        f0: torch.Tensor,
        before: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States and values of a block."""
        return block(begin, length, given, f0, before)

    def sums(self, segments: SegmentSums, reach: int, segment: list[torch.Tensor]) -> torch.Tensor:
        """What a segment of values adds to the steps after it."""
        return _segment_sums(segments, reach, *segment)


class _CheckpointedRecord(_PlainRecord):
    """Run again in the backward pass, with the nodes of their graphs kept."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers

    def block(
        self,
        block: _Block,
        begin: int,
        length: int,
        given: torch.Tensor | None,
        f0: torch.Tensor,
        before: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States and values of a block."""
        found: tuple[torch.Tensor, torch.Tensor] = checkpoint(
            block, begin, length, given, f0, before, use_reentrant=False, context_fn=self._contexts
        )
        return found

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Of the first run and of the second."""
        return nullcontext(), self._buffers.replayed()

    def sums(self, segments: SegmentSums, reach: int, segment: list[torch.Tensor]) -> torch.Tensor:
        """What a segment of values adds to the steps after it."""
        found: torch.Tensor = checkpoint(_segment_sums, segments, reach, *segment, use_reentrant=False)
        return found


class _RecomputedRecord(_PlainRecord):
    """Run again in the backward pass, from what they were given alone."""

    def __init__(self, leaves: Leaves, buffers: Buffers) -> None:
        self._leaves, self._buffers = leaves, buffers

    def block(
        self,
        block: _Block,
        begin: int,
        length: int,
        given: torch.Tensor | None,
        f0: torch.Tensor,
        before: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States and values of a block."""
        leaves, sums, count = self._leaves, block.sums, len(block.initial)
        kinds = len(sums.sequences)
        optional = [each is not None for each in (sums.first, sums.newest, given)]
        tensors = [each for each in (f0, *block.initial, *sums.sequences, sums.first, sums.newest, given)
                   if each is not None]  # fmt: skip

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            f0, initial, sequences = tensors[0], list(tensors[1 : 1 + count]), tensors[1 + count : 1 + count + kinds]
            rest = iter(tensors[1 + count + kinds :])
            first, newest, given = (next(rest) if there else None for there in optional)
            recorded = torch.is_grad_enabled()
            fun = leaves.own if recorded else leaves.fun
            own = _Block(fun, leaves.jacobian, block.rule, block.t0, block.step, initial,
                         Sums(sequences, first, newest), recorded, False)  # fmt: skip
            if recorded:
                return own(begin, length, given, f0, before)
            states, values = f0.new_empty((2, length, *f0.shape)).unbind(0)
            own.fill(begin, given, f0, before, states, values)
            return states, values

        with torch.no_grad():
            surroundings = surroundings_of(self._buffers, leaves.random, f0.device)
            found = run(*tensors)
        states, values = recomputed(
            run, found, tensors, (leaves.given, leaves.seen), surroundings, once=block.rule.implicit
        )
        return states, values

    def sums(self, segments: SegmentSums, reach: int, segment: list[torch.Tensor]) -> torch.Tensor:
        """What a segment of values adds to the steps after it."""
        kinds = len(segments.weights)

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor]:
            return (_segment_sums(SegmentSums(list(tensors[:kinds])), reach, *tensors[kinds:]),)

        tensors = [*segments.weights, *segment]
        with torch.no_grad():
            found = run(*tensors)
        return recomputed(run, found, tensors)[0]


def _with_derivatives(
    block: _Block, segments: SegmentSums, steps: int, f0: torch.Tensor, report: Report, record: _PlainRecord
) -> torch.Tensor:
    """Block after block, each result a tensor of its own."""
    count = -(-(steps + 1) // BLOCK)
    pending: list[torch.Tensor | None] = [None] * count  # history sums of each block, of shape (K, BLOCK, ...)
    states: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    for number in range(count):
        length = min(BLOCK, steps + 1 - number * BLOCK)
        given = pending[number]
        pending[number] = None
        before = states[-1][-1].detach() if states else block.initial[0].detach()
        try:
            y, f = record.block(block, number * BLOCK, length, given, f0, before)
        except KeyboardInterrupt:
            raise_if_nested()
            if not states:
                raise
            break
        states.append(y)
        values.append(f)
        done = number + 1
        newest = y[-1].detach()
        report(block.time(number * BLOCK + length - 1), lambda newest=newest: newest)
        if done == count:
            break
        # The largest power of two that divides the number of finished blocks. That number of blocks is summed for the
        # same number of later ones.
        width = done & -done
        segment = values[done - width : done]
        reach = min(width * BLOCK, steps + 1 - done * BLOCK)
        added = record.sums(segments, reach, segment)
        for offset, piece in enumerate(added.split(BLOCK, dim=1)):
            earlier = pending[done + offset]
            pending[done + offset] = piece if earlier is None else earlier + piece
    return torch.cat(states)


def _in_place(
    block: _Block, segments: SegmentSums, steps: int, f0: torch.Tensor, report: Report, record: _PlainRecord
) -> torch.Tensor:
    """The same without derivatives. Memory: states, values, and at most the same size of sums."""
    states, values = f0.new_empty((steps + 1, *f0.shape)), f0.new_empty((steps + 1, *f0.shape))
    kinds, count = len(segments.weights), -(-(steps + 1) // BLOCK)
    pending: dict[int, torch.Tensor] = {}
    before = block.initial[0].detach()
    for number in range(count):
        begin, end = number * BLOCK, min((number + 1) * BLOCK, steps + 1)
        try:
            block.fill(begin, pending.pop(number, None), f0, before, states[begin:end], values[begin:end])
        except KeyboardInterrupt:
            raise_if_nested()
            if not number:
                raise
            return states[:begin]
        before = states[end - 1]
        report(block.time(end - 1), lambda newest=before: newest)
        if end == steps + 1:
            break
        width = (number + 1) & -(number + 1)
        for later in range(number + 1, min(number + 1 + width, count)):
            if later not in pending:
                length = min(BLOCK, steps + 1 - later * BLOCK)
                pending[later] = f0.new_zeros((kinds, length, *f0.shape))
        pieces = [pending[later] for later in range(number + 1, min(number + 1 + width, count))]
        segments.add_to(pieces, values[end - width * BLOCK : end])
    return states


def _segment_sums(segments: SegmentSums, reach: int, *segment: torch.Tensor) -> torch.Tensor:
    return segments(torch.cat(segment) if len(segment) > 1 else segment[0], reach)


class _Block:
    """The steps of one block, given the history sums."""

    def __init__(
        self,
        fun: Callable[[float, torch.Tensor], torch.Tensor],
        jacobian: Callable[[float, torch.Tensor], torch.Tensor] | None,
        rule: TensorRule,
        t0: float,
        step: float,
        initial: list[torch.Tensor],
        sums: Sums,
        apart: bool,
        wrapped: bool,
        points: torch.Tensor | None = None,
    ) -> None:
        self.points = points  # storage of the predictions, of shape (corrections, N + 1, ...)
        self.fun, self.jacobian, self.rule, self.t0, self.step = fun, jacobian, rule, t0, step
        self.initial, self.sums, self.apart, self.wrapped = initial, sums, apart, wrapped
        self.rows: list[torch.Tensor] = []
        self.newest = sums.newest
        self.reversed = torch.stack([each[1 : BLOCK + 1].flip(0) for each in sums.sequences])

    def time(self, n: int) -> float:
        """Of step n."""
        return self.t0 + n * self.step

    def __call__(
        self, begin: int, length: int, given: torch.Tensor | None, f0: torch.Tensor, before: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States and values, each a new tensor."""
        states: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        known = self._known(begin, length, given, f0)
        for index in range(length):
            y, f = self.initial[0].to(f0.dtype), f0
            if begin + index:
                past = torch.stack(values) if index else None
                sums = [each[index] for each in known]
                y, f = self._step(begin + index, index, sums, past, states[-1].detach() if states else before)
            states.append(y)
            values.append(f)
        return torch.stack(states), torch.stack(values)

    def fill(
        self,
        begin: int,
        given: torch.Tensor | None,
        f0: torch.Tensor,
        before: torch.Tensor,
        states: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        """The same, written to ``states`` and ``values``, with few kernel launches per step."""
        count = states.shape[0]
        known = f0.new_empty((len(self.sums.sequences), count, *f0.shape))
        for each, value in zip(known, self._known(begin, count, given, f0), strict=True):
            each.copy_(value)
        kinds, columns = known.shape[0], f0.numel()
        flat, past = known.view(kinds, count, columns).unbind(1), values.view(count, columns)
        places, kept = states.unbind(0), values.unbind(0)
        sums_at = list(zip(*(each.unbind(0) for each in known.unbind(0)), strict=True))
        points_at = [each[begin : begin + count].unbind(0) for each in self.points] if self.points is not None else []
        shared = self.reversed.ndim == 2
        for index in range(count):
            n = begin + index
            if not n:
                states[0], values[0] = self.initial[0], f0
                before = places[0]
                continue
            if index and shared:
                flat[index].addmm_(self._rows(index, f0.dtype), past[:index])
            elif index:
                known[:, index] += self._recent(index, values[:index])
            before = self._advance(n, sums_at[index], before, places[index], [each[index] for each in points_at])
            kept[index].copy_(self.fun(self.time(n), before))

    def _rows(self, index: int, dtype: torch.dtype) -> torch.Tensor:
        """The weights of the previous ``index`` values, shape (K, index); computed once for all blocks."""
        if not self.rows:
            whole = self.reversed.to(dtype)
            width = whole.shape[1]
            self.rows = [whole[:, width - number :] for number in range(width + 1)]
            self.newest = None if self.sums.newest is None else self.sums.newest.to(dtype)
        return self.rows[index]

    def _known(self, begin: int, count: int, given: torch.Tensor | None, f0: torch.Tensor) -> list[torch.Tensor]:
        """The known part of each sum before the block, each of shape (count, ...)."""
        kinds = len(self.sums.sequences)
        base = self.initial[0].expand(count, *f0.shape)
        if len(self.initial) > 1:
            taus = self.step * torch.arange(begin, begin + count, dtype=f0.real.dtype, device=f0.device)
            for number, value in enumerate(self.initial[1:], start=1):
                factors = (taus**number / math.factorial(number)).reshape(-1, *(1,) * f0.ndim)
                base = base + value * factors
        known = [base] * kinds if given is None else [each + base for each in given]
        if self.sums.first is not None:
            first = self.sums.first[begin : begin + count]
            known[-1] = known[-1] + first.reshape(count, *(1,) * (f0.ndim + 1 - first.ndim), *first.shape[1:]) * f0
        return known

    def _advance(
        self,
        n: int,
        sums: tuple[torch.Tensor, ...],
        before: torch.Tensor,
        out: torch.Tensor,
        points: list[torch.Tensor],
    ) -> torch.Tensor:
        """The state at step n, written to ``out``, and the predictions to ``points`` if they are stored."""
        t = self.time(n)
        if self.rule.implicit:
            slopes = None if self.jacobian is None else partial(self.jacobian, t)
            out.copy_(solve_step(partial(self.fun, t), slopes, sums[0], self.sums.newest, before, False, self.wrapped))
        elif self.sums.newest is None:
            out.copy_(sums[0])
        else:
            y, known = sums
            assert self.newest is not None
            for number in range(self.rule.corrections):
                if points:
                    points[number].copy_(y)
                last = number == self.rule.corrections - 1
                value = self.fun(t, y)
                newest = self.newest if self.newest.dtype == value.dtype else self.newest.to(value.dtype)
                y = torch.addcmul(known, newest, value, out=out if last else None)
        return out

    def _step(
        self,
        n: int,
        index: int,
        known: list[torch.Tensor],
        past: torch.Tensor | None,
        before: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """State and value of step n, by the operations of ``fill``: they are the same to the last bit."""
        t = self.time(n)
        if past is not None and self.reversed.ndim == 2:
            rows = self.reversed[:, self.reversed.shape[1] - index :].to(past.dtype)
            flat = torch.stack([each.reshape(-1) for each in known])
            whole = torch.addmm(flat, rows, past.reshape(index, -1))
            known = [each.reshape(past.shape[1:]) for each in whole]
        elif past is not None:
            known = [each + recent for each, recent in zip(known, self._recent(index, past), strict=True)]
        y = known[0]
        if self.rule.implicit:
            slopes = None if self.jacobian is None else partial(self.jacobian, t)
            y = solve_step(partial(self.fun, t), slopes, y, self.sums.newest, before, self.apart, self.wrapped)
        elif self.sums.newest is not None:
            for _ in range(self.rule.corrections):
                value = self.fun(t, y)
                y = torch.addcmul(known[-1], self.sums.newest.to(value.dtype), value)
        return y, self.fun(t, y)

    def _recent(self, index: int, past: torch.Tensor) -> torch.Tensor:
        """``sum_j w[index - j] f[j]`` over the steps of this block, for each sequence of several orders."""
        rows = self.reversed[:, self.reversed.shape[1] - index :]
        kinds = rows.shape[0]
        return (rows.reshape(kinds, index, *(1,) * (past.ndim + 1 - rows.ndim), *rows.shape[2:]) * past).sum(1)
