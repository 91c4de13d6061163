r"""The gradient of a fixed-step solve as the exact transpose of its steps, from stored states.

For PECE the steps are :math:`p_n = T_n + \sum_{j<n} b_{n-j} f_j` and
:math:`y_n = T_n + c_n f_0 + \sum_{j<n} a_{n-j} f_j + a_0 f(p_n)`. With g the gradient in the solution, backwards in n,

.. math::
    \bar f_n &= \sum_{m>n} (a_{m-n} \bar y_m + b_{m-n} \bar p_m), \\
    \bar y_n &= g_n + f_y(y_n)^T \bar f_n, \quad \bar p_n = a_0 f_y(p_n)^T \bar y_n,

history sums in reversed time. Other rules have fewer or other terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.correlations import correlations
from hpfracc.solvers.ode.tensors.on_torch.history import SegmentSums, workspace
from hpfracc.solvers.ode.tensors.on_torch.leaves import Leaves
from hpfracc.solvers.ode.tensors.on_torch.matrices import BlockMatrices, fit_matrices
from hpfracc.solvers.ode.tensors.on_torch.newton import solve_transposed
from hpfracc.solvers.ode.tensors.on_torch.once import differentiable_once
from hpfracc.solvers.ode.tensors.rule import Sums, TensorRule

__all__ = ["StoredSolve", "solve_stored"]

#: Largest state for which the gradients of the parameters are computed for all points of a block together on the host.
#: The activations of larger states do not fit into the cache. Cost over bare evaluations, together and separately: 9.6
#: and 10.3 at a batch of 64, 11.8 and 10.5 at 256, 12.4 and 9.3 at 1024 (benchmarks/results/neural_fode.txt).
_MAX_TOGETHER = 1024

Function = Callable[[Any, torch.Tensor], torch.Tensor]
#: ``forward(initial, sums, points)`` gives all states without derivatives, and fills ``points`` with the predictions.
Forward = Callable[[list[torch.Tensor], Sums, torch.Tensor | None], torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class StoredSolve:
    """Data shared by the forward and the backward pass.

    Attributes
    ----------
    fun, jacobian : callables
        ``f(t, y)`` and its derivative in y, or None.
    rule : TensorRule
        The rule of the steps.
    t0, step, steps, block
        The grid, and the steps of a block.
    forward : callable
        Runs the steps without derivatives.
    found : Leaves
        What ``fun`` depends on besides y; complete after ``forward``.
    buffers : Buffers
        Those of the modules that ``fun`` calls.
    """

    fun: Function
    jacobian: Function | None
    rule: TensorRule
    t0: float
    step: float
    steps: int
    block: int
    forward: Forward
    found: Leaves
    buffers: Buffers

    @property
    def leaves(self) -> list[torch.Tensor]:
        """What ``fun`` depends on besides y, as it sees it."""
        return self.found.seen

    def time(self, n: int) -> float:
        """Of step n."""
        return self.t0 + n * self.step

    @property
    def predictions(self) -> int:
        """Number of points besides y_n at which a step evaluates ``fun``."""
        return self.rule.corrections if self.rule.name == "pece" else 0


def solve_stored(plan: StoredSolve, initial: list[torch.Tensor], sums: Sums) -> torch.Tensor:
    """All states, with gradients of the initial values, the weights and ``plan.leaves``."""
    if initial[0].is_complex():
        raise InvalidInputError("adjoint='stored' takes real states; use adjoint='recomputed' for complex ones")
    given = [*initial, *sums.sequences, *(each for each in (sums.first, sums.newest) if each is not None)]
    with torch.no_grad():
        points = None
        if plan.predictions:
            points = initial[0].new_empty((plan.predictions, plan.steps + 1, *initial[0].shape))
        kept = [plan.forward(initial, sums, points), points]
    plan.found.check_stored()  # of all steps now
    states: torch.Tensor = _Stored.apply(plan, len(initial), kept, *given, *plan.found.given)
    return states


class _Stored(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, plan: StoredSolve, count: int, kept: list[torch.Tensor | None], *given: torch.Tensor
    ) -> torch.Tensor:
        states, points = kept
        ctx.plan, ctx.count = plan, count
        ctx.save_for_backward(states, points, *given)
        assert states is not None
        return states

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        states, points, *given = ctx.saved_tensors

        def gradients() -> list[torch.Tensor | None]:
            with ctx.plan.buffers.unchanged():
                return _Stored.transposed(ctx, grad, states, points, given)

        return tuple(differentiable_once(gradients, [*given, grad], "use adjoint='recomputed'"))

    @staticmethod
    def transposed(
        ctx: Any, grad: torch.Tensor, states: torch.Tensor, points: torch.Tensor | None, given: list[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Gradients in all that was given."""
        initial, sums = _unpacked(ctx.plan, ctx.count, given)
        wanted = any(ctx.needs_input_grad[3 + ctx.count : 3 + len(given) - len(ctx.plan.leaves)])
        plan = ctx.plan
        count, parameters = plan.block * (1 + plan.predictions), sum(each.numel() for each in plan.leaves)
        found = None
        if not plan.rule.implicit and fit_matrices(states[0], count, parameters):
            found = _BackwardPass(plan, initial, sums, states, points, wanted, True).run(grad)
        if found is None:
            found = _BackwardPass(plan, initial, sums, states, points, wanted, False).run(grad)
        assert found is not None
        return [None, None, None, *found]


def _unpacked(plan: StoredSolve, count: int, given: Iterable[torch.Tensor]) -> tuple[list[torch.Tensor], Sums]:
    tensors = list(given)
    kinds = 2 if plan.rule.name == "pece" else 1
    rest = tensors[count + kinds : len(tensors) - len(plan.leaves)]
    first, newest = rest if plan.rule.name in ("pece", "implicit_trapezoid") else (None, *rest, None)[:2]
    return tensors[:count], Sums(tuple(tensors[count : count + kinds]), first, newest)


class _BackwardPass:
    """One backward pass. Time is reversed: index r belongs to step n = N - r."""

    def __init__(
        self,
        plan: StoredSolve,
        initial: list[torch.Tensor],
        sums: Sums,
        states: torch.Tensor,
        points: torch.Tensor | None,
        weights_wanted: bool,
        matrices: bool,
    ) -> None:
        self.plan, self.initial, self.sums, self.states, self.points = plan, initial, sums, states, points
        self.wanted = weights_wanted
        self.kinds = len(sums.sequences)
        self.values = torch.zeros_like(states) if weights_wanted else None
        self.newest_bar = None if sums.newest is None else torch.zeros_like(sums.newest)
        self.leaves_bar: list[torch.Tensor | None] = [None] * len(plan.leaves)
        mapped = (bool(plan.leaves) or matrices) and self._can_be_mapped()
        self.mapped = bool(plan.leaves) and mapped and (states.is_cuda or states[0].numel() <= _MAX_TOGETHER)
        self.matrices, self.possible = matrices and mapped, mapped or not matrices
        self.apart = states.new_zeros(())  # maximum deviation of matrices from gradients
        # Deferred to one evaluation of a whole block: times, points and gradients of the values there.
        self.later: list[tuple[float, torch.Tensor, torch.Tensor]] = []

    def run(self, grad: torch.Tensor) -> list[torch.Tensor | None] | None:
        """Gradients of the initial values, the weights and the leaves; None if the matrices are not valid."""
        if not self.possible:
            return None
        plan, count, shape = self.plan, self.plan.steps + 1, self.states.shape[1:]
        columns = self.states[0].numel()
        sums_bar = self.states.new_zeros((count, self.kinds, *shape))  # by r
        flat = sums_bar.view(count * self.kinds, columns)
        segments = [SegmentSums([each]) for each in self.sums.sequences]
        rows = _rows(self.sums.sequences, plan.block)
        pending: dict[int, torch.Tensor] = {}
        blocks = -(-count // plan.block)
        value_bar = torch.zeros_like(self.states[0])
        for number in range(blocks):
            begin, end = number * plan.block, min((number + 1) * plan.block, count)
            given = pending.pop(number, None)
            if self.matrices:
                value_bar = self._block_by_matrices(rows, flat, sums_bar, given, begin, end, grad)
                if not number and not bool(self.apart <= 1.0):
                    return None
            else:
                for r in range(begin, end):
                    value_bar = self._value_bar(rows, flat, sums_bar, given, begin, r)
                    if r < plan.steps:
                        self._step(plan.steps - r, value_bar, grad, sums_bar[r])
                self._settle()
            if end == count:
                break
            width = (number + 1) & -(number + 1)
            stop = min(number + 1 + width, blocks)
            for later in range(number + 1, stop):
                if later not in pending:
                    length = min(plan.block, count - later * plan.block)
                    pending[later] = self.states.new_zeros((1, length, *shape))
            pieces = [pending[later] for later in range(number + 1, stop)]
            for kind, each in enumerate(segments):
                each.add_to(pieces, sums_bar[end - width * plan.block : end, kind])
        if self.matrices and not bool(self.apart <= 1.0):
            return None
        return self._finish(grad, value_bar, sums_bar)

    def _block_by_matrices(
        self,
        rows: torch.Tensor,
        flat: torch.Tensor,
        sums_bar: torch.Tensor,
        given: torch.Tensor | None,
        begin: int,
        end: int,
        grad: torch.Tensor,
    ) -> torch.Tensor:
        """All steps of a block; returns the last gradient of a value, which is that of f_0 at the end."""
        plan, newest, states = self.plan, self.sums.newest, self.states
        low, high = max(plan.steps - end + 1, 1), plan.steps - begin  # steps low .. high, from the last to the first
        evaluated = min(high, plan.steps - 1)  # the value at the last step is not used
        ends = max(evaluated - low + 1, 0)
        place = [states[low : evaluated + 1]]
        times = [plan.time(n) for n in range(low, evaluated + 1)]
        for i in range(plan.predictions):
            assert self.points is not None
            place.append(self.points[i, low : high + 1])
            times += [plan.time(n) for n in range(low, high + 1)]
        value_bar = torch.zeros_like(states[0])
        block = BlockMatrices(plan.fun, states.new_tensor(times), torch.cat(place)) if times else None
        d, size = states.shape[-1], max(high - low + 1, 0)
        at_ends = () if block is None else block.matrices[:ends].unbind(0)
        at_points = []
        if plan.predictions and block is not None:
            assert newest is not None
            factor = newest if not newest.ndim else newest.expand(states.shape[1:]).reshape(-1, d, 1)
            at_points = [(factor * each).unbind(0) for each in block.matrices[ends:].split(size)]
        slopes = grad[low : high + 1].reshape(size, states[0].numel() // d, 1, d).unbind(0)
        outs = sums_bar.view(*sums_bar.shape[:2], states[0].numel() // d, 1, d)
        ends_bar: list[torch.Tensor] = []
        points_bar: list[list[torch.Tensor]] = [[] for _ in range(plan.predictions)]
        for r in range(begin, end):
            value_bar = self._value_bar(rows, flat, sums_bar, given, begin, r)
            n = plan.steps - r
            if not n:
                break
            first, last = outs[r, 0], outs[r, -1]
            if n < plan.steps:
                ends_bar.append(value_bar)
                torch.baddbmm(slopes[n - low], value_bar.reshape(-1, 1, d), at_ends[n - low], out=last)
            else:
                last.copy_(slopes[n - low])
            bar = last
            for i in range(plan.predictions - 1, -1, -1):
                points_bar[i].append(bar.clone() if plan.predictions > 1 else bar)
                bar = torch.bmm(bar, at_points[i][n - low], out=None if i else first)
                if i:
                    last += bar
        if block is None:
            return value_bar
        bars = [torch.stack(ends_bar[::-1])] if ends_bar else []
        for each in points_bar:
            assert newest is not None
            bars.append(newest * torch.stack(each[::-1]).view(size, *states.shape[1:]))
        found, apart = block.settle(torch.cat(bars), plan.leaves)
        self._add_leaves(found)
        self.apart = torch.maximum(self.apart, apart)
        values = block.values.detach()
        if self.values is not None:
            self.values[low : evaluated + 1] = values[:ends]
        if self.wanted and points_bar:
            for each, value in zip(points_bar, values[ends:].split(size), strict=True):
                self._add_newest((torch.stack(each[::-1]).view(value.shape) * value).sum(0))
        return value_bar

    def _value_bar(
        self,
        rows: torch.Tensor,
        flat: torch.Tensor,
        sums_bar: torch.Tensor,
        given: torch.Tensor | None,
        begin: int,
        r: int,
    ) -> torch.Tensor:
        """The gradient of f_n: contributions of later blocks and of the steps of this one."""
        index, shape = r - begin, self.states.shape[1:]
        total = None if given is None else given[0, index]
        if not index:
            return torch.zeros_like(self.states[0]) if total is None else total
        row = rows[(rows.shape[0] - index * self.kinds) :]
        if rows.ndim == 1:
            past = flat[begin * self.kinds : r * self.kinds]
            if total is None:
                return (row[None] @ past).view(shape)
            return torch.addmm(total.reshape(1, -1), row[None], past).view(shape)
        past = sums_bar[begin:r].reshape(index * self.kinds, *shape)
        row = row.reshape(row.shape[0], *(1,) * (past.ndim - row.ndim), *row.shape[1:])
        recent = (row * past).sum(0)
        return recent if total is None else recent + total

    def _step(self, n: int, value_bar: torch.Tensor, grad: torch.Tensor, out: torch.Tensor) -> None:
        plan, rule, t = self.plan, self.plan.rule, self.plan.time(n)
        newest, state = self.sums.newest, self.states[n]
        if rule.implicit:
            evaluate = partial(plan.fun, t)
            slopes = None if plan.jacobian is None else partial(plan.jacobian, t)
            found = solve_transposed(evaluate, slopes, state, newest, value_bar, grad[n])
            out[0] = found
            value = self._vjp(t, state, value_bar + newest * found, only_leaves=True)[0]
            self._note(n, value, found)
            return
        bar = grad[n]
        if n < plan.steps:  # the value at the last step is not used
            value, back = self._vjp(t, state, value_bar)
            if self.values is not None:
                self.values[n] = value
            bar = bar + back if back is not None else bar
        if rule.name == "explicit_rectangle":
            out[0] = bar
            return
        assert self.points is not None and newest is not None
        total: torch.Tensor | None = None
        for i in range(plan.predictions - 1, -1, -1):
            total = bar if total is None else total + bar
            value, back = self._vjp(t, self.points[i, n], newest * bar)
            if self.wanted:
                self._add_newest(bar * value)
            bar = torch.zeros_like(bar) if back is None else back
        out[0], out[1] = bar, total

    def _note(self, n: int, value: torch.Tensor, bar: torch.Tensor) -> None:
        if self.wanted:
            assert self.values is not None
            self.values[n] = value
            self._add_newest(bar * value)

    def _add_newest(self, product: torch.Tensor) -> None:
        assert self.newest_bar is not None
        self.newest_bar += product.sum() if not self.newest_bar.ndim else product.sum_to_size(self.newest_bar.shape)

    def _vjp(
        self, t: float, point: torch.Tensor, bar: torch.Tensor, only_leaves: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The value and the gradient at a point. Gradients of the leaves are added now or with the block."""
        now = bool(self.plan.leaves) and not self.mapped
        if self.mapped:
            self.later.append((t, point, bar))
        if only_leaves and not now:
            with torch.no_grad():
                return self.plan.fun(t, point), None
        with torch.enable_grad():
            place = point.detach().requires_grad_()
            value = self.plan.fun(t, place)
        if not value.requires_grad:
            return value.detach(), None
        wanted = [place, *self.plan.leaves] if now else [place]
        back, *rest = torch.autograd.grad(value, wanted, bar, allow_unused=True)
        if now:
            self._add_leaves(rest)
        return value.detach(), back

    def _add_leaves(self, found: Iterable[torch.Tensor | None]) -> None:
        for place, each in enumerate(found):
            if each is not None:
                earlier = self.leaves_bar[place]
                # A clone: the gradient of a sum is the tensor that was given.
                self.leaves_bar[place] = each.clone() if earlier is None else earlier.add_(each)

    def _settle(self) -> None:
        """Gradients of the leaves for a whole block, by one evaluation of all its points."""
        if not self.later:
            return
        times = self.states.new_tensor([each[0] for each in self.later])
        points = torch.stack([each[1] for each in self.later])
        bars = torch.stack([each[2] for each in self.later])
        self.later.clear()
        with torch.enable_grad():
            values = torch.func.vmap(self.plan.fun)(times, points)
        if values.requires_grad:
            self._add_leaves(torch.autograd.grad(values, self.plan.leaves, bars, allow_unused=True))

    def _can_be_mapped(self) -> bool:
        """Whether ``fun`` of several points at once equals its values at each."""
        plan = self.plan
        places = [1, (plan.steps + 1) // 2, plan.steps]
        try:
            with torch.no_grad():
                times = self.states.new_tensor([plan.time(n) for n in places])
                together = torch.func.vmap(plan.fun)(times, self.states[places])
                apart = torch.stack([plan.fun(plan.time(n), self.states[n]) for n in places])
        except Exception:
            # Any error of the user's function: it worked step by step.
            return False
        tolerance = 1e3 * torch.finfo(apart.dtype).eps
        return bool(torch.allclose(together, apart, rtol=tolerance, atol=tolerance * float(apart.abs().max())))

    def _finish(self, grad: torch.Tensor, value_bar: torch.Tensor, sums_bar: torch.Tensor) -> list[torch.Tensor | None]:
        """Gradients at the start; ``value_bar`` is the contribution of the convolutions to f_0."""
        plan, sums, steps = self.plan, self.sums, self.plan.steps
        shape = self.states.shape[1:]
        # For steps N .. 1. Matrix products, so that no array of the length of the solution is created.
        whole = sums_bar.view(steps + 1, self.kinds, -1)[:steps]
        last = whole[:, -1]
        first_bar = None
        start_bar = grad[0].clone()
        if not plan.rule.starts_blind:
            if sums.first is not None:
                value_bar = value_bar + _weighed(sums.first[1:].flip(0), last, shape)
            value, back = self._vjp(plan.t0, self.initial[0], value_bar)
            self._settle()
            if back is not None:
                start_bar += back
            if self.values is not None:
                self.values[0] = value
                if sums.first is not None:
                    first_bar = torch.zeros_like(sums.first)
                    first_bar[1:] = _multiplied(last, value, sums.first.shape[1:]).flip(0)
        initial_bar: list[torch.Tensor | None] = [start_bar + whole.sum((0, 1)).view(shape)]
        times = plan.step * torch.arange(steps, 0, -1, dtype=grad.dtype, device=grad.device)
        for number in range(1, len(self.initial)):
            factors = times**number / math.factorial(number)
            initial_bar.append((factors @ whole.reshape(steps, -1)).view(self.kinds, *shape).sum(0))
        weights_bar: list[torch.Tensor | None] = [None] * self.kinds
        if self.values is not None:
            weights_bar = list(correlations(sums_bar, self.values, sums.sequences[0]))
        rest: list[torch.Tensor | None] = []
        if sums.first is not None:
            rest.append(first_bar)
        if sums.newest is not None:
            rest.append(self.newest_bar if self.wanted else None)
        return [*initial_bar, *weights_bar, *rest, *self.leaves_bar]


def _rows(sequences: tuple[torch.Tensor, ...], block: int) -> torch.Tensor:
    """Weights w_k[d], the largest distance first, with adjacent kinds; shape (block * K, ...)."""
    stacked = torch.stack([each[1 : block + 1] for each in sequences], 1).flip(0)
    return stacked.reshape(-1, *stacked.shape[2:])


def _stretches(rows: torch.Tensor) -> Iterable[slice]:
    """Ranges of rows that are processed together, to limit memory."""
    width = max(1, workspace(rows) // (8 * rows.element_size() * max(rows.shape[1], 1)))
    return [slice(begin, begin + width) for begin in range(0, rows.shape[0], width)]


def _weighed(weights: torch.Tensor, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """``sum_n weights[n] rows[n]`` for rows (N, columns) and weights of shape (N, ...) with the shape of the order."""
    if weights.ndim == 1:
        return (weights @ rows).view(shape)
    weights = weights.reshape(weights.shape[0], *(1,) * (len(shape) + 1 - weights.ndim), *weights.shape[1:])
    total = rows.new_zeros(shape)
    for part in _stretches(rows):
        total += (weights[part] * rows[part].view(-1, *shape)).sum(0)
    return total


def _multiplied(rows: torch.Tensor, value: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """``rows[n] * value``, summed to ``(N, ...)`` with the shape of the order."""
    if not len(shape):
        return rows @ value.reshape(-1)
    axes = (*(1,) * (value.ndim - len(shape)), *shape)
    found = []
    for part in _stretches(rows):
        product = rows[part].view(-1, *value.shape) * value
        found.append(product.sum_to_size((product.shape[0], *axes)).reshape(product.shape[0], *shape))
    return torch.cat(found)
