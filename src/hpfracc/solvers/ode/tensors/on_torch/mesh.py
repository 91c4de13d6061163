"""Steps over a mesh on tensors, with derivatives, and the adaptive choice of a mesh without derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from hpfracc._arrays import tracks_gradient
from hpfracc._interrupts import raise_if_nested
from hpfracc._torch_transforms import is_wrapped
from hpfracc.history.states import Memory, moments
from hpfracc.solvers.ode.differences import DifferenceTables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.progress import Report
from hpfracc.solvers.ode.tensors import adams
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.newton import check_members, solve_step
from hpfracc.solvers.ode.tensors.tolerance import MAX_PASSES, Chosen, Tolerance, next_share

__all__ = ["choose_mesh", "solve_differences", "solve_on_mesh"]

Array = np.ndarray[Any, Any]
Function = Callable[[Any, torch.Tensor], torch.Tensor]

#: Number of steps that are recomputed together in the backward pass.
BLOCK = 16


class _Derivatives(NamedTuple):
    """Whether derivatives are needed, by autograd (then checkpointed) or by ``torch.func``."""

    through: bool
    tracked: bool
    wrapped: bool


def _derivatives(seen: list[torch.Tensor]) -> _Derivatives:
    wrapped = any(map(is_wrapped, seen))
    tracked = torch.is_grad_enabled() and not wrapped and any(each.requires_grad for each in seen)
    return _Derivatives(any(map(tracks_gradient, seen)), tracked, wrapped)


def solve_differences(
    name: str,
    fun: Function,
    jacobian: Function | None,
    t0: float,
    times: list[float] | None,
    y0: torch.Tensor,
    memory: Memory,
    tables: DifferenceTables,
    report: Report,
    buffers: Buffers,
) -> torch.Tensor:
    """All states of L1 or L2-1sigma, shape (N + 1, ..., d), or fewer after an interrupt.

    ``times`` are those of the equations as numbers; None if they depend on a differentiable order.
    """
    with buffers.unchanged():
        f0 = fun(t0, y0)
    buffers.leave_out_constants()
    kind = _derivatives([f0, y0, memory.weights, tables.weight])
    if kind.tracked:
        with buffers.unchanged():
            check_members(partial(fun, t0), y0)
    one = step_l1 if name == "l1" else step_l2_sigma
    columns = [each if each is None else each.unbind(0) for each in tables]
    count = int(tables.step.shape[0])

    def solve(t: Any, known: torch.Tensor, weight: torch.Tensor, guess: torch.Tensor) -> torch.Tensor:
        slopes = None if jacobian is None else partial(jacobian, t)
        return solve_step(partial(fun, t), slopes, known, weight, guess, kind.through, kind.wrapped)

    def block(first: int, stop: int, *carried: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for n in range(first, stop):
            row = DifferenceTables(*(each if each is None else each[n] for each in columns))
            row = row._replace(at=t0 + row.at if times is None else times[n])
            carried = one(torch, memory, solve, carried, row)
            found.append(carried[0])
        return torch.stack(found), *carried

    start = y0.to(torch.promote_types(y0.dtype, f0.dtype))
    states = start.new_zeros((1, int(memory.rates.shape[0]), *start.shape))
    return _walk(block, count, start, (start, torch.zeros_like(start), states), kind, report, buffers)


def _walk(
    block: Callable[..., tuple[torch.Tensor, ...]],
    count: int,
    start: torch.Tensor,
    carried: tuple[torch.Tensor, ...],
    kind: _Derivatives,
    report: Report,
    buffers: Buffers,
) -> torch.Tensor:
    """Run block after block; each is recomputed in the backward pass, which leaves ``buffers`` unchanged."""
    found = [start[None]]
    for first, stop in _stretches(count):
        try:
            if kind.tracked:
                made = checkpoint(
                    block, first, stop, *carried,
                    use_reentrant=False, context_fn=lambda: (nullcontext(), buffers.replayed()),
                )  # fmt: skip
            else:
                made = block(first, stop, *carried)
        except KeyboardInterrupt:
            raise_if_nested()
            break
        states, carried = made[0], tuple(made[1:])
        found.append(states)
        newest = states[-1].detach()
        report(stop / count, lambda newest=newest: newest)
    return torch.cat(found)


def _stretches(count: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, BLOCK):
        yield first, min(first + BLOCK, count)


def _tensors(rule: adams.StepArrays, like: torch.Tensor) -> adams.StepArrays:
    """The small arrays of a step on the device of the state."""
    real = like.real if like.is_complex() else like
    made = [torch.as_tensor(each, dtype=real.dtype, device=real.device) for each in rule[:-1]]
    return adams.StepArrays._make([*made, rule.row])


class _Search:
    """One pass over the interval that chooses steps and degrees by the tolerance."""

    def __init__(
        self, fun: Function, t0: float, initial: list[torch.Tensor], order: Array, memory: Memory,
        tolerance: Tolerance, share: float,
    ) -> None:  # fmt: skip
        self.fun, self.t0, self.initial, self.memory, self.tolerance = fun, t0, initial, memory, tolerance
        self.order, self.rgamma = order, np.vectorize(lambda a: 1.0 / math.gamma(a))(order)
        self.least, self.most = float(order.min()), float(order.max())
        self.share = share
        y = initial[0]
        self.atol = torch.as_tensor(tolerance.atol, dtype=memory.rates.dtype, device=y.device)
        f = fun(t0, y)
        states = y.new_zeros((len(initial), int(memory.rates.shape[0]), *y.shape))
        values = torch.cat([f[None], y.new_zeros((adams.NODES - 2, *y.shape))])
        self.past = adams.Past(y, values, states)
        self.error = adams.Error(states, torch.zeros_like(y))
        self.largest = y.abs()
        self.ratio = torch.zeros((), dtype=memory.rates.dtype, device=y.device)
        self.worst = torch.zeros_like(self.ratio)
        self.tau, self.lengths, self.count, self.degree, self.previous = 0.0, np.zeros(adams.NODES - 2), 1, 1, 1.0

    @property
    def time(self) -> float:
        """The time reached."""
        return self.t0 + self.tau

    def scale(self, y: torch.Tensor) -> torch.Tensor:
        bound = self.atol + self.tolerance.rtol * torch.maximum(self.past.y.abs(), y.abs())
        return bound * self.share

    def first_step(self, length: float) -> float:
        """A step whose first term is about the tolerance, as in ``Stepper``."""
        f, y = self.past.values[0], self.past.y
        scale, most, least = self.scale(y), 1e-3 * length, self.least
        size = float(adams.sizes(torch, f[None], scale)[0])
        step = most if size == 0.0 else min(most, (1e-2 / (self.share * self.tolerance.rtol * size)) ** (1.0 / least))
        step = max(step, self.tolerance.shortest)
        for _ in range(4):
            rise = torch.as_tensor(step**self.order / (self.order / self.rgamma), dtype=scale.dtype, device=y.device)
            end = adams.initial_polynomial(step, self.initial) + f * rise
            change = float(adams.sizes(torch, (self.fun(self.t0 + step, end) - f)[None], scale)[0])
            error = change * step**least / math.gamma(least + 2.0)
            if not math.isfinite(error):
                step = max(1e-3 * step, self.tolerance.shortest)
                continue
            if 0.05 <= error <= 1.0 or (error < 0.05 and step >= most):
                break
            step = min(max(step * (0.3 / max(error, 1e-12)) ** (0.5 / least), self.tolerance.shortest), most)
        return step

    def attempt(self, step: float, end: float) -> tuple[adams.Judged, Callable[[], adams.StepArrays]]:
        """Try a step; returns whether it is accepted, and its rule."""
        rule = adams.make_rule(
            np, self.order, self.rgamma, self.lengths, np.float64(step), self.count, np.int64(self.degree)
        )
        small = _tensors(rule, self.past.y)
        start = adams.initial_polynomial(end, self.initial)
        t = self.t0 + end
        y, f, change = adams.correct(torch, self.fun, self.memory, self.past, small, step, t, start)
        differences, terms = adams.terms_of(torch, small, self.past, f)
        felt = adams.sizes(torch, torch.cat([terms, change[None]]), self.scale(y))
        # The only synchronisation with the device in a step.
        *errors, moved, self.worst_so_far = torch.cat([felt, self.ratio[None]]).tolist()
        factor = (end / step) ** (self.most - 1.0) if self.most > 1.0 else 1.0
        found = adams.judge(
            np, factor * np.array(errors), moved, np.int64(self.degree), self.count, self.previous, self.least
        )

        def take() -> adams.StepArrays:
            integrals = moments(torch, self.memory, step)
            error, self.error = adams.propagate(
                torch, self.fun, self.memory, self.error, small, step, t, y, f, differences[rule.row],
                terms[rule.row], integrals,
            )  # fmt: skip
            self.past = adams.push(torch, self.memory, self.past, small, step, y, f, integrals)
            self.largest = torch.maximum(y.abs(), self.largest * (self.tau / end))
            bound = self.atol + self.tolerance.rtol * self.largest
            self.ratio = torch.maximum(self.ratio, (error.abs() / bound).max())
            self.worst = torch.maximum(self.worst, error.abs().max())
            self.lengths = np.concatenate([[step], self.lengths[:-1]])
            self.tau, self.count = end, min(self.count + 1, adams.NODES - 1)
            return rule

        return found, take


def choose_mesh(
    fun: Function,
    t0: float,
    initial: list[torch.Tensor],
    order: Array,
    memory: Memory,
    stops: Array,
    tolerance: Tolerance,
    report: Report,
) -> tuple[Chosen, torch.Tensor, list[adams.StepArrays]]:
    """Steps that meet the tolerance and end at each of ``stops``; the states there, and the rule of each step."""
    share, passes = tolerance.share, MAX_PASSES if tolerance.globally else 1
    for number in range(1, passes + 1):
        search = _Search(fun, t0, initial, order, memory, tolerance, share)
        chosen, states, rules = _pass(search, stops, math.inf if number == passes else 4.0, report)
        chosen = chosen._replace(passes=number)
        if chosen.message is not None and not chosen.hopeless:
            break
        if chosen.ratio <= 1.0:
            break
        share = next_share(share, chosen.ratio)
    return chosen, states, rules


def _pass(
    search: _Search, stops: Array, most_ratio: float, report: Report
) -> tuple[Chosen, torch.Tensor, list[adams.StepArrays]]:
    tolerance, length = search.tolerance, float(stops[-1])
    rules: list[adams.StepArrays] = []
    degrees: list[int] = []
    states, taus = [search.past.y], [0.0]
    message, hopeless, rejected, unsettled, at = None, False, 0, 0, 0
    step = tolerance.first_step or search.first_step(length)
    try:
        while at < len(stops):
            step = min(step, tolerance.max_step)
            left = float(stops[at]) - search.tau
            taken, clipped = step, step >= 0.5 * left
            if clipped:
                taken = left if step >= left * (1.0 - 1e-12) else 0.5 * left
            end = float(stops[at]) if taken == left else search.tau + taken
            if taken < 8.0 * tolerance.rounding * search.tau or step < 0.5 * tolerance.shortest:
                message = tolerance.too_short(search.time, taken, unsettled > 0.5 * rejected)
                break
            if len(rules) + rejected >= tolerance.max_steps:
                message = tolerance.too_many(search.time, unsettled > 0.25 * len(rules))
                break
            degree = search.degree
            found, take = search.attempt(taken, end)
            search.degree, search.previous = int(found.degree), float(found.previous)
            if not found.accept:
                rejected += 1
                unsettled += int(found.factor <= 0.5)
                step = taken * float(found.factor)
                continue
            rules.append(take())
            states.append(search.past.y)
            taus.append(end)
            degrees.append(degree)
            step = max(taken * float(found.factor), step if clipped else 0.0)
            at += int(taken == left)
            report(end, lambda: search.past.y)
            if search.worst_so_far > most_ratio:
                hopeless = True
                break
    except KeyboardInterrupt:
        raise_if_nested()
        if len(states) < 2:
            raise
        message = f"Interrupted at t = {search.time:g}: here is the solution up to then."
    ratio = float(search.ratio)
    chosen = Chosen(
        np.array(taus), np.array(degrees), ratio, float(search.worst), 1, rejected, message, hopeless,
        tuple(rules), message is not None and message.startswith("Interrupted"),
    )  # fmt: skip
    return chosen, torch.stack(states), rules


def solve_on_mesh(
    fun: Function,
    t0: float,
    initial: list[torch.Tensor],
    memory: Memory,
    weights: torch.Tensor,
    chosen: Chosen,
    report: Report,
    buffers: Buffers,
) -> torch.Tensor:
    """Repeat the same steps with derivatives; ``weights`` of shape (N, NODES, ...) are differentiable in the order."""
    y0 = initial[0]
    f0 = fun(t0, y0)
    buffers.leave_out_constants()
    kind = _derivatives([f0, *initial, memory.weights, weights])
    taus = chosen.taus
    lengths = np.diff(taus)
    real = memory.rates
    ahead = torch.as_tensor(np.stack([rule.ahead for rule in chosen.rules]), dtype=real.dtype, device=real.device)
    shapes = np.stack([rule.coefficients for rule in chosen.rules])
    shapes = torch.as_tensor(shapes, dtype=real.dtype, device=real.device)

    def block(first: int, stop: int, *carried: torch.Tensor) -> tuple[torch.Tensor, ...]:
        past, found = adams.Past(*carried), []
        for n in range(first, stop):
            step, end = float(lengths[n]), float(taus[n + 1])
            rule = adams.StepArrays(weights[n], ahead[n], shapes[n], None, None, None, None)
            start = adams.initial_polynomial(end, initial)
            y, f, _ = adams.correct(torch, fun, memory, past, rule, step, t0 + end, start)
            past = adams.push(torch, memory, past, rule, step, y, f)
            found.append(y)
        return torch.stack(found), *past

    values = torch.cat([f0[None], f0.new_zeros((adams.NODES - 2, *f0.shape))])
    states = f0.new_zeros((len(initial), int(memory.rates.shape[0]), *y0.shape))
    return _walk(block, len(lengths), y0.to(f0.dtype), (y0.to(f0.dtype), values, states), kind, report, buffers)
